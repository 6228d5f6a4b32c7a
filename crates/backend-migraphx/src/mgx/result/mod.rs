//! The middle layer: the C library's functions returning a `Result`, grouped by topic, and nothing else.
//!
//! The first argument is the loaded library; the last one says what the caller is doing, for the error. A handle is
//! still a plain pointer here, so most functions are `unsafe`: the caller keeps it alive.

use super::sys::{Handle, Loaded, OfHandle, Status};
use super::{Feature, MgxError};

pub mod argument;
pub mod compile;
pub mod onnx;
pub mod program;
pub mod quantize;
pub mod shape;

/// The step that a call is part of, for errors.
pub type Doing<'a> = &'a dyn Fn() -> String;

/// A new handle, and the function that frees it.
pub struct Created {
    pub raw: Handle,
    destroy: (&'static str, OfHandle),
}

/// Frees a handle.
///
/// # Safety
/// The handle is not used afterwards.
pub unsafe fn destroy(created: &Created) -> Result<(), MgxError> {
    let (call, function) = created.destroy;
    // SAFETY: the handle was created by the function that matches this one; the caller does not use it again.
    check(call, unsafe { function(created.raw) }, &|| "freeing a handle".to_owned())
}

/// Converts a status to an error that names the call and the step.
fn check(call: &'static str, status: Status, doing: Doing<'_>) -> Result<(), MgxError> {
    if status == 0 { Ok(()) } else { Err(MgxError::Call { call, status, doing: doing() }) }
}

/// Creates a handle with `create`, which receives the out-pointer. `destroy` is its counterpart.
fn created(
    call: &'static str,
    destroy: (&'static str, OfHandle),
    doing: Doing<'_>,
    create: impl FnOnce(*mut Handle) -> Status,
) -> Result<Created, MgxError> {
    let mut raw = std::ptr::null_mut();
    check(call, create(&mut raw), doing)?;
    if raw.is_null() {
        return Err(MgxError::answer(format!("a null handle from migraphx_{call}")));
    }
    Ok(Created { raw, destroy })
}

/// Unwraps a function that this release may lack.
fn need<F>(library: &Loaded, feature: Feature, function: Option<F>) -> Result<F, MgxError> {
    function.ok_or_else(|| MgxError::Unsupported { feature, file: library.file.clone() })
}
