//! Keeps the newest rows of a cache: `hip/retain.hip`.
use graph::{Declined, Step};

use crate::append::{BLOCKS, MAX_HEADS, THREADS, pack_of};
use crate::kernel::{type_name, word_name};
use crate::rotary::strides;
use crate::{Arch, Args, Kernel, Launch, Launches};

pub(crate) fn work(step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let ([starts, keys, values, ..], [kept_keys, kept_values]) = (&step.inputs[..], &step.outputs[..]) else {
        return Err(Declined::new("a cache without keys and values"));
    };
    let (&[batches, heads, rows, _], &[_, _, total, _]) = (&keys.shape[..], &kept_keys.shape[..]) else {
        return Err(Declined::new("a cache with operands of the wrong rank"));
    };
    let (from, out) = ([keys, values], [kept_keys, kept_values]);
    let moved: Vec<_> = from.into_iter().chain(out).collect();
    if moved.iter().any(|view| view.dtype != keys.dtype) || !out.iter().all(|view| view.is_dense()) {
        return Err(Declined::new("a cache with mixed types, or with outputs that are not contiguous"));
    }
    let sizes = out.map(|view| view.shape[3]);
    if batches * heads >= 1 << 31 || rows.max(total) * sizes[0].max(sizes[1]) >= 1 << 31 {
        return Err(Declined::new("a head of 2^31 elements or more"));
    }
    if out.iter().all(|view| view.elems() == 0) {
        return Ok(Launches::nothing());
    }
    let elems = pack_of(&moved, None) as usize;
    let args = Args::new()
        .input("starts", 0, starts)
        .input("from", 1, keys)
        .input("from", 2, values)
        .output("out", 0, kept_keys)
        .output("out", 1, kept_values)
        .fault("fault")
        .i64("starts_step", starts.strides.first().map_or(0, |&stride| stride as i64))
        .i64s("from_axis", from.map(strides::<4>).as_flattened())
        .u32s("packs", &sizes.map(|size| (size / elems) as u32))
        .u32s("batches", &[batches, heads, rows, total].map(|extent| extent as u32));
    let kernel = Kernel::new("retain", include_str!("../hip/retain.hip"))
        .set("T", word_name(keys.dtype))
        .set("I", type_name(starts.dtype))
        .set("V", elems);
    let tasks = total * sizes[0].max(sizes[1]) / elems;
    let wanted = (BLOCKS * arch.compute_units as usize).div_ceil(2 * batches * heads);
    let x = tasks.div_ceil(THREADS).min(wanted).max(1);
    let grid = [x as u32, (batches * heads).min(MAX_HEADS) as u32, 2];
    Ok(Launches::one(Launch { kernel, grid, threads: THREADS as u32, lds_bytes: 0, args }))
}
