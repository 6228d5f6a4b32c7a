//! Gathers elements and slices by index.
use crate::ends::Ends;
use crate::index::{Bounds, Indices, with_width};
use crate::scratch::Plain;
use crate::walk::Walk;
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of bytes per task.
const GRAIN_BYTES: usize = 64 * 1024;

/// Slices along the middle axis of `[outer, axis, inner]`.
pub(crate) fn run(inputs: &[Tensor<'_>], outputs: &[TensorMut<'_>], cx: &mut Context<'_>) -> Result<(), OpError> {
    let (data, output) = (inputs[0], outputs[0]);
    let indices = Indices::new(inputs[1], "gather")?;
    let (count, extent) = (inputs[1].elems(), data.shape()[1]);
    let positions = cx.scratch.get::<i64>(count);
    let stride = inputs[1].strides().first().copied().unwrap_or(0);
    // SAFETY: the view has `count` elements along its one axis.
    unsafe { indices.load(0, stride, positions) };
    let bounds = Bounds::default();
    for position in positions.iter_mut() {
        *position = bounds.position(*position, extent).unwrap_or(0) as i64;
    }
    bounds.result()?;
    if output.elems() > 0 {
        with_width!(data.dtype(), T => slices::<T>(&data, positions, &output, cx.parallel));
    }
    Ok(())
}

fn slices<T: Plain>(data: &Tensor<'_>, positions: &[i64], output: &TensorMut<'_>, parallel: &dyn crate::Parallel) {
    let ends = Ends::<T>::of(data, output);
    let &[outer, count, inner] = output.shape() else { return };
    let (from, to) = (data.strides(), output.strides());
    let grain = (GRAIN_BYTES / (inner * size_of::<T>())).max(1);
    parallel.ranges(outer * count, grain, |range| {
        let ends = &ends;
        for row in range {
            let (at, number) = ((row / count) as isize, row % count);
            let source = at * from[0] + positions[number] as isize * from[1];
            let target = at * to[0] + number as isize * to[1];
            // SAFETY: positions were checked against the axis, so both rows are within their views.
            unsafe { ends.row(source, target, inner, from[2], to[2]) };
        }
    });
}

/// Gathers elements whose index along one axis is given.
pub(crate) fn elements(
    axis: usize,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (data, output) = (inputs[0], outputs[0]);
    let indices = Indices::new(inputs[1], "gather_elements")?;
    if output.elems() == 0 {
        return Ok(());
    }
    // Along the axis, only the index determines the data's position.
    let mut others: smallvec::SmallVec<[isize; 6]> = data.strides().into();
    let (along, extent) = (std::mem::take(&mut others[axis]), data.shape()[axis]);
    let walk = Walk::new(output.shape(), &[output.strides(), inputs[1].strides(), &others], |_| false);
    let bounds = Bounds::default();
    let pick = Pick { walk: &walk, indices, bounds: &bounds, along, extent };
    with_width!(data.dtype(), T => pick.run::<T>(&data, &output, cx.parallel));
    bounds.result()
}

struct Pick<'a> {
    /// Views: output, indices, data without the axis.
    walk: &'a Walk,
    indices: Indices<'a>,
    bounds: &'a Bounds,
    along: isize,
    extent: usize,
}

impl Pick<'_> {
    fn run<T: Plain>(&self, data: &Tensor<'_>, output: &TensorMut<'_>, parallel: &dyn crate::Parallel) {
        let ends = Ends::<T>::of(data, output);
        let strides = [0, 1, 2].map(|view| self.walk.row_stride(view));
        // An element costs one index and two addresses.
        parallel.ranges(self.walk.elems(), GRAIN_BYTES / 16, |range| {
            let ends = &ends;
            self.walk.pieces_of([0, 1, 2], range.start, range.len(), |_, [to, index, from], count| {
                for at in 0..count as isize {
                    // SAFETY: the walk stays within the output, the indices and, once the position is checked, the
                    // data.
                    unsafe {
                        let index = self.indices.at(index + at * strides[1]);
                        let Some(position) = self.bounds.position(index, self.extent) else { continue };
                        let from = ends.from.wrapping_offset(from + at * strides[2] + position as isize * self.along);
                        ends.to.wrapping_offset(to + at * strides[0]).write(from.read());
                    }
                }
            });
        });
    }
}

/// Gathers slices by index tuples along the indices' last axis, with common leading axes.
pub(crate) fn nd(
    batch: usize,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (data, output) = (inputs[0], outputs[0]);
    let indices = Indices::new(inputs[1], "gather_nd")?;
    if output.elems() == 0 {
        return Ok(());
    }
    let bounds = Bounds::default();
    let tuples = Tuples::new(&data, &inputs[1], indices, batch, output.strides(), &bounds);
    let kept = inputs[1].shape().len() - 1;
    let slice = Walk::new(
        &output.shape()[kept..],
        &[&output.strides()[kept..], &data.strides()[batch + tuples.depth..]],
        |_| false,
    );
    with_width!(data.dtype(), T => {
        let ends = Ends::<T>::of(&data, &output);
        let grain = (GRAIN_BYTES / (slice.elems() * size_of::<T>())).max(1);
        cx.parallel.ranges(tuples.count(), grain, |range| {
            let ends = &ends;
            for number in range {
                let Some((place, to)) = tuples.place(number) else { continue };
                slice.pieces_of([0, 1], 0, slice.elems(), |_, [target, source], count| {
                    // SAFETY: the tuple was checked, so the slice is within the data; the walk stays within both.
                    unsafe { ends.row(place + source, to + target, count, slice.row_stride(1), slice.row_stride(0)) };
                });
            }
        });
    });
    bounds.result()
}

/// Index tuples and their offsets in two views: the indexed one, and one whose leading axes are the tuples'.
pub(crate) struct Tuples<'a> {
    /// Views: row-major order itself, the other view, the indices, the indexed view along the common leading axes.
    walk: Walk,
    indices: Indices<'a>,
    bounds: &'a Bounds,
    extents: &'a [usize],
    strides: &'a [isize],
    last_stride: isize,
    /// The number of indices in a tuple.
    pub(crate) depth: usize,
}

impl<'a> Tuples<'a> {
    pub(crate) fn new(
        indexed: &Tensor<'a>,
        tensor: &Tensor<'a>,
        indices: Indices<'a>,
        batch: usize,
        other: &[isize],
        bounds: &'a Bounds,
    ) -> Self {
        let kept = tensor.shape().len() - 1;
        let (shape, depth) = (&tensor.shape()[..kept], tensor.shape()[kept]);
        let mut common: smallvec::SmallVec<[isize; 6]> = smallvec::SmallVec::from_elem(0, kept);
        common[..batch].copy_from_slice(&indexed.strides()[..batch]);
        // Dense strides first: tuples are visited in row-major order, so that the last of several updates of one place
        // wins.
        let order = graph::shape::dense_strides(shape);
        let views = [&order, &other[..kept], &tensor.strides()[..kept], &common];
        Self {
            walk: Walk::new(shape, &views.map(|strides| -> &[isize] { strides }), |_| false),
            indices,
            bounds,
            extents: &indexed.shape()[batch..batch + depth],
            strides: &indexed.strides()[batch..batch + depth],
            last_stride: tensor.strides()[kept],
            depth,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.walk.elems()
    }

    /// The offsets of a tuple's slice in the indexed view and in the other one; `None` if an index is out of range.
    pub(crate) fn place(&self, number: usize) -> Option<(isize, isize)> {
        let tuple = self.walk.offset(2, number);
        let mut place = self.walk.offset(3, number);
        for at in 0..self.depth {
            // SAFETY: the tuple has `depth` elements along the last axis.
            let index = unsafe { self.indices.at(tuple + at as isize * self.last_stride) };
            place += self.bounds.position(index, self.extents[at])? as isize * self.strides[at];
        }
        Some((place, self.walk.offset(1, number)))
    }
}
