//! New rows behind those of a cache: `hip/append.hip`.
use graph::{Declined, Step, View, prim::Append};

use crate::{
    Arch, Args, Kernel, Launch, Work,
    kernel::{type_name, word_name},
    walk::pack,
};

const TEXT: &str = concat!(include_str!("../hip/lengths.h"), include_str!("../hip/append.hip"));
const THREADS: usize = 256;
/// Blocks of a compute unit that keep its memory busy.
const BLOCKS: usize = 4;
/// What a driver takes along y.
const MOST_HEADS: usize = 65_535;

pub(crate) fn work(append: &Append, step: &Step, arch: &Arch) -> Result<Work, Declined> {
    let ([lengths, keys, values, past @ ..], [present_keys, present_values]) = (&step.inputs[..], &step.outputs[..])
    else {
        return Err(Declined::new("append without keys and values"));
    };
    let (&[batches, heads, rows, _], &[_, _, total, _]) = (&keys.shape[..], &present_keys.shape[..]) else {
        return Err(Declined::new("append over other axes"));
    };
    let past = if append.past { past } else { &[] };
    let (fresh, out) = ([keys, values], [present_keys, present_values]);
    let moved: Vec<&View> = fresh.into_iter().chain(past).chain(out).collect();
    if moved.iter().any(|view| view.dtype != keys.dtype) || !out.iter().all(|view| view.is_dense()) {
        return Err(Declined::new("append of several types, or to outputs with gaps"));
    }
    let sizes = out.map(|view| view.shape[3]);
    if batches * heads >= 1 << 31 || total * sizes[0].max(sizes[1]) >= 1 << 31 {
        return Err(Declined::new("a head of 2^31 elements or more"));
    }
    if batches * heads * total == 0 {
        return Ok(Work::nothing());
    }
    let elems = pack_of(&moved) as usize;
    let held = past.first().map_or(total, |past| past.shape[2]);
    let mut args = Args::new().input("lengths", 0, lengths).input("fresh", 1, keys).input("fresh", 2, values);
    args = match past {
        [keys, values] => args.input("past", 3, keys).input("past", 4, values),
        _ => args.null("past").null("past"),
    };
    let axes =
        |of: Option<&View>| -> [i64; 4] { std::array::from_fn(|axis| of.map_or(0, |view| view.strides[axis] as i64)) };
    let args = args
        .output("out", 0, present_keys)
        .output("out", 1, present_values)
        .fault("fault")
        .i64("lengths_step", lengths.strides.first().map_or(0, |&stride| stride as i64))
        .i64("shift", append.filled.shift)
        .i64s("fresh_axis", fresh.map(|view| axes(Some(view))).as_flattened())
        .i64s("past_axis", [axes(past.first()), axes(past.get(1))].as_flattened())
        .u32s("packs", &sizes.map(|size| (size / elems) as u32))
        .u32s("batches", &[batches, heads, rows, held, total].map(|extent| extent as u32))
        .u32("same_shape", u32::from(append.past && held == total));
    let kernel =
        Kernel::new("append", TEXT).set("T", word_name(keys.dtype)).set("I", type_name(lengths.dtype)).set("V", elems);
    // Enough for a copy of all rows; where only new ones are written, most leave at once.
    let tasks = total * sizes[0].max(sizes[1]) / elems;
    let wanted = (BLOCKS * arch.compute_units as usize).div_ceil(2 * batches * heads);
    let x = tasks.div_ceil(THREADS).min(wanted).max(1);
    let grid = [x as u32, (batches * heads).min(MOST_HEADS) as u32, 2];
    Ok(Work::one(Launch { kernel, grid, threads: THREADS as u32, lds_bytes: 0, args }))
}

/// Elements that are moved as one.
fn pack_of(views: &[&View]) -> u32 {
    if views.iter().any(|view| view.strides.last() != Some(&1)) {
        return 1;
    }
    let numbers = views.iter().flat_map(|view| {
        let outer = (0..view.shape.len() - 1).filter(|&axis| view.shape[axis] > 1);
        outer.map(|axis| view.strides[axis] as i64).chain([view.offset as i64, view.shape[3] as i64])
    });
    pack(views[0].dtype, 16, numbers)
}
