//! Pooling: `hip/pool.hip`.
use graph::prim::{Pool, PoolKind};
use graph::{DType, Declined, Step, View};

use crate::expr::MATH;
use crate::kernel::type_name;
use crate::team::{THREADS, busy, grid};
use crate::walk::{HEADER, Walk, pack};
use crate::{Arch, Args, Kernel, Launch, Launches};

/// Number of spatial axes; inputs with fewer get leading axes of extent 1.
const SPATIAL: usize = 3;

/// Adds leading axes of extent 1 to the spatial ones.
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

/// The type windows are computed in, and its lowest value.
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

/// Square windows of size 2 or 3 with stride one or two along two axes: both numbers. `strides` are x's.
fn window(prim: &Pool, input: [usize; SPATIAL], strides: &[i64; 2 + SPATIAL]) -> Option<(usize, usize)> {
    let (&[height, width], &[down, right]) = (&prim.kernel[..], &prim.strides[..]) else { return None };
    let reach = (1..SPATIAL).map(|axis| (input[axis] as i64 - 1).checked_mul(strides[2 + axis]));
    let reach = reach.sum::<Option<i64>>()?;
    let is_near = strides[3] >= 0 && strides[4] >= 0 && reach < 1 << 31 && input.iter().all(|&extent| extent > 0);
    let is_square = height == width && down == right && prim.dilations.iter().all(|&dilation| dilation == 1);
    let fits = matches!(height, 2 | 3) && matches!(down, 1 | 2) && !matches!(prim.kind, PoolKind::Lp { .. });
    (is_near && is_square && fits).then_some((height, down))
}

/// Vertically adjacent elements of y per thread, if channels are not innermost and there are enough elements.
const RUN: usize = 4;

pub(crate) fn work(prim: &Pool, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let (x, y, index) = (&step.inputs[0], &step.outputs[0], step.outputs.get(1));
    if x.shape.len() > 2 + SPATIAL {
        return Err(Declined::new("pooling over more than three axes"));
    }
    if y.elems() == 0 {
        return Ok(Launches::nothing());
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
    let window = window(prim, input, &x_strides).filter(|_| index.is_none());
    let has_runs = window.is_some() && !is_last && (y.elems() / RUN) as u64 >= busy(arch);
    let run = if has_runs { RUN } else { 1 };
    // Single halves cost as many instructions as whole words, and load half as much.
    let has_pairs = has_runs && x.dtype.bytes() == 2 && (x_strides[4], y_strides[4]) == (1, 1) && {
        let rows = [0, 1, 3].into_iter().flat_map(|axis| [x_strides[axis], y_strides[axis]]);
        let numbers = rows.chain([input[2], output[2]].map(|extent| extent as i64));
        pack(x.dtype, 2, numbers.chain([x.offset, y.offset].map(|offset| offset as i64))) == 2
    };
    let across = if has_pairs { 2 } else { 1 };
    let mut spatial_axes = output.map(|extent| (extent, [])).to_vec();
    let mut order = vec![(1, []), (x.shape[0], [])];
    if window.is_some() {
        // The kernel for square windows has one spatial axis less, and its threads compute runs of rows and
        // pairs of columns.
        spatial_axes[1].0 = output[1].div_ceil(run);
        spatial_axes[2].0 /= across;
        (spatial_axes, order) = (spatial_axes[1..].to_vec(), order[1..].to_vec());
    }
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
        .f32("p", if let PoolKind::Lp { p } = prim.kind { p } else { 0.0 })
        .u32("rows", output[1] as u32);
    let kind = match prim.kind {
        PoolKind::Max { .. } => 0,
        PoolKind::Average { .. } => 1,
        PoolKind::Lp { .. } => 2,
    };
    let (name, (window, stride)) = window.map_or(("pool", (0, 0)), |window| ("pool_window", window));
    let kernel = Kernel::new(name, include_str!("../hip/pool.hip"))
        .with([HEADER])
        .with((kind == 2).then_some(MATH))
        .set("T", type_name(x.dtype))
        .set("C", type_name(computed))
        .set("LOWEST", lowest)
        .set("KIND", kind)
        .set("INDEX", u8::from(index.is_some()))
        .set("CHANNELS_LAST", u8::from(is_last))
        .set("VEC", vec)
        .set("WINDOW", window)
        .set("STRIDE", stride)
        .set("RUN", run)
        .set("ACROSS", across)
        .set("ODD", if has_pairs { pads[2] & 1 } else { 0 });
    Ok(Launches::one(Launch { kernel, grid: grid(order.elems()), threads: THREADS, lds_bytes: 0, args }))
}
