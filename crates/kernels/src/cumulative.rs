//! Running sums and products: `hip/cumulative.hip`.
use graph::{DType, Declined, Step, prim::Cumulative};

use crate::{Args, Kernel, Launch, Work, expr::OPERATIONS, kernel::type_name, walk::Walk};

const TEXT: &str = concat!(include_str!("../hip/walk.h"), include_str!("../hip/cumulative.hip"));
const THREADS: u32 = 256;
const MOST_BLOCKS: u32 = 1 << 20;
/// A shorter line is a thread's work.
const SHORT: u32 = 64;
/// So many lines fill a GPU with one thread each.
const MANY_LINES: u32 = 1 << 14;

pub(crate) fn work(prim: &Cumulative, step: &Step) -> Result<Work, Declined> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    if x.dtype == DType::Bool {
        return Err(Declined::new("running sums of bools"));
    }
    let line = |axis: usize| (x.shape[axis], [y.strides[axis], x.strides[axis]]);
    let lines = Walk::in_memory_order(&[line(0), line(2)])?;
    let extent = u32::try_from(x.shape[1]).ok().filter(|&extent| extent < 1 << 31);
    let extent = extent.ok_or_else(|| Declined::new("a line of 2^31 elements or more"))?;
    if lines.elems() == 0 || extent == 0 {
        return Ok(Work { launches: Vec::new(), scratch_bytes: 0 });
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
    let (name, blocks) = if extent < SHORT || lines.elems() >= MANY_LINES {
        ("cumulative_lines", lines.elems().div_ceil(THREADS))
    } else {
        ("cumulative_line", lines.elems())
    };
    let kernel = Kernel::new(name, TEXT)
        .with([OPERATIONS])
        .set("T", type_name(x.dtype))
        .set("PRODUCT", u8::from(prim.product))
        .set("EXCLUSIVE", u8::from(prim.exclusive))
        .set("REVERSE", u8::from(prim.reverse));
    let grid = [blocks.min(MOST_BLOCKS), 1, 1];
    Ok(Work::one(Launch { kernel, grid, threads: THREADS, lds_bytes: 0, args }))
}
