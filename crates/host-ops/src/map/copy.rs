//! Copies between layouts.
use std::mem::MaybeUninit;

use crate::ends::Ends;
use crate::scratch::Plain;
use crate::walk::Walk;
use crate::{Context, Tensor, TensorMut};

/// Bytes of a cache line. A tile is a line of elements wide and high.
const LINE: usize = 64;
/// Minimum number of bytes per task.
const GRAIN_BYTES: usize = 128 * 1024;

/// Copies elements of types with the same representation. View 0 of the walk is the output, view 1 the input.
pub(super) fn copy(walk: &Walk, input: &Tensor<'_>, output: &TensorMut<'_>, cx: &Context<'_>) {
    match input.dtype().bytes() {
        1 => copy_as::<u8>(walk, input, output, cx),
        2 => copy_as::<u16>(walk, input, output, cx),
        4 => copy_as::<u32>(walk, input, output, cx),
        _ => copy_as::<u64>(walk, input, output, cx),
    }
}

fn copy_as<T: Plain>(walk: &Walk, input: &Tensor<'_>, output: &TensorMut<'_>, cx: &Context<'_>) {
    let ends = Ends::<T>::of(input, output);
    let grain = (GRAIN_BYTES / size_of::<T>()).max(1);
    if let Some(axis) = tiled_axis(walk) {
        return transpose(walk, axis, ends, grain, cx);
    }
    cx.parallel.ranges(walk.elems(), grain, |range| {
        let ends = &ends;
        let strides = (walk.row_stride(1), walk.row_stride(0));
        walk.pieces_of([0, 1], range.start, range.len(), |_, [to, from], count| {
            // SAFETY: the walk stays within both views.
            unsafe { ends.row(from, to, count, strides.0, strides.1) };
        });
    });
}

/// The axis along which the input is dense while the output is dense along the innermost, if both are long enough.
fn tiled_axis(walk: &Walk) -> Option<usize> {
    let inner = walk.rank() - 1;
    let crossed = walk.row_stride(0) == 1 && walk.row_stride(1).unsigned_abs() > 1 && walk.row() >= 4;
    let axis = (0..inner).rev().find(|&axis| walk.strides(1)[axis] == 1)?;
    (crossed && walk.extents()[axis] >= 4).then_some(axis)
}

/// Copies tile by tile: every cache line of either side is used once, as a whole if it starts with the tile.
fn transpose<T: Plain>(walk: &Walk, axis: usize, ends: Ends<T>, grain: usize, cx: &Context<'_>) {
    let (extents, inner) = (walk.extents(), walk.rank() - 1);
    let (rows, columns) = (extents[axis], extents[inner]);
    let size = LINE / size_of::<T>();
    let (row_tiles, column_tiles) = (rows.div_ceil(size), columns.div_ceil(size));
    let planes = walk.elems() / (rows * columns);
    let tiles = planes * row_tiles * column_tiles;
    let (to_row, from_column) = (walk.strides(0)[axis], walk.strides(1)[inner]);
    cx.parallel.ranges(tiles, (grain / (size * size)).max(1), |range| {
        let ends = &ends;
        for tile in range {
            let (column_tile, rest) = (tile % column_tiles, tile / column_tiles);
            let (row_tile, mut plane) = (rest % row_tiles, rest / row_tiles);
            let (mut to, mut from) = (0, 0);
            for other in (0..inner).rev().filter(|&other| other != axis) {
                let index = (plane % extents[other]) as isize;
                plane /= extents[other];
                to += index * walk.strides(0)[other];
                from += index * walk.strides(1)[other];
            }
            let (row, column) = (row_tile * size, column_tile * size);
            to += row as isize * to_row + column as isize;
            from += row as isize + column as isize * from_column;
            let (high, wide) = (size.min(rows - row), size.min(columns - column));
            let (from, to) = (ends.from.wrapping_offset(from), ends.to.wrapping_offset(to));
            // SAFETY: both corners and everything between them are within the views.
            unsafe { tile_of(from, to, from_column, to_row, high, wide) };
        }
    });
}

/// # Safety
/// The tile is within both views, which share no memory.
#[inline(always)]
unsafe fn tile_of<T: Plain>(from: *const T, to: *mut T, from_column: isize, to_row: isize, high: usize, wide: usize) {
    let mut memory = [MaybeUninit::<u64>::uninit(); LINE * LINE / 8];
    let tile = memory.as_mut_ptr().cast::<T>();
    let size = LINE / size_of::<T>();
    for c in 0..wide {
        let column = from.wrapping_offset(c as isize * from_column);
        // SAFETY: guaranteed by the caller; the tile's memory holds `size` columns of `size` elements.
        unsafe { std::ptr::copy_nonoverlapping(column, tile.wrapping_add(c * size), high) };
    }
    for r in 0..high {
        let row = to.wrapping_offset(r as isize * to_row);
        for c in 0..wide {
            // SAFETY: as above; these elements of the tile were written.
            unsafe { row.wrapping_add(c).write(tile.wrapping_add(c * size + r).read()) };
        }
    }
}
