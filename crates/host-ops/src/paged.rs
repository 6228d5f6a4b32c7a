//! Caches in pages: the places of tokens, and writing their keys and values. Attention over them is in
//! `cached_attention.rs`.
use graph::DType;
use graph::prim::{PagedPlaces, place};

use crate::append::copy_row;
use crate::index::Bounds;
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of bytes per task.
const GRAIN_BYTES: usize = 64 * 1024;

/// Reads a tensor of i32.
pub(crate) fn ints<'a>(
    tensor: Tensor<'a>,
    prim: &'static str,
) -> Result<impl Fn(&[usize]) -> i32 + Sync + 'a, OpError> {
    if tensor.dtype() != DType::I32 {
        return Err(OpError::Unsupported { prim, dtype: tensor.dtype() });
    }
    Ok(move |at: &[usize]| {
        debug_assert!(at.iter().zip(tensor.shape()).all(|(at, extent)| at < extent));
        let elems: isize = at.iter().zip(tensor.strides()).map(|(&at, &stride)| at as isize * stride).sum();
        // SAFETY: callers pass an index within the view.
        unsafe { tensor.as_ptr::<i32>().wrapping_offset(elems).read() }
    })
}

/// The place of each token: see [`PagedPlaces`].
pub(crate) fn places(prim: &PagedPlaces, inputs: &[Tensor<'_>], outputs: &[TensorMut<'_>]) -> Result<(), OpError> {
    let unsupported = || OpError::Unsupported { prim: "paged_places", dtype: DType::I32 };
    let (&[starts, lengths, table, ref slots @ ..], &[out]) = (inputs, outputs) else { return Err(unsupported()) };
    let (&[sequences, most], &[place::ROWS, tokens]) = (table.shape(), out.shape()) else { return Err(unsupported()) };
    if out.dtype() != DType::I32 || !out.is_dense() {
        return Err(unsupported());
    }
    let of = |tensor| ints(tensor, "paged_places");
    let (start, length, entry) = (of(starts)?, of(lengths)?, of(table)?);
    let slot = slots.first().filter(|_| prim.slots).map(|&slots| of(slots)).transpose()?;
    let bounds = Bounds::default();
    let set = |row: usize, token: usize, value: i32| {
        // SAFETY: the output is dense and has these rows, and only this thread writes it.
        unsafe { out.as_ptr::<i32>().add(row * tokens + token).write(value) };
    };
    for token in 0..tokens {
        for (row, none) in [(place::POSITION, 0), (place::SLOT, -1), (place::SEQUENCE, 0), (place::END, 0)] {
            set(row, token, none);
        }
    }
    for sequence in 0..sequences {
        let limit = |at: usize| usize::try_from(start(&[at])).unwrap_or(0).min(tokens);
        let (first, end, before) = (limit(sequence), limit(sequence + 1), i64::from(length(&[sequence])));
        for token in first..end {
            let position = before + (token - first) as i64;
            let at = if before < 0 { None } else { bounds.position(position / prim.block as i64, most) };
            let Some(at) = at else {
                bounds.position(position.max((most * prim.block) as i64), most * prim.block);
                continue;
            };
            // A negative entry does not count from the end.
            let block = i64::from(entry(&[sequence, at]));
            let Some(block) = bounds.position(if block < 0 { i64::MAX } else { block }, prim.blocks) else { continue };
            let own = (block * prim.block) as i64 + position % prim.block as i64;
            let end = if prim.causal { position + 1 } else { before + (end - first) as i64 };
            set(place::POSITION, token, position as i32);
            set(place::SLOT, token, slot.as_ref().map_or(own as i32, |slot| slot(&[token])));
            set(place::SEQUENCE, token, sequence as i32);
            set(place::END, token, end as i32);
        }
    }
    bounds.result()
}

/// Writes keys and values to their slots.
pub(crate) fn append(inputs: &[Tensor<'_>], outputs: &[TensorMut<'_>], cx: &mut Context<'_>) -> Result<(), OpError> {
    let unsupported = |dtype| OpError::Unsupported { prim: "paged_append", dtype };
    let (&[places, keys, values, key_cache, value_cache], &[new_keys, new_values]) = (inputs, outputs) else {
        return Err(unsupported(DType::F32));
    };
    let (&[tokens, heads, _], &[blocks, block, ..]) = (keys.shape(), new_keys.shape()) else {
        return Err(unsupported(keys.dtype()));
    };
    let place = ints(places, "paged_append")?;
    let slot = |token: usize| usize::try_from(place(&[place::SLOT, token])).ok();
    let bounds = Bounds::default();
    for slot in (0..tokens).filter_map(slot) {
        bounds.position(slot as i64, blocks * block);
    }
    // Nothing is written unless everything is in range: a cache that is updated in place stays unchanged on error.
    bounds.result()?;
    for (new, past, out) in [(keys, key_cache, new_keys), (values, value_cache, new_values)] {
        let (size, bytes) = (out.shape()[3], out.dtype().bytes());
        if !out.is_dense() || !past.is_dense() || new.dtype() != out.dtype() || past.dtype() != out.dtype() {
            return Err(unsupported(out.dtype()));
        }
        if past.start() != out.start().cast_const() {
            // SAFETY: both are dense and have one shape. They do not overlap unless they are the same.
            unsafe { std::ptr::copy_nonoverlapping(past.start(), out.start(), out.elems() * bytes) };
        }
        let row_bytes = heads * size * bytes;
        cx.parallel.ranges(tokens, (GRAIN_BYTES / row_bytes.max(1)).max(1), |range| {
            for (token, slot) in range.filter_map(|token| Some((token, slot(token)?))) {
                for head in 0..heads {
                    let place = token as isize * new.strides()[0] + head as isize * new.strides()[1];
                    let from = new.start().wrapping_offset(place * bytes as isize);
                    let to = out.start().wrapping_add(slot * row_bytes + head * size * bytes);
                    // SAFETY: slots were checked against the cache's rows. Two tokens in one slot are the model's error;
                    // what the slot holds then is unspecified.
                    unsafe { copy_row(from, new.strides()[2], to, size, bytes) };
                }
            }
        });
    }
    Ok(())
}
