//! Local response normalisation: `hip/lrn.hip`.
use graph::prim::Lrn;
use graph::{Declined, Step};

use crate::kernel::type_name;
use crate::team::{THREADS, floats_only, grid};
use crate::walk::{HEADER, Walk};
use crate::{Args, Kernel, Launch, Launches};

pub(crate) fn work(prim: &Lrn, step: &Step) -> Result<Launches, Declined> {
    let (x, y) = (&step.inputs[0], &step.outputs[0]);
    floats_only("local response normalisation", x.dtype)?;
    if y.elems() == 0 {
        return Ok(Launches::nothing());
    }
    let axis = |axis: usize| (x.shape[axis], [x.strides[axis], y.strides[axis]]);
    let others: Vec<_> = (0..x.shape.len()).filter(|&at| at != 1).map(axis).collect();
    let (others, all) =
        (Walk::in_memory_order(&others)?, Walk::new(&(0..x.shape.len()).map(axis).collect::<Vec<_>>())?);
    let channels = x.shape[1] as u32;
    let near = others.last().1[0].unsigned_abs();
    let is_last = channels > 1 && (others.elems() == 1 || x.strides[1].unsigned_abs() < near as usize);
    let size = u32::try_from(prim.size.max(1)).unwrap_or(u32::MAX);
    let args = Args::new()
        .input("x", 0, x)
        .output("y", 0, y)
        .i64s("x_others", &others.strides(0))
        .i64s("y_others", &others.strides(1))
        .i64("x_channel", x.strides[1] as i64)
        .i64("y_channel", y.strides[1] as i64)
        .u32s("others", &others.numbers())
        .u32("elems", all.elems())
        .u32("channels", channels)
        .u32("count", others.elems())
        .u32("behind", (size / 2).min(channels))
        .u32("before", (size - 1) / 2)
        .f32("factor", prim.alpha / prim.size as f32)
        .f32("bias", prim.bias)
        .f32("beta", prim.beta);
    let kernel = Kernel::new("lrn", include_str!("../hip/lrn.hip"))
        .with([HEADER])
        .set("T", type_name(x.dtype))
        .set("CHANNELS_LAST", u8::from(is_last));
    Ok(Launches::one(Launch { kernel, grid: grid(all.elems()), threads: THREADS, lds_bytes: 0, args }))
}
