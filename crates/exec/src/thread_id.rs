//! Which thread this is.
use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

/// A thread, by a number that no other one gets.
///
/// The standard library's own takes memory on the heap for every thread that asks. A library of which a thread is not its
/// own can't give that back before it is unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(u64);

impl ThreadId {
    /// The calling thread.
    pub fn current() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            static NUMBER: Cell<u64> = const { Cell::new(0) };
        }
        if NUMBER.get() == 0 {
            NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        Self(NUMBER.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_differ_and_keep_their_numbers() {
        let here = ThreadId::current();
        let there = std::thread::spawn(ThreadId::current).join().unwrap();
        assert_ne!(here, there);
        assert_eq!(here, ThreadId::current());
    }
}
