//! Groups taken nodes into partitions.
use ort_ep::convex;

/// Groups of taken nodes that are connected and can be fused.
pub(super) fn connected(makers: &[Vec<usize>], taken: &[bool]) -> Vec<Vec<usize>> {
    let levels = convex::levels(makers, taken);
    let mut parts = Parts::new(makers.len());
    for (at, from) in makers.iter().enumerate().filter(|(at, _)| taken[*at]) {
        for &from in from.iter().filter(|&&from| taken[from] && levels[from] == levels[at]) {
            parts.join(at, from);
        }
    }
    parts.groups(taken)
}

/// Disjoint sets, each represented by its smallest member.
struct Parts(Vec<usize>);

impl Parts {
    fn new(len: usize) -> Self {
        Self((0..len).collect())
    }

    fn find(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }

    fn groups(mut self, taken: &[bool]) -> Vec<Vec<usize>> {
        let mut groups = vec![Vec::new(); taken.len()];
        for at in (0..taken.len()).filter(|&at| taken[at]) {
            groups[self.find(at)].push(at);
        }
        groups.retain(|group| !group.is_empty());
        groups
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unconnected_nodes_are_separate_groups() {
        let makers = [vec![], vec![], vec![0], vec![1]];
        assert_eq!(connected(&makers, &[true; 4]), [vec![0, 2], vec![1, 3]]);
    }

    /// Graphs in topological order, with some nodes taken.
    fn graphs() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<bool>)> {
        (1..14_usize).prop_flat_map(|len| {
            let makers: Vec<_> = (0..len).map(|at| prop::collection::vec(0..at.max(1), 0..3.min(at + 1))).collect();
            let makers = makers.prop_map(|all: Vec<Vec<usize>>| {
                all.into_iter().enumerate().map(|(at, from)| from.into_iter().filter(|f| *f < at).collect()).collect()
            });
            (makers, prop::collection::vec(any::<bool>(), len))
        })
    }

    proptest! {
        #[test]
        fn fused_groups_never_form_a_cycle((makers, taken) in graphs()) {
            let groups = connected(&makers, &taken);
            let mut owner: Vec<usize> = (0..makers.len()).map(|at| groups.len() + at).collect();
            for (number, group) in groups.iter().enumerate() {
                group.iter().for_each(|&at| owner[at] = number);
            }
            prop_assert_eq!(groups.iter().flatten().count(), taken.iter().filter(|taken| **taken).count());
            // Merging each group into one node must leave an acyclic graph.
            let mut waits: Vec<Vec<usize>> = vec![Vec::new(); groups.len() + makers.len()];
            for (at, from) in makers.iter().enumerate() {
                waits[owner[at]].extend(from.iter().map(|&from| owner[from]).filter(|from| *from != owner[at]));
            }
            let mut done = vec![false; waits.len()];
            for _ in 0..waits.len() {
                for at in 0..waits.len() {
                    done[at] |= waits[at].iter().all(|&from| done[from]);
                }
            }
            prop_assert!(done.iter().all(|done| *done), "{:?} in {:?}", groups, makers);
        }
    }
}
