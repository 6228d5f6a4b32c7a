//! Which waiting sequence starts next: the one with the highest priority, the oldest among equals. A sequence that was
//! overtaken too often comes first, so that none waits forever.

/// How many later sequences may overtake a waiting one.
const PATIENCE: u32 = 32;

/// Waiting sequences.
#[derive(Debug)]
pub(super) struct Schedule<T> {
    entries: Vec<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    /// When it was submitted, as a number.
    order: u64,
    priority: i32,
    /// How many later ones started before it.
    overtaken: u32,
    item: T,
}

impl<T> Schedule<T> {
    pub fn new() -> Schedule<T> {
        Schedule { entries: Vec::new() }
    }

    /// Adds a sequence. Those of one request have the same `order`, and start in the order in which they are added.
    pub fn push(&mut self, order: u64, priority: i32, item: T) {
        self.entries.push(Entry { order, priority, overtaken: 0, item });
    }

    /// Takes the one that starts next, if a condition holds for it. Others do not start before it.
    pub fn pop_if(&mut self, mut condition: impl FnMut(&T) -> bool) -> Option<T> {
        let rank = |entry: &Entry<T>| {
            let is_overdue = entry.overtaken >= PATIENCE;
            // Overdue ones are ordered by age alone.
            (!is_overdue, if is_overdue { 0 } else { -i64::from(entry.priority) }, entry.order)
        };
        let next = (0..self.entries.len()).min_by_key(|&index| rank(&self.entries[index]))?;
        if !condition(&self.entries[next].item) {
            return None;
        }
        let Entry { order, item, .. } = self.entries.remove(next);
        for entry in self.entries.iter_mut().filter(|entry| entry.order < order) {
            entry.overtaken += 1;
        }
        Some(item)
    }

    /// Takes all that a condition holds for.
    pub fn extract(&mut self, condition: impl Fn(&T) -> bool) -> Vec<T> {
        self.entries.extract_if(.., |entry| condition(&entry.item)).map(|entry| entry.item).collect()
    }

    /// How many a condition holds for.
    pub fn count(&self, condition: impl Fn(&T) -> bool) -> usize {
        self.entries.iter().filter(|entry| condition(&entry.item)).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_priorities_start_in_the_order_of_submission() {
        let mut schedule = Schedule::new();
        for order in [0, 1, 1, 2] {
            schedule.push(order, 5, order);
        }
        assert_eq!(std::iter::from_fn(|| schedule.pop_if(|_| true)).collect::<Vec<_>>(), [0, 1, 1, 2]);
    }

    #[test]
    fn a_higher_priority_starts_first() {
        let mut schedule = Schedule::new();
        for (order, priority) in [(0, 0), (1, 7), (2, i32::MIN), (3, i32::MAX)] {
            schedule.push(order, priority, order);
        }
        assert_eq!(std::iter::from_fn(|| schedule.pop_if(|_| true)).collect::<Vec<_>>(), [3, 1, 0, 2]);
    }

    proptest! {
        #[test]
        fn no_sequence_is_overtaken_for_longer_than_its_patience(
            priorities in prop::collection::vec(-3i32..3, 1..200),
            flood in 0u64..200,
        ) {
            // Two new ones of the highest priority arrive for each one that starts.
            let mut schedule = Schedule::new();
            for (order, &priority) in priorities.iter().enumerate() {
                schedule.push(order as u64, priority, order as u64);
            }
            let (mut next, mut started) = (priorities.len() as u64, Vec::new());
            while let Some(order) = schedule.pop_if(|_| true) {
                started.push(order);
                for _ in 0..2 {
                    if next < priorities.len() as u64 + flood {
                        schedule.push(next, i32::MAX, next);
                        next += 1;
                    }
                }
            }
            for order in 0..next {
                let place = started.iter().position(|&other| other == order).unwrap();
                let overtaken = started[..place].iter().filter(|&&other| other > order).count();
                // Older overdue ones may start in between; they do not count as overtaking.
                prop_assert!(overtaken <= PATIENCE as usize, "{order} was overtaken by {overtaken}");
            }
        }
    }
}
