//! The index of the best element along the last axis: `hip/arg_reduce.hip`.
use graph::prim::ArgReduce;
use graph::{Declined, Step};

use crate::kernel::type_name;
use crate::reduce::number;
use crate::team::{THREADS, Team, busy};
use crate::walk::{HEADER, Walk};
use crate::{Arch, Args, Kernel, Launch, Launches};

const TEXT: &str = concat!(include_str!("../hip/team.h"), include_str!("../hip/arg_reduce.hip"));

pub(crate) fn work(prim: &ArgReduce, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    let kept = x.shape.len().saturating_sub(1);
    let outer: Vec<_> = (0..kept).map(|axis| (x.shape[axis], [x.strides[axis], y.strides[axis]])).collect();
    let rows = Walk::in_memory_order(&outer)?;
    let columns = Walk::new(&(kept..x.shape.len()).map(|axis| (x.shape[axis], [x.strides[axis]])).collect::<Vec<_>>())?;
    if rows.elems() == 0 || columns.elems() == 0 {
        return Ok(Launches::nothing());
    }
    let (extent, [x_step]) = columns.last();
    let is_turned = rows.elems() > 1 && extent > 1 && rows.last().1[0].unsigned_abs() < x_step.unsigned_abs();
    let team = if is_turned {
        Team::turned(rows.elems(), extent, arch)
    } else {
        // At least eight elements per thread.
        Team { lanes: (extent / 8 + 1).next_power_of_two().min(THREADS), held: 0, resident: None }
    };
    let missing = busy(arch) / (u64::from(rows.elems()) * u64::from(team.lanes)).max(1);
    let segments = missing.min(u64::from(extent / (team.lanes * 16))).clamp(1, 256) as u32;
    let segment = extent.div_ceil(segments);
    let segments = extent.div_ceil(segment);
    let parts = rows.elems() as usize * segments as usize;
    let launch = |team: Team, columns: u32, segment: u32, blocks: u32, is_join: bool| {
        let args = Args::new().input("x", 0, x).output("y", 0, y);
        let args = if segments > 1 {
            args.scratch("parts", 0).scratch("places", parts * 8)
        } else {
            args.null("parts").null("places")
        };
        let args = args
            .i64s("x_rows", &rows.strides(0))
            .i64s("y_rows", &rows.strides(1))
            .i64("x_step", x_step)
            .u32s("rows", &rows.numbers())
            .u32("row_count", rows.elems())
            .u32("columns", columns)
            .u32("segment", segment)
            .u32("segments", segments)
            .u32("lanes", team.lanes)
            .u32("largest", u32::from(prim.largest))
            .u32("last", u32::from(prim.last));
        let kernel = Kernel::new("arg_reduce", TEXT)
            .with([HEADER])
            .set("T", type_name(x.dtype))
            .set("N", type_name(number(x.dtype)))
            .set("TURNED", u8::from(is_turned && !is_join))
            .set("JOIN", u8::from(is_join));
        Launch { kernel, grid: [team.blocks(rows.elems()), blocks, 1], threads: THREADS, lds_bytes: 0, args }
    };
    let mut work = Launches::one(launch(team, extent, segment, segments, false));
    if segments > 1 {
        work.scratch_bytes = parts * 12;
        work.launches.push(launch(Team { lanes: 32, held: 0, resident: None }, segments, segments, 1, true));
    }
    Ok(work)
}
