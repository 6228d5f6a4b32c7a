//! Rotary position embeddings.
use graph::{DType, prim::Positions, prim::Rotary};

use crate::{
    Context, OpError, Tensor, TensorMut,
    index::{Bounds, Indices},
    number::Number,
    rows::ranges_with,
    simd::vectorised,
};

/// Elements that are worth a task.
const GRAIN: usize = 16 * 1024;

pub(crate) fn run(
    prim: &Rotary,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (&[x, cosines, sines, operand], &[out]) = (inputs, outputs) else {
        return Err(OpError::Unsupported { prim: "rotary", dtype: DType::F32 });
    };
    if !matches!(x.dtype(), DType::F32 | DType::F16 | DType::Bf16) {
        return Err(OpError::Unsupported { prim: "rotary", dtype: x.dtype() });
    }
    let (&[batch, rows, heads, size], &[count, half]) = (x.shape(), cosines.shape()) else {
        return Err(OpError::Unsupported { prim: "rotary", dtype: x.dtype() });
    };
    let indices = Indices::new(operand, "rotary")?;
    let bounds = Bounds::default();
    let position = |at: usize, row: usize| {
        let strides = operand.strides();
        let found = match prim.positions {
            // SAFETY: the view is `[batch, rows]`.
            Positions::Given => unsafe { indices.at(at as isize * strides[0] + row as isize * strides[1]) },
            Positions::Behind(filled) => {
                // SAFETY: the view is `[batch]`.
                let length = unsafe { indices.at(at as isize * strides[0]) };
                filled.before(length).saturating_add(row).min(i64::MAX as usize) as i64
            }
        };
        // Positions do not count from the end.
        bounds.position(if found < 0 { i64::MAX } else { found }, count)
    };
    let (from, to) = (x.strides(), out.strides());
    let each = 2 * half + 2 * size;
    ranges_with::<f32>(cx, batch * rows, (GRAIN / (heads * size).max(1)).max(1), each, |range, scratch| {
        let (angles, scratch) = scratch.split_at_mut(2 * half);
        let (cosine, sine) = angles.split_at_mut(half);
        let (head, turned) = scratch.split_at_mut(size);
        for token in range {
            let (at, row) = (token / rows, token % rows);
            let Some(place) = position(at, row) else { continue };
            load(&cosines, place as isize * cosines.strides()[0], cosines.strides()[1], cosine);
            load(&sines, place as isize * sines.strides()[0], sines.strides()[1], sine);
            for number in 0..heads {
                let offset = |strides: &[isize]| {
                    at as isize * strides[0] + row as isize * strides[1] + number as isize * strides[2]
                };
                load(&x, offset(from), from[3], head);
                turn(prim.interleaved, head, cosine, sine, turned);
                let to = (out.start().wrapping_offset(offset(to) * out.dtype().bytes() as isize), to[3]);
                // SAFETY: the head lies within the view, and its token belongs to one task.
                unsafe { f32::store(out.dtype(), to.0, to.1, turned) };
            }
        }
    });
    bounds.result()
}

fn load(tensor: &Tensor<'_>, offset: isize, stride: isize, out: &mut [f32]) {
    let from = tensor.start().wrapping_offset(offset * tensor.dtype().bytes() as isize);
    // SAFETY: callers name a row within the view.
    unsafe { f32::load(tensor.dtype(), from, stride, out) };
}

vectorised! {
    fn turn(interleaved: bool, x: &[f32], cosine: &[f32], sine: &[f32], out: &mut [f32]) {
        let half = cosine.len();
        let (x, rest) = x.split_at(2 * half);
        let (out, kept) = out.split_at_mut(2 * half);
        kept.copy_from_slice(rest);
        if interleaved {
            for (((pair, to), &c), &s) in x.chunks_exact(2).zip(out.chunks_exact_mut(2)).zip(cosine).zip(sine) {
                (to[0], to[1]) = (pair[0] * c - pair[1] * s, pair[1] * c + pair[0] * s);
            }
            return;
        }
        let ((a, b), (first, second)) = (x.split_at(half), out.split_at_mut(half));
        for ((((to, &a), &b), &c), &s) in first.iter_mut().zip(a).zip(b).zip(cosine).zip(sine) {
            *to = a * c - b * s;
        }
        for ((((to, &a), &b), &c), &s) in second.iter_mut().zip(a).zip(b).zip(cosine).zip(sine) {
            *to = b * c + a * s;
        }
    }
}
