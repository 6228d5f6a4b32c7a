//! The compiled programs of a partition, by shapes.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::loaded::Loaded;

/// The state of one set of shapes.
pub(super) enum State {
    /// Not compiled yet.
    Empty,
    /// Compiled.
    Ready(Box<Loaded>),
    /// Compilation or the first run failed for this reason.
    Failed(String),
}

impl State {
    /// The state after a failure. Logs a warning.
    pub fn failed(reason: String, shapes: &[Vec<usize>]) -> Self {
        tracing::warn!(target: "amdgpu_ep::run", "a partition runs on the CPU for the shapes {shapes:?}: {reason}");
        Self::Failed(reason)
    }
}

/// A set of shapes. The thread that holds the lock compiles or runs; others with the same shapes wait.
pub(super) struct Slot(Mutex<State>);

impl Slot {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Shapes = Vec<Vec<usize>>;

/// The most recently used programs, at most `limit`.
pub(super) struct Programs {
    /// Most recently used first.
    slots: Mutex<Vec<(Shapes, Arc<Slot>)>>,
    limit: usize,
}

impl Programs {
    pub fn new(limit: usize) -> Self {
        Self { slots: Mutex::default(), limit }
    }

    /// The slot for these shapes. If another slot is evicted for it, that slot stays alive until its run ends.
    pub fn slot(&self, shapes: &[Vec<usize>]) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        match slots.iter().position(|(known, _)| known == shapes) {
            Some(0) => {}
            Some(at) => slots[..=at].rotate_right(1),
            None => {
                slots.insert(0, (shapes.to_vec(), Arc::new(Slot(Mutex::new(State::Empty)))));
                slots.truncate(self.limit);
            }
        }
        slots[0].1.clone()
    }

    /// True if there is a slot for these shapes.
    pub fn has(&self, shapes: &[Vec<usize>]) -> bool {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(known, _)| known == shapes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_shapes_are_evicted() {
        let programs = Programs::new(2);
        let shapes = |extent: usize| vec![vec![extent]];
        let first = programs.slot(&shapes(1));
        programs.slot(&shapes(2));
        assert!(Arc::ptr_eq(&first, &programs.slot(&shapes(1))));
        programs.slot(&shapes(3));
        assert!(programs.has(&shapes(1)) && !programs.has(&shapes(2)) && programs.has(&shapes(3)));
        assert!(!Arc::ptr_eq(&first, &programs.slot(&shapes(2))), "an evicted slot is empty");
    }
}
