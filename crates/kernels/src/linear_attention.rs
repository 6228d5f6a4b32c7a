//! Attention with a state of fixed size: `hip/linear_attention.hip`.
use graph::prim::LinearAttention;
use graph::{DType, Declined, Step, View};

use crate::kernel::type_name;
use crate::layout::grid_x;
use crate::rotary::strides;
use crate::{Args, Kernel, Launch, Launches};

const THREADS: usize = 256;
/// Elements of a column of the state that a thread holds.
const HELD: usize = 32;
/// The largest head of queries and keys.
const MAX_SIZE: usize = 8 * HELD;

pub(crate) fn work(prim: &LinearAttention, step: &Step) -> Result<Launches, Declined> {
    let ([q, k, v, more @ ..], [y, present]) = (&step.inputs[..], &step.outputs[..]) else {
        return Err(Declined::new("linear attention without queries, keys and values"));
    };
    let (&[batch, queries, length, size], &[_, heads, _, width]) = (&q.shape[..], &v.shape[..]) else {
        return Err(Declined::new("linear attention with operands of the wrong rank"));
    };
    let is_short = |view: &View| matches!(view.dtype, DType::F32 | DType::F16 | DType::Bf16);
    if !is_short(q) || !is_short(present) {
        return Err(Declined::new(format!("linear attention of {} with a state of {}", q.dtype, present.dtype)));
    }
    let innermost = |view: &&View| view.shape[3] <= 1 || view.strides[3] == 1;
    if ![q, k, v, y].iter().all(innermost) || !present.is_dense() {
        return Err(Declined::new("linear attention on rows that are not contiguous"));
    }
    if size > MAX_SIZE {
        return Err(Declined::new(format!("linear attention with heads of {size}; at most {MAX_SIZE} are supported")));
    }
    if present.elems() == 0 {
        return Ok(Launches::nothing());
    }
    if [length, width, queries * heads, k.shape[1] * heads].iter().any(|&extent| extent >= 1 << 31) {
        return Err(Declined::new("an axis of 2^31 elements or more"));
    }
    let mut more = (3..).zip(more);
    let past = if prim.past { more.next() } else { None };
    let decay = if prim.decay { more.next() } else { None };
    let rate = if prim.delta { more.next() } else { None };
    let mut args = Args::new().input("q", 0, q).input("k", 1, k).input("v", 2, v);
    for (name, operand) in [("past", past), ("decay", decay), ("rate", rate)] {
        args = match operand {
            Some((number, view)) => args.input(name, number, view),
            None => args.null(name),
        };
    }
    let axes = |operand: Option<(usize, &View)>| operand.map_or([0; 4], |(_, view)| strides::<4>(view));
    // Threads that share a column of the state.
    let parts = if size > 4 * HELD { 8 } else { 4 };
    let tiles = width.div_ceil(THREADS / parts);
    let kind = decay.map_or(0, |(_, view)| if view.strides[3] == 0 || size == 1 { 1 } else { 2 });
    let args = args
        .output("y", 0, y)
        .output("present", 1, present)
        .i64s("q_axis", &strides::<3>(q))
        .i64s("k_axis", &strides::<3>(k))
        .i64s("v_axis", &strides::<3>(v))
        .i64s("y_axis", &strides::<3>(y))
        .i64s("past_axis", &axes(past))
        .i64s("decay_axis", &axes(decay))
        .i64s("rate_axis", &axes(rate)[..3])
        .f32("scale", prim.scale)
        .u32s("queries", &[queries, k.shape[1], heads].map(|count| count as u32))
        .u32s("length", &[length, size, width].map(|extent| extent as u32))
        .u32("tiles", tiles as u32);
    let kernel = Kernel::new("linear_attention", include_str!("../hip/linear_attention.hip"))
        .set("T", type_name(q.dtype))
        .set("S_T", type_name(present.dtype))
        .set("PARTS", parts)
        .set("E", size.div_ceil(parts))
        .set("WHOLE", u8::from(size % parts == 0))
        .set("DECAY", kind)
        .set("DELTA", u8::from(prim.delta));
    let grid = [grid_x((batch * heads * tiles) as u64)?, 1, 1];
    Ok(Launches::one(Launch { kernel, grid, threads: THREADS as u32, lds_bytes: 0, args }))
}
