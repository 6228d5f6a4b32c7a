//! Scatters updates to indices: `hip/scatter_replace.hip` and `hip/scatter_join.hip`.
use graph::expr::Expr;
use graph::prim::{Scatter, ScatterKind};
use graph::{DType, Declined, Step, View, shape};

use crate::expr::OPERATIONS;
use crate::kernel::{type_name, word_name};
use crate::place::{Tuple, padded};
use crate::walk::{AXES, Axis, Walk, pack};
use crate::{Arch, Args, Kernel, Launch, Launches, map};

const REPLACE: &str =
    concat!(include_str!("../hip/walk.h"), include_str!("../hip/place.h"), include_str!("../hip/scatter_replace.hip"));
const JOIN: &str =
    concat!(include_str!("../hip/walk.h"), include_str!("../hip/place.h"), include_str!("../hip/scatter_join.hip"));
const THREADS: u32 = 256;
const MAX_BLOCKS: u32 = 1 << 20;
/// A column with fewer steps is computed by one thread, whatever else there is to do.
const FEW_STEPS: u32 = 64;
/// This many columns fill a GPU with one thread each.
const MANY_COLUMNS: u32 = 1 << 14;

/// Updates elements whose index along an axis is given.
pub(crate) fn elements(scatter: &Scatter, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let (indices, updates, y) = (&step.inputs[1], &step.inputs[2], &step.outputs[0]);
    let axis = scatter.axis;
    let mut base = y.strides.clone();
    base[axis] = 0;
    let tuple = Tuple::new(indices, 0, y, axis..axis + 1)?;
    let axes = 0..updates.shape.len();
    if scatter.kind == ScatterKind::Replace {
        let dense = shape::dense_strides(&y.shape);
        let place = |at: usize| if at == axis { 0 } else { dense[at] };
        let tuples: Vec<Axis<4>> = axes
            .map(|at| (updates.shape[at], [indices.strides[at], updates.strides[at], base[at], place(at)]))
            .collect();
        return replace(start(step, arch)?, step, &tuple, &tuples, &[], &[dense[axis] as i64], y.elems());
    }
    let columns: Vec<Axis<3>> = axes
        .filter(|&at| at != axis)
        .map(|at| (updates.shape[at], [base[at], indices.strides[at], updates.strides[at]]))
        .collect();
    let steps = (updates.shape[axis], [indices.strides[axis], updates.strides[axis]]);
    join(start(step, arch)?, scatter.kind, step, &tuple, &columns, &[steps])
}

/// Updates slices by tuples along the indices' last axis.
pub(crate) fn tuples(scatter: &Scatter, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let (indices, updates, y) = (&step.inputs[1], &step.inputs[2], &step.outputs[0]);
    let kept = indices.shape.len() - 1;
    let depth = indices.shape[kept];
    let tuple = Tuple::new(indices, indices.strides[kept], y, 0..depth)?;
    let slice = || {
        (0..y.shape.len() - depth).map(|at| (y.shape[depth + at], updates.strides[kept + at], y.strides[depth + at]))
    };
    if scatter.kind == ScatterKind::Replace {
        let tuples: Vec<Axis<4>> =
            (0..kept).map(|at| (indices.shape[at], [indices.strides[at], updates.strides[at], 0, 0])).collect();
        let elems: Vec<Axis<2>> = slice().map(|(extent, updates, y)| (extent, [y, updates])).collect();
        let places = shape::elems(&y.shape[..depth]).unwrap_or(usize::MAX);
        let along: Vec<i64> = shape::dense_strides(&y.shape[..depth]).iter().map(|&stride| stride as i64).collect();
        return replace(start(step, arch)?, step, &tuple, &tuples, &elems, &along, places);
    }
    let columns: Vec<Axis<3>> = slice().map(|(extent, updates, y)| (extent, [y, 0, updates])).collect();
    let steps: Vec<Axis<2>> =
        (0..kept).map(|at| (indices.shape[at], [indices.strides[at], updates.strides[at]])).collect();
    join(start(step, arch)?, scatter.kind, step, &tuple, &columns, &steps)
}

/// The launches that copy the data to the output, unless it is already there.
fn start(step: &Step, arch: &Arch) -> Result<Vec<Launch>, Declined> {
    let (data, y) = (&step.inputs[0], &step.outputs[0]);
    let is_there = (data.buffer, data.offset, &data.strides) == (y.buffer, y.offset, &y.strides);
    if is_there {
        return Ok(Vec::new());
    }
    Ok(map::elementwise(&Expr::copy(data.dtype, y.dtype), &[data], y, arch)?.launches)
}

/// Updates that replace, after the earlier launches. Strides of tuples are those of indices, updates, output and
/// places; of a slice's elements those of output and updates.
fn replace(
    mut launches: Vec<Launch>,
    step: &Step,
    tuple: &Tuple,
    tuples: &[Axis<4>],
    slice: &[Axis<2>],
    place_along: &[i64],
    places: usize,
) -> Result<Launches, Declined> {
    let (indices, updates, y): (&View, &View, &View) = (&step.inputs[1], &step.inputs[2], &step.outputs[0]);
    // In row-major order, in which the tuples are numbered.
    let tuples = Walk::new(tuples)?;
    let slice = Walk::in_memory_order(slice)?;
    if tuples.elems() == 0 || slice.elems() == 0 {
        return Ok(Launches { launches, scratch_bytes: 0 });
    }
    let (extent, last) = slice.last();
    let pack = if last == [1, 1] {
        let starts = [i64::from(extent), y.offset as i64, updates.offset as i64];
        let strides = slice.outer_strides(0).chain(slice.outer_strides(1)).chain(tuple.along());
        pack(y.dtype, 16, strides.chain((0..AXES).map(|axis| tuples.strides(1)[axis])).chain(starts))
    } else {
        1
    };
    let slice = slice.packed(pack);
    let all = u64::from(tuples.elems()) * u64::from(slice.elems());
    let number = |count: u64, what: &str| {
        let fits = u32::try_from(count).ok().filter(|&count| count < 1 << 31);
        fits.ok_or_else(|| Declined::new(format!("a scatter of {count} {what}")))
    };
    let (all, places) = (number(all, "packs")?, number(places as u64, "places")?);
    let tuple_strides: [[i64; AXES]; 4] = [0, 1, 2, 3].map(|view| tuples.strides(view));
    let slice_strides: [[i64; AXES]; 2] = [1, 0].map(|view| slice.strides(view));
    let args = Args::new()
        .output("y", 0, y)
        .input("indices", 1, indices)
        .input("updates", 2, updates)
        .scratch("marks", 0)
        .fault("fault")
        .u32("places", places)
        .u32("tuples", tuples.elems())
        .u32("packs", slice.elems())
        .u32("depth", tuple.depth())
        .u32s("by_tuple", &tuples.numbers())
        .i64s("tuple_strides", tuple_strides.as_flattened())
        .u32s("by_pack", &slice.numbers())
        .i64s("pack_strides", slice_strides.as_flattened());
    let args = tuple.add_to(args).i64s("place_along", &padded(place_along));
    for (name, threads) in [("scatter_clear", places), ("scatter_mark", tuples.elems()), ("scatter_write", all)] {
        let kernel =
            Kernel::new(name, REPLACE).set("T", word_name(y.dtype)).set("I", tuple.index_type()).set("V", pack);
        launches.push(Launch {
            kernel,
            grid: blocks(threads.div_ceil(THREADS)),
            threads: THREADS,
            lds_bytes: 0,
            args: args.clone(),
        });
    }
    Ok(Launches { launches, scratch_bytes: places as usize * 4 })
}

/// Updates that are combined with existing values, after the earlier launches. Strides of columns are those of output,
/// indices and updates; of steps those of indices and updates.
fn join(
    mut launches: Vec<Launch>,
    kind: ScatterKind,
    step: &Step,
    tuple: &Tuple,
    columns: &[Axis<3>],
    steps: &[Axis<2>],
) -> Result<Launches, Declined> {
    let (indices, updates, y): (&View, &View, &View) = (&step.inputs[1], &step.inputs[2], &step.outputs[0]);
    if y.dtype == DType::Bool {
        return Err(Declined::new("updates of bools with a reduction"));
    }
    let columns = Walk::in_memory_order(columns)?;
    // In row-major order, in which updates are applied.
    let steps = Walk::new(steps)?;
    if columns.elems() == 0 || steps.elems() == 0 {
        return Ok(Launches { launches, scratch_bytes: 0 });
    }
    let column_strides: [[i64; AXES]; 3] = [0, 1, 2].map(|view| columns.strides(view));
    let step_strides: [[i64; AXES]; 2] = [0, 1].map(|view| steps.strides(view));
    let args = Args::new()
        .output("y", 0, y)
        .input("indices", 1, indices)
        .input("updates", 2, updates)
        .fault("fault")
        .u32("columns", columns.elems())
        .u32("steps", steps.elems())
        .u32("depth", tuple.depth())
        .u32s("by_column", &columns.numbers())
        .i64s("column_strides", column_strides.as_flattened())
        .u32s("by_step", &steps.numbers())
        .i64s("step_strides", step_strides.as_flattened());
    let one_thread = steps.elems() < FEW_STEPS || columns.elems() >= MANY_COLUMNS;
    let (name, count) = if one_thread {
        ("scatter_columns", columns.elems().div_ceil(THREADS))
    } else {
        ("scatter_steps", columns.elems())
    };
    let number = match kind {
        ScatterKind::Replace | ScatterKind::Add => 0,
        ScatterKind::Mul => 1,
        ScatterKind::Max => 2,
        ScatterKind::Min => 3,
    };
    let kernel = Kernel::new(name, JOIN)
        .with([OPERATIONS])
        .set("T", type_name(y.dtype))
        .set("I", tuple.index_type())
        .set("KIND", number);
    launches.push(Launch { kernel, grid: blocks(count), threads: THREADS, lds_bytes: 0, args: tuple.add_to(args) });
    Ok(Launches { launches, scratch_bytes: 0 })
}

fn blocks(count: u32) -> [u32; 3] {
    [count.min(MAX_BLOCKS), 1, 1]
}
