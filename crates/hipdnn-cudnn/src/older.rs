//! Two functions of cuDNN's older interface, for operations that its graphs do not support alone: reductions over any
//! axes, and copies into another layout.

use std::ffi::c_int;

use hipdnn_abi::{Fault, Outcome};

use crate::graph::{Graph, Operation, View};
use crate::safe::{Handle, OlderCudnn, Reduction, Tensor};
use crate::sys::{AttributeName as A, DataType, DescriptorType as D, PointwiseMode, ReduceOp};
use crate::worker::Worker;

/// The lowest rank that the older interface supports.
const LEAST_RANK: usize = 4;

/// A call of the older interface.
pub struct Call {
    library: OlderCudnn,
    /// The reduction; `None` for a copy.
    reduction: Option<Reduction>,
    from: Tensor,
    to: Tensor,
    /// Bytes of workspace.
    pub workspace: usize,
    /// The input and output tensors.
    pub tensors: [usize; 2],
}

impl Call {
    /// The call for an operation, if the older interface has one.
    ///
    /// # Errors
    /// It has none, or cuDNN rejects its descriptors.
    pub fn new(worker: &Worker, graph: &Graph, operation: &Operation) -> Outcome<Self> {
        let none = || Fault::unsupported("cuDNN's older interface has no such function");
        let library = OlderCudnn::of(worker.cudnn).ok_or_else(none)?;
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
                Some(library.reduction(what, compute)?)
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
            library,
            reduction,
            from: tensor(library, from, data_type(from))?,
            to: tensor(library, to, data_type(to))?,
            workspace: 0,
            tensors: [from.tensor, to.tensor],
        };
        if let Some(reduction) = &call.reduction {
            worker.with_handle(|handle| {
                call.workspace = reduction.workspace(handle, &call.from, &call.to)?;
                Ok(())
            })?;
        }
        Ok(call)
    }

    /// Enqueues it.
    ///
    /// # Safety
    /// The addresses are valid for the tensors' extents and strides, and the workspace for its bytes, until the
    /// handle's stream has executed this call.
    pub unsafe fn run(&self, handle: &Handle, from: usize, to: usize, workspace: usize) -> Outcome {
        let (from, to) = ((&self.from, from), (&self.to, to));
        match &self.reduction {
            // SAFETY: guaranteed by the caller.
            Some(reduction) => unsafe { reduction.run(handle, (workspace, self.workspace), from, to) },
            // SAFETY: guaranteed by the caller.
            None => unsafe { self.library.transform(handle, from, to) },
        }
    }
}

fn tensor(library: OlderCudnn, view: &View, data_type: DataType) -> Outcome<Tensor> {
    let missing = LEAST_RANK.saturating_sub(view.dims.len());
    let reach = view.dims.iter().zip(&view.strides).map(|(extent, stride)| extent * stride).max().unwrap_or(1);
    let number = |value: i64| {
        c_int::try_from(value).map_err(|_| Fault::unsupported("a tensor is too large for cuDNN's older interface"))
    };
    let list = |values: &[i64], filler: i64| {
        std::iter::repeat_n(filler, missing).chain(values.iter().copied()).map(number).collect::<Outcome<Vec<c_int>>>()
    };
    library.tensor(data_type, &list(&view.dims, 1)?, &list(&view.strides, reach)?)
}
