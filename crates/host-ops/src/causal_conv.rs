//! Depthwise convolutions along a sequence, with a state.
use graph::DType;
use graph::prim::CausalConv;

use crate::carve::{carve, piece};
use crate::number::Number;
use crate::rows::ranges_with;
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of multiplications per task.
const GRAIN: usize = 32 * 1024;

pub(crate) fn run(
    prim: &CausalConv,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let unsupported = |dtype| OpError::Unsupported { prim: "causal_conv", dtype };
    let (&[x, weights, ref more @ ..], &[y, present]) = (inputs, outputs) else {
        return Err(unsupported(DType::F32));
    };
    if !matches!(x.dtype(), DType::F32 | DType::F16 | DType::Bf16) {
        return Err(unsupported(x.dtype()));
    }
    let (&[batch, channels, length], &[_, taps]) = (x.shape(), weights.shape()) else {
        return Err(unsupported(x.dtype()));
    };
    let reach = (taps - 1) * prim.dilation;
    let past = more.first().filter(|_| prim.past);
    let bias = more.get(usize::from(prim.past)).filter(|_| prim.bias);
    let bytes = piece::<f32>(reach + length) + piece::<f32>(length) + piece::<f32>(taps);
    let grain = (GRAIN / (length * taps).max(1)).max(1);
    ranges_with::<u8>(cx, batch * channels, grain, bytes, |range, mut scratch| {
        let seen: &mut [f32] = carve(&mut scratch, reach + length);
        let sums: &mut [f32] = carve(&mut scratch, length);
        let factors: &mut [f32] = carve(&mut scratch, taps);
        for row in range {
            let place = [row / channels, row % channels];
            match past {
                Some(past) => load(past, &place, &mut seen[..reach]),
                None => seen[..reach].fill(0.0),
            }
            load(&x, &place, &mut seen[reach..]);
            load(&weights, &place[1..], factors);
            let mut first = [0f32];
            if let Some(bias) = bias {
                // SAFETY: the channel is within the view.
                unsafe { f32::load(bias.dtype(), at(bias, &place[1..]), 1, &mut first) };
            }
            sums.fill(first[0]);
            for (tap, factor) in factors.iter().enumerate() {
                let from = &seen[tap * prim.dilation..][..length];
                sums.iter_mut().zip(from).for_each(|(sum, x)| *sum += factor * x);
            }
            if prim.silu {
                sums.iter_mut().for_each(|sum| *sum /= 1.0 + (-*sum).exp());
            }
            // The old state has been read: the new one may have its address.
            for (out, values) in [(&y, &*sums), (&present, &seen[length..])] {
                let to = at(&out.as_tensor(), &place).cast_mut();
                // SAFETY: the row is within the view, and belongs to one task.
                unsafe { f32::store(out.dtype(), to, out.strides()[2], values) };
            }
        }
    });
    Ok(())
}

/// The address of the element at an index; missing coordinates are 0.
fn at(tensor: &Tensor<'_>, index: &[usize]) -> *const u8 {
    let elems: isize = index.iter().zip(tensor.strides()).map(|(&at, stride)| at as isize * stride).sum();
    tensor.start().wrapping_offset(elems * tensor.dtype().bytes() as isize)
}

/// Reads a row along the last axis.
fn load(tensor: &Tensor<'_>, index: &[usize], out: &mut [f32]) {
    let stride = tensor.strides().last().copied().unwrap_or(1);
    // SAFETY: callers pass a row within the view.
    unsafe { f32::load(tensor.dtype(), at(tensor, index), stride, out) };
}
