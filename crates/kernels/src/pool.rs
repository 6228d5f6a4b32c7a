//! Pooling: `hip/pool.hip`.
use graph::{
    DType, Declined, Step, View,
    prim::{Pool, PoolKind},
};

use crate::{
    Args, Kernel, Launch, Work,
    expr::MATH,
    kernel::type_name,
    team::{THREADS, grid},
    walk::{HEADER, Walk, pack},
};

/// Spatial axes; fewer get axes of extent 1 in front.
const SPATIAL: usize = 3;

/// With axes of extent 1 in front of the spatial ones.
fn spatial<T: Copy>(values: &[T], other: T) -> [T; SPATIAL] {
    let missing = SPATIAL - values.len();
    std::array::from_fn(|at| at.checked_sub(missing).map_or(other, |at| values[at]))
}

fn small(value: isize) -> Result<u32, Declined> {
    let fits = i32::try_from(value).ok().filter(|value| value.unsigned_abs() < 1 << 30);
    fits.map(|value| value as u32).ok_or_else(|| Declined::new(format!("pooling with a parameter of {value}")))
}

/// As `i32`s of an argument structure.
fn smalls<T: TryInto<isize>>(values: [T; SPATIAL]) -> Result<[u32; SPATIAL], Declined> {
    let mut small_values = [0; SPATIAL];
    for (to, value) in small_values.iter_mut().zip(values) {
        *to = small(value.try_into().unwrap_or(isize::MAX))?;
    }
    Ok(small_values)
}

/// A view's strides along n, c and the spatial axes.
fn strides(view: &View) -> [i64; 2 + SPATIAL] {
    let inner = spatial(&view.strides[2..], 0);
    [view.strides[0], view.strides[1], inner[0], inner[1], inner[2]].map(|stride| stride as i64)
}

/// What windows are computed in, and the lowest value of it.
fn compute(prim: &Pool, dtype: DType) -> Result<(DType, &'static str), Declined> {
    let is_max = matches!(prim.kind, PoolKind::Max { .. });
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => Ok((DType::F32, "(-INFINITY_OF(f32))")),
        DType::F64 => Ok((DType::F64, "(-INFINITY_OF(f64))")),
        DType::I8 | DType::U8 | DType::I32 if is_max => Ok((DType::I32, "((i32)0x80000000)")),
        DType::I64 if is_max => Ok((DType::I64, "((i64)0x8000000000000000)")),
        other => Err(Declined::new(format!("pooling of {other}"))),
    }
}

pub(crate) fn work(prim: &Pool, step: &Step) -> Result<Work, Declined> {
    let (x, y, index) = (&step.inputs[0], &step.outputs[0], step.outputs.get(1));
    if x.shape.len() > 2 + SPATIAL {
        return Err(Declined::new("pooling over more than three axes"));
    }
    if y.elems() == 0 {
        return Ok(Work::nothing());
    }
    let (computed, lowest) = compute(prim, x.dtype)?;
    let (input, output) = (spatial(&x.shape[2..], 1), spatial(&y.shape[2..], 1));
    let (x_strides, y_strides) = (strides(x), strides(y));
    let channels = x.shape[1];
    let nearest =
        y_strides[2..].iter().zip(output).filter(|(_, extent)| *extent > 1).map(|(s, _)| s.unsigned_abs()).min();
    let is_last = channels > 1 && nearest.is_none_or(|nearest| y_strides[1].unsigned_abs() < nearest);
    let vec = if is_last && x_strides[1] == 1 && y_strides[1] == 1 && index.is_none() {
        let outer = [0, 2, 3, 4].into_iter().flat_map(|axis| [x_strides[axis], y_strides[axis]]);
        pack(x.dtype, 8, outer.chain([channels as i64, x.offset as i64, y.offset as i64]))
    } else {
        1
    };
    let spatial_axes = output.map(|extent| (extent, []));
    let mut order = vec![(1, []), (x.shape[0], [])];
    let channel_axis = (channels / vec as usize, []);
    if is_last {
        order.extend(spatial_axes);
        order.push(channel_axis);
    } else {
        order.push(channel_axis);
        order.extend(spatial_axes);
    }
    let order = Walk::<0>::separate(&order)?;
    let column_major = prim.kind == PoolKind::Max { column_major: true };
    let counts: [i64; SPATIAL] = std::array::from_fn(|axis| {
        let others = if column_major { &input[..axis] } else { &input[axis + 1..] };
        others.iter().product::<usize>() as i64
    });
    let (pads, pads_end) = (spatial(&prim.pads, 0), spatial(&prim.pads_end, 0));
    let counts_padding = prim.kind == PoolKind::Average { count_pad: true };
    let (first, end): ([isize; SPATIAL], [isize; SPATIAL]) = if counts_padding {
        (pads.map(|pad| -pad), std::array::from_fn(|axis| input[axis] as isize + pads_end[axis]))
    } else {
        ([0; SPATIAL], input.map(|extent| extent as isize))
    };
    let args = Args::new().input("x", 0, x).output("y", 0, y);
    let args = match index {
        Some(index) => args.output("index", 1, index),
        None => args.null("index"),
    };
    let args = args
        .i64s("x_strides", &x_strides)
        .i64s("y_strides", &y_strides)
        .i64s("index_strides", &index.map_or([0; 5], strides))
        .i64("plane", input.iter().product::<usize>() as i64)
        .i64("channels", channels as i64)
        .i64s("counts", &counts)
        .u32s("order", &order.numbers())
        .u32("elems", order.elems())
        .u32s("input", &smalls(input)?)
        .u32s("kernel", &smalls(spatial(&prim.kernel, 1))?)
        .u32s("step", &smalls(spatial(&prim.strides, 1))?)
        .u32s("dilation", &smalls(spatial(&prim.dilations, 1))?)
        .u32s("pad", &smalls(pads)?)
        .u32s("first", &smalls(first)?)
        .u32s("end", &smalls(end)?)
        .f32("p", if let PoolKind::Lp { p } = prim.kind { p } else { 0.0 });
    let kind = match prim.kind {
        PoolKind::Max { .. } => 0,
        PoolKind::Average { .. } => 1,
        PoolKind::Lp { .. } => 2,
    };
    let kernel = Kernel::new("pool", include_str!("../hip/pool.hip"))
        .with([HEADER])
        .with((kind == 2).then_some(MATH))
        .set("T", type_name(x.dtype))
        .set("C", type_name(computed))
        .set("LOWEST", lowest)
        .set("KIND", kind)
        .set("INDEX", u8::from(index.is_some()))
        .set("CHANNELS_LAST", u8::from(is_last))
        .set("VEC", vec);
    Ok(Work::one(Launch { kernel, grid: grid(order.elems()), threads: THREADS, lds_bytes: 0, args }))
}
