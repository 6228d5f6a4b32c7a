//! Running sums and products: `hip/cumulative.hip`.
use graph::prim::Cumulative;
use graph::{DType, Declined, Step};

use crate::expr::OPERATIONS;
use crate::kernel::type_name;
use crate::walk::{Walk, pack};
use crate::{Args, Kernel, Launch, Launches};

const TEXT: &str = concat!(include_str!("../hip/walk.h"), include_str!("../hip/cumulative.hip"));
const THREADS: u32 = 256;
const MAX_BLOCKS: u32 = 1 << 20;
/// Shorter lines are computed by one thread each.
const SHORT: u32 = 64;
/// This many lines fill a GPU with one thread each.
const MANY_LINES: u32 = 1 << 14;

pub(crate) fn work(prim: &Cumulative, step: &Step) -> Result<Launches, Declined> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    if x.dtype == DType::Bool {
        return Err(Declined::new("running sums of bools"));
    }
    let line = |axis: usize| (x.shape[axis], [y.strides[axis], x.strides[axis]]);
    let lines = Walk::in_memory_order(&[line(0), line(2)])?;
    let extent = u32::try_from(x.shape[1]).ok().filter(|&extent| extent < 1 << 31);
    let extent = extent.ok_or_else(|| Declined::new("a line of 2^31 elements or more"))?;
    if lines.elems() == 0 || extent == 0 {
        return Ok(Launches { launches: Vec::new(), scratch_bytes: 0 });
    }
    let args = Args::new()
        .input("x", 0, x)
        .output("y", 0, y)
        .u32("lines", lines.elems())
        .u32("extent", extent)
        .i64("x_step", x.strides[1] as i64)
        .i64("y_step", y.strides[1] as i64)
        .u32s("axes", &lines.numbers())
        .i64s("x_strides", &lines.strides(1))
        .i64s("y_strides", &lines.strides(0));
    // Adjacent lines that are dense along another axis are read together by adjacent threads.
    let beside = x.strides[1].unsigned_abs() > 1 && y.strides[1].unsigned_abs() > 1;
    let (name, blocks) = if extent < SHORT || lines.elems() >= MANY_LINES && beside {
        ("cumulative_lines", lines.elems().div_ceil(THREADS))
    } else {
        ("cumulative_line", lines.elems())
    };
    let full = 16 / x.dtype.bytes() as u32;
    let starts = [x.offset, y.offset, x.shape[1] as isize].map(|from| from as i64);
    let whole = pack(x.dtype, full, lines.strides(0).into_iter().chain(lines.strides(1)).chain(starts)) == full;
    let packed = whole && full > 1 && (x.strides[1], y.strides[1]) == (1, 1);
    let kernel = Kernel::new(name, TEXT)
        .with([OPERATIONS])
        .set("T", type_name(x.dtype))
        .set("PACKED", u8::from(packed))
        .set("V", if packed { full } else { 4 })
        .set("PRODUCT", u8::from(prim.product))
        .set("EXCLUSIVE", u8::from(prim.exclusive))
        .set("REVERSE", u8::from(prim.reverse));
    let grid = [blocks.min(MAX_BLOCKS), 1, 1];
    Ok(Launches::one(Launch { kernel, grid, threads: THREADS, lds_bytes: 0, args }))
}
