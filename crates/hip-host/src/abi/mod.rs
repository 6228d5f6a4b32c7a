//! The exported functions, with the names and signatures of HIP's headers.
//!
//! # Safety
//! The contract of every function is HIP's: pointers to results are NULL (which gives status 1) or writable, the
//! caller's own host memory is valid for the given bytes until the work that uses it has run, and callbacks may be
//! called from any thread. Handles and device pointers need not be valid: they are looked up, never trusted.
#![allow(non_snake_case, reason = "the names are HIP's")]
#![allow(clippy::missing_safety_doc, reason = "one contract for all, in the module documentation")]

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errors::{Status, check_fault};
use crate::runtime::{Runtime, runtime};
use crate::thread;

mod copy;
mod device;
mod event;
mod graph;
mod memory;
mod module;
mod pool;
mod status;
mod stream;

pub use copy::*;
pub use device::*;
pub use event::*;
pub use graph::*;
pub use memory::*;
pub use module::*;
pub use pool::*;
pub use status::*;
pub use stream::*;

pub use crate::work::{HostFn, StreamCallback};

/// Runs an exported function: a panic becomes 999, a failure is kept for `hipGetLastError`, and once corruption was
/// found, or while the devices are lost, every call returns 719.
fn guard<F: FnOnce(&'static Runtime) -> Result<(), Status>>(body: F) -> c_int {
    guarded(|runtime| {
        note_call::<F>(runtime);
        check_fault().and_then(|()| runtime.check_lost()).and_then(|()| body(runtime))
    })
}

/// [`guard`] for functions that must work even after corruption, so that a caller can still clean up.
fn guard_release<F: FnOnce(&'static Runtime) -> Result<(), Status>>(body: F) -> c_int {
    guarded(|runtime| {
        note_call::<F>(runtime);
        body(runtime)
    })
}

fn note_call<F>(runtime: &Runtime) {
    if let Some(calls) = &runtime.calls {
        calls.note::<F>();
    }
}

fn guarded(body: impl FnOnce(&'static Runtime) -> Result<(), Status>) -> c_int {
    // The state behind `runtime` only changes inside its own short critical sections, so a panic leaves it consistent.
    let outcome = catch_unwind(AssertUnwindSafe(|| body(runtime()))).unwrap_or(Err(Status::Unknown));
    let code = outcome.map_or_else(Status::code, |()| 0);
    thread::note_status(code);
    code
}

/// Stores a result for the caller.
///
/// # Safety
/// `out` is NULL or valid for writing.
unsafe fn store<T>(out: *mut T, value: T) -> Result<(), Status> {
    if out.is_null() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: not NULL, so the caller guarantees that it can be written; HIP does not require alignment of byte
    // buffers.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Checks an out-pointer early, before anything is created that could not be returned.
fn require<T>(out: *mut T) -> Result<(), Status> {
    if out.is_null() { Err(Status::InvalidValue) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_stops_at_the_abi() {
        assert_eq!(guard(|_| panic!("on purpose")), Status::Unknown.code());
        assert_eq!(thread::take_last_error(), Status::Unknown.code());
    }
}
