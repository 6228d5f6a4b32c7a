//! Softmax along the last axis: `hip/softmax.hip`.
use graph::{DType, Declined, Step, prim::Softmax};

use crate::{
    Arch, Args, Kernel, Launch, Work,
    kernel::type_name,
    team::{STAGED_ELEMS, THREADS, Team, busy, floats_only},
    walk::{HEADER, Walk, pack},
};

const TEXT: &str = concat!(include_str!("../hip/team.h"), include_str!("../hip/softmax.hip"));

pub(crate) fn work(prim: &Softmax, step: &Step, arch: &Arch) -> Result<Work, Declined> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    floats_only("softmax", x.dtype)?;
    let kept = x.shape.len().saturating_sub(1);
    let outer: Vec<_> = (0..kept).map(|axis| (x.shape[axis], [x.strides[axis], y.strides[axis]])).collect();
    let rows = Walk::in_memory_order(&outer)?;
    let inner = (kept..x.shape.len()).map(|axis| (x.shape[axis], [x.strides[axis], y.strides[axis]]));
    let columns = Walk::new(&inner.collect::<Vec<_>>())?;
    if rows.elems() == 0 || columns.elems() == 0 {
        return Ok(Work::nothing());
    }
    let (extent, [x_step, y_step]) = columns.last();
    let is_turned = rows.elems() > 1 && extent > 1 && rows.last().1[0].unsigned_abs() < x_step.unsigned_abs();
    let vec = if (x_step, y_step) == (1, 1) {
        let numbers = [i64::from(extent), x.offset as i64, y.offset as i64].into_iter();
        let numbers = numbers.chain(rows.strides(0)).chain(rows.strides(1));
        pack(if x.dtype.bytes() > y.dtype.bytes() { x.dtype } else { y.dtype }, 8, numbers)
    } else {
        1
    };
    let packs = extent / vec;
    // Lanes read whole numbers side by side well enough; halves they do not.
    let staged = if vec == 1 && x.dtype == y.dtype && x.dtype.bytes() == 2 {
        Staged::new(&rows, &columns, [x.offset, y.offset], x.dtype, arch)
    } else {
        None
    };
    let (vec, packs) = staged.as_ref().map_or((vec, packs), |staged| (staged.pack, extent));
    let team = if let Some(staged) = &staged {
        staged.team
    } else if is_turned {
        Team::turned(rows.elems(), packs, arch)
    } else {
        Team::new(rows.elems(), packs, vec, x.dtype.bytes(), arch)
    };
    let args = Args::new()
        .input("x", 0, x)
        .output("y", 0, y)
        .i64s("x_rows", &rows.strides(0))
        .i64s("y_rows", &rows.strides(1))
        .i64("x_step", x_step * i64::from(vec))
        .i64("y_step", y_step * i64::from(vec))
        .u32s("rows", &rows.numbers())
        .u32("row_count", rows.elems())
        .u32("packs", packs)
        .u32("lanes", team.lanes)
        .u32("staged", staged.as_ref().map_or(0, |staged| staged.rows));
    let name = if staged.is_some() { "softmax_staged" } else { "softmax" };
    let kernel = Kernel::new(name, TEXT)
        .with([HEADER])
        .set("T", type_name(x.dtype))
        .set("TY", type_name(y.dtype))
        .set("LOG", u8::from(prim.log))
        .set("VEC", vec)
        .set("FAST", u8::from(x.dtype.bytes() == 2 && y.dtype.bytes() == 2))
        .set("HELD", team.held)
        .set("AHEAD", u8::from(team.resident.is_some()))
        .set("STAGED", u8::from(staged.is_some()))
        .set("TURNED", u8::from(is_turned && staged.is_none()));
    let lds_bytes = staged.as_ref().map_or(0, |staged| staged.rows * extent * x.dtype.bytes() as u32);
    Ok(Work::one(Launch { kernel, grid: [team.blocks(rows.elems()), 1, 1], threads: THREADS, lds_bytes, args }))
}

/// Short rows by way of LDS: see the text.
struct Staged {
    pack: u32,
    rows: u32,
    team: Team,
}

impl Staged {
    /// For many rows that lie one behind the other in both views.
    fn new(rows: &Walk<2>, columns: &Walk<2>, offsets: [isize; 2], dtype: DType, arch: &Arch) -> Option<Self> {
        let ((_, row_steps), (extent, steps)) = (rows.last(), columns.last());
        let is_dense = rows.rank() == 1 && steps == [1; 2] && row_steps == [i64::from(extent); 2];
        let pack = pack(dtype, 8, offsets.map(|offset| offset as i64));
        let fitting = (STAGED_ELEMS / extent).min(THREADS);
        let count = if fitting.is_power_of_two() { fitting } else { fitting.next_power_of_two() / 2 };
        let is_busy = u64::from(rows.elems() / count.max(1)) * u64::from(THREADS) >= busy(arch);
        let lanes = THREADS / count.max(1);
        let held = extent.div_ceil(lanes).next_power_of_two().max(4);
        let fits = is_dense && pack > 1 && (8..=THREADS).contains(&count) && held <= 16;
        (fits && is_busy).then_some(Self { pack, rows: count, team: Team { lanes, held, resident: None } })
    }
}
