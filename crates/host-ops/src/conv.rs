//! Convolutions.
use graph::{DType, prim::Conv};
use smallvec::SmallVec;

use crate::{
    Context, OpError, Tensor, TensorMut,
    convolve::{Job, Lattice, Tap, convolve},
    depthwise,
    planes::{AXES, Axis, Planes, spatial},
};

/// Calls a function for the types of input, weights and output, or says that they are not there.
macro_rules! typed {
    ($name:literal, $function:ident, $job:expr, $cx:expr) => {{
        use half::{bf16, f16};
        match ($job.x.dtype(), $job.w.dtype(), $job.out.dtype()) {
            (DType::F32, DType::F32, DType::F32) => $function::<f32, f32, f32, f32>($job, $cx),
            (DType::F64, DType::F64, DType::F64) => $function::<f64, f64, f64, f64>($job, $cx),
            (DType::F16, DType::F16, DType::F16) => $function::<f32, f16, f16, f16>($job, $cx),
            (DType::Bf16, DType::Bf16, DType::Bf16) => $function::<f32, bf16, bf16, bf16>($job, $cx),
            (DType::I32, DType::I32, DType::I32) => $function::<i32, i32, i32, i32>($job, $cx),
            (DType::I64, DType::I64, DType::I64) => $function::<i64, i64, i64, i64>($job, $cx),
            (DType::U8, DType::U8, DType::I32) => $function::<i32, u8, u8, i32>($job, $cx),
            (DType::U8, DType::I8, DType::I32) => $function::<i32, u8, i8, i32>($job, $cx),
            (DType::I8, DType::I8, DType::I32) => $function::<i32, i8, i8, i32>($job, $cx),
            (DType::I8, DType::U8, DType::I32) => $function::<i32, i8, u8, i32>($job, $cx),
            (.., dtype) => return Err(OpError::Unsupported { prim: $name, dtype }),
        }
    }};
}

pub(crate) use typed;

/// x `[n, c, spatial…]`, w `[m, c/groups, kernel…]`, bias `[m]` if there is one.
pub(crate) fn run(prim: &Conv, inputs: &[Tensor<'_>], out: TensorMut<'_>, cx: &mut Context<'_>) -> Result<(), OpError> {
    let (x, w) = (&inputs[0], &inputs[1]);
    if out.shape().len() > 2 + AXES {
        return Err(OpError::Unsupported { prim: "conv over more than three axes", dtype: out.dtype() });
    }
    if out.elems() == 0 {
        return Ok(());
    }
    let output = spatial(&out.shape()[2..], 1);
    let (planes, taps) = layout(prim, output, spatial(&w.shape()[2..], 1));
    let job = Job {
        x,
        w,
        bias: prim.bias.then(|| &inputs[2]),
        out,
        groups: prim.groups,
        planes,
        lattices: vec![Lattice { first: [0; AXES], step: [1; AXES], count: output, taps }],
        transposed: false,
    };
    if prim.groups > 1 && x.shape()[1] == prim.groups {
        use depthwise::convolve_channels;
        typed!("conv", convolve_channels, &job, cx);
    } else {
        typed!("conv", convolve, &job, cx);
    }
    Ok(())
}

/// The planes that make every tap a shift, and where each tap finds its elements.
fn layout(prim: &Conv, output: [usize; AXES], kernel: [usize; AXES]) -> (Planes, [SmallVec<[Tap; 8]>; AXES]) {
    let strides = spatial(&prim.strides, 1);
    let dilations = spatial(&prim.dilations, 1);
    let pads = spatial(&prim.pads, 0);
    let axes = std::array::from_fn(|axis| {
        let step = strides[axis];
        let mut first: SmallVec<[isize; 4]> = SmallVec::new();
        for tap in 0..kernel[axis] {
            let start = (tap * dilations[axis] % step) as isize - pads[axis];
            if !first.contains(&start) {
                first.push(start);
            }
        }
        let reach = kernel[axis].saturating_sub(1) * dilations[axis] / step;
        Axis { step, first, extent: output[axis] + reach }
    });
    let planes = Planes { axes };
    let taps = std::array::from_fn(|axis| {
        (0..kernel[axis])
            .map(|kernel| {
                let at = kernel * dilations[axis];
                let start = (at % strides[axis]) as isize - pads[axis];
                let sub = planes.axes[axis].first.iter().position(|&first| first == start).unwrap_or(0);
                Tap { kernel, offset: sub * planes.sub_stride(axis) + at / strides[axis] * planes.stride(axis) }
            })
            .collect()
    });
    (planes, taps)
}
