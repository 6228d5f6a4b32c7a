//! Rotary position embeddings: `hip/rotary.hip`.
use graph::prim::{Positions, Rotary};
use graph::{DType, Declined, Step, View};

use crate::kernel::type_name;
use crate::walk::pack;
use crate::{Args, Kernel, Launch, Launches};

const TEXT: &str = concat!(include_str!("../hip/lengths.h"), include_str!("../hip/rotary.hip"));
const THREADS: u32 = 256;
const MAX_BLOCKS: u32 = 1 << 20;

pub(crate) fn work(rotary: &Rotary, step: &Step) -> Result<Launches, Declined> {
    let ([x, cosines, sines, operand], [y]) = (&step.inputs[..], &step.outputs[..]) else {
        return Err(Declined::new("rotary without angles and positions"));
    };
    let (&[batch, rows, heads, size], &[count, half]) = (&x.shape[..], &cosines.shape[..]) else {
        return Err(Declined::new("rotary with operands of the wrong rank"));
    };
    let one_type = [cosines, sines, y].iter().all(|view| view.dtype == x.dtype);
    if !one_type || !matches!(x.dtype, DType::F32 | DType::F16 | DType::Bf16) {
        return Err(Declined::new(format!("rotary of {}", x.dtype)));
    }
    if x.elems() >= 1 << 31 {
        return Err(Declined::new("rotary of 2^31 elements or more"));
    }
    if x.elems() == 0 {
        return Ok(Launches::nothing());
    }
    let pairs = pack_of(x, cosines, sines, y);
    // Half of the rotated elements, then the copied ones.
    let head_units = (size - half) / pairs as usize;
    let units = (batch * rows * heads * head_units) as u32;
    let (behind, shift) = match rotary.positions {
        Positions::Given => (false, 0),
        Positions::Behind(filled) => (true, filled.shift),
    };
    let positions: [i64; 2] = strides(operand);
    let args = Args::new()
        .input("x", 0, x)
        .input("cosines", 1, cosines)
        .input("sines", 2, sines)
        .input("positions", 3, operand)
        .output("y", 0, y)
        .fault("fault")
        .i64s("x_axis", &strides::<4>(x))
        .i64s("y_axis", &strides::<4>(y))
        .i64s("cosine_axis", &strides::<2>(cosines))
        .i64s("sine_axis", &strides::<2>(sines))
        .i64s("position_axis", &positions)
        .i64("shift", shift)
        .i64("count", count as i64)
        .u32s("units", &[units, rows as u32, heads as u32, head_units as u32, half as u32]);
    let kernel = Kernel::new("rotary", TEXT)
        .set("T", type_name(x.dtype))
        .set("I", type_name(operand.dtype))
        .set("V", pairs)
        .set("BEHIND", u8::from(behind))
        .set("INTERLEAVED", u8::from(rotary.interleaved));
    let grid = [units.div_ceil(THREADS).min(MAX_BLOCKS), 1, 1];
    Ok(Launches::one(Launch { kernel, grid, threads: THREADS, lds_bytes: 0, args }))
}

/// The first `N` strides of a view; 0 if it has fewer.
pub(crate) fn strides<const N: usize>(view: &View) -> [i64; N] {
    std::array::from_fn(|axis| view.strides.get(axis).map_or(0, |&stride| stride as i64))
}

/// How many pairs a thread rotates.
fn pack_of(x: &View, cosines: &View, sines: &View, y: &View) -> u32 {
    let views = [x, cosines, sines, y];
    if views.iter().any(|view| view.strides.last() != Some(&1)) {
        return 1;
    }
    let (size, half) = (x.shape[3] as i64, cosines.shape[1] as i64);
    let rows = views.iter().flat_map(|view| {
        let outer = (0..view.shape.len() - 1).filter(|&axis| view.shape[axis] > 1);
        outer.map(|axis| view.strides[axis] as i64).chain([view.offset as i64])
    });
    pack(x.dtype, 16, rows.chain([half, size - 2 * half]))
}
