//! Suites that take too long for every run: `cargo xtask test` runs one part, and the next commits run the others.
#![allow(clippy::panic, reason = "test helpers may panic")]

/// Names the part that is due: `1/3` is the second of three. Unset, everything is due.
pub const VARIABLE: &str = "AMDGPU_EP_TEST_PART";

/// The items that are due: all, or every third of them if there are three parts. At least one item is due, unless there
/// are none.
///
/// # Panics
/// If [`VARIABLE`] is not two numbers.
pub fn due<T>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    of(numbers(&variable()), items)
}

/// Whether the item of this name is due, whatever the other items are.
///
/// # Panics
/// If [`VARIABLE`] is not two numbers.
pub fn is_due(name: &str) -> bool {
    let (part, parts) = numbers(&variable());
    name.bytes().map(usize::from).sum::<usize>() % parts == part
}

fn variable() -> String {
    std::env::var(VARIABLE).unwrap_or_else(|_| "0/1".to_owned())
}

fn numbers(part: &str) -> (usize, usize) {
    let numbers = part.split_once('/').and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
    let Some((part, parts)) = numbers.filter(|&(_, parts): &(usize, usize)| parts > 0) else {
        panic!("{VARIABLE}={part}: expected PART/PARTS, such as 1/3");
    };
    (part, parts)
}

fn of<T>((part, parts): (usize, usize), items: impl IntoIterator<Item = T>) -> Vec<T> {
    let items: Vec<T> = items.into_iter().collect();
    let parts = parts.min(items.len().max(1));
    items.into_iter().skip(part % parts).step_by(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::{numbers, of};

    #[test]
    fn parts_are_disjoint_and_make_the_whole() {
        let parts = ["0/3", "1/3", "2/3"].map(|part| of(numbers(part), 0..7));
        assert_eq!(parts, [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
        assert_eq!(of((0, 1), 0..3), [0, 1, 2]);
    }

    #[test]
    fn every_part_has_an_item() {
        assert_eq!([of((0, 4), 0..2), of((3, 4), 0..2), of((2, 4), 0..1)], [vec![0], vec![1], vec![0]]);
        assert!(of((2, 4), 0..0).is_empty());
    }
}
