//! Tracks callback calls in progress.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    /// Calls in progress on this thread. It has no destructor: the code may be unloaded before the thread ends.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// Counts calls of callbacks, so that removing a callback can wait for calls on other threads: the state that the
/// callback uses may be freed next, and its code unloaded.
pub struct Deliveries {
    running: Mutex<usize>,
    ended: Condvar,
}

/// A call in progress, until it is dropped.
pub struct Delivery<'d>(&'d Deliveries);

impl Deliveries {
    /// No call in progress.
    pub const fn new() -> Self {
        Self { running: Mutex::new(0), ended: Condvar::new() }
    }

    /// Begins a call. Look up the callback afterwards: any callback found then is waited for.
    pub fn begin(&self) -> Delivery<'_> {
        *self.running() += 1;
        HERE.set(HERE.get() + 1);
        Delivery(self)
    }

    /// Waits for the calls in progress. Inside a callback it returns immediately, since it would wait for itself.
    pub fn wait(&self) {
        if HERE.get() == 0 {
            drop(self.ended.wait_while(self.running(), |running| *running > 0));
        }
    }

    fn running(&self) -> MutexGuard<'_, usize> {
        // A panic cannot leave a number inconsistent.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Deliveries {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        HERE.set(HERE.get() - 1);
        *self.0.running() -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn waiting_ends_after_the_calls_of_other_threads() {
        let (deliveries, is_over) = (Deliveries::new(), AtomicBool::new(false));
        let delivery = deliveries.begin();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                deliveries.wait();
                assert!(is_over.load(Ordering::SeqCst), "it did not wait");
            });
            // Enough time to catch a waiter that does not wait.
            (0..1000).for_each(|_| thread::yield_now());
            is_over.store(true, Ordering::SeqCst);
            drop(delivery);
            waiter.join().unwrap();
        });
    }

    #[test]
    fn a_callback_may_unregister_itself() {
        let deliveries = Deliveries::new();
        let _delivery = deliveries.begin();
        deliveries.wait();
    }
}
