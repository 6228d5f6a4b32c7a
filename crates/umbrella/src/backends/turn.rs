//! Detects a backend that leads back to this library, which would recurse without end.
use std::cell::Cell;

use ort_ep::{Error, Result};

thread_local! {
    /// Whether this thread is creating a session's execution provider. Has no destructor: the library may be unloaded
    /// first.
    static IS_CHOOSING: Cell<bool> = const { Cell::new(false) };
}

/// The permission to choose a backend on this thread; released on drop.
pub(super) struct Turn;

impl Turn {
    /// # Errors
    /// A backend called this library again while it was creating its own execution provider.
    pub fn begin() -> Result<Self> {
        if IS_CHOOSING.replace(true) {
            return Err(Error::invalid_argument(
                "the chosen backend is this library itself\n  help: check backend_library, routing_table, \
                 AMDGPU_EP_HIPGPU_LIBRARY and AMDGPU_EP_DIRECTX_LIBRARY: none of them may name libamdgpu-ep",
            ));
        }
        Ok(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IS_CHOOSING.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_turn_at_a_time_and_a_rejection_changes_nothing() {
        let first = Turn::begin().unwrap();
        for _ in 0..2 {
            let error = Turn::begin().err().unwrap();
            assert!(error.message().contains("is this library itself"), "{error}");
        }
        std::thread::spawn(|| Turn::begin().map(drop)).join().unwrap().unwrap();
        drop(first);
        Turn::begin().unwrap();
    }
}
