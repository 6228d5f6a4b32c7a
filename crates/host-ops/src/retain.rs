//! Keeps the newest rows of a cache.
use graph::DType;

use crate::append::copy_row;
use crate::index::{Bounds, Indices};
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of bytes per task.
const GRAIN_BYTES: usize = 64 * 1024;

pub(crate) fn run(inputs: &[Tensor<'_>], outputs: &[TensorMut<'_>], cx: &mut Context<'_>) -> Result<(), OpError> {
    let unsupported = |dtype| OpError::Unsupported { prim: "retain", dtype };
    let (&[starts, keys, values, ..], &[kept_keys, kept_values]) = (inputs, outputs) else {
        return Err(unsupported(DType::F32));
    };
    let &[batch, heads, rows, _] = keys.shape() else { return Err(unsupported(keys.dtype())) };
    let indices = Indices::new(starts, "retain")?;
    // SAFETY: the view is `[batch]`.
    let start = |at: usize| unsafe { indices.at(at as isize * starts.strides()[0]) };
    let bounds = Bounds::default();
    for first in (0..batch).map(start).filter(|&first| first < 0 || first as u64 > rows as u64) {
        bounds.position(first.max(rows as i64), rows);
    }
    // Nothing is written unless everything is in range: a cache that is updated in place stays unchanged on error.
    bounds.result()?;
    for (from, to) in [(keys, kept_keys), (values, kept_values)] {
        let head_bytes = to.shape()[2] * to.shape()[3] * to.dtype().bytes();
        cx.parallel.ranges(batch * heads, (GRAIN_BYTES / head_bytes.max(1)).max(1), |range| {
            for head in range {
                // SAFETY: the starts were checked above, and each head belongs to one task.
                unsafe { keep(from, to, [head / heads, head % heads], start(head / heads) as usize) };
            }
        });
    }
    Ok(())
}

/// Writes one head of one batch.
///
/// # Safety
/// `start` is at most the number of rows, and nothing else uses the head's part of the output.
unsafe fn keep(from: Tensor<'_>, to: TensorMut<'_>, [batch, head]: [usize; 2], start: usize) {
    let (&[_, _, rows, _], &[_, heads, total, size]) = (from.shape(), to.shape()) else { return };
    let bytes = from.dtype().bytes();
    let row_of = |row: usize| {
        let strides = from.strides();
        let place = batch as isize * strides[0] + head as isize * strides[1] + row as isize * strides[2];
        from.start().wrapping_offset(place * bytes as isize)
    };
    let out = to.start().wrapping_add((batch * heads + head) * total * size * bytes);
    let kept = (rows - start).min(total);
    for row in 0..kept {
        // SAFETY: both rows are within their views. The two buffers differ: the source is not the replaced cache.
        unsafe { copy_row(row_of(start + row), from.strides()[3], out.wrapping_add(row * size * bytes), size, bytes) };
    }
    // SAFETY: the output is dense, so the rest of the head follows its rows.
    unsafe { std::ptr::write_bytes(out.wrapping_add(kept * size * bytes), 0, (total - kept) * size * bytes) };
}
