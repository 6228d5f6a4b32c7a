//! Normalisation over the last axes: `hip/norm.hip`.
use graph::prim::Norm;
use graph::{Declined, Step, View};

use crate::kernel::type_name;
use crate::team::{THREADS, Team, floats_only};
use crate::walk::{HEADER, Walk, pack};
use crate::{Arch, Args, Kernel, Launch, Launches};

const TEXT: &str = concat!(include_str!("../hip/team.h"), include_str!("../hip/norm.hip"));

pub(crate) fn work(prim: &Norm, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    floats_only("a norm", x.dtype)?;
    let kept = x.shape.len() - prim.axes;
    let scale = prim.scale.then_some(1);
    let bias = prim.bias.then_some(1 + usize::from(prim.scale));
    // Scale and bias have the normalised axes only, aligned at the end.
    let by_column = |input: Option<usize>, axis: usize| {
        let view = input.map(|input| &step.inputs[input]);
        let stride = view.and_then(|view| Some(view.strides[(axis + view.shape.len()).checked_sub(x.shape.len())?]));
        stride.unwrap_or(0)
    };
    let outer: Vec<_> = (0..kept).map(|axis| (x.shape[axis], [x.strides[axis], y.strides[axis]])).collect();
    let inner: Vec<_> = (kept..x.shape.len())
        .map(|axis| (x.shape[axis], [x.strides[axis], y.strides[axis], by_column(scale, axis), by_column(bias, axis)]))
        .collect();
    let (rows, columns) = (Walk::in_memory_order(&outer)?, Walk::in_memory_order(&inner)?);
    if rows.elems() == 0 || columns.elems() == 0 {
        return Ok(Launches::nothing());
    }
    let views: Vec<(usize, &View)> = [(0, x), (1, y)]
        .into_iter()
        .chain(scale.map(|input| (2, &step.inputs[input])))
        .chain(bias.map(|input| (3, &step.inputs[input])))
        .collect();
    let (extent, steps) = columns.last();
    let is_near = views.iter().all(|&(at, _)| steps[at] == 1);
    let is_flat = is_near && columns.rank() == 1;
    let vec = if is_near {
        let offsets = views.iter().map(|(_, view)| view.offset as i64);
        let strides = views.iter().flat_map(|&(at, _)| columns.outer_strides(at).collect::<Vec<_>>());
        let numbers = offsets.chain(strides).chain(rows.strides(0)).chain(rows.strides(1));
        let numbers: Vec<_> = numbers.chain([i64::from(extent)]).collect();
        views.iter().map(|(_, view)| pack(view.dtype, 8, numbers.iter().copied())).min().unwrap_or(1)
    } else {
        1
    };
    let count = columns.elems();
    let columns = columns.packed(vec);
    let is_turned = rows.elems() > 1 && extent > 1 && rows.last().1[0].unsigned_abs() < steps[0].unsigned_abs();
    let team = if is_turned {
        Team::turned(rows.elems(), columns.elems(), arch)
    } else {
        Team::new(rows.elems(), columns.elems(), vec, x.dtype.bytes(), arch)
    };
    let optional = |args: Args, name, input: Option<usize>| match input {
        Some(input) => args.input(name, input, &step.inputs[input]),
        None => args.null(name),
    };
    let args = optional(Args::new().input("x", 0, x).output("y", 0, y), "scale", scale);
    let args = optional(args, "bias", bias)
        .i64s("x_rows", &rows.strides(0))
        .i64s("y_rows", &rows.strides(1))
        .i64s("x_columns", &columns.strides(0))
        .i64s("y_columns", &columns.strides(1))
        .i64s("scale_columns", &columns.strides(2))
        .i64s("bias_columns", &columns.strides(3))
        .i64("count", i64::from(count))
        .u32s("rows", &rows.numbers())
        .u32s("columns", &columns.numbers())
        .u32("row_count", rows.elems())
        .u32("packs", columns.elems())
        .u32("lanes", team.lanes)
        .f32("epsilon", prim.epsilon)
        .u32("centre", u32::from(prim.centre))
        .u32("round", u32::from(prim.round_before_scale));
    let dtype = |input: Option<usize>| input.map_or(x.dtype, |input| step.inputs[input].dtype);
    // The kernel is not called `norm` like its file, because CUDA has a function of that name.
    let kernel = Kernel::new("normalise", TEXT)
        .with([HEADER])
        .set("T", type_name(x.dtype))
        .set("TY", type_name(y.dtype))
        .set("TS", type_name(dtype(scale)))
        .set("TB", type_name(dtype(bias)))
        .set("VEC", vec)
        .set("FLAT", u8::from(is_flat))
        .set("HELD", team.held)
        .set("AHEAD", u8::from(team.resident.is_some()))
        .set("TURNED", u8::from(is_turned));
    Ok(Launches::one(Launch { kernel, grid: [team.blocks(rows.elems()), 1, 1], threads: THREADS, lds_bytes: 0, args }))
}
