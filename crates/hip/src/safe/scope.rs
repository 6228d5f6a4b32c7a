//! The current device of a thread.

use std::cell::Cell;
use std::ffi::c_int;

use crate::HipError;
use crate::result::{Runtime, device};

thread_local! {
    /// One bit per driver: whether this thread has set one of its devices through us.
    static BOUND: Cell<u8> = const { Cell::new(0) };
}

/// Keeps a device current until dropped, then restores the previous one: the thread is not ours.
pub struct Scope<'a> {
    runtime: &'a Runtime,
    restore: Option<c_int>,
}

impl<'a> Scope<'a> {
    /// Makes a device current on this thread.
    ///
    /// Other code may change the current device between our calls, so we ask the driver every time; that only reads a
    /// thread-local value in the driver. It is *set* at least once per thread even if it is already current: the twin's
    /// module functions need the context that only setting the device binds.
    pub(super) fn enter(runtime: &'a Runtime, wanted: c_int) -> Result<Scope<'a>, HipError> {
        let bit = 1u8 << runtime.kind.index();
        let current = device::current(runtime).ok();
        let bound = BOUND.get() & bit != 0;
        if bound && current == Some(wanted) {
            return Ok(Scope { runtime, restore: None });
        }
        device::set_current(runtime, wanted)?;
        BOUND.set(BOUND.get() | bit);
        Ok(Scope { runtime, restore: current.filter(|&before| before != wanted) })
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.restore
            && let Err(error) = device::set_current(self.runtime, before)
        {
            tracing::debug!(target: "amdgpu_ep::lifetime", %error, before, "device not restored");
        }
    }
}
