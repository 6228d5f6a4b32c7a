//! Products with the work that is fused into them.
//!
//! Epilogues run on tiles of the result. Prologues and gates exist for GPUs: here the normalised rows, or the product,
//! are a separate buffer.
use graph::prim::{BufferId, Gate, Map, Norm, Product, ProductKind};
use graph::{View, shape};
use smallvec::SmallVec;

use crate::epilogue::Epilogue;
use crate::{Context, OpError, Tensor, TensorMut, conv, conv_transpose, integer, map, matmul, norm, quant};

/// Runs a product with everything fused into it.
pub(crate) fn run(
    product: &Product,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    match &product.gate {
        Some(gate) => gated(product, gate, inputs, outputs, cx),
        None => multiply(product, inputs, outputs[0], cx),
    }
}

/// True for the kinds that may have a prologue or a gate.
fn has_rows(kind: &ProductKind) -> bool {
    matches!(kind, ProductKind::MatMul(_) | ProductKind::QuantMatMul(_))
}

/// Multiplies into a buffer with all columns, and combines these in pairs.
fn gated(
    product: &Product,
    gate: &Gate,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (dtype, made) = (gate.dtype, outputs[0].shape());
    let unsupported = OpError::Unsupported { prim: "gated product", dtype };
    let &[batch, rows, columns] = made else { return Err(unsupported) };
    if !has_rows(&product.kind) {
        return Err(unsupported);
    }
    let shape = [batch, rows, 2 * columns];
    let strides = shape::dense_strides(&shape);
    let whole = View { buffer: BufferId(0), dtype, shape: shape.as_slice().into(), strides, offset: 0 };
    let half = |half: usize| View { shape: made.into(), offset: (half * columns) as isize, ..whole.clone() };
    let (first, second) = (half(0), half(1));
    let mut memory = vec![0u128; (whole.elems() * dtype.bytes()).div_ceil(16)];
    // SAFETY: the memory is as large as the view of the product; the other views are parts of it, and it outlives all
    // of them.
    let (to, parts) = unsafe {
        let from = memory.as_ptr().cast();
        (TensorMut::new(&whole, memory.as_mut_ptr().cast()), [Tensor::new(&first, from), Tensor::new(&second, from)])
    };
    multiply(product, inputs, to, cx)?;
    map::run(&Map { expr: gate.expr.clone() }, &parts, outputs, cx)
}

/// The product with its prologue and epilogue.
fn multiply(product: &Product, inputs: &[Tensor<'_>], out: TensorMut<'_>, cx: &mut Context<'_>) -> Result<(), OpError> {
    let operands = product.epilogue.as_ref().map_or(inputs.len(), |epilogue| epilogue.operands);
    let (own, operands) = inputs.split_at(operands.min(inputs.len()));
    let epilogue =
        product.epilogue.as_ref().map(|work| Epilogue { expr: &work.expr, dtype: work.dtype, operands, out });
    match &product.prologue {
        Some(norm) => normed(&product.kind, norm, own, out, epilogue, cx),
        None => plain(&product.kind, own, out, epilogue, cx),
    }
}

/// Normalises the rows of the first input, and multiplies.
fn normed(
    kind: &ProductKind,
    norm: &Norm,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    epilogue: Option<Epilogue<'_>>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let unsupported = OpError::Unsupported { prim: "normed product", dtype: out.dtype() };
    let Some((&scale, own)) = inputs.split_last().filter(|_| has_rows(kind)) else { return Err(unsupported) };
    let (dtype, shape) = (own[0].dtype(), own[0].shape());
    let mut memory = vec![0u128; (own[0].elems() * dtype.bytes()).div_ceil(16)];
    let strides = shape::dense_strides(shape);
    let view = View { buffer: BufferId(0), dtype, shape: shape.into(), strides, offset: 0 };
    // SAFETY: the memory is as large as the view, and outlives both tensors.
    let (to, from) =
        unsafe { (TensorMut::new(&view, memory.as_mut_ptr().cast()), Tensor::new(&view, memory.as_ptr().cast())) };
    norm::run(norm, &[own[0], scale], &[to], cx)?;
    let own: SmallVec<[Tensor<'_>; 4]> = std::iter::once(from).chain(own[1..].iter().copied()).collect();
    plain(kind, &own, out, epilogue, cx)
}

fn plain(
    kind: &ProductKind,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    epilogue: Option<Epilogue<'_>>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    match kind {
        ProductKind::MatMul(prim) => matmul::run(prim, inputs, out, epilogue, cx),
        ProductKind::QuantMatMul(prim) => quant::run(prim, inputs, out, epilogue, cx),
        ProductKind::IntegerMatMul { zeros } => integer::matmul(*zeros, inputs, out, epilogue, cx),
        ProductKind::Conv(prim) => conv::run(prim, inputs, out, epilogue, cx),
        ProductKind::ConvTranspose(prim) => conv_transpose::run(prim, inputs, out, epilogue, cx),
        ProductKind::IntegerConv { conv, zeros } => integer::conv(conv, *zeros, inputs, out, epilogue, cx),
    }
}
