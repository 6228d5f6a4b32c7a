//! The older interface: descriptors of tensors and reductions, reductions, and copies into another layout.

use std::ffi::{c_int, c_void};
use std::ptr;

use hipdnn_abi::Outcome;

use super::check;
use crate::sys::{Cudnn, DataType, Descriptor, Handle, Older, PROPAGATE_NAN, ReduceOp};

/// An input or output of a call: the factor it is scaled by, its descriptor and its address.
#[derive(Clone, Copy)]
pub struct Operand {
    pub factor: *const c_void,
    pub tensor: Descriptor,
    pub address: *mut c_void,
}

/// Creates the descriptor of a tensor, without its contents.
pub fn create_tensor(cudnn: &Cudnn, older: &Older) -> Outcome<Descriptor> {
    let mut tensor = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    let status = unsafe { (older.create_tensor)(&mut tensor) };
    check(cudnn, || "describing a tensor".into(), status)?;
    Ok(tensor)
}

/// Sets what the descriptor of a tensor describes.
///
/// # Safety
/// The descriptor is alive.
pub unsafe fn set_tensor(
    cudnn: &Cudnn,
    older: &Older,
    tensor: Descriptor,
    data_type: DataType,
    dims: &[c_int],
    strides: &[c_int],
) -> Outcome {
    let rank = dims.len().min(strides.len()) as c_int;
    // SAFETY: both arrays have `rank` elements; the caller vouches for the descriptor.
    let status = unsafe { (older.set_tensor)(tensor, data_type, rank, dims.as_ptr(), strides.as_ptr()) };
    check(cudnn, || "describing a tensor".into(), status)
}

/// Destroys the descriptor of a tensor.
///
/// # Safety
/// The descriptor is alive and not used afterwards.
pub unsafe fn destroy_tensor(cudnn: &Cudnn, older: &Older, tensor: Descriptor) -> Outcome {
    // SAFETY: the caller vouches for the descriptor.
    let status = unsafe { (older.destroy_tensor)(tensor) };
    check(cudnn, || "destroying the descriptor of a tensor".into(), status)
}

/// Creates the descriptor of a reduction, without its contents.
pub fn create_reduction(cudnn: &Cudnn, older: &Older) -> Outcome<Descriptor> {
    let mut reduction = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    let status = unsafe { (older.create_reduction)(&mut reduction) };
    check(cudnn, || "describing a reduction".into(), status)?;
    Ok(reduction)
}

/// Sets what the descriptor of a reduction describes; no indices are requested.
///
/// # Safety
/// The descriptor is alive.
pub unsafe fn set_reduction(
    cudnn: &Cudnn,
    older: &Older,
    reduction: Descriptor,
    what: ReduceOp,
    compute: DataType,
) -> Outcome {
    // SAFETY: only numbers besides the descriptor, for which the caller vouches.
    let status = unsafe { (older.set_reduction)(reduction, what, compute, PROPAGATE_NAN, 0, 0) };
    check(cudnn, || format!("describing {what:?}"), status)
}

/// Destroys the descriptor of a reduction.
///
/// # Safety
/// The descriptor is alive and not used afterwards.
pub unsafe fn destroy_reduction(cudnn: &Cudnn, older: &Older, reduction: Descriptor) -> Outcome {
    // SAFETY: the caller vouches for the descriptor.
    let status = unsafe { (older.destroy_reduction)(reduction) };
    check(cudnn, || "destroying the descriptor of a reduction".into(), status)
}

/// Bytes of workspace that a reduction needs.
///
/// # Safety
/// The handle and all descriptors are alive and set.
pub unsafe fn reduction_workspace(
    cudnn: &Cudnn,
    older: &Older,
    handle: Handle,
    reduction: Descriptor,
    from: Descriptor,
    to: Descriptor,
) -> Outcome<usize> {
    let mut bytes = 0;
    // SAFETY: the out-pointer is valid; the caller vouches for the rest.
    let status = unsafe { (older.reduction_workspace)(handle, reduction, from, to, &mut bytes) };
    check(cudnn, || "reading a reduction's workspace size".into(), status)?;
    Ok(bytes)
}

/// Enqueues a reduction.
///
/// # Safety
/// The handle and all descriptors are alive and set. The factors are of the type that cuDNN expects for the tensors.
/// The addresses are valid for their tensors, and the workspace for its bytes, until the handle's stream has executed
/// this.
pub unsafe fn reduce(
    cudnn: &Cudnn,
    older: &Older,
    handle: Handle,
    reduction: Descriptor,
    workspace: (*mut c_void, usize),
    from: Operand,
    to: Operand,
) -> Outcome {
    let (workspace, bytes) = workspace;
    // SAFETY: the caller vouches for everything.
    let status = unsafe {
        (older.reduce)(
            handle,
            reduction,
            ptr::null_mut(),
            0,
            workspace,
            bytes,
            from.factor,
            from.tensor,
            from.address,
            to.factor,
            to.tensor,
            to.address,
        )
    };
    check(cudnn, || "reducing".into(), status)
}

/// Enqueues a copy into another layout.
///
/// # Safety
/// As for [`reduce`].
pub unsafe fn transform(cudnn: &Cudnn, older: &Older, handle: Handle, from: Operand, to: Operand) -> Outcome {
    // SAFETY: the caller vouches for everything.
    let status =
        unsafe { (older.transform)(handle, from.factor, from.tensor, from.address, to.factor, to.tensor, to.address) };
    check(cudnn, || "changing a layout".into(), status)
}
