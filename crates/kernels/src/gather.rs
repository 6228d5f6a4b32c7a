//! Gathers elements by index: `hip/gather.hip`.
use graph::prim::{Axis, BatchDims};
use graph::{Declined, Step, View};

use crate::kernel::word_name;
use crate::place::Tuple;
use crate::walk::{AXES, Walk, pack};
use crate::{Args, Kernel, Launch, Launches};

const TEXT: &str =
    concat!(include_str!("../hip/walk.h"), include_str!("../hip/place.h"), include_str!("../hip/gather.hip"));
/// Packs per block.
const BLOCK: u32 = 512;
const MAX_BLOCKS: u32 = 1 << 20;

/// Slices of data `[outer, axis, inner]` by indices `[count]`.
pub(crate) fn slices(step: &Step) -> Result<Launches, Declined> {
    let (data, indices) = (&step.inputs[0], &step.inputs[1]);
    let index = indices.strides.first().copied().unwrap_or(0);
    let tuple = Tuple::new(indices, 0, data, 1..2)?;
    launch(step, &tuple, &[0, index, 0], &[data.strides[0], 0, data.strides[2]])
}

/// Gathers elements whose index along an axis is given.
pub(crate) fn elements(axis: &Axis, step: &Step) -> Result<Launches, Declined> {
    let (data, indices) = (&step.inputs[0], &step.inputs[1]);
    let mut base = data.strides.clone();
    base[axis.0] = 0;
    let tuple = Tuple::new(indices, 0, data, axis.0..axis.0 + 1)?;
    launch(step, &tuple, &indices.strides, &base)
}

/// Gathers slices by tuples along the indices' last axis.
pub(crate) fn tuples(batch: &BatchDims, step: &Step) -> Result<Launches, Declined> {
    let (data, indices) = (&step.inputs[0], &step.inputs[1]);
    let kept = indices.shape.len() - 1;
    let slice = batch.0 + indices.shape[kept];
    let index: Vec<isize> =
        (0..step.outputs[0].shape.len()).map(|axis| if axis < kept { indices.strides[axis] } else { 0 }).collect();
    let between = std::iter::repeat_n(0, kept - batch.0);
    let base: Vec<isize> =
        data.strides[..batch.0].iter().copied().chain(between).chain(data.strides[slice..].iter().copied()).collect();
    launch(step, &Tuple::new(indices, indices.strides[kept], data, batch.0..slice)?, &index, &base)
}

/// The launch for an output whose elements have their tuples and their data at these strides.
fn launch(step: &Step, tuple: &Tuple, index: &[isize], base: &[isize]) -> Result<Launches, Declined> {
    let (data, indices, y): (&View, &View, &View) = (&step.inputs[0], &step.inputs[1], &step.outputs[0]);
    let axes: Vec<_> =
        (0..y.shape.len()).map(|axis| (y.shape[axis], [y.strides[axis], index[axis], base[axis]])).collect();
    let walk = Walk::in_memory_order(&axes)?;
    if walk.elems() == 0 {
        return Ok(Launches { launches: Vec::new(), scratch_bytes: 0 });
    }
    let (extent, last) = walk.last();
    let pack = if last == [1, 0, 1] {
        let strides = walk.outer_strides(0).chain(walk.outer_strides(2)).chain(tuple.along());
        let starts = [i64::from(extent), y.offset as i64, data.offset as i64];
        pack(y.dtype, 16, strides.chain(starts))
    } else {
        1
    };
    let walk = walk.packed(pack);
    let strides: [[i64; AXES]; 3] = [0, 1, 2].map(|view| walk.strides(view));
    let args = Args::new()
        .output("y", 0, y)
        .input("indices", 1, indices)
        .input("data", 0, data)
        .fault("fault")
        .u32("packs", walk.elems())
        .u32("depth", tuple.depth())
        .u32s("axes", &walk.numbers())
        .i64s("strides", strides.as_flattened());
    let kernel = Kernel::new("gather", TEXT).set("T", word_name(y.dtype)).set("I", tuple.index_type()).set("V", pack);
    let grid = [walk.elems().div_ceil(BLOCK).min(MAX_BLOCKS), 1, 1];
    Ok(Launches::one(Launch { kernel, grid, threads: 256, lds_bytes: 0, args: tuple.add_to(args) }))
}
