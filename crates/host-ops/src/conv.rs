//! Convolutions.
use graph::DType;
use graph::prim::Conv;
use smallvec::smallvec;

use crate::convolve::{Job, Lattice, convolve};
use crate::epilogue::Epilogue;
use crate::planes::{AXES, Window, spatial};
use crate::{Context, OpError, Tensor, TensorMut, depthwise};

/// Calls a function for the types of input, weights and output, or returns an error if they are not supported.
macro_rules! typed {
    ($name:literal, $function:ident, $job:expr, $cx:expr) => {{
        use half::{bf16, f16};
        match ($job.x.dtype(), $job.w.dtype(), $job.sum_dtype()) {
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
pub(crate) fn run(
    prim: &Conv,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    epilogue: Option<Epilogue<'_>>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (x, w) = (&inputs[0], &inputs[1]);
    if out.shape().len() > 2 + AXES {
        return Err(OpError::Unsupported { prim: "conv over more than three axes", dtype: out.dtype() });
    }
    if out.elems() == 0 {
        return Ok(());
    }
    let output = spatial(&out.shape()[2..], 1);
    let window =
        Window { kernel: &w.shape()[2..], strides: &prim.strides, dilations: &prim.dilations, pads: &prim.pads };
    let (planes, taps) = window.layout(output);
    let job = Job {
        x,
        w,
        bias: prim.bias.then(|| &inputs[2]),
        out,
        epilogue,
        groups: prim.groups,
        planes,
        lattices: smallvec![Lattice { first: [0; AXES], step: [1; AXES], count: output, taps }],
        transposed: false,
        zeros: [0; 2],
    };
    if prim.groups > 1 && x.shape()[1] == prim.groups {
        use depthwise::convolve_channels;
        typed!("conv", convolve_channels, &job, cx);
    } else {
        typed!("conv", convolve, &job, cx);
    }
    Ok(())
}
