//! Rotary position embeddings.
use graph::DType;
use graph::prim::{Positions, Rotary};

use crate::index::{Bounds, Indices};
use crate::number::Number;
use crate::rows::ranges_with;
use crate::simd::vectorised;
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of elements per task.
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
    let turn = Turn::new(prim, [cosines, sines, operand])?;
    let bounds = Bounds::default();
    let heads = Heads::new(x, [0, 1, 2, 3])?;
    let to = |place: HeadPlace| {
        let elems: isize = place.iter().zip(out.strides()).map(|(&at, &stride)| at as isize * stride).sum();
        (out.start().wrapping_offset(elems * out.dtype().bytes() as isize), out.strides()[3])
    };
    // SAFETY: the output has x's shape, and belongs to this step.
    unsafe { turn.run(&heads, &to, &bounds, cx) };
    bounds.result()
}

/// The position of a token's head: batch, row and head.
pub(crate) type HeadPlace = [usize; 3];

/// Heads of tokens, and the layout of their elements.
pub(crate) struct Heads<'a> {
    x: Tensor<'a>,
    /// Extents of batch, row, head and element.
    extents: [usize; 4],
    strides: [isize; 4],
}

impl<'a> Heads<'a> {
    /// A tensor whose axes with these numbers are batch, row, head and element.
    pub(crate) fn new(x: Tensor<'a>, axes: [usize; 4]) -> Result<Self, OpError> {
        if x.shape().len() != 4 || !matches!(x.dtype(), DType::F32 | DType::F16 | DType::Bf16) {
            return Err(OpError::Unsupported { prim: "rotary", dtype: x.dtype() });
        }
        Ok(Self { x, extents: axes.map(|axis| x.shape()[axis]), strides: axes.map(|axis| x.strides()[axis]) })
    }
}

/// The rotation of heads.
pub(crate) struct Turn<'a> {
    prim: &'a Rotary,
    cosines: Tensor<'a>,
    sines: Tensor<'a>,
    operand: Tensor<'a>,
    indices: Indices<'a>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(prim: &'a Rotary, [cosines, sines, operand]: [Tensor<'a>; 3]) -> Result<Self, OpError> {
        if cosines.shape().len() != 2 {
            return Err(OpError::Unsupported { prim: "rotary", dtype: cosines.dtype() });
        }
        Ok(Self { prim, cosines, sines, operand, indices: Indices::new(operand, "rotary")? })
    }

    /// The row of angles of a token.
    pub(crate) fn position(&self, batch: usize, row: usize, bounds: &Bounds) -> Option<usize> {
        let strides = self.operand.strides();
        let found = match self.prim.positions {
            // SAFETY: the view is `[batch, rows]`.
            Positions::Given => unsafe { self.indices.at(batch as isize * strides[0] + row as isize * strides[1]) },
            Positions::Behind(filled) => {
                // SAFETY: the view is `[batch]`.
                let length = unsafe { self.indices.at(batch as isize * strides[0]) };
                filled.before(length).saturating_add(row).min(i64::MAX as usize) as i64
            }
        };
        // Negative positions do not count from the end.
        bounds.position(if found < 0 { i64::MAX } else { found }, self.cosines.shape()[0])
    }

    /// Rotates heads. `to` returns where each one goes: its first element, and the stride of the others. Tokens without
    /// angles are skipped.
    ///
    /// # Safety
    /// The places that `to` returns can be written, and nothing else uses them.
    pub(crate) unsafe fn run(
        &self,
        heads: &Heads<'_>,
        to: &(dyn Fn(HeadPlace) -> (*mut u8, isize) + Sync),
        bounds: &Bounds,
        cx: &mut Context<'_>,
    ) {
        let Self { cosines, sines, .. } = self;
        let (&Heads { x, extents: [batch, rows, count, size], strides }, half) = (heads, cosines.shape()[1]);
        let each = 2 * half + 2 * size;
        ranges_with::<f32>(cx, batch * rows, (GRAIN / (count * size).max(1)).max(1), each, |range, scratch| {
            let (angles, scratch) = scratch.split_at_mut(2 * half);
            let (cosine, sine) = angles.split_at_mut(half);
            let (head, turned) = scratch.split_at_mut(size);
            for token in range {
                let (at, row) = (token / rows, token % rows);
                let Some(place) = self.position(at, row, bounds) else { continue };
                load(cosines, place as isize * cosines.strides()[0], cosines.strides()[1], cosine);
                load(sines, place as isize * sines.strides()[0], sines.strides()[1], sine);
                for number in 0..count {
                    let place = [at, row, number];
                    let offset = place.iter().zip(strides).map(|(&at, stride)| at as isize * stride).sum();
                    load(&x, offset, strides[3], head);
                    turn(self.prim.interleaved, head, cosine, sine, turned);
                    let (start, stride) = to(place);
                    // SAFETY: guaranteed by the caller, and the token belongs to one task.
                    unsafe { f32::store(x.dtype(), start, stride, turned) };
                }
            }
        });
    }
}

fn load(tensor: &Tensor<'_>, offset: isize, stride: isize, out: &mut [f32]) {
    let from = tensor.start().wrapping_offset(offset * tensor.dtype().bytes() as isize);
    // SAFETY: callers pass a row within the view.
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
