//! Depthwise convolutions along a sequence, with a state: `hip/causal_conv.hip`.
use graph::prim::CausalConv;
use graph::{DType, Declined, Step};

use crate::kernel::type_name;
use crate::layout::grid_x;
use crate::rotary::strides;
use crate::{Args, Kernel, Launch, Launches};

const THREADS: usize = 256;
/// Maximum elements of a state that a thread holds.
const MAX_HELD: usize = 16;

pub(crate) fn work(prim: &CausalConv, step: &Step) -> Result<Launches, Declined> {
    let ([x, weights, more @ ..], [y, present]) = (&step.inputs[..], &step.outputs[..]) else {
        return Err(Declined::new("a convolution without weights"));
    };
    let (&[batch, channels, length], &[_, taps]) = (&x.shape[..], &weights.shape[..]) else {
        return Err(Declined::new("a convolution with operands of the wrong rank"));
    };
    if !matches!(x.dtype, DType::F32 | DType::F16 | DType::Bf16) {
        return Err(Declined::new(format!("a convolution with a state of {}", x.dtype)));
    }
    let (rows, reach) = (batch * channels, (taps - 1) * prim.dilation);
    if rows == 0 || length + reach == 0 {
        return Ok(Launches::nothing());
    }
    if rows >= 1 << 31 || length + reach >= 1 << 31 {
        return Err(Declined::new("an axis of 2^31 elements or more"));
    }
    let is_along = length > 1 && x.strides[2].unsigned_abs() < x.strides[1].unsigned_abs();
    let lanes = length.next_power_of_two().min(if is_along { 64 } else { 8 });
    // A long state needs more threads.
    let lanes = lanes.max(reach.div_ceil(MAX_HELD).next_power_of_two());
    if lanes > THREADS {
        return Err(Declined::new(format!("a convolution with a state of {reach} elements")));
    }
    let past = prim.past.then(|| (2, &more[0]));
    let bias = prim.bias.then(|| (2 + usize::from(prim.past), &more[usize::from(prim.past)]));
    let mut args = Args::new().input("x", 0, x).input("weights", 1, weights);
    for (name, operand) in [("past", past), ("bias", bias)] {
        args = match operand {
            Some((number, view)) => args.input(name, number, view),
            None => args.null(name),
        };
    }
    let args = args
        .output("y", 0, y)
        .output("present", 1, present)
        .i64s("x_axis", &strides::<3>(x))
        .i64s("y_axis", &strides::<3>(y))
        .i64s("past_axis", &past.map_or([0; 3], |(_, view)| strides::<3>(view)))
        .i64s("present_axis", &strides::<3>(present))
        .i64s("weights_axis", &strides::<2>(weights))
        .i64("bias_step", bias.map_or(0, |(_, view)| strides::<1>(view)[0]))
        .u32s("rows", &[rows, channels, length].map(|extent| extent as u32))
        .u32s("taps", &[taps, prim.dilation, reach].map(|extent| extent as u32));
    let kernel = Kernel::new("causal_conv", include_str!("../hip/causal_conv.hip"))
        .set("T", type_name(x.dtype))
        .set("LANES", lanes)
        .set("HELD", reach.div_ceil(lanes).max(1))
        .set("ALONG", u8::from(is_along))
        .set("SILU", u8::from(prim.silu));
    let grid = [grid_x(rows.div_ceil(THREADS / lanes) as u64)?, 1, 1];
    Ok(Launches::one(Launch { kernel, grid, threads: THREADS as u32, lds_bytes: 0, args }))
}
