//! Products of few rows: `hip/gemv.hip`.
use graph::Declined;

use crate::gemm::grid;
use crate::product::{Choice, OutputStrides, Product, Side};
use crate::quant::gate_text;
use crate::{Arch, Args, Kernel, Launch, Launches, Matrix, expr};

macro_rules! text {
    ($($file:literal),*) => { concat!($(include_str!(concat!("../hip/", $file)), "\n"),*) };
}

const GEMV: &str = text!("product.h", "gemv.hip");

/// The maximum number of rows handled here.
pub(crate) const FEW_ROWS: u64 = 8;
/// Bytes read at once, and the size of a cache line.
const PACK_BYTES: usize = 16;
const LINE_BYTES: usize = 128;
/// Threads per block that every device supports; each has 64 registers, enough for 8 sums.
const MAX_THREADS: u32 = 1024;

/// Which dimension of a matrix product is small.
pub(crate) enum Few {
    Rows,
    /// Columns, which are rows of the transposed product.
    Columns,
}

impl Few {
    /// `None` if both are large, or if no axis of the larger operand is contiguous.
    pub fn of(product: &Product<'_>) -> Option<Self> {
        let suits = |side: &Side<'_>| (side.k == 1 || side.across == 1) && product.channels >= 32;
        if product.rows <= FEW_ROWS && suits(&product.right) {
            Some(Self::Rows)
        } else {
            (product.columns <= FEW_ROWS && suits(&product.left)).then_some(Self::Columns)
        }
    }
}

/// How a product of few rows is split.
struct Cut {
    threads: u32,
    /// Elements of the right operand, and of the left, that are read at once.
    pack: u64,
    left_pack: u64,
    /// Whether the right operand is read before earlier launches have finished.
    is_early: bool,
    shape: Shape,
    choice: Choice,
}

/// What the threads of a block do, depending on which axis is contiguous.
#[derive(Clone, Copy)]
enum Shape {
    /// The k of a column: each wave computes this many columns.
    AlongK { columns: u64 },
    /// Columns: this many threads side by side, each with this many adjacent k.
    Across { lanes: u64, deep: u64 },
}

impl Cut {
    fn new(product: &Product<'_>, rows: u64, arch: &Arch) -> Result<Self, Declined> {
        let (left, right, depth) = (&product.left, &product.right, product.channels);
        let along_k = right.k == 1;
        let elems = PACK_BYTES / right.bytes();
        let (near, apart) = if along_k { (depth, right.across) } else { (product.columns, right.k) };
        let is_packed = near.is_multiple_of(elems as u64) && right.is_aligned(elems, &[apart]);
        let pack = if is_packed { elems as u64 } else { 1 };
        let (threads, shape) = if along_k {
            if product.gate.is_some() {
                return Err(Declined::new("a gate over columns that are not contiguous"));
            }
            (256, Shape::AlongK { columns: if rows <= 2 { 4 } else { 2 } })
        } else {
            across(product, rows, pack, arch)
        };
        let made_of = 1 + u64::from(product.gate.is_some());
        // The columns of a block, the k it reads at a time, and the k of a thread.
        let (width, round, own) = match shape {
            Shape::AlongK { columns } => (u64::from(threads / arch.wave) * columns, u64::from(arch.wave) * pack, pack),
            Shape::Across { lanes, deep } => (lanes * pack / made_of, u64::from(threads) / lanes * deep, deep),
        };
        let mut choice = Choice::whole(product);
        choice.tiles = [1, product.columns.div_ceil(width) as u32];
        let blocks = u64::from(choice.tiles[1]) * product.batches();
        let wanted = 2 * u64::from(arch.compute_units);
        if threads < MAX_THREADS && made_of == 1 && 2 * blocks <= wanted && depth >= 2 * round {
            let each = depth.div_ceil((wanted / blocks).min(64)).next_multiple_of(round);
            choice.splits = depth.div_ceil(each) as u32;
            choice.split_depth = each as u32;
        }
        let elems = own.min((PACK_BYTES / left.bytes()) as u64);
        let scale_at = product.norm.as_ref().map_or(0, |norm| norm.scale.offset as u64);
        let is_packed = left.k == 1
            && depth.is_multiple_of(elems)
            && scale_at.is_multiple_of(elems)
            && left.is_aligned(elems as usize, &[left.across]);
        let left_pack = if is_packed { elems } else { 1 };
        let is_early = arch.matrix == Matrix::Mma && !along_k && pack > 1 && depth.is_multiple_of(own);
        Ok(Self { threads, pack, left_pack, is_early, shape, choice })
    }

    fn set(&self, kernel: Kernel) -> Kernel {
        let kernel = kernel
            .set("BLOCK", self.threads)
            .set("PACK", self.pack)
            .set("LEFT_PACK", self.left_pack)
            .set("SPLIT", u8::from(self.choice.splits > 1))
            .set("EARLY", u8::from(self.is_early));
        match self.shape {
            Shape::AlongK { columns } => kernel.set("ALONG_K", 1).set("COLUMNS", columns),
            Shape::Across { lanes, deep } => kernel.set("ALONG_K", 0).set("LANES", lanes).set("DEEP", deep),
        }
    }
}

/// The threads of a block, and what they do, if columns are contiguous.
///
/// A block reads whole cache lines if that gives every compute unit a block, and two at a time if it gives them
/// several. If columns are so short that blocks sharing one would read it in a single round, each block computes a few
/// columns alone: adding up parts takes longer.
fn across(product: &Product<'_>, rows: u64, pack: u64, arch: &Arch) -> (u32, Shape) {
    const DEEP: u64 = 4;
    let units = u64::from(arch.compute_units);
    let line = (LINE_BYTES / PACK_BYTES) as u64;
    let blocks = |lanes: u64| product.columns.div_ceil(lanes * pack) * product.batches();
    if product.gate.is_some() && pack > 1 && rows <= 2 {
        // Half of the lanes read the columns of each half.
        let lanes = if 8 * blocks(line) >= 7 * units { 2 * line } else { line };
        (if rows * pack > 8 { 512 } else { MAX_THREADS }, Shape::Across { lanes, deep: DEEP })
    } else if pack == 1 {
        (256, Shape::Across { lanes: 32, deep: DEEP })
    } else if rows <= 2 && blocks(2 * line) >= 4 * units {
        (512, Shape::Across { lanes: 2 * line, deep: DEEP })
    } else if blocks(line) >= units || rows > 2 {
        (if rows * pack > 64 { 256 } else { 512 }, Shape::Across { lanes: line, deep: DEEP })
    } else if rows * pack <= 8 && 3 * blocks(line / 2) >= units && product.channels <= 2 * u64::from(MAX_THREADS) {
        // On the twin, half as many threads have registers for all of such a column, which is loaded before earlier
        // launches have finished.
        let deep = (product.channels / 128).next_power_of_two().clamp(DEEP, 4 * DEEP);
        if arch.matrix == Matrix::Mma && product.channels.is_multiple_of(deep) {
            return (MAX_THREADS / 2, Shape::Across { lanes: line / 2, deep });
        }
        (MAX_THREADS, Shape::Across { lanes: line / 2, deep: DEEP })
    } else {
        (512, Shape::Across { lanes: line, deep: DEEP })
    }
}

/// One launch, even if blocks share k.
pub(crate) fn work(product: &Product<'_>, arch: &Arch) -> Result<Launches, Declined> {
    let rows = product.rows.next_power_of_two();
    let cut = Cut::new(product, rows, arch)?;
    let (blocks, splits) = (u64::from(cut.choice.tiles[1]) * product.batches(), cut.choice.splits);
    let mut kernel = product.kernel("gemv", GEMV, false);
    if let Some(gate) = product.gate {
        kernel = kernel.with(expr::headers([&gate.expr]));
        kernel.generated = gate_text(gate, product.out.0.dtype);
    }
    let (norm, gated) = (u8::from(product.norm.is_some()), u8::from(product.gate.is_some()));
    let kernel = kernel.set("ROWS", rows).set("NORM", norm).set("GATED", gated);
    // Sums of all parts, then the squares of their rows.
    let sums = product.rows * product.columns * product.batches() * u64::from(splits);
    let partial_bytes = sums as usize * product.sum_type().2;
    let squares = if product.norm.is_some() { blocks * u64::from(splits) * product.rows } else { 0 };
    let scratch_bytes = if splits > 1 { partial_bytes + squares as usize * size_of::<f32>() } else { 0 };
    let args = args(product, &cut, blocks, partial_bytes);
    let (kernel, grid) = (cut.set(kernel), grid(blocks, splits));
    let launch = Launch { kernel, grid, threads: cut.threads, lds_bytes: 0, args };
    Ok(Launches { launches: vec![launch], scratch_bytes })
}

fn args(product: &Product<'_>, cut: &Cut, blocks: u64, partial_bytes: usize) -> Args {
    let (left, right, choice) = (&product.left, &product.right, &cut.choice);
    let is_split = choice.splits > 1;
    let place = |args: Args, name, of: &OutputStrides| args.i64s(name, &[of.high, of.low, of.row, of.at[2]]);
    let next = if right.k == 1 { right.across } else { right.k };
    let args = Args::new().input("left", left.number, left.view);
    let args = if cut.is_early {
        args.constant("right", right.number, right.view)
    } else {
        args.input("right", right.number, right.view)
    };
    let args = args
        .i64s("left_row", &[left.across, left.k])
        .i64("right_next", next)
        .u32s("rows", &[product.rows as u32, product.columns as u32, product.channels as u32])
        .u32s("split_depth", &[choice.split_depth, choice.splits, choice.tiles[1]])
        .u32s("batches", &[product.batches() as u32, product.batch[1] as u32])
        .u32s("left_zero", &[left.zero as u32, right.zero as u32])
        .f32("alpha", product.alpha)
        .output("out", 0, product.out.0);
    let mut args = place(args, "out_place", &product.out.1);
    args = if is_split { args.scratch("partial", 0) } else { args.null("partial") };
    args = if is_split { args.counters("counters", blocks as usize) } else { args.null("counters") };
    if let Some(norm) = &product.norm {
        args = args.input("scale", norm.number, norm.scale);
        args = if is_split { args.scratch("squares", partial_bytes) } else { args.null("squares") };
        args = args.f32("epsilon", norm.epsilon);
    }
    args = product.operands.iter().fold(args, |args, (number, view, _)| args.input("operand", *number, view));
    args = product.operands.iter().fold(args, |args, (_, _, of)| place(args, "operand_place", of));
    if let Some((number, view)) = product.bias {
        args = args.input("bias", number, view).i64s("bias_low", &product.bias_strides);
    }
    args.i64s("left_high", &[left.high, left.low, right.high, right.low])
}
