//! Calls of callbacks that are under way.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    /// Calls under way on this thread. Without a destructor: the code may be unloaded before the thread ends.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// Counts calls of callbacks, so that whoever takes a callback back can wait for those on other threads: what the callback uses
/// may be freed next, and its code unloaded.
pub struct Deliveries {
    running: Mutex<usize>,
    ended: Condvar,
}

/// A call under way, until it is dropped.
pub struct Delivery<'d>(&'d Deliveries);

impl Deliveries {
    /// None under way.
    pub const fn new() -> Self {
        Self { running: Mutex::new(0), ended: Condvar::new() }
    }

    /// Begins a call. Look the callback up afterwards: one that was found is then waited for.
    pub fn begin(&self) -> Delivery<'_> {
        *self.running() += 1;
        HERE.set(HERE.get() + 1);
        Delivery(self)
    }

    /// Waits for the calls under way. Inside of a callback it returns at once, since it would wait for itself.
    pub fn wait(&self) {
        if HERE.get() == 0 {
            drop(self.ended.wait_while(self.running(), |running| *running > 0));
        }
    }

    fn running(&self) -> MutexGuard<'_, usize> {
        // A number is never torn by a panic.
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
            // Time for a waiter that does not wait to be found out.
            (0..1000).for_each(|_| thread::yield_now());
            is_over.store(true, Ordering::SeqCst);
            drop(delivery);
            waiter.join().unwrap();
        });
    }

    #[test]
    fn a_callback_may_take_itself_back() {
        let deliveries = Deliveries::new();
        let _delivery = deliveries.begin();
        deliveries.wait();
    }
}
