//! Runs work on the session's threads.
use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use super::kernel_context::KernelContext;
use crate::{Error, Result};

struct Job<'f, F> {
    part: &'f F,
    panicked: Mutex<Option<(usize, String)>>,
}

impl KernelContext<'_> {
    /// Calls `part` once for every index below `total`, on the session's threads and on this one, and waits for all
    /// calls.
    ///
    /// `batches` is the number of chunks the indices are split into; 0 lets the runtime choose.
    ///
    /// # Errors
    /// If a call panicked (the other calls still run), or the runtime cannot run them.
    pub fn parallel_for<F: Fn(usize) + Sync>(&self, total: usize, batches: usize, part: F) -> Result<()> {
        if total == 0 {
            return Ok(());
        }
        let job = Job { part: &part, panicked: Mutex::new(None) };
        let data = (&raw const job).cast_mut().cast::<c_void>();
        // SAFETY: `from_raw`'s caller vouches for the context. The call returns only after the last part, so `job`
        // outlives every use, and `run_part::<F>` reads the same type that `data` points to.
        unsafe { call!(self.runtime, KernelContext_ParallelFor(self.raw, run_part::<F>, total, batches, data))? };
        match job.panicked.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((index, message)) => Err(Error::fail(format!("part {index} of {total} panicked: {message}"))),
        }
    }
}

/// # Safety
/// `data` points to a live `Job<F>`.
unsafe extern "C" fn run_part<F: Fn(usize) + Sync>(data: *mut c_void, index: usize) {
    // SAFETY: guaranteed by the caller; `F: Sync` and the mutex let several threads hold this reference.
    let job = unsafe { &*data.cast_const().cast::<Job<'_, F>>() };
    // The first panic is reported and the whole call fails, so partial results are never used.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (job.part)(index))) {
        let message = message_of(payload.as_ref());
        job.panicked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((index, message));
        // Dropping a payload may panic again.
        std::mem::forget(payload);
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_contained_and_the_first_one_is_reported() {
        let part = |index: usize| {
            if index > 1 {
                panic!("no {index}")
            }
        };
        let job = Job { part: &part, panicked: Mutex::new(None) };
        let data = (&raw const job).cast_mut().cast();
        for index in 0..4 {
            // SAFETY: `job` is alive and has the type that `run_part` expects; `part` has the type of `F`.
            unsafe { call_part(&part, data, index) };
        }
        assert_eq!(job.panicked.into_inner().unwrap(), Some((2, "no 2".to_owned())));
    }

    unsafe fn call_part<F: Fn(usize) + Sync>(_: &F, data: *mut c_void, index: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { run_part::<F>(data, index) };
    }

    #[test]
    fn names_every_kind_of_payload() {
        assert_eq!(message_of(&"a"), "a");
        assert_eq!(message_of(&"b".to_owned()), "b");
        assert_eq!(message_of(&1_u8), "without a message");
    }
}
