//! Appends new rows to a cache.
use graph::DType;
use graph::prim::Append;

use crate::index::{Bounds, Indices};
use crate::rotary::{HeadPlace, Heads, Turn};
use crate::{Context, OpError, Tensor, TensorMut};

/// The axes of batch, row, head and element in `[batch, heads, rows, size]`.
const BY_HEAD: [usize; 4] = [0, 2, 1, 3];

/// Minimum number of bytes per task.
const GRAIN_BYTES: usize = 64 * 1024;

pub(crate) fn run(
    prim: &Append,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (&[lengths, keys, values, ref past @ ..], &[present_keys, present_values, ref more @ ..]) = (inputs, outputs)
    else {
        return Err(OpError::Unsupported { prim: "append", dtype: DType::F32 });
    };
    let (&[batch, heads, rows, _], &[_, _, total, _]) = (keys.shape(), present_keys.shape()) else {
        return Err(OpError::Unsupported { prim: "append", dtype: keys.dtype() });
    };
    let (past, turning) = past.split_at_checked(prim.turned_at() - 3).unwrap_or((past, &[]));
    let held = past.first().map_or(total, |past| past.shape()[2]);
    let indices = Indices::new(lengths, "append")?;
    // SAFETY: the view is `[batch]`.
    let filled = |at: usize| prim.filled.before(unsafe { indices.at(at as isize * lengths.strides()[0]) });
    let bounds = Bounds::default();
    for at in 0..batch {
        let before = filled(at);
        if before.saturating_add(rows) > total {
            bounds.position(before.saturating_add(rows).saturating_sub(1).min(i64::MAX as usize) as i64, total);
        } else if before > held {
            bounds.position(before as i64 - 1, held);
        }
    }
    let turn = match (&prim.rotary, turning, more) {
        (None, [], []) => None,
        (Some(rotary), &[queries, cosines, sines, operand], &[turned]) => {
            let turn = Turn::new(rotary, [cosines, sines, operand])?;
            for token in 0..batch * rows {
                turn.position(token / rows, token % rows, &bounds);
            }
            Some((turn, Heads::new(queries, BY_HEAD)?, Heads::new(keys, BY_HEAD)?, turned))
        }
        _ => return Err(OpError::Unsupported { prim: "append", dtype: keys.dtype() }),
    };
    // Nothing is written unless everything fits: a cache that is updated in place stays unchanged on error.
    bounds.result()?;
    if let Some((turn, queries, keys, turned)) = &turn {
        let of = |out: TensorMut<'_>, [at, row, head]: HeadPlace| {
            let places = [at, head, row].into_iter().zip(out.strides());
            let elems: isize = places.map(|(at, &stride)| at as isize * stride).sum();
            (out.start().wrapping_offset(elems * out.dtype().bytes() as isize), out.strides()[3])
        };
        // SAFETY: the outputs belong to this step, and the filled lengths were checked against the cache's extents.
        unsafe {
            turn.run(queries, &|place| of(*turned, place), &bounds, cx);
            turn.run(keys, &|[at, row, head]| of(present_keys, [at, filled(at) + row, head]), &bounds, cx);
        }
    }
    for (number, (new, out)) in [(keys, present_keys), (values, present_values)].into_iter().enumerate() {
        let past = past.get(number).filter(|past| past.start() != out.start().cast_const());
        let in_place = prim.past && past.is_none();
        let is_there = number == 0 && turn.is_some();
        let part = Part { new, is_there, past: past.copied(), out, in_place };
        let moved = if in_place { rows } else { total };
        let bytes = moved * out.shape()[3] * out.dtype().bytes();
        cx.parallel.ranges(batch * heads, (GRAIN_BYTES / bytes.max(1)).max(1), |range| {
            for row in range {
                // SAFETY: the filled lengths were checked against all extents, and each head belongs to one task.
                unsafe { part.head(row / heads, row % heads, filled(row / heads)) };
            }
        });
    }
    Ok(())
}

/// Keys or values.
struct Part<'a> {
    new: Tensor<'a>,
    /// The new rows are already in the output.
    is_there: bool,
    /// The past, if it has to be copied.
    past: Option<Tensor<'a>>,
    out: TensorMut<'a>,
    in_place: bool,
}

impl Part<'_> {
    /// Writes one head of one batch.
    ///
    /// # Safety
    /// `before` and the new rows fit the output, `before` fits the past, and nothing else uses the head's part of the
    /// output.
    unsafe fn head(&self, batch: usize, head: usize, before: usize) {
        let bytes = self.out.dtype().bytes();
        let &[_, _, total, size] = self.out.shape() else { return };
        let place = |strides: &[isize], row: usize| {
            (batch as isize * strides[0] + head as isize * strides[1] + row as isize * strides[2]) * bytes as isize
        };
        let to = |row: usize| self.out.start().wrapping_offset(place(self.out.strides(), row));
        let rows = self.new.shape()[2];
        if let Some(past) = &self.past {
            let from = past.start().wrapping_offset(place(past.strides(), 0));
            if past.strides()[3] == 1 && past.strides()[2] == size as isize {
                // SAFETY: the rows of both are contiguous, and the two do not overlap.
                unsafe { std::ptr::copy_nonoverlapping(from, to(0), before * size * bytes) };
            } else {
                for row in 0..before {
                    let from = past.start().wrapping_offset(place(past.strides(), row));
                    // SAFETY: as above.
                    unsafe { copy_row(from, past.strides()[3], to(row), size, bytes) };
                }
            }
        }
        for row in if self.is_there { 0..0 } else { 0..rows } {
            let from = self.new.start().wrapping_offset(place(self.new.strides(), row));
            // SAFETY: guaranteed by the caller.
            unsafe { copy_row(from, self.new.strides()[3], to(before + row), size, bytes) };
        }
        if !self.in_place {
            let end = before + rows;
            // SAFETY: guaranteed by the caller.
            unsafe { std::ptr::write_bytes(to(end), 0, (total - end) * size * bytes) };
        }
    }
}

/// Copies a row to contiguous memory.
///
/// # Safety
/// Both rows are valid and do not overlap.
pub(crate) unsafe fn copy_row(from: *const u8, stride: isize, to: *mut u8, count: usize, bytes: usize) {
    if stride == 1 || count == 1 {
        // SAFETY: guaranteed by the caller.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, count * bytes) };
    }
    for at in 0..count {
        let from = from.wrapping_offset(at as isize * stride * bytes as isize);
        // SAFETY: guaranteed by the caller.
        unsafe { std::ptr::copy_nonoverlapping(from, to.wrapping_add(at * bytes), bytes) };
    }
}
