//! Scatters updates to indices.
//!
//! Updates run one after the other in row-major order: if several have the same target, the last one wins, or all are
//! combined.
use graph::DType;
use graph::expr::Expr;
use graph::prim::{Map, Scatter, ScatterKind};

use crate::gather::Tuples;
use crate::index::{Bounds, Indices, with_width};
use crate::number::{Number, with_number};
use crate::walk::Walk;
use crate::{Context, OpError, Tensor, TensorMut, map};

/// Updates elements whose index along one axis is given.
pub(crate) fn elements(
    scatter: &Scatter,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (updates, output) = (inputs[2], outputs[0]);
    let indices = Indices::new(inputs[1], "scatter_elements")?;
    start(&inputs[0], outputs, cx)?;
    if updates.elems() == 0 {
        return Ok(());
    }
    let mut others: smallvec::SmallVec<[isize; 6]> = output.strides().into();
    let (along, extent) = (std::mem::take(&mut others[scatter.axis]), output.shape()[scatter.axis]);
    let order = graph::shape::dense_strides(updates.shape());
    let walk = Walk::new(updates.shape(), &[&order, inputs[1].strides(), updates.strides(), &others], |_| false);
    let bounds = Bounds::default();
    let put = Put { kind: scatter.kind, updates, output };
    walk.pieces_of([1, 2, 3], 0, walk.elems(), |_, [index, from, to], count| {
        for at in 0..count as isize {
            // SAFETY: the walk stays within the indices.
            let index = unsafe { indices.at(index + at * walk.row_stride(1)) };
            if let Some(position) = bounds.position(index, extent) {
                let to = to + at * walk.row_stride(3) + position as isize * along;
                // SAFETY: the walk stays within the updates and, with the position checked, within the output.
                unsafe { put.row(from + at * walk.row_stride(2), to, 1, 1, 1) };
            }
        }
    });
    bounds.result()
}

/// Updates slices by index tuples along the indices' last axis.
pub(crate) fn nd(
    scatter: &Scatter,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (updates, output) = (inputs[2], outputs[0]);
    let indices = Indices::new(inputs[1], "scatter_nd")?;
    start(&inputs[0], outputs, cx)?;
    if updates.elems() == 0 {
        return Ok(());
    }
    let bounds = Bounds::default();
    let tuples = Tuples::new(&output.as_tensor(), &inputs[1], indices, 0, updates.strides(), &bounds);
    let kept = inputs[1].shape().len() - 1;
    let slice =
        Walk::new(&updates.shape()[kept..], &[&updates.strides()[kept..], &output.strides()[tuples.depth..]], |_| {
            false
        });
    let put = Put { kind: scatter.kind, updates, output };
    for number in 0..tuples.count() {
        let Some((place, from)) = tuples.place(number) else { continue };
        slice.pieces_of([0, 1], 0, slice.elems(), |_, [source, target], count| {
            // SAFETY: the tuple was checked, so the slice is within the output; the walk stays within both.
            unsafe { put.row(from + source, place + target, count, slice.row_stride(0), slice.row_stride(1)) };
        });
    }
    bounds.result()
}

/// Copies the data to the output, unless it is already there.
fn start(data: &Tensor<'_>, outputs: &[TensorMut<'_>], cx: &mut Context<'_>) -> Result<(), OpError> {
    let output = outputs[0];
    if data.start() == output.start().cast_const() && data.strides() == output.strides() {
        return Ok(());
    }
    map::run(&Map { expr: Expr::copy(data.dtype(), output.dtype()) }, &[*data], outputs, cx)
}

struct Put<'a> {
    kind: ScatterKind,
    updates: Tensor<'a>,
    output: TensorMut<'a>,
}

impl Put<'_> {
    /// Puts a row of updates into the output.
    ///
    /// # Safety
    /// Both rows are within their views.
    unsafe fn row(&self, from: isize, to: isize, count: usize, from_stride: isize, to_stride: isize) {
        let dtype = self.output.dtype();
        let width = dtype.bytes() as isize;
        let (from, to) =
            (self.updates.start().wrapping_offset(from * width), self.output.start().wrapping_offset(to * width));
        if self.kind == ScatterKind::Replace {
            with_width!(dtype, T => {
                for at in 0..count as isize {
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        let update = from.cast::<T>().wrapping_offset(at * from_stride).read();
                        to.cast::<T>().wrapping_offset(at * to_stride).write(update);
                    }
                }
            });
            return;
        }
        with_number!(dtype, N => {
            for at in 0..count as isize {
                let (from, to) = (from.wrapping_offset(at * from_stride * width), to.wrapping_offset(at * to_stride * width));
                let (mut update, mut before) = ([N::ZERO], [N::ZERO]);
                // SAFETY: guaranteed by the caller.
                unsafe {
                    N::load(dtype, from, 1, &mut update);
                    N::load(dtype, to, 1, &mut before);
                    N::store(dtype, to, 1, &[N::combine(self.kind, before[0], update[0])]);
                }
            }
        });
    }
}

/// How an update is combined with the existing value.
trait Combine: Number {
    fn combine(kind: ScatterKind, before: Self, update: Self) -> Self;
}

macro_rules! combine {
    ($($number:ty: $add:expr, $multiply:expr;)*) => { $(
        impl Combine for $number {
            fn combine(kind: ScatterKind, before: Self, update: Self) -> Self {
                match kind {
                    ScatterKind::Replace => update,
                    ScatterKind::Add => $add(before, update),
                    ScatterKind::Mul => $multiply(before, update),
                    ScatterKind::Max if update > before || update.is_nan() => update,
                    ScatterKind::Min if update < before || update.is_nan() => update,
                    ScatterKind::Max | ScatterKind::Min => before,
                }
            }
        }
    )* };
}

combine! {
    f32: |a, b| a + b, |a, b| a * b;
    f64: |a, b| a + b, |a, b| a * b;
    i64: i64::wrapping_add, i64::wrapping_mul;
    u64: u64::wrapping_add, u64::wrapping_mul;
}
