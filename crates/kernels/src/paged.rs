//! Caches in pages: `hip/paged.hip`. Attention over them is in `cached_attention.rs`.
use graph::prim::{PagedPlaces, place};
use graph::{DType, Declined, Step, View};

use crate::append::{BLOCKS, THREADS, pack_of};
use crate::kernel::word_name;
use crate::layout::grid_x;
use crate::rotary::strides;
use crate::{Arch, Args, Kernel, Launch, Launches};

const TEXT: &str = include_str!("../hip/paged.hip");

/// The places of tokens.
pub(crate) fn places(prim: &PagedPlaces, step: &Step) -> Result<Launches, Declined> {
    let ([starts, lengths, table, slots @ ..], [out]) = (&step.inputs[..], &step.outputs[..]) else {
        return Err(Declined::new("places without a table"));
    };
    let (&[sequences, most], &[place::ROWS, tokens]) = (&table.shape[..], &out.shape[..]) else {
        return Err(Declined::new("places with operands of the wrong rank"));
    };
    if step.inputs.iter().chain([out]).any(|view| view.dtype != DType::I32) || !out.is_dense() {
        return Err(Declined::new("places that are not of i32"));
    }
    if [tokens, sequences, most, prim.blocks.saturating_mul(prim.block)].iter().any(|&extent| extent >= 1 << 31) {
        return Err(Declined::new("an axis of 2^31 elements or more"));
    }
    if tokens == 0 {
        return Ok(Launches::nothing());
    }
    let mut args = Args::new().input("starts", 0, starts).input("lengths", 1, lengths).input("table", 2, table);
    args = match slots.first().filter(|_| prim.slots) {
        Some(slots) => args.input("slots", 3, slots),
        None => args.null("slots"),
    };
    let step_of = |view: Option<&View>| view.map_or(0, |view| strides::<1>(view)[0]);
    let args = args
        .output("out", 0, out)
        .fault("fault")
        .i64s("starts_step", &[step_of(Some(starts)), step_of(Some(lengths))])
        .i64s("table_row", &strides::<2>(table))
        .i64("slots_step", step_of(slots.first()))
        .u32s("tokens", &[tokens, sequences, most, prim.block, prim.blocks].map(|extent| extent as u32))
        .u32("causal", u32::from(prim.causal));
    let kernel = Kernel::new("paged_places", TEXT).set("PLACES", 1);
    let grid = [grid_x(tokens.div_ceil(THREADS) as u64)?, 1, 1];
    Ok(Launches::one(Launch { kernel, grid, threads: THREADS as u32, lds_bytes: 0, args }))
}

/// Writes keys and values to their slots: a launch that copies the past unless it is updated in place, then another.
pub(crate) fn append(step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let ([places, fresh @ .., key_cache, value_cache], [out_keys, out_values]) = (&step.inputs[..], &step.outputs[..])
    else {
        return Err(Declined::new("a paged cache without keys and values"));
    };
    let ([keys, values], &[_, tokens]) = (fresh, &places.shape[..]) else {
        return Err(Declined::new("a paged cache without keys and values"));
    };
    let (&[_, heads, _], &[blocks, block, ..]) = (&keys.shape[..], &out_keys.shape[..]) else {
        return Err(Declined::new("a paged cache with operands of the wrong rank"));
    };
    let (past, out) = ([key_cache, value_cache], [out_keys, out_values]);
    let moved: Vec<&View> = [keys, values].into_iter().chain(past).chain(out).collect();
    if moved.iter().any(|view| view.dtype != keys.dtype) || !past.iter().chain(&out).all(|view| view.is_dense()) {
        return Err(Declined::new("a paged cache with mixed types, or that is not contiguous"));
    }
    if places.dtype != DType::I32 || !places.is_dense() {
        return Err(Declined::new("places that are not of i32, or not contiguous"));
    }
    if blocks * block >= 1 << 31 || keys.elems().max(values.elems()) >= 1 << 31 {
        return Err(Declined::new("2^31 rows or more"));
    }
    let elems = pack_of(&moved, None) as usize;
    let launch = |copies: bool, tasks: usize| {
        let args = Args::new()
            .input("places", 0, places)
            .input("fresh", 1, keys)
            .input("fresh", 2, values)
            .input("past", 3, key_cache)
            .input("past", 4, value_cache)
            .output("out", 0, out_keys)
            .output("out", 1, out_values)
            .fault("fault")
            .i64s("fresh_axis", [keys, values].map(strides::<3>).as_flattened())
            .i64s("packs", &out.map(|view| (view.elems() / elems) as i64))
            .u32s("head_packs", &out.map(|view| (view.shape[3] / elems) as u32))
            .u32s("tokens", &[tokens, heads, blocks * block].map(|extent| extent as u32));
        let kernel = Kernel::new("paged_append", TEXT)
            .set("PLACES", 0)
            .set("COPY", u8::from(copies))
            .set("T", word_name(keys.dtype))
            .set("V", elems);
        let wanted = BLOCKS * arch.compute_units as usize;
        let grid = [tasks.div_ceil(THREADS).min(wanted).max(1) as u32, 2, 1];
        Launch { kernel, grid, threads: THREADS as u32, lds_bytes: 0, args }
    };
    let rows = |views: &[&View]| views.iter().map(|view| view.elems() / elems).max().unwrap_or(0);
    let mut launches = Vec::new();
    if rows(&out) > 0 {
        launches.push(launch(true, rows(&out)));
    }
    if rows(&[keys, values]) > 0 {
        launches.push(launch(false, rows(&[keys, values])));
    }
    Ok(Launches { launches, scratch_bytes: 0 })
}
