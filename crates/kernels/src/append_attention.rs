//! Attention of one token whose key and value are appended to the cache in the same launch: `hip/newest.h`.
use graph::prim::{Append, AppendAttention};
use graph::{Declined, Step, View};

use crate::append::{self, Turn, pack_of};
use crate::rotary::strides;
use crate::{Arch, Launch, Launches, Pointer, cached_attention};

/// The index of the first input of the attention alone.
const MORE: usize = 9;
/// The attention's output.
const OUT: usize = 3;

pub(crate) fn work(both: &AppendAttention, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let Some([update, attention]) = both.parts(step) else {
        return Err(Declined::new("a cache update and attention whose operands do not match"));
    };
    one_launch(both, step, &update, &attention, arch).or_else(|_| two_launches(both, &update, &attention, arch))
}

/// The append and the attention in one launch.
fn one_launch(
    both: &AppendAttention,
    step: &Step,
    update: &Step,
    attention: &Step,
    arch: &Arch,
) -> Result<Launches, Declined> {
    let Append { rotary: Some(rotary), past: true, .. } = &both.append else {
        return Err(Declined::new("a cache update without a rotation or a past"));
    };
    let turn = Turn::new(rotary, &both.append, update)?;
    let [_, keys, values, past @ ..] = &update.inputs[..] else {
        return Err(Declined::new("a cache update without keys and values"));
    };
    let (past, out) = (&past[..2], &step.outputs[..2]);
    let views = [keys, values, turn.queries, turn.cosines, turn.sines].into_iter().chain(past).chain(out);
    let views: Vec<&View> = views.collect();
    let half = turn.cosines.shape[1];
    let is_packed = pack_of(&views, Some(half as i64)) as usize == 16 / keys.dtype.bytes();
    let is_dense = past.iter().chain(out).all(|view| view.is_dense());
    let is_small = out.iter().all(|view| view.shape[2] * view.shape[3] < 1 << 31);
    if !is_packed || !is_dense || !is_small || views.iter().any(|view| view.dtype != keys.dtype) {
        return Err(Declined::new("rows that cannot be read in packs"));
    }
    // Queries are rotated while they are read, and the cache holds the past.
    let mut seen = attention.clone();
    seen.inputs[0] = turn.queries.clone();
    seen.inputs[1..3].clone_from_slice(past);
    let mut work = cached_attention::of_newest(&both.attention, &seen, arch)?;
    let own = |pointer| match pointer {
        Pointer::Input(0, bytes) => Pointer::Input(turn.first, bytes),
        Pointer::Input(number @ 1..=2, bytes) => Pointer::Input(number + 2, bytes),
        other => moved(other),
    };
    for Launch { kernel, args, .. } in &mut work.launches {
        *kernel = turn.set_angles(kernel.clone()).set("NEWEST", 1);
        *args = std::mem::take(args)
            .moved(own)
            .input("new_k", 1, keys)
            .input("new_v", 2, values)
            .input("cosines", turn.first + 1, turn.cosines)
            .input("sines", turn.first + 2, turn.sines)
            .input("positions", turn.first + 3, turn.positions)
            .output("out_k", 0, &out[0])
            .output("out_v", 1, &out[1])
            .fault("fault")
            .i64s("new_k_batch", &strides::<2>(keys))
            .i64s("new_v_batch", &strides::<2>(values))
            .i64s("cosine_row", [strides::<1>(turn.cosines), strides::<1>(turn.sines)].as_flattened())
            .i64s("position_step", &[strides::<1>(turn.positions)[0], turn.shift()])
            .i64("count", turn.cosines.shape[0] as i64)
            .u32("half", half as u32);
    }
    Ok(work)
}

/// One launch after the other.
fn two_launches(both: &AppendAttention, update: &Step, attention: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let mut work = append::work(&both.append, update, arch)?;
    let mut behind = cached_attention::work(&both.attention, attention, arch)?;
    for Launch { args, .. } in &mut behind.launches {
        *args = std::mem::take(args).moved(|pointer| match pointer {
            Pointer::Input(0, bytes) => Pointer::Output(2, bytes),
            Pointer::Input(number @ 1..=2, bytes) => Pointer::Output(number - 1, bytes),
            other => moved(other),
        });
    }
    work.launches.append(&mut behind.launches);
    work.scratch_bytes = work.scratch_bytes.max(behind.scratch_bytes);
    Ok(work)
}

/// Renumbers an operand of the attention, other than queries, keys and values, for the combined step.
fn moved(pointer: Pointer) -> Pointer {
    match pointer {
        Pointer::Input(3, bytes) => Pointer::Input(0, bytes),
        Pointer::Input(number, bytes) => Pointer::Input(number - 4 + MORE, bytes),
        Pointer::Output(_, bytes) => Pointer::Output(OUT, bytes),
        other => other,
    }
}
