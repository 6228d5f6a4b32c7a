//! Suites that take too long for every run: each run executes one part, and the next commits execute the others.

use crate::shell;
use crate::workspace::Workspace;

/// Tells test programs which part is due: `testkit::part` reads it.
pub const VARIABLE: &str = "AMDGPU_EP_TEST_PART";

/// One part of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    pub part: usize,
    pub parts: usize,
}

impl Shard {
    /// Everything at once.
    pub const WHOLE: Self = Self { part: 0, parts: 1 };

    /// No items at all.
    pub const NOTHING: Self = Self { part: 1, parts: 1 };

    /// The part that is due at the checked-out commit; outside a git checkout always the same one. Different `offset`s
    /// make suites run different parts.
    pub fn due(workspace: &Workspace, parts: usize, offset: usize) -> Self {
        let mut git = std::process::Command::new("git");
        let count = shell::capture(git.current_dir(workspace.root()).args(["rev-list", "--count", "HEAD"]));
        let commits: usize = count.ok().and_then(|count| count.trim().parse().ok()).unwrap_or_default();
        Self { part: (commits + offset) % parts, parts }
    }

    /// The items of this part.
    pub fn of<T>(self, items: Vec<T>) -> Vec<T> {
        items.into_iter().enumerate().filter(|(at, _)| at % self.parts == self.part).map(|(_, item)| item).collect()
    }

    /// Whether there are other parts.
    pub fn is_part(self) -> bool {
        self.parts > 1
    }

    /// For a test program: `1/3`, where parts count from 0.
    pub fn variable(self) -> String {
        format!("{}/{}", self.part, self.parts)
    }

    /// For the table, after other text: `; part 2 of 3`, or nothing for the whole.
    pub fn note(self) -> String {
        if self.is_part() { format!("; part {} of {}", self.part + 1, self.parts) } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_make_the_whole() {
        let parts: Vec<Vec<usize>> = (0..3).map(|part| Shard { part, parts: 3 }.of((0..10).collect())).collect();
        assert_eq!(parts, [vec![0, 3, 6, 9], vec![1, 4, 7], vec![2, 5, 8]]);
        assert_eq!(Shard { part: 1, parts: 3 }.note(), "; part 2 of 3");
        assert_eq!((Shard::WHOLE.of(vec![1, 2, 3]), Shard::WHOLE.note()), (vec![1, 2, 3], String::new()));
        assert!(Shard::NOTHING.of(vec![1, 2, 3]).is_empty());
    }

    #[test]
    fn offsets_take_different_parts() {
        let due = |offset| Shard::due(&Workspace::locate(), 3, offset).part;
        let mut parts = [due(0), due(1), due(2)];
        parts.sort_unstable();
        assert_eq!(parts, [0, 1, 2]);
    }
}
