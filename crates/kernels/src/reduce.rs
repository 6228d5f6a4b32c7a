//! Reductions over the last axes: `hip/reduce.hip`.
use graph::prim::{Reduce, ReduceKind};
use graph::{DType, Declined, Step, View};

use crate::kernel::type_name;
use crate::ragged::{ragged_pack, ragged_packs};
use crate::team::{MAX_BLOCKS, THREADS, busy};
use crate::walk::{HEADER, Walk, pack};
use crate::{Arch, Args, Kernel, Launch, Launches};

const TEXT: &str = concat!(include_str!("../hip/ragged.h"), include_str!("../hip/reduce.hip"));
/// Maximum length of rows that are not aligned to packs: a thread adds up its share in one pass.
const MAX_RAGGED: u32 = 4096;
/// Bytes of rows that a block holds in LDS.
const SPAN_BYTES: u32 = 16 << 10;
/// The maximum number of parts of a result.
const MAX_SEGMENTS: u32 = 256;

/// How a number is combined with the previous ones: `FOLD` in the source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fold {
    Sum,
    Squares,
    Magnitudes,
    Product,
    Largest,
    Smallest,
    Exponentials,
}

/// How a folded number is finished: `finish` in the source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finish {
    Nothing,
    Mean,
    Root,
    Log,
    LogShifted,
}

fn parts(kind: ReduceKind) -> (Fold, Finish) {
    match kind {
        ReduceKind::Sum => (Fold::Sum, Finish::Nothing),
        ReduceKind::Mean => (Fold::Sum, Finish::Mean),
        ReduceKind::Prod => (Fold::Product, Finish::Nothing),
        ReduceKind::Max => (Fold::Largest, Finish::Nothing),
        ReduceKind::Min => (Fold::Smallest, Finish::Nothing),
        ReduceKind::SumSquare => (Fold::Squares, Finish::Nothing),
        ReduceKind::L1 => (Fold::Magnitudes, Finish::Nothing),
        ReduceKind::L2 => (Fold::Squares, Finish::Root),
        ReduceKind::LogSum => (Fold::Sum, Finish::Log),
        ReduceKind::LogSumExp => (Fold::Exponentials, Finish::LogShifted),
    }
}

/// The type that elements are computed in.
pub(crate) const fn number(dtype: DType) -> DType {
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 => DType::F32,
        DType::F64 => DType::F64,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::Bool => DType::I64,
        // Unsigned integers; plans contain no 8-bit floats.
        _ => DType::U64,
    }
}

pub(crate) fn work(prim: &Reduce, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    if prim.kind == ReduceKind::LogSumExp && !x.dtype.is_float() {
        return Err(Declined::new(format!("the logarithm of sums of exponentials of {}", x.dtype)));
    }
    let kept = x.shape.len() - prim.axes;
    let stays: Vec<_> = (0..kept).map(|axis| (x.shape[axis], [x.strides[axis], y.strides[axis]])).collect();
    let goes: Vec<_> = (kept..x.shape.len()).map(|axis| (x.shape[axis], [x.strides[axis]])).collect();
    let job = Job {
        x,
        kept: Walk::in_memory_order(&stays)?,
        gone: Walk::in_memory_order(&goes)?,
        geometry: Geometry::default(),
    };
    if job.kept.elems() == 0 {
        return Ok(Launches::nothing());
    }
    let (fold, finish) = parts(prim.kind);
    let mut work = Launches::nothing();
    let job = Job { geometry: job.geometry(fold, arch), ..job };
    let parts_bytes =
        if job.geometry.segments > 1 { job.kept.elems() as usize * job.geometry.segments as usize * 8 } else { 0 };
    work.scratch_bytes = parts_bytes;
    if fold == Fold::Exponentials {
        // The largest elements go to scratch memory first.
        work.scratch_bytes += job.kept.elems() as usize * 8;
        let dense = job.kept.to_dense();
        let first = Job { kept: dense, ..job.clone() };
        first.launch(&mut work, Fold::Largest, Finish::Nothing, Target::Shifts(parts_bytes));
    }
    job.launch(&mut work, fold, finish, Target::Output(y, parts_bytes));
    Ok(work)
}

/// What a reduction writes; with the offset of the shifts in the scratch memory.
#[derive(Clone, Copy)]
enum Target<'a> {
    Output(&'a View, usize),
    Shifts(usize),
}

/// The layout of rows and how they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rows {
    /// Each row is aligned to a pack.
    #[default]
    Packed,
    /// Not aligned; read through LDS.
    Spans,
    /// Not aligned, and too long for LDS.
    Ragged,
}

/// How work is assigned to threads: see the source.
#[derive(Clone, Debug, Default)]
struct Geometry {
    columns: bool,
    pack: u32,
    lanes: u32,
    segments: u32,
    rows: Rows,
}

#[derive(Clone)]
struct Job<'a> {
    x: &'a View,
    /// Views: x, then the results.
    kept: Walk<2>,
    gone: Walk<1>,
    geometry: Geometry,
}

impl Job<'_> {
    fn geometry(&self, fold: Fold, arch: &Arch) -> Geometry {
        let (results, elems) = (self.kept.elems(), self.gone.elems());
        let ((kept_extent, [kept_step, _]), (gone_extent, [gone_step])) = (self.kept.last(), self.gone.last());
        let columns = results > 1 && (elems <= 1 || kept_step.unsigned_abs() < gone_step.unsigned_abs());
        let (near_extent, near_step) = if columns { (kept_extent, kept_step) } else { (gone_extent, gone_step) };
        let mut outer: Vec<i64> = self.kept.outer_strides(0).chain(self.gone.outer_strides(0)).collect();
        outer.push(if columns { gone_step } else { kept_step });
        outer.extend([i64::from(near_extent), self.x.offset as i64]);
        // Columns keep a sum for each element of a pack; comparisons cost scalar registers.
        let most = if columns || matches!(fold, Fold::Largest | Fold::Smallest) { 4 } else { 8 };
        let mut pack = if near_step == 1 { pack(self.x.dtype, most, outer) } else { 1 };
        if !columns
            && pack == 1
            && let Some(ragged) = self.ragged(fold, arch)
        {
            return ragged;
        }
        // Threads that keep a device busy, each with a few loads.
        let wanted = busy(arch);
        while columns && pack > 1 && u64::from(results / pack) * u64::from(elems.div_ceil(8)) < wanted {
            pack /= 2;
        }
        let (teams, elems) = if columns { (results / pack, elems) } else { (results, elems / pack) };
        // Eight loads per thread are enough to pay for combining threads. Rows are always shared by adjacent threads;
        // results of columns only if there are too few.
        let enough = (elems / 8 + 1).next_power_of_two();
        let mut lanes = if columns { 1 } else { enough.min(THREADS) };
        let most = if columns { enough.min(8) } else { elems.next_power_of_two().min(THREADS) };
        let grow = |lanes: &mut u32, most: u32| {
            while *lanes < most && u64::from(teams) * u64::from(*lanes) < wanted {
                *lanes *= 2;
            }
        };
        grow(&mut lanes, most);
        let missing = wanted / (u64::from(teams) * u64::from(lanes)).max(1);
        let segments = missing.min(u64::from(elems / (lanes * 16))).clamp(1, u64::from(MAX_SEGMENTS)) as u32;
        if columns && segments == 1 {
            grow(&mut lanes, elems.next_power_of_two().min(32));
        }
        // All segments but the last are full, and none is empty.
        let segment = elems.div_ceil(segments).max(1);
        Geometry { columns, pack, lanes, segments: elems.div_ceil(segment).max(1), rows: Rows::Packed }
    }

    /// For many short contiguous rows that are not aligned to packs.
    fn ragged(&self, fold: Fold, arch: &Arch) -> Option<Geometry> {
        let ((results, [row, _]), (elems, [1])) = (self.kept.last(), self.gone.last()) else { return None };
        let is_dense = self.kept.rank() == 1 && self.gone.rank() == 1 && row == i64::from(elems);
        if !is_dense || elems > MAX_RAGGED || fold == Fold::Exponentials || !self.x.dtype.is_float() {
            return None;
        }
        let pack = ragged_pack(self.x.dtype, results, elems, [self.x.offset])?;
        let is_busy = |lanes: u32| u64::from(results) * u64::from(lanes) >= busy(arch);
        // As few threads per row as can hold it and fill the device.
        let mut lanes = (THREADS * elems * self.x.dtype.bytes() as u32).div_ceil(SPAN_BYTES).next_power_of_two();
        while lanes < 32 && lanes * 16 <= elems && !is_busy(lanes) {
            lanes *= 2;
        }
        let (rows, lanes) = if lanes <= 32 {
            (Rows::Spans, lanes)
        } else {
            // A thread has two packs.
            (Rows::Ragged, ragged_packs(elems, pack).div_ceil(2).next_power_of_two().min(32))
        };
        is_busy(lanes).then_some(Geometry { columns: false, pack, lanes, segments: 1, rows })
    }

    fn launch(&self, work: &mut Launches, fold: Fold, finish: Finish, target: Target<'_>) {
        let Geometry { columns, pack, lanes, segments, rows } = self.geometry;
        let number = number(self.x.dtype);
        let is_sum = !matches!(fold, Fold::Largest | Fold::Smallest);
        let wide = if number == DType::F32 && is_sum { DType::F64 } else { number };
        let to = match target {
            Target::Output(y, _) => y.dtype,
            Target::Shifts(_) => number,
        };
        let (kept, gone) = if rows != Rows::Packed {
            (self.kept.clone(), self.gone.clone())
        } else if columns {
            (self.kept.clone().packed(pack), self.gone.clone())
        } else {
            (self.kept.clone(), self.gone.clone().packed(pack))
        };
        let kernel = |name, join: bool| {
            Kernel::new(name, TEXT)
                .with([HEADER])
                .set("T", type_name(self.x.dtype))
                .set("TY", type_name(to))
                .set("N", type_name(number))
                .set("W", type_name(wide))
                .set("FLOATS", u8::from(number.is_float()))
                .set("FOLD", fold as u8)
                .set("COLUMNS", u8::from(columns && !join))
                .set("VEC", if join { 1 } else { pack })
                .set("LINE", u8::from(self.gone.rank() <= 1))
                .set("JOIN", u8::from(join))
                .set("RAGGED", u8::from(rows != Rows::Packed))
                .set("SPANS", u8::from(rows == Rows::Spans))
        };
        let args = |kept: &Walk<2>, segment: u32, is_part: bool| {
            let args = Args::new().input("x", 0, self.x);
            let args = match target {
                Target::Output(y, _) => args.output("y", 0, y),
                Target::Shifts(at) => args.scratch("y", at),
            };
            let args = if is_part { args.scratch("parts", 0) } else { args.null("parts") };
            let args = match target {
                Target::Output(_, at) if fold == Fold::Exponentials => args.scratch("shifts", at),
                _ => args.null("shifts"),
            };
            args.i64s("x_kept", &kept.strides(0))
                .i64s("y_kept", &kept.strides(1))
                .i64s("x_gone", &gone.strides(0))
                .i64("y_step", self.kept.last().1[1])
                .i64("count", i64::from(self.gone.elems()))
                .u32s("kept", &kept.numbers())
                .u32s("gone", &gone.numbers())
                .u32("results", kept.elems())
                .u32("elems", gone.elems())
                .u32("lanes", lanes)
                .u32("segment", segment)
                .u32("finish", finish as u32)
        };
        let blocks = kept.elems().div_ceil(THREADS / lanes).min(MAX_BLOCKS);
        let segment = gone.elems().div_ceil(segments).max(1);
        let (name, lds_bytes) = match rows {
            Rows::Packed => ("reduce", 0),
            Rows::Spans => ("reduce_spans", THREADS / lanes * gone.elems() * self.x.dtype.bytes() as u32),
            Rows::Ragged => ("reduce_ragged", 0),
        };
        work.launches.push(Launch {
            kernel: kernel(name, false),
            grid: [blocks, segments, 1],
            threads: THREADS,
            lds_bytes,
            args: args(&kept, segment, segments > 1),
        });
        if segments > 1 {
            work.launches.push(Launch {
                kernel: kernel("reduce_join", true),
                grid: [self.kept.elems().div_ceil(8).min(MAX_BLOCKS), 1, 1],
                threads: THREADS,
                lds_bytes: 0,
                args: args(&self.kept, segments, true),
            });
        }
    }
}
