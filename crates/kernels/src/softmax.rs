//! Softmax along the last axis: `hip/softmax.hip`.
use graph::prim::Softmax;
use graph::{DType, Declined, Step};

use crate::kernel::type_name;
use crate::ragged::{ragged_pack, ragged_packs};
use crate::team::{THREADS, Team, floats_only};
use crate::walk::{HEADER, Walk, pack};
use crate::{Arch, Args, Kernel, Launch, Launches};

const TEXT: &str =
    concat!(include_str!("../hip/team.h"), include_str!("../hip/ragged.h"), include_str!("../hip/softmax.hip"));

pub(crate) fn work(prim: &Softmax, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    floats_only("softmax", x.dtype)?;
    let kept = x.shape.len().saturating_sub(1);
    let outer: Vec<_> = (0..kept).map(|axis| (x.shape[axis], [x.strides[axis], y.strides[axis]])).collect();
    let rows = Walk::in_memory_order(&outer)?;
    let inner = (kept..x.shape.len()).map(|axis| (x.shape[axis], [x.strides[axis], y.strides[axis]]));
    let columns = Walk::new(&inner.collect::<Vec<_>>())?;
    if rows.elems() == 0 || columns.elems() == 0 {
        return Ok(Launches::nothing());
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
    let ragged = if vec == 1 && x.dtype == y.dtype && (x_step, y_step) == (1, 1) {
        ragged(&rows, extent, [x.offset, y.offset], x.dtype, arch)
    } else {
        None
    };
    let (vec, packs) = (ragged.map_or(vec, |(vec, _)| vec), extent / vec);
    let team = if let Some((_, team)) = ragged {
        team
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
        .u32("columns", extent);
    let name = if ragged.is_some() { "softmax_ragged" } else { "softmax" };
    let kernel = Kernel::new(name, TEXT)
        .with([HEADER])
        .set("T", type_name(x.dtype))
        .set("TY", type_name(y.dtype))
        .set("LOG", u8::from(prim.log))
        .set("VEC", vec)
        .set("FAST", u8::from(x.dtype.bytes() == 2 && y.dtype.bytes() == 2))
        .set("HELD", team.held)
        .set("AHEAD", u8::from(team.resident.is_some()))
        .set("RAGGED", u8::from(ragged.is_some()))
        .set("LANES", ragged.map_or(0, |_| team.lanes))
        .set("TURNED", u8::from(is_turned && ragged.is_none()));
    Ok(Launches::one(Launch { kernel, grid: [team.blocks(rows.elems()), 1, 1], threads: THREADS, lds_bytes: 0, args }))
}

/// Packs and teams for rows that are contiguous in both views, if a team can hold a row.
fn ragged(rows: &Walk<2>, extent: u32, offsets: [isize; 2], dtype: DType, arch: &Arch) -> Option<(u32, Team)> {
    let is_dense = rows.rank() == 1 && rows.last().1 == [i64::from(extent); 2];
    let vec = ragged_pack(dtype, rows.elems(), extent, offsets)?;
    let mut team = Team::new(rows.elems(), ragged_packs(extent, vec), vec, dtype.bytes(), arch);
    // Handling packs that rows share costs scalar registers.
    while team.held > 4 && team.lanes < THREADS {
        (team.lanes, team.held) = (team.lanes * 2, team.held / 2);
    }
    (is_dense && (1..=4).contains(&team.held)).then_some((vec, Team { resident: None, ..team }))
}
