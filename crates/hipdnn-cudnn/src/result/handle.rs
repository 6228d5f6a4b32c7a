//! Handles: their stream, and the execution of plans.

use std::ffi::c_void;
use std::ptr;

use hipdnn_abi::Outcome;

use super::check;
use crate::sys::{Cudnn, Descriptor, Handle};

/// Creates a handle on the current device.
pub fn create(cudnn: &Cudnn) -> Outcome<Handle> {
    let mut handle = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    let status = unsafe { (cudnn.create)(&mut handle) };
    check(cudnn, || "creating a cuDNN handle".into(), status)?;
    Ok(handle)
}

/// Destroys a handle.
///
/// # Safety
/// The handle is alive and not used afterwards.
pub unsafe fn destroy(cudnn: &Cudnn, handle: Handle) -> Outcome {
    // SAFETY: the caller vouches for the handle.
    let status = unsafe { (cudnn.destroy)(handle) };
    check(cudnn, || "destroying a handle".into(), status)
}

/// Queues work on this stream from now on.
///
/// # Safety
/// The handle is alive. The stream belongs to its device, and stays alive while it is set.
pub unsafe fn set_stream(cudnn: &Cudnn, handle: Handle, stream: *mut c_void) -> Outcome {
    // SAFETY: the caller vouches for both.
    let status = unsafe { (cudnn.set_stream)(handle, stream) };
    check(cudnn, || "setting the stream".into(), status)
}

/// Enqueues a plan.
///
/// # Safety
/// All three are alive. The addresses in the pack are valid until the handle's stream has executed the plan.
pub unsafe fn execute(cudnn: &Cudnn, handle: Handle, plan: Descriptor, pack: Descriptor) -> Outcome {
    // SAFETY: the caller vouches for all of them.
    let status = unsafe { (cudnn.execute)(handle, plan, pack) };
    check(cudnn, || "executing a plan".into(), status)
}
