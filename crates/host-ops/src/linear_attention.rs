//! Attention with a state of fixed size, token by token.
use graph::DType;
use graph::prim::LinearAttention;

use crate::carve::{carve, piece};
use crate::number::Number;
use crate::rows::ranges_with;
use crate::{Context, OpError, Tensor, TensorMut};

pub(crate) fn run(
    prim: &LinearAttention,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let unsupported = |dtype| OpError::Unsupported { prim: "linear_attention", dtype };
    let (&[q, k, v, ref more @ ..], &[y, present]) = (inputs, outputs) else {
        return Err(unsupported(DType::F32));
    };
    let is_short = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    if !is_short(q.dtype()) || !is_short(present.dtype()) {
        return Err(unsupported(q.dtype()));
    }
    let (&[batch, _, _, size], &[_, heads, _, width]) = (q.shape(), v.shape()) else {
        return Err(unsupported(q.dtype()));
    };
    let mut more = more.iter().copied();
    let past = if prim.past { more.next() } else { None };
    let decay = if prim.decay { more.next() } else { None };
    let rate = if prim.delta { more.next() } else { None };
    let job = Job { prim, q, k, v, past, decay, rate, y, present };
    let bytes = [size * width, size, size, size, width, width].into_iter().map(piece::<f32>).sum();
    ranges_with::<u8>(cx, batch * heads, 1, bytes, |range, mut scratch| {
        let mut memory = Memory {
            state: carve(&mut scratch, size * width),
            query: carve(&mut scratch, size),
            key: carve(&mut scratch, size),
            decay: carve(&mut scratch, size),
            update: carve(&mut scratch, width),
            result: carve(&mut scratch, width),
        };
        range.for_each(|head| job.head(head / heads, head % heads, &mut memory));
    });
    Ok(())
}

struct Job<'a> {
    prim: &'a LinearAttention,
    q: Tensor<'a>,
    k: Tensor<'a>,
    v: Tensor<'a>,
    past: Option<Tensor<'a>>,
    decay: Option<Tensor<'a>>,
    rate: Option<Tensor<'a>>,
    y: TensorMut<'a>,
    present: TensorMut<'a>,
}

/// The numbers of one head.
struct Memory<'a> {
    state: &'a mut [f32],
    query: &'a mut [f32],
    key: &'a mut [f32],
    decay: &'a mut [f32],
    update: &'a mut [f32],
    result: &'a mut [f32],
}

impl Job<'_> {
    fn head(&self, batch: usize, head: usize, memory: &mut Memory<'_>) {
        let (&[_, queries, length, size], &[_, heads, _, width]) = (self.q.shape(), self.v.shape()) else { return };
        match &self.past {
            Some(past) => {
                for (row, to) in memory.state.chunks_exact_mut(width).enumerate() {
                    load(past, &[batch, head, row], to);
                }
            }
            None => memory.state.fill(0.0),
        }
        for token in 0..length {
            load(&self.k, &[batch, head * self.k.shape()[1] / heads, token], memory.key);
            load(&self.v, &[batch, head, token], memory.update);
            if let Some(decay) = &self.decay {
                load(decay, &[batch, head, token], memory.decay);
                for (row, decay) in memory.state.chunks_exact_mut(width).zip(&*memory.decay) {
                    let factor = decay.exp();
                    row.iter_mut().for_each(|value| *value *= factor);
                }
            }
            if let Some(rate) = &self.rate {
                memory.result.fill(0.0);
                add_rows(memory.result, memory.key, memory.state);
                let mut factor = [0f32];
                // SAFETY: the element is within the view.
                unsafe { f32::load(rate.dtype(), at(rate, &[batch, head, token]), 1, &mut factor) };
                for (update, held) in memory.update.iter_mut().zip(&*memory.result) {
                    *update = factor[0] * (*update - held);
                }
            }
            for (row, key) in memory.state.chunks_exact_mut(width).zip(&*memory.key) {
                row.iter_mut().zip(&*memory.update).for_each(|(value, update)| *value += key * update);
            }
            // Several query heads share a state, or several states a query head.
            let group = (queries / heads).max(1);
            for shown in head * group..(head + 1) * group {
                load(&self.q, &[batch, shown * queries / queries.max(heads), token], memory.query);
                memory.query.iter_mut().for_each(|value| *value *= self.prim.scale);
                memory.result.fill(0.0);
                add_rows(memory.result, memory.query, memory.state);
                store(self.y, &[batch, shown, token], memory.result);
            }
        }
        for row in 0..size {
            store(self.present, &[batch, head, row], &memory.state[row * width..][..width]);
        }
    }
}

/// Adds the rows of a matrix, weighted.
fn add_rows(to: &mut [f32], weights: &[f32], rows: &[f32]) {
    for (row, weight) in rows.chunks_exact(to.len()).zip(weights) {
        to.iter_mut().zip(row).for_each(|(to, value)| *to += weight * value);
    }
}

/// The address of the first element at an index of the leading axes.
fn at(tensor: &Tensor<'_>, index: &[usize]) -> *const u8 {
    let elems: isize = index.iter().zip(tensor.strides()).map(|(&at, stride)| at as isize * stride).sum();
    tensor.start().wrapping_offset(elems * tensor.dtype().bytes() as isize)
}

/// Reads a row along the last axis.
fn load(tensor: &Tensor<'_>, index: &[usize], out: &mut [f32]) {
    // SAFETY: callers pass a row within the view.
    unsafe { f32::load(tensor.dtype(), at(tensor, index), tensor.strides()[index.len()], out) };
}

/// Writes a row along the last axis. Each head belongs to one task.
fn store(tensor: TensorMut<'_>, index: &[usize], values: &[f32]) {
    let to = at(&tensor.as_tensor(), index).cast_mut();
    // SAFETY: callers pass a row within the view, and no other task writes it.
    unsafe { f32::store(tensor.dtype(), to, tensor.strides()[index.len()], values) };
}
