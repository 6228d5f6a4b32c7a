//! Recurrent layers: one product for the input's contribution to all steps, then one product per step.
use graph::DType;
use graph::prim::{Cell, Recurrent};
use half::{bf16, f16};

use crate::carve::{carve, piece};
use crate::cell::{Gates, State};
use crate::matmul::Destination;
use crate::operand::{Source, Target};
use crate::product::{Extents, Left, Right, Schedule, product, read_row};
use crate::real::Real;
use crate::recurrent_product::{Size, StepProduct};
use crate::{Context, OpError, Tensor, TensorMut};

/// Inputs and outputs as documented in [`Recurrent`].
pub(crate) fn run(
    prim: &Recurrent,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    match inputs[0].dtype() {
        DType::F32 => typed::<f32, f32>(prim, inputs, outputs, cx),
        DType::F64 => typed::<f64, f64>(prim, inputs, outputs, cx),
        DType::F16 => typed::<f32, f16>(prim, inputs, outputs, cx),
        DType::Bf16 => typed::<f32, bf16>(prim, inputs, outputs, cx),
        dtype => return Err(OpError::Unsupported { prim: "recurrent", dtype }),
    }
    Ok(())
}

/// The optional inputs, in order.
struct Optional<'a> {
    bias: Option<&'a Tensor<'a>>,
    lengths: Option<&'a Tensor<'a>>,
    initial_h: Option<&'a Tensor<'a>>,
    initial_c: Option<&'a Tensor<'a>>,
    peepholes: Option<&'a Tensor<'a>>,
}

impl<'a> Optional<'a> {
    fn new(prim: &Recurrent, inputs: &'a [Tensor<'a>]) -> Self {
        let mut rest = inputs[3..].iter();
        let mut next = |is_there: bool| if is_there { rest.next() } else { None };
        Self {
            bias: next(prim.has.bias),
            lengths: next(prim.has.lengths),
            initial_h: next(prim.has.initial_h),
            initial_c: next(prim.has.initial_c),
            peepholes: next(prim.has.peepholes),
        }
    }
}

fn typed<C, T>(prim: &Recurrent, inputs: &[Tensor<'_>], outputs: &[TensorMut<'_>], cx: &mut Context<'_>)
where
    C: Real + Source<C> + Target<C>,
    T: Source<C> + Target<C>,
{
    let (x, w, r) = (&inputs[0], &inputs[1], &inputs[2]);
    let optional = Optional::new(prim, inputs);
    let &[steps, batch, width] = x.shape() else { return };
    let hidden = r.shape()[1];
    let gates = match prim.cell {
        Cell::Lstm => 4,
        Cell::Gru { .. } => 3,
        Cell::Rnn => 1,
    };
    let all = gates * hidden;
    let rows = steps * batch;
    let extents = Extents { batch: 1, rows, columns: all, depth: width };
    let schedule = Schedule::<C>::new(extents, cx.parallel, false);
    let size = Size { batch, hidden, all };
    let scratch_elems = schedule.scratch().max(size.scratch::<C>(cx.parallel));
    let depth = width.max(hidden);
    let mut rest = cx.scratch.get::<u8>(
        piece::<C>(rows * width)
            + piece::<C>(rows * all)
            + piece::<C>(all * hidden)
            + piece::<C>(2 * all)
            + piece::<C>(3 * hidden)
            + 4 * piece::<C>(batch * hidden)
            + piece::<C>(batch * all)
            + piece::<C>(scratch_elems)
            + 2 * piece::<isize>(depth)
            + piece::<usize>(batch),
    );
    let dense_x = carve::<C>(&mut rest, rows * width);
    let from_input = carve::<C>(&mut rest, rows * all);
    let turned = carve::<C>(&mut rest, all * hidden);
    let bias = carve::<C>(&mut rest, 2 * all);
    let peepholes = carve::<C>(&mut rest, 3 * hidden);
    let mut state = State {
        h: carve(&mut rest, batch * hidden),
        c: carve(&mut rest, batch * hidden),
        reset: carve(&mut rest, batch * hidden),
        spare: carve(&mut rest, batch * hidden),
        sums: carve(&mut rest, batch * all),
    };
    let scratch = carve::<C>(&mut rest, scratch_elems);
    let left_depth = carve::<isize>(&mut rest, depth);
    let right_depth = carve::<isize>(&mut rest, depth);
    let lengths = carve::<usize>(&mut rest, batch);

    read::<C, T>(Some(x), dense_x);
    read::<C, T>(optional.bias, bias);
    read::<C, T>(optional.initial_h, state.h);
    read::<C, T>(optional.initial_c, state.c);
    read::<C, T>(optional.peepholes, peepholes);
    for (gate, row) in (0..all).zip(0isize..) {
        for (at, column) in (0..hidden).zip(0isize..) {
            let offset = row * r.strides()[0] + column * r.strides()[1];
            // SAFETY: the view's memory covers its extents.
            turned[at * all + gate] = unsafe { r.as_ptr::<T>().offset(offset).read() }.read();
        }
    }
    for (at, length) in lengths.iter_mut().enumerate() {
        *length = optional.lengths.map_or(steps, |lengths| {
            // SAFETY: the view's memory covers its extents.
            let length = unsafe { lengths.as_ptr::<i32>().offset(at as isize * lengths.strides()[0]).read() };
            usize::try_from(length).unwrap_or(0).min(steps)
        });
    }
    // A GRU that resets after the product adds the hidden gate's recurrent bias there; all other biases are added
    // before.
    let linear_before_reset = matches!(prim.cell, Cell::Gru { linear_before_reset: true });
    let joined = if linear_before_reset { 2 * hidden } else { all };
    let (input_bias, recurrent_bias) = bias.split_at_mut(all);
    for (to, &other) in input_bias.iter_mut().zip(recurrent_bias.iter()).take(joined) {
        *to = to.plus(other);
    }
    let input_bias: &[C] = input_bias;
    for (at, (left, right)) in left_depth.iter_mut().zip(right_depth.iter_mut()).enumerate() {
        *left = at as isize;
        *right = at as isize * w.strides()[1];
    }
    let to = Destination { start: from_input.as_mut_ptr(), batch: 0, row: all as isize, column: 1 };
    let left = Left { start: dense_x.as_ptr(), batch: 0, row: width as isize, depth: &left_depth[..width] };
    let right = Right {
        start: w.as_ptr::<T>(),
        batch: 0,
        depth: &right_depth[..width],
        column: w.strides()[0],
        in_place: false,
        is_far: false,
    };
    // SAFETY: the memory of the views and the scratch memory cover these extents, and each element is stored once.
    unsafe {
        product(&schedule, &left, &right, scratch, cx.parallel, &|tile| {
            let bias = &input_bias[tile.column..];
            tile.each_row(|row, values| {
                to.store(0, row, tile.column, values.iter().zip(bias).map(|(value, &bias)| value.plus(bias)));
            });
        });
    }
    for (at, offset) in right_depth.iter_mut().enumerate() {
        *offset = (at * all) as isize;
    }
    let gates = Gates {
        prim,
        from_input,
        recurrent_bias,
        peepholes,
        product: StepProduct {
            size,
            matrix: turned,
            depth: [&left_depth[..hidden], &right_depth[..hidden]],
            parallel: cx.parallel,
        },
    };
    // The output is zero after the end of a sequence.
    state.spare.fill(C::ZERO);
    for (sequence, &length) in lengths.iter().enumerate() {
        for time in length..steps {
            write_row::<C, T>(outputs[0], &[time, sequence], &state.spare[..hidden]);
        }
    }
    for at in 0..steps {
        let place = |sequence: usize| {
            let length = lengths[sequence];
            (at < length).then(|| if prim.reverse { length - 1 - at } else { at })
        };
        if (0..batch).all(|sequence| place(sequence).is_none()) {
            break;
        }
        gates.step(&mut state, place, scratch, |sequence, time, values| {
            write_row::<C, T>(outputs[0], &[time, sequence], values);
        });
    }
    for (out, values) in outputs[1..].iter().zip([&state.h, &state.c]) {
        for (sequence, values) in values.chunks_exact(hidden.max(1)).enumerate() {
            write_row::<C, T>(*out, &[sequence], values);
        }
    }
}

/// Reads a tensor into dense memory, or zeros if there is none.
fn read<C: Real, T: Source<C>>(tensor: Option<&Tensor<'_>>, to: &mut [C]) {
    let Some(tensor) = tensor else { return to.fill(C::ZERO) };
    let (shape, strides) = (tensor.shape(), tensor.strides());
    let [outer @ .., width] = shape else { return };
    for (row, to) in to.chunks_exact_mut((*width).max(1)).enumerate() {
        let (mut rest, mut offset) = (row, 0);
        for (&extent, &stride) in outer.iter().zip(strides).rev() {
            offset += (rest % extent) as isize * stride;
            rest /= extent;
        }
        // SAFETY: the view's memory covers its extents.
        unsafe { read_row(tensor.as_ptr::<T>().wrapping_offset(offset), strides[outer.len()], to) };
    }
}

/// Writes one row of a tensor.
fn write_row<C: Real, T: Target<C>>(out: TensorMut<'_>, index: &[usize], values: &[C]) {
    let start: isize = index.iter().zip(out.strides()).map(|(&at, &stride)| at as isize * stride).sum();
    let step = out.strides()[index.len()];
    for (at, &value) in values.iter().enumerate() {
        // SAFETY: the view's memory covers its extents, and one thread writes it.
        unsafe { out.as_ptr::<T>().wrapping_offset(start + at as isize * step).write(T::write(value)) };
    }
}
