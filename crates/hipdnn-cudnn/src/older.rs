//! Two functions of cuDNN's older interface, for operations that its graphs do not support alone: reductions over any
//! axes, and copies into another layout.

use std::ffi::{c_int, c_void};
use std::ptr;

use hipdnn_abi::{Fault, Outcome};

use crate::descriptor::check;
use crate::graph::{Graph, Operation, View};
use crate::sys::{self, AttributeName as A, Cudnn, DataType, DescriptorType as D, Older, PointwiseMode, ReduceOp};
use crate::worker::Worker;

/// The lowest rank that the older interface supports.
const LEAST_RANK: usize = 4;

/// A call of the older interface.
pub struct Call {
    cudnn: &'static Cudnn,
    older: &'static Older,
    /// The reduction; `None` for a copy.
    reduction: Option<Owned>,
    from: Owned,
    to: Owned,
    is_double: bool,
    /// Bytes of workspace.
    pub workspace: usize,
    /// Its input and output tensors.
    pub tensors: [usize; 2],
}

/// A descriptor with the function that destroys it.
struct Owned {
    raw: sys::Descriptor,
    destroy: unsafe extern "C" fn(sys::Descriptor) -> sys::Status,
}

// SAFETY: cuDNN does not tie descriptors to threads, and these are only read after creation.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: created by the matching function and never handed out.
        unsafe { (self.destroy)(self.raw) };
    }
}

impl Call {
    /// The call for an operation, if the older interface has one.
    ///
    /// # Errors
    /// It has none, or cuDNN rejects its descriptors.
    pub fn new(worker: &Worker, graph: &Graph, operation: &Operation) -> Outcome<Self> {
        let none = || Fault::unsupported("cuDNN's older interface has no such function");
        let cudnn = worker.cudnn;
        let older = cudnn.older.as_ref().ok_or_else(none)?;
        let (Some((_, from)), Some((_, to))) = (operation.reads.first(), operation.writes.first()) else {
            return Err(none());
        };
        let data_type = |view: &View| graph.tensors[view.tensor].data_type;
        if data_type(from) != data_type(to) {
            return Err(none());
        }
        let reduction = match operation.kind {
            D::OPERATION_REDUCTION_DESCRIPTOR => {
                let code = |name| operation.code(name).ok_or_else(none);
                let (what, compute) = (ReduceOp(code(A::REDUCTION_OPERATOR)?), DataType(code(A::REDUCTION_COMP_TYPE)?));
                Some(reduction(cudnn, older, what, compute)?)
            }
            D::OPERATION_POINTWISE_DESCRIPTOR
                if operation.code(A::POINTWISE_MODE) == Some(PointwiseMode::IDENTITY.0) =>
            {
                // Other copies are rejected, or wrong: seen with bfloat16.
                let copies = [DataType::FLOAT, DataType::DOUBLE, DataType::HALF].contains(&data_type(from));
                if !copies {
                    return Err(none());
                }
                None
            }
            _ => return Err(none()),
        };
        let mut call = Self {
            cudnn,
            older,
            reduction,
            from: tensor(cudnn, older, from, data_type(from))?,
            to: tensor(cudnn, older, to, data_type(to))?,
            is_double: data_type(from) == DataType::DOUBLE,
            workspace: 0,
            tensors: [from.tensor, to.tensor],
        };
        if let Some(reduction) = &call.reduction {
            let mut bytes = 0;
            worker.with_handle(|handle| {
                // SAFETY: all descriptors are alive and set, the out-pointer is valid.
                let status = unsafe {
                    (older.reduction_workspace)(handle, reduction.raw, call.from.raw, call.to.raw, &mut bytes)
                };
                check(cudnn, || "reading a reduction's workspace size".into(), status)
            })?;
            call.workspace = bytes;
        }
        Ok(call)
    }

    /// Enqueues it.
    ///
    /// # Safety
    /// The addresses are valid for the tensors' extents and strides, and the workspace for its bytes, until the
    /// handle's stream has executed this call.
    pub unsafe fn run(&self, handle: sys::Handle, from: usize, to: usize, workspace: usize) -> Outcome {
        let (one, zero) = ((1.0f32, 1.0f64), (0.0f32, 0.0f64));
        let factor = |value: &(f32, f64)| -> *const c_void {
            if self.is_double { (&raw const value.1).cast() } else { (&raw const value.0).cast() }
        };
        let from = ptr::with_exposed_provenance::<c_void>(from);
        let to = ptr::with_exposed_provenance_mut::<c_void>(to);
        // SAFETY: handle and descriptors are alive; the factors outlive the call; the caller guarantees the addresses.
        let status = unsafe {
            match &self.reduction {
                Some(reduction) => (self.older.reduce)(
                    handle,
                    reduction.raw,
                    ptr::null_mut(),
                    0,
                    ptr::with_exposed_provenance_mut(workspace),
                    self.workspace,
                    factor(&one),
                    self.from.raw,
                    from,
                    factor(&zero),
                    self.to.raw,
                    to,
                ),
                None => {
                    (self.older.transform)(handle, factor(&one), self.from.raw, from, factor(&zero), self.to.raw, to)
                }
            }
        };
        let what = if self.reduction.is_some() { "reducing" } else { "changing a layout" };
        check(self.cudnn, || what.into(), status)
    }
}

fn tensor(cudnn: &'static Cudnn, older: &Older, view: &View, data_type: DataType) -> Outcome<Owned> {
    let missing = LEAST_RANK.saturating_sub(view.dims.len());
    let reach = view.dims.iter().zip(&view.strides).map(|(extent, stride)| extent * stride).max().unwrap_or(1);
    let number = |value: i64| {
        c_int::try_from(value).map_err(|_| Fault::unsupported("a tensor is too large for cuDNN's older interface"))
    };
    let list = |values: &[i64], filler: i64| {
        std::iter::repeat_n(filler, missing).chain(values.iter().copied()).map(number).collect::<Outcome<Vec<c_int>>>()
    };
    let (dims, strides) = (list(&view.dims, 1)?, list(&view.strides, reach)?);
    let mut raw = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    let status = unsafe { (older.create_tensor)(&mut raw) };
    check(cudnn, || "describing a tensor".into(), status)?;
    let made = Owned { raw, destroy: older.destroy_tensor };
    // SAFETY: the arrays have as many numbers as given.
    let status = unsafe { (older.set_tensor)(raw, data_type, dims.len() as c_int, dims.as_ptr(), strides.as_ptr()) };
    check(cudnn, || "describing a tensor".into(), status)?;
    Ok(made)
}

fn reduction(cudnn: &'static Cudnn, older: &Older, what: ReduceOp, compute: DataType) -> Outcome<Owned> {
    let mut raw = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    let status = unsafe { (older.create_reduction)(&mut raw) };
    check(cudnn, || "describing a reduction".into(), status)?;
    let made = Owned { raw, destroy: older.destroy_reduction };
    // SAFETY: the descriptor is alive; no indices are requested.
    let status = unsafe { (older.set_reduction)(raw, what, compute, sys::PROPAGATE_NAN, 0, 0) };
    check(cudnn, || format!("describing {what:?}"), status)?;
    Ok(made)
}
