//! The best elements along the last axis: `hip/top_k.hip`.
use graph::prim::TopK;
use graph::{DType, Declined, Step};

use crate::expr::MATH;
use crate::kernel::type_name;
use crate::reduce::number;
use crate::team::{MAX_BLOCKS, THREADS};
use crate::walk::{HEADER, Walk};
use crate::{Args, Kernel, Launch, Launches};

/// Elements that a block sorts if a row has more.
const CHUNK: u32 = 2048;
/// Elements that a block sorts if rows are short.
const ROOM: u32 = 512;

pub(crate) fn work(prim: &TopK, step: &Step) -> Result<Launches, Declined> {
    let (x, y, index) = (&step.inputs[0], &step.outputs[0], step.outputs.get(1));
    let Some(kept) = x.shape.len().checked_sub(1) else {
        return Err(Declined::new("top-k of a scalar"));
    };
    let index_stride = |axis: usize| index.map_or(0, |index| index.strides[axis]);
    let axis = |axis: usize| (x.shape[axis], [x.strides[axis], y.strides[axis], index_stride(axis)]);
    let rows = Walk::in_memory_order(&(0..kept).map(axis).collect::<Vec<_>>())?;
    let columns = Walk::new(&[(x.shape[kept], [x.strides[kept]])])?.elems();
    let k = columns.min(u32::try_from(prim.k).unwrap_or(u32::MAX));
    if rows.elems() == 0 || k == 0 {
        return Ok(Launches::nothing());
    }
    let is_wide = x.dtype.bytes() == 8;
    let key_bytes: usize = if is_wide { 8 } else { 4 };
    let chunk = columns.next_power_of_two().min(CHUNK);
    let mut runs = columns.div_ceil(chunk);
    let first_runs = u64::from(rows.elems()) * u64::from(runs);
    if first_runs >= 1 << 31 {
        return Err(Declined::new(format!("{first_runs} runs to sort")));
    }
    let job = Job { rows: &rows, step, is_wide, largest: prim.largest, columns };
    let mut keep = k.min(chunk);
    // Two sets of runs, written alternately: keys first, then indices. A last run without a partner is padded, so sets
    // may grow.
    let stages = std::iter::successors(Some((runs, keep)), |&(runs, keep)| {
        (runs > 2).then(|| (runs.div_ceil(2), k.min(2 * keep)))
    });
    let most = stages.map(|(runs, keep)| rows.elems() as usize * runs as usize * keep as usize).max().unwrap_or(0);
    let half = (most * (key_bytes + 4)).next_multiple_of(16);
    let sides = |side: usize, runs: u32, keep: u32| {
        let elems = rows.elems() as usize * runs as usize * keep as usize;
        (side * half, side * half + elems * key_bytes)
    };
    let slots = (ROOM / chunk).max(1).min(first_runs as u32);
    let blocks = (first_runs as u32).div_ceil(slots).min(MAX_BLOCKS);
    let mut side = 0;
    let to = (runs > 1).then(|| sides(side, runs, keep));
    let mut work = Launches::one(Launch {
        kernel: job.kernel("top_k_sort"),
        grid: [blocks, 1, 1],
        threads: THREADS,
        lds_bytes: slots * chunk * (key_bytes as u32 + 4),
        args: job.args(None, to, Sizes { runs, chunk, keep, slots }),
    });
    if runs > 1 {
        work.scratch_bytes = 2 * half;
    }
    while runs > 1 {
        let from = sides(side, runs, keep);
        let merged = k.min(2 * keep);
        let to = (runs > 2).then(|| sides(1 - side, runs.div_ceil(2), merged));
        let elems = u64::from(rows.elems()) * u64::from(runs) * u64::from(keep);
        work.launches.push(Launch {
            kernel: job.kernel("top_k_merge"),
            grid: [elems.div_ceil(u64::from(THREADS)).min(u64::from(MAX_BLOCKS)) as u32, 1, 1],
            threads: THREADS,
            lds_bytes: 0,
            args: job.args(Some(from), to, Sizes { runs, chunk: keep, keep: merged, slots: 1 }),
        });
        (runs, keep, side) = (runs.div_ceil(2), merged, 1 - side);
    }
    Ok(work)
}

struct Job<'a> {
    rows: &'a Walk<3>,
    step: &'a Step,
    is_wide: bool,
    largest: bool,
    columns: u32,
}

/// As in the source.
struct Sizes {
    runs: u32,
    chunk: u32,
    keep: u32,
    slots: u32,
}

impl Job<'_> {
    fn kernel(&self, name: &'static str) -> Kernel {
        let dtype = self.step.inputs[0].dtype;
        Kernel::new(name, include_str!("../hip/top_k.hip"))
            .with([HEADER])
            .with((dtype == DType::F64).then_some(MATH))
            .set("T", type_name(dtype))
            .set("N", type_name(number(dtype)))
            .set("K", if self.is_wide { "u64" } else { "u32" })
            .set("WIDE", u8::from(self.is_wide))
            .set("DOUBLE", u8::from(dtype == DType::F64))
    }

    /// Offsets of keys and indices in the scratch memory: those read, and those written.
    fn args(&self, from: Option<(usize, usize)>, to: Option<(usize, usize)>, sizes: Sizes) -> Args {
        let (x, y, index) = (&self.step.inputs[0], &self.step.outputs[0], self.step.outputs.get(1));
        let last = x.shape.len() - 1;
        let args = Args::new().input("x", 0, x).output("y", 0, y);
        let args = match index {
            Some(index) => args.output("index", 1, index),
            None => args.null("index"),
        };
        let sides = |args: Args, keys, places, side: Option<(usize, usize)>| match side {
            Some((keys_at, places_at)) => args.scratch(keys, keys_at).scratch(places, places_at),
            None => args.null(keys).null(places),
        };
        let args = sides(args, "from_keys", "from_places", from);
        sides(args, "to_keys", "to_places", to)
            .i64s("x_rows", &self.rows.strides(0))
            .i64s("y_rows", &self.rows.strides(1))
            .i64s("index_rows", &self.rows.strides(2))
            .i64("x_step", x.strides[last] as i64)
            .i64("y_step", y.strides[last] as i64)
            .i64("index_step", index.map_or(0, |index| index.strides[last] as i64))
            .u32s("rows", &self.rows.numbers())
            .u32("columns", self.columns)
            .u32("items", self.rows.elems() * sizes.runs)
            .u32("runs", sizes.runs)
            .u32("chunk", sizes.chunk)
            .u32("keep", sizes.keep)
            .u32("slots", sizes.slots)
            .u32("largest", u32::from(self.largest))
    }
}
