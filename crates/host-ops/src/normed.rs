//! Products whose rows are normalised first. Such steps exist for GPUs; here the normalised rows are a separate buffer.
use graph::{
    Prim, View,
    prim::{BufferId, Normed},
};
use smallvec::SmallVec;

use crate::{Context, Epilogue, OpError, Tensor, TensorMut, matmul, norm, quant};

/// Normalises the rows of the first input, and multiplies.
pub(crate) fn run(
    prim: &Normed,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    epilogue: Option<Epilogue<'_>>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let unsupported = OpError::Unsupported { prim: "normed product", dtype: out.dtype() };
    let Some((&scale, own)) = inputs.split_last() else { return Err(unsupported) };
    let (dtype, shape) = (own[0].dtype(), own[0].shape());
    let mut memory = vec![0u128; (own[0].elems() * dtype.bytes()).div_ceil(16)];
    let strides = graph::shape::dense_strides(shape);
    let view = View { buffer: BufferId(0), dtype, shape: shape.into(), strides, offset: 0 };
    // SAFETY: the memory is as large as the view, and outlives both tensors.
    let (to, from) =
        unsafe { (TensorMut::new(&view, memory.as_mut_ptr().cast()), Tensor::new(&view, memory.as_ptr().cast())) };
    norm::run(&prim.norm, &[own[0], scale], &[to], cx)?;
    let own: SmallVec<[Tensor<'_>; 4]> = std::iter::once(from).chain(own[1..].iter().copied()).collect();
    match &*prim.product {
        Prim::MatMul(prim) => matmul::run(prim, &own, out, epilogue, cx),
        Prim::QuantMatMul(prim) => quant::run(prim, &own, out, epilogue, cx),
        _ => Err(unsupported),
    }
}
