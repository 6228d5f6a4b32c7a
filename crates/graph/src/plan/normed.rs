//! Merges norms of few rows into the only product that reads them, if the device wants that.
//!
//! For one token, a norm moves a few kilobytes and costs a launch. The product after it reads megabytes, and each of
//! its blocks can normalise the row itself.
use crate::lower::Val;
use crate::plan::Draft;
use crate::plan::uses::{Uses, take_in};
use crate::prim::{Norm, Prim, ProductKind};
use crate::{DType, Step, View};

/// The most rows: above that, repeating the norm in every block costs more than a launch.
const MAX_ROWS: usize = 2;
/// The most bytes of all rows: every device with this stage can hold them next to its sums.
const MAX_BYTES: usize = 32 * 1024;
/// The most rows for unpacked weights: above that, libraries with matrix instructions beat one pass over the weights.
pub(super) const MAX_PLAIN_ROWS: usize = 2;
/// Weights with fewer rows or columns use other kernels.
const LEAST_EXTENT: usize = 32;

/// Merges norms into products.
pub(super) fn merge(draft: &mut Draft) {
    take_in(draft, candidate);
}

/// The product at `at` merged with the norm before it, and the norm's position.
fn candidate(steps: &[Option<Step>], at: usize, uses: &Uses, draft: &Draft) -> Option<(usize, Step)> {
    let product = steps[at].as_ref()?;
    let fused = product.prim.product().filter(|fused| fused.prologue.is_none() && fused.gate.is_none())?;
    let (left, others) = product.inputs.split_first()?;
    let [batch, rows, depth] = left.shape[..] else { return None };
    let suits = match &fused.kind {
        ProductKind::QuantMatMul(_) => true,
        ProductKind::MatMul(_) => batch == 1 && rows <= MAX_PLAIN_ROWS && is_read_once(product),
        _ => false,
    };
    let is_small = suits && rows <= MAX_ROWS && rows * depth * left.dtype.bytes() <= MAX_BYTES;
    if !is_small || others.iter().any(|view| view.buffer == left.buffer) {
        return None;
    }
    let buffer = &draft.buffers[left.buffer.0 as usize];
    let from = uses.maker_for(at, left)?;
    let step = steps[from].as_ref()?;
    let Prim::Norm(norm @ Norm { axes: 1, centre: false, scale: true, bias: false, .. }) = &step.prim else {
        return None;
    };
    let ([x, scale], [made]) = (&step.inputs[..], &step.outputs[..]) else { return None };
    let whole = |view: &View| view.is_dense() && view.offset == 0 && view.elems() == buffer.elems;
    let one_type = [x, scale, made].iter().all(|view| view.dtype == left.dtype);
    if !whole(left) || !whole(made) || !one_type || made.shape.last() != Some(&depth) {
        return None;
    }
    let x = Val::from(x).reshaped_in_place(&left.shape)?.view_of(x.buffer);
    if x.strides[2] != 1 || !scale.is_dense() || scale.elems() != depth {
        return None;
    }
    let mut normed = fused.clone().with_prologue(norm.clone());
    if let Some(epilogue) = &mut normed.epilogue {
        epilogue.operands += 1;
    }
    let mut inputs = product.inputs.clone();
    inputs[0] = x;
    inputs.insert(product.own_inputs(), scale.clone());
    Some((from, Step { prim: normed.into(), inputs, ..product.clone() }))
}

/// True if a product of floats can read its weights once, row by row or column by column.
pub(super) fn is_read_once(product: &Step) -> bool {
    let ([_, weights, ..], [made]) = (&product.inputs[..], &product.outputs[..]) else { return false };
    let ([_, depth, columns], [_, row, column]) = (&weights.shape[..], &weights.strides[..]) else { return false };
    matches!(weights.dtype, DType::F32 | DType::F16 | DType::Bf16)
        && *depth.min(columns) >= LEAST_EXTENT
        && (*row == 1 || *column == 1)
        && made.strides.last() == Some(&1)
}
