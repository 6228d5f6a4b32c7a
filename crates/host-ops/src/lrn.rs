//! Local response normalisation over the channels of `[n, c, spatial…]`.
use graph::DType;
use graph::prim::Lrn;

use crate::math::fused;
use crate::number::Number;
use crate::rows::ranges_with;
use crate::simd::vectorised;
use crate::walk::Walk;
use crate::{Context, OpError, Tensor, TensorMut};

/// Positions processed together, through all channels.
const BLOCK: usize = 128;

pub(crate) fn run(
    lrn: &Lrn,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (x, y) = (inputs[0], outputs[0]);
    if y.elems() == 0 {
        return Ok(());
    }
    match x.dtype() {
        DType::F64 => run_as::<f64>(lrn, &x, &y, cx, scale_f64),
        dtype if dtype.is_float() => run_as::<f32>(lrn, &x, &y, cx, scale_f32),
        dtype => return Err(OpError::Unsupported { prim: "lrn", dtype }),
    }
    Ok(())
}

/// Takes a row of one channel, the same rows of the channels around it, and the result.
type Scale<N> = fn(&Lrn, &[N], &[N], &mut [N]);

fn run_as<N: Number>(lrn: &Lrn, x: &Tensor<'_>, y: &TensorMut<'_>, cx: &mut Context<'_>, scale: Scale<N>) {
    let (batch, channels) = (x.shape()[0], x.shape()[1]);
    let walk = Walk::new(&x.shape()[2..], &[&x.strides()[2..], &y.strides()[2..]], |_| false);
    let blocks = walk.elems().div_ceil(BLOCK);
    // All channels of a block, then one row of results.
    let memory = (channels + 1) * BLOCK;
    ranges_with::<N>(cx, batch * blocks, 1, memory, |range, memory| {
        let (rows, result) = memory.split_at_mut(channels * BLOCK);
        for task in range {
            let (image, start) = ((task / blocks) as isize, task % blocks * BLOCK);
            let count = BLOCK.min(walk.elems() - start);
            for channel in 0..channels {
                let base = image * x.strides()[0] + channel as isize * x.strides()[1];
                let row = &mut rows[channel * count..][..count];
                walk.pieces(0, start, count, |done, offset, length| {
                    let from = x.start().wrapping_offset((base + offset) * x.dtype().bytes() as isize);
                    // SAFETY: the walk stays within the input.
                    unsafe { N::load(x.dtype(), from, walk.row_stride(0), &mut row[done..done + length]) };
                });
            }
            for channel in 0..channels {
                let first = channel.saturating_sub((lrn.size.max(1) - 1) / 2);
                let end = (channel + lrn.size / 2 + 1).min(channels);
                let result = &mut result[..count];
                scale(lrn, &rows[channel * count..][..count], &rows[first * count..end * count], result);
                let base = image * y.strides()[0] + channel as isize * y.strides()[1];
                walk.pieces(1, start, count, |done, offset, length| {
                    let to = y.start().wrapping_offset((base + offset) * y.dtype().bytes() as isize);
                    // SAFETY: the walk stays within the output, and each block belongs to one task.
                    unsafe { N::store(y.dtype(), to, walk.row_stride(1), &result[done..done + length]) };
                });
            }
        }
    });
}

vectorised! {
    fn scale_f32(lrn: &Lrn, x: &[f32], around: &[f32], y: &mut [f32]) {
        y.fill(0.0);
        for row in around.chunks_exact(x.len()) {
            for (y, &x) in y.iter_mut().zip(row) {
                *y += x * x;
            }
        }
        let factor = lrn.alpha / lrn.size as f32;
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x * fused::exp::<WIDE>(-lrn.beta * fused::ln::<WIDE>(lrn.bias + factor * *y));
        }
    }
}

fn scale_f64(lrn: &Lrn, x: &[f64], around: &[f64], y: &mut [f64]) {
    let factor = f64::from(lrn.alpha) / lrn.size as f64;
    for at in 0..x.len() {
        let squares: f64 = around.chunks_exact(x.len()).map(|row| row[at] * row[at]).sum();
        y[at] = x[at] / (f64::from(lrn.bias) + factor * squares).powf(lrn.beta.into());
    }
}
