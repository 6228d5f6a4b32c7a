//! Owned descriptors of cuDNN's older interface, and the two calls in use.

use std::ffi::{c_int, c_void};
use std::ptr;

use hipdnn_abi::Outcome;

use super::Handle;
use crate::result::older::{self as result, Operand};
use crate::sys::{self, Cudnn, DataType, Older, ReduceOp};

/// cuDNN and its older interface.
#[derive(Clone, Copy)]
pub struct OlderCudnn {
    cudnn: &'static Cudnn,
    older: &'static Older,
}

/// The descriptor of a tensor.
pub struct Tensor {
    raw: sys::Descriptor,
    is_double: bool,
    library: OlderCudnn,
}

/// The descriptor of a reduction.
pub struct Reduction {
    raw: sys::Descriptor,
    library: OlderCudnn,
}

// SAFETY: cuDNN does not tie descriptors to threads, and these are only read after creation.
unsafe impl Send for Tensor {}
// SAFETY: as above.
unsafe impl Sync for Tensor {}
// SAFETY: as above.
unsafe impl Send for Reduction {}
// SAFETY: as above.
unsafe impl Sync for Reduction {}

impl OlderCudnn {
    /// The older interface of this cuDNN, if it has one.
    pub fn of(cudnn: &'static Cudnn) -> Option<Self> {
        Some(Self { cudnn, older: cudnn.older.as_ref()? })
    }

    /// Describes a tensor.
    pub fn tensor(self, data_type: DataType, dims: &[c_int], strides: &[c_int]) -> Outcome<Tensor> {
        let raw = result::create_tensor(self.cudnn, self.older)?;
        let tensor = Tensor { raw, is_double: data_type == DataType::DOUBLE, library: self };
        // SAFETY: the descriptor is alive.
        unsafe { result::set_tensor(self.cudnn, self.older, raw, data_type, dims, strides)? };
        Ok(tensor)
    }

    /// Describes a reduction.
    pub fn reduction(self, what: ReduceOp, compute: DataType) -> Outcome<Reduction> {
        let raw = result::create_reduction(self.cudnn, self.older)?;
        let reduction = Reduction { raw, library: self };
        // SAFETY: the descriptor is alive.
        unsafe { result::set_reduction(self.cudnn, self.older, raw, what, compute)? };
        Ok(reduction)
    }

    /// Enqueues a copy into another layout.
    ///
    /// # Safety
    /// The addresses are valid for their tensors until the handle's stream has executed this call.
    pub unsafe fn transform(self, handle: &Handle, from: (&Tensor, usize), to: (&Tensor, usize)) -> Outcome {
        let (from, to) = (from.0.operand(&ONE, from.1), to.0.operand(&ZERO, to.1));
        // SAFETY: handle and descriptors are alive; the caller vouches for the addresses.
        unsafe { result::transform(self.cudnn, self.older, handle.raw(), from, to) }
    }
}

impl Reduction {
    /// Bytes of workspace that it needs.
    pub fn workspace(&self, handle: &Handle, from: &Tensor, to: &Tensor) -> Outcome<usize> {
        let OlderCudnn { cudnn, older } = self.library;
        // SAFETY: handle and descriptors are alive and set.
        unsafe { result::reduction_workspace(cudnn, older, handle.raw(), self.raw, from.raw, to.raw) }
    }

    /// Enqueues it with a workspace: its address and size.
    ///
    /// # Safety
    /// The addresses are valid for their tensors, and the workspace for its bytes, until the handle's stream has
    /// executed this call.
    pub unsafe fn run(
        &self,
        handle: &Handle,
        workspace: (usize, usize),
        from: (&Tensor, usize),
        to: (&Tensor, usize),
    ) -> Outcome {
        let OlderCudnn { cudnn, older } = self.library;
        let workspace = (ptr::with_exposed_provenance_mut(workspace.0), workspace.1);
        let (from, to) = (from.0.operand(&ONE, from.1), to.0.operand(&ZERO, to.1));
        // SAFETY: handle and descriptors are alive; the caller vouches for the addresses.
        unsafe { result::reduce(cudnn, older, handle.raw(), self.raw, workspace, from, to) }
    }
}

/// A factor in both precisions; cuDNN reads the one that fits the tensor.
type Factor = (f32, f64);
static ONE: Factor = (1.0, 1.0);
static ZERO: Factor = (0.0, 0.0);

impl Tensor {
    fn operand(&self, factor: &'static Factor, address: usize) -> Operand {
        let factor: *const c_void =
            if self.is_double { (&raw const factor.1).cast() } else { (&raw const factor.0).cast() };
        Operand { factor, tensor: self.raw, address: ptr::with_exposed_provenance_mut(address) }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: made by `create_tensor` and never handed out.
        report(unsafe { result::destroy_tensor(self.library.cudnn, self.library.older, self.raw) });
    }
}

impl Drop for Reduction {
    fn drop(&mut self) {
        // SAFETY: made by `create_reduction` and never handed out.
        report(unsafe { result::destroy_reduction(self.library.cudnn, self.library.older, self.raw) });
    }
}

fn report(destroyed: Outcome) {
    if let Err(fault) = destroyed {
        tracing::warn!(target: "hipdnn::cudnn", "{}", fault.text);
    }
}
