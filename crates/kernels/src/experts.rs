//! Products with the weights of experts that the data chooses: `hip/experts.hip`.
use graph::prim::{ExpertProduct, ExpertWeights};
use graph::{DType, Declined, Step, View};

use crate::kernel::type_name;
use crate::walk::pack;
use crate::{Arch, Args, Kernel, Launch, Launches};

const THREADS: u32 = 256;
/// The maximum grid size along y.
const MAX_ROWS: usize = 65_535;

pub(crate) fn work(prim: &ExpertProduct, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let ([x, experts, weights, more @ ..], [y]) = (&step.inputs[..], &step.outputs[..]) else {
        return Err(Declined::new("experts without tokens and weights"));
    };
    let (&[_, depth], &[rows, columns], &[count, ..]) = (&x.shape[..], &y.shape[..], &weights.shape[..]) else {
        return Err(Declined::new("experts with operands of the wrong rank"));
    };
    let is_float = |view: &View| matches!(view.dtype, DType::F32 | DType::F16 | DType::Bf16);
    let rows_apart = |view: &View| view.shape[1] <= 1 || view.strides[1] == 1;
    if !is_float(x)
        || !is_float(y)
        || !rows_apart(x)
        || !rows_apart(y)
        || ![weights].into_iter().chain(more).all(View::is_dense)
    {
        return Err(Declined::new(format!("experts on {} that is not contiguous", x.dtype)));
    }
    if y.elems() == 0 {
        return Ok(Launches::nothing());
    }
    if depth >= 1 << 31 || columns >= 1 << 31 || rows >= 1 << 31 {
        return Err(Declined::new("an axis of 2^31 elements or more"));
    }
    // BITS of the kernel, and the bits that a weight takes.
    let (bits, width, block, zeros) = match prim.weights {
        ExpertWeights::Floats => (0, 8 * x.dtype.bytes(), depth, false),
        ExpertWeights::Packed { bits, block, zeros } => (bits, bits, block, zeros),
        ExpertWeights::Float4 { block } => (4, 4, block, false),
    };
    let column_bytes = depth * width / 8;
    let places = 16 | column_bytes | (weights.offset.unsigned_abs() * weights.dtype.bytes());
    let unit = 1usize << places.trailing_zeros();
    let numbers = unit * 8 / width;
    let strides = (rows > prim.share).then(|| x.strides[0] as i64);
    let some = pack(x.dtype, numbers.min(16) as u32, [depth as i64, x.offset as i64].into_iter().chain(strides));
    let blocks = depth / block.max(1);
    let own = prim.weights.operands() - 1;
    let operand = |args: Args, name: &'static str, at: Option<usize>| match at {
        Some(at) => args.input(name, 3 + at, &more[at]),
        None => args.null(name),
    };
    let args = Args::new().input("x", 0, x).input("experts", 1, experts).input("weights", 2, weights);
    let args = operand(args, "scales", (own > 0).then_some(0));
    let args = operand(args, "zeros", zeros.then_some(1));
    let args = operand(args, "bias", prim.bias.then_some(own))
        .output("y", 0, y)
        .fault("fault")
        .i64("x_row", x.strides[0] as i64)
        .i64("y_row", y.strides[0] as i64)
        .i64("experts_step", experts.strides.first().map_or(0, |&stride| stride as i64))
        .u32s("rows", &[rows, prim.share, count, columns].map(|extent| extent as u32))
        .u32("units", (column_bytes / unit) as u32)
        .u32("blocks", blocks as u32)
        .u32("block_shift", if blocks == 1 { 31 } else { block.trailing_zeros() })
        .u32("zero_row", (blocks * bits).div_ceil(8) as u32);
    let scale = if own > 0 { more[0].dtype } else { x.dtype };
    let kernel = Kernel::new("experts", include_str!("../hip/experts.hip"))
        .set("X_T", type_name(x.dtype))
        .set("Y_T", type_name(y.dtype))
        .set("I", type_name(experts.dtype))
        .set("BITS", bits)
        .set("FLOAT4", u8::from(matches!(prim.weights, ExpertWeights::Float4 { .. })))
        .set("SCALE_T", type_name(scale))
        .set("ZEROS", u8::from(zeros))
        .set("UNIT", unit)
        .set("V", some);
    // A wave computes a column.
    let grid = [(columns as u32).div_ceil(THREADS / arch.wave), rows.min(MAX_ROWS) as u32, 1];
    Ok(Launches::one(Launch { kernel, grid, threads: THREADS, lds_bytes: 0, args }))
}
