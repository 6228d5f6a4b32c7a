//! Views of buffers: how tensors are laid out in memory.

use graph::prim::BufferId;
use graph::shape::{self, Shape};
use graph::{DType, Tensor, View};

/// A way to lay out a tensor of a shape in a buffer.
pub type Arrangement = fn(u32, DType, &[usize]) -> View;

/// Layouts that every operator must be able to read and write.
pub const ARRANGEMENTS: [Arrangement; 3] = [dense, reversed, spread];

/// The elements of a whole buffer, row by row.
pub fn dense(buffer: u32, dtype: DType, shape: &[usize]) -> View {
    View { buffer: BufferId(buffer), dtype, shape: shape.into(), strides: shape::dense_strides(shape), offset: 0 }
}

/// A view with the given strides.
pub fn strided(buffer: u32, dtype: DType, shape: &[usize], strides: &[isize], offset: isize) -> View {
    View { buffer: BufferId(buffer), dtype, shape: shape.into(), strides: strides.iter().copied().collect(), offset }
}

/// The first axis is innermost.
pub fn reversed(buffer: u32, dtype: DType, shape: &[usize]) -> View {
    let turned: Shape = shape.iter().rev().copied().collect();
    let strides: Vec<isize> = shape::dense_strides(&turned).into_iter().rev().collect();
    strided(buffer, dtype, shape, &strides, 0)
}

/// Row by row, with a gap after every element.
pub fn spread(buffer: u32, dtype: DType, shape: &[usize]) -> View {
    let strides: Vec<isize> = shape::dense_strides(shape).into_iter().map(|stride| stride * 2).collect();
    strided(buffer, dtype, shape, &strides, 0)
}

/// Images `[n, c, …]` with channels innermost.
pub fn channels_last(buffer: u32, dtype: DType, shape: &[usize]) -> View {
    let stored: Vec<usize> = shape[..1].iter().chain(&shape[2..]).chain(&shape[1..2]).copied().collect();
    let mut strides = shape::dense_strides(&stored).to_vec();
    let channel = strides.pop().unwrap_or(1);
    strides.insert(1, channel);
    strided(buffer, dtype, shape, &strides, 0)
}

/// The place of each element in the buffer, in row-major order of the indices.
///
/// # Panics
/// When an element is before the buffer.
pub fn places(view: &View) -> Vec<usize> {
    let mut all = vec![view.offset];
    for (&extent, &stride) in view.shape.iter().zip(&view.strides) {
        all = all.iter().flat_map(|&at| (0..extent as isize).map(move |i| at + i * stride)).collect();
    }
    assert!(all.iter().all(|&at| at >= 0), "{view:?} starts before its buffer");
    all.into_iter().map(|at| at as usize).collect()
}

/// The number of elements that a view's buffer needs.
pub fn room(view: &View) -> usize {
    if view.elems() == 0 {
        return 0;
    }
    let last = view.shape.iter().zip(&view.strides).map(|(&extent, &stride)| (extent as isize - 1) * stride.max(0));
    (view.offset + last.sum::<isize>()) as usize + 1
}

/// A view's elements, row by row.
///
/// # Panics
/// When the buffer does not hold the view.
pub fn gather(view: &View, buffer: &Tensor) -> Tensor {
    let width = view.dtype.bytes();
    let bytes: Vec<u8> = places(view).iter().flat_map(|at| &buffer.bytes()[at * width..][..width]).copied().collect();
    Tensor::from_bytes(view.dtype, &view.shape, &bytes).unwrap_or_else(|| unreachable!("{view:?}"))
}

/// A buffer with the elements of a tensor at the places of a view, and zeros in the gaps. Where places repeat, the last
/// element stays.
pub fn scatter(view: &View, dense: &Tensor) -> Tensor {
    let width = view.dtype.bytes();
    let mut bytes = vec![0; room(view) * width];
    for (from, to) in dense.bytes().chunks(width).zip(places(view)) {
        bytes[to * width..][..width].copy_from_slice(from);
    }
    Tensor::from_bytes(view.dtype, &[room(view)], &bytes).unwrap_or_else(|| unreachable!("{view:?}"))
}

/// All indices of a shape, row by row.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |all, &extent| {
        all.iter().flat_map(|index| (0..extent).map(move |i| index.iter().copied().chain([i]).collect())).collect()
    })
}

/// The position of an index among all of a shape.
pub fn flat(shape: &[usize], index: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |flat, (at, extent)| flat * extent + at)
}
