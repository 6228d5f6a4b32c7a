//! Cancels runs from other threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ort_client::RunOptions;

/// Cancels a generation from any thread, such as a signal handler's.
#[derive(Clone, Debug)]
pub struct Canceller {
    /// Also locked while the flag of the options is set or cleared. So a run that ends by the flag finds the request
    /// here, and a reset clears all flags.
    asked: Arc<Mutex<bool>>,
    options: Arc<[RunOptions]>,
}

impl Canceller {
    pub(crate) fn new(options: &[&RunOptions]) -> Canceller {
        Canceller {
            asked: Arc::new(Mutex::new(false)),
            options: options.iter().map(|&options| options.clone()).collect(),
        }
    }

    /// Makes the run in progress, or the next one, end with [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn cancel(&self) {
        let mut asked = self.asked();
        for options in &*self.options {
            // This cannot fail.
            drop(options.terminate());
        }
        *asked = true;
    }

    /// Whether a cancellation is pending.
    pub fn is_cancelled(&self) -> bool {
        *self.asked()
    }

    /// Withdraws a pending cancellation, so that the next run is not cancelled.
    pub fn reset(&self) {
        let mut asked = self.asked();
        for options in &*self.options {
            // This cannot fail. During a run it only withdraws the request, as intended.
            drop(options.resume());
        }
        *asked = false;
    }

    fn asked(&self) -> MutexGuard<'_, bool> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
