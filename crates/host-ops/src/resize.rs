//! Interpolation: one axis after the other, with precomputed elements and weights for every output index.
use graph::DType;
use graph::prim::{Coordinates, Interpolation, Resize};
use half::{bf16, f16};
use smallvec::SmallVec;

use crate::carve::{carve, piece};
use crate::convolve::Shared;
use crate::operand::{Source, Target};
use crate::product::read_row;
use crate::real::Real;
use crate::resize_table::{Table, coordinate, entries, is_copied, is_outside, table};
use crate::simd::vectorised;
use crate::{Context, OpError, Parallel, Tensor, TensorMut, resize_nearest};

/// Minimum number of elements per task.
const GRAIN: usize = 1 << 13;

/// One entry for each axis.
type Axes<T> = SmallVec<[T; 6]>;

/// Input and output have the same rank, which may be any.
pub(crate) fn run(prim: &Resize, x: &Tensor<'_>, out: TensorMut<'_>, cx: &mut Context<'_>) -> Result<(), OpError> {
    if out.elems() == 0 || x.elems() == 0 {
        return Ok(());
    }
    let unsupported = Err(OpError::Unsupported { prim: "resize", dtype: out.dtype() });
    if let Interpolation::Nearest(rounding) = prim.interpolation {
        match x.dtype() {
            DType::F32 => resize_nearest::run::<f32>(prim, rounding, x, out, cx),
            DType::F64 => resize_nearest::run::<f64>(prim, rounding, x, out, cx),
            DType::F16 => resize_nearest::run::<f16>(prim, rounding, x, out, cx),
            DType::Bf16 => resize_nearest::run::<bf16>(prim, rounding, x, out, cx),
            DType::I8 => resize_nearest::run::<i8>(prim, rounding, x, out, cx),
            DType::U8 | DType::Bool => resize_nearest::run::<u8>(prim, rounding, x, out, cx),
            DType::I32 => resize_nearest::run::<i32>(prim, rounding, x, out, cx),
            DType::I64 => resize_nearest::run::<i64>(prim, rounding, x, out, cx),
            _ => return unsupported,
        }
    } else {
        match x.dtype() {
            DType::F32 => typed::<f32, f32>(prim, x, out, cx),
            DType::F64 => typed::<f64, f64>(prim, x, out, cx),
            DType::F16 => typed::<f32, f16>(prim, x, out, cx),
            DType::Bf16 => typed::<f32, bf16>(prim, x, out, cx),
            DType::I8 => typed::<f32, i8>(prim, x, out, cx),
            DType::U8 => typed::<f32, u8>(prim, x, out, cx),
            DType::I32 => typed::<f64, i32>(prim, x, out, cx),
            DType::I64 => typed::<f64, i64>(prim, x, out, cx),
            _ => return unsupported,
        }
    }
    Ok(())
}

fn typed<C: Real, T: Source<C> + Target<C>>(prim: &Resize, x: &Tensor<'_>, out: TensorMut<'_>, cx: &mut Context<'_>) {
    let (input, output) = (x.shape(), out.shape());
    // The last axis comes first: later axes then move whole rows.
    let axes: Axes<usize> =
        (0..input.len()).rev().filter(|&axis| !is_copied(prim, axis, input[axis], output[axis])).collect();
    // The intermediate tensor has the output's extents for the axes done so far.
    let mut shape: Axes<usize> = SmallVec::from_slice(input);
    let mut most = x.elems();
    let mut table_entries = 0;
    for &axis in &axes {
        shape[axis] = output[axis];
        most = most.max(shape.iter().product());
        table_entries += entries(prim, axis, output[axis]);
    }
    let mut rest =
        cx.scratch.get::<u8>(2 * piece::<C>(most) + piece::<usize>(table_entries) + piece::<f32>(table_entries));
    let (mut from, mut to) = (carve::<C>(&mut rest, most), carve::<C>(&mut rest, most));
    let mut indices = carve::<usize>(&mut rest, table_entries);
    let mut weights = carve::<f32>(&mut rest, table_entries);
    load::<C, T>(x, from, cx.parallel);
    shape.copy_from_slice(input);
    for &axis in &axes {
        let count = entries(prim, axis, output[axis]);
        let (own_indices, own_weights);
        (own_indices, indices) = indices.split_at_mut(count);
        (own_weights, weights) = weights.split_at_mut(count);
        let table = table(prim, axis, input[axis], output[axis], own_indices, own_weights);
        let outer = shape[..axis].iter().product();
        let inner = shape[axis + 1..].iter().product();
        let pass = Pass { table: &table, outer, inner, input: input[axis], output: output[axis] };
        pass.run(from, to, cx.parallel);
        shape[axis] = output[axis];
        std::mem::swap(&mut from, &mut to);
    }
    if prim.coordinates == Coordinates::TfCropAndResize {
        extrapolate(prim, &axes, from, input, output);
    }
    store::<C, T>(from, out, cx.parallel);
}

/// Replaces elements with a coordinate outside the input.
fn extrapolate<C: Real>(prim: &Resize, axes: &[usize], values: &mut [C], input: &[usize], output: &[usize]) {
    for &axis in axes {
        let inner: usize = output[axis + 1..].iter().product();
        for at in 0..output[axis] {
            if is_outside(prim, coordinate(prim, axis, at, input[axis], output[axis]), input[axis]) {
                for slice in values.chunks_exact_mut(inner * output[axis]).take(output[..axis].iter().product()) {
                    slice[at * inner..(at + 1) * inner].fill(C::of(prim.extrapolation));
                }
            }
        }
    }
}

/// An axis of a dense tensor `[outer, axis, inner]`.
struct Pass<'a> {
    table: &'a Table<'a>,
    outer: usize,
    inner: usize,
    input: usize,
    output: usize,
}

impl Pass<'_> {
    fn run<C: Real>(&self, from: &[C], to: &mut [C], parallel: &dyn Parallel) {
        let Self { table, outer, inner, input, output } = *self;
        let to = Shared(to.as_mut_ptr());
        if inner == 1 {
            parallel.ranges(outer, GRAIN.div_ceil(output * table.taps), |range| {
                let to = &to;
                for row in range {
                    let from = &from[row * input..(row + 1) * input];
                    // SAFETY: every row is written once.
                    let to = unsafe { std::slice::from_raw_parts_mut(to.0.add(row * output), output) };
                    for (at, to) in to.iter_mut().enumerate() {
                        *to = table
                            .entries(at)
                            .fold(C::ZERO, |sum, (index, weight)| from[index].mul_add(C::of(weight), sum));
                    }
                }
            });
        } else {
            parallel.ranges(outer * output, GRAIN.div_ceil(inner * table.taps), |range| {
                let to = &to;
                for row in range {
                    let from = &from[row / output * input * inner..][..input * inner];
                    // SAFETY: every row is written once.
                    let to = unsafe { std::slice::from_raw_parts_mut(to.0.add(row * inner), inner) };
                    to.fill(C::ZERO);
                    for (index, weight) in table.entries(row % output) {
                        add_row(to, C::of(weight), &from[index * inner..][..inner]);
                    }
                }
            });
        }
    }
}

vectorised! {
    fn add_row<C: Real>(to: &mut [C], weight: C, from: &[C]) {
        for (to, &value) in to.iter_mut().zip(from) {
            *to = value.mul_add(weight, *to);
        }
    }
}

/// The offset of a row along the last axis.
fn row_offset(shape: &[usize], strides: &[isize], row: usize) -> isize {
    let mut rest = row;
    let mut offset = 0;
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        offset += (rest % shape[axis]) as isize * strides[axis];
        rest /= shape[axis];
    }
    offset
}

/// Copies a tensor to dense memory.
fn load<C: Real, T: Source<C>>(x: &Tensor<'_>, to: &mut [C], parallel: &dyn Parallel) {
    let (width, step) = (x.shape().last().copied().unwrap_or(1), x.strides().last().copied().unwrap_or(1));
    let to = Shared(to.as_mut_ptr());
    parallel.ranges(x.elems() / width, GRAIN.div_ceil(width), |range| {
        let to = &to;
        for row in range {
            let from = x.as_ptr::<T>().wrapping_offset(row_offset(x.shape(), x.strides(), row));
            // SAFETY: the view's memory covers its extents, and every row is written once.
            unsafe { read_row(from, step, std::slice::from_raw_parts_mut(to.0.add(row * width), width)) };
        }
    });
}

/// Copies dense memory to a tensor.
fn store<C: Real, T: Target<C>>(from: &[C], out: TensorMut<'_>, parallel: &dyn Parallel) {
    let (width, step) = (out.shape().last().copied().unwrap_or(1), out.strides().last().copied().unwrap_or(1));
    let to = Shared(out.as_ptr::<T>());
    parallel.ranges(out.elems() / width, GRAIN.div_ceil(width), |range| {
        let to = &to;
        for row in range {
            let to = to.0.wrapping_offset(row_offset(out.shape(), out.strides(), row));
            for (at, &value) in from[row * width..(row + 1) * width].iter().enumerate() {
                // SAFETY: the view's memory covers its extents, and each element is stored once.
                unsafe { to.offset(at as isize * step).write(T::write(value)) };
            }
        }
    });
}
