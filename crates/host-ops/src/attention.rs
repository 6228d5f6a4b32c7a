//! Attention in one step: only scratch memory holds rows of scores.
//!
//! The host device plans attention as separate products, for which its matrix code is faster. This code is for devices
//! that plan it as one step but lack a kernel for a case, and it is the reference for their kernels.
use graph::prim::Attention;
use graph::{DType, Scalar};
use smallvec::SmallVec;

use crate::number::Number;
use crate::rows::ranges_with;
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of multiplications per task.
const GRAIN: usize = 32 * 1024;

pub(crate) fn run(
    attention: &Attention,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let [q, k, v, operands @ ..] = inputs else {
        return Err(OpError::Unsupported { prim: "attention", dtype: out.dtype() });
    };
    if !matches!(out.dtype(), DType::F32 | DType::F16 | DType::Bf16) {
        return Err(OpError::Unsupported { prim: "attention", dtype: out.dtype() });
    }
    if out.elems() == 0 {
        return Ok(());
    }
    let (&[.., rows, size], &[.., total, width]) = (q.shape(), v.shape()) else { return Ok(()) };
    let count = q.shape().iter().rev().skip(1).product::<usize>();
    let grain = GRAIN / (total * (size + width)).max(1);
    ranges_with::<f32>(cx, count, grain.max(1), 2 * size + total + 2 * width, |range, scratch| {
        let (query, scratch) = scratch.split_at_mut(size);
        let (key, scratch) = scratch.split_at_mut(size);
        let (scores, scratch) = scratch.split_at_mut(total);
        let (value, result) = scratch.split_at_mut(width);
        for row in range {
            let (batch, at) = (row / rows, row % rows);
            let index = index_of(row, &attention.shape);
            let [row, column] = matrix_strides(q);
            row_of(q, batch, at as isize * row, column, query);
            let [column, key_step] = matrix_strides(k);
            for (number, score) in scores.iter_mut().enumerate() {
                row_of(k, batch, number as isize * key_step, column, key);
                let sum: f32 = query.iter().zip(&*key).map(|(q, k)| q * k).sum();
                *score = score_of(attention, sum * attention.alpha, operands, &index, number);
            }
            soften(scores, attention.zero_if_hidden);
            result.fill(0.0);
            let [row, column] = matrix_strides(v);
            for (number, &weight) in scores.iter().enumerate() {
                row_of(v, batch, number as isize * row, column, value);
                result.iter_mut().zip(&*value).for_each(|(to, value)| *to += weight * value);
            }
            let strides = out.strides();
            let place: isize = index.iter().zip(strides).map(|(&at, stride)| at as isize * stride).sum();
            let to = out.start().wrapping_offset(place * out.dtype().bytes() as isize);
            // SAFETY: the row is within the view, and each row belongs to one task.
            unsafe { f32::store(out.dtype(), to, strides[strides.len() - 1], result) };
        }
    });
    Ok(())
}

/// The leading index of a row.
fn index_of(mut row: usize, shape: &[usize]) -> SmallVec<[usize; 6]> {
    let mut index: SmallVec<[usize; 6]> = SmallVec::new();
    for &extent in shape[..shape.len() - 1].iter().rev() {
        index.push(row % extent.max(1));
        row /= extent.max(1);
    }
    index.reverse();
    index
}

/// The strides of the last two axes.
fn matrix_strides(tensor: &Tensor<'_>) -> [isize; 2] {
    let strides = tensor.strides();
    [strides[strides.len() - 2], strides[strides.len() - 1]]
}

/// Reads elements of a batch, starting at `start` with stride `step`.
fn row_of(tensor: &Tensor<'_>, batch: usize, start: isize, step: isize, out: &mut [f32]) {
    let at = match tensor.strides() {
        [outer, inner, _, _] => {
            let count = tensor.shape()[1];
            (batch / count) as isize * outer + (batch % count) as isize * inner
        }
        strides => batch as isize * strides[0],
    };
    let offset = at + start;
    let from = tensor.start().wrapping_offset(offset * tensor.dtype().bytes() as isize);
    // SAFETY: the elements are within the view.
    unsafe { f32::load(tensor.dtype(), from, step, out) };
}

fn score_of(attention: &Attention, product: f32, operands: &[Tensor<'_>], index: &[usize], key: usize) -> f32 {
    let mut whole: SmallVec<[usize; 6]> = index.into();
    whole.push(key);
    let mut values: SmallVec<[Scalar; 5]> = SmallVec::new();
    values.push(Scalar::Float(f64::from(product)));
    for operand in operands {
        let offset: isize = whole.iter().zip(operand.strides()).map(|(&at, stride)| at as isize * stride).sum();
        let from = operand.start().wrapping_offset(offset * operand.dtype().bytes() as isize);
        values.push(scalar(operand.dtype(), from));
    }
    attention.scores.eval(&values, &whole).as_f64() as f32
}

/// An element of any type.
fn scalar(dtype: DType, from: *const u8) -> Scalar {
    // SAFETY: callers pass the address of an element of that type.
    unsafe {
        match dtype {
            DType::F64 => {
                let mut value = [0.0f64];
                f64::load(dtype, from, 1, &mut value);
                Scalar::Float(value[0])
            }
            _ if dtype.is_float() => {
                let mut value = [0.0f32];
                f32::load(dtype, from, 1, &mut value);
                Scalar::Float(f64::from(value[0]))
            }
            _ => {
                let mut value = [0i64];
                i64::load(dtype, from, 1, &mut value);
                Scalar::from_i64(value[0], dtype)
            }
        }
    }
}

/// Softmax in place.
fn soften(scores: &mut [f32], zero_if_hidden: bool) {
    let largest =
        scores.iter().copied().fold(f32::NEG_INFINITY, |best, x| if x > best || x.is_nan() { x } else { best });
    if largest == f32::NEG_INFINITY {
        return scores.fill(if zero_if_hidden { 0.0 } else { f32::NAN });
    }
    scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
    let factor = 1.0 / scores.iter().map(|&score| f64::from(score)).sum::<f64>();
    scores.iter_mut().for_each(|score| *score = (f64::from(*score) * factor) as f32);
}
