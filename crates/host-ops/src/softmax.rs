//! Softmax and its logarithm along the last axis.
use graph::DType;
use graph::prim::Softmax;

use crate::math::fused;
use crate::rows::{Rows, ranges_with};
use crate::simd::vectorised;
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of elements per task.
const GRAIN: usize = 8 * 1024;
/// Independent partial sums, so that the additions do not wait for each other.
const LANES: usize = 16;

pub(crate) fn run(
    softmax: &Softmax,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (x, y) = (inputs[0], outputs[0]);
    if y.elems() == 0 {
        return Ok(());
    }
    let rows = Rows::new(x.shape(), 1.min(x.shape().len()), &[x.strides(), y.strides()]);
    let grain = (GRAIN / rows.length()).max(1);
    match x.dtype() {
        DType::F64 => ranges_with::<f64>(cx, rows.count(), grain, rows.length(), |range, values| {
            for row in range {
                rows.load(0, &x, row, 0, values);
                softmax_f64(softmax.log, values);
                rows.store(1, &y, row, 0, values);
            }
        }),
        dtype if dtype.is_float() => ranges_with::<f32>(cx, rows.count(), grain, rows.length(), |range, values| {
            for row in range {
                // SAFETY: each row belongs to one task, and no input shares the output's memory.
                match (rows.slice::<f32>(0, &x, row), unsafe { rows.slice_mut::<f32>(1, &y, row) }) {
                    (Some(x), Some(y)) => softmax_f32(softmax.log, x, y),
                    _ => {
                        rows.load(0, &x, row, 0, values);
                        softmax_f32_in_place(softmax.log, values);
                        rows.store(1, &y, row, 0, values);
                    }
                }
            }
        }),
        dtype => return Err(OpError::Unsupported { prim: "softmax", dtype }),
    }
    Ok(())
}

/// The largest number, or NaN if there is one.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    let larger = |best: f32, x: f32| if x > best || x.is_nan() { x } else { best };
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x);
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |best, &x| larger(best, x))
}

/// The sum, as partial sums that are combined in double precision.
#[inline(always)]
fn sum(x: &[f32]) -> f64 {
    let mut total = 0.0;
    for stretch in x.chunks(1024) {
        let mut lanes = [0.0f32; LANES];
        let (chunks, rest) = stretch.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane += x;
            }
        }
        total += lanes.iter().chain(rest).map(|&x| f64::from(x)).sum::<f64>();
    }
    total
}

/// The shift of the exponents. A shift of minus infinity would turn all elements into NaN.
#[inline(always)]
fn shift(largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY { 0.0 } else { largest }
}

vectorised! {
    fn softmax_f32(log: bool, x: &[f32], y: &mut [f32]) {
        let shift = shift(largest(x));
        for (y, &x) in y.iter_mut().zip(x) {
            *y = fused::exp::<WIDE>(x - shift);
        }
        let total = sum(y);
        if log {
            let rest = total.ln() as f32;
            for (y, &x) in y.iter_mut().zip(x) {
                *y = (x - shift) - rest;
            }
        } else {
            let factor = (1.0 / total) as f32;
            y.iter_mut().for_each(|y| *y *= factor);
        }
    }
}

vectorised! {
    fn softmax_f32_in_place(log: bool, values: &mut [f32]) {
        let shift = shift(largest(values));
        if log {
            let total: f64 = values
                .chunks(256)
                .map(|chunk| {
                    let mut powers = [0.0; 256];
                    let powers = &mut powers[..chunk.len()];
                    for (power, &x) in powers.iter_mut().zip(chunk) {
                        *power = fused::exp::<WIDE>(x - shift);
                    }
                    sum(powers)
                })
                .sum();
            let rest = total.ln() as f32;
            values.iter_mut().for_each(|value| *value = (*value - shift) - rest);
        } else {
            values.iter_mut().for_each(|value| *value = fused::exp::<WIDE>(*value - shift));
            let factor = (1.0 / sum(values)) as f32;
            values.iter_mut().for_each(|value| *value *= factor);
        }
    }
}

fn softmax_f64(log: bool, values: &mut [f64]) {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shift = if largest == f64::NEG_INFINITY { 0.0 } else { largest };
    let total: f64 = values.iter().map(|x| (x - shift).exp()).sum();
    for value in values {
        *value = if log { *value - shift - total.ln() } else { (*value - shift).exp() / total };
    }
}
