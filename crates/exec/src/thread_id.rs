//! Identifies threads.
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A unique number for a thread.
///
/// The standard library's thread id allocates heap memory for every thread that asks for it. A library that is
/// unloaded cannot free that memory on threads that it does not own.
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
