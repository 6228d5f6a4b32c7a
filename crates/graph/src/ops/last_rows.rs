//! The rows of last tokens only: the operators that the pass `last-rows` puts around the nodes after a decoder's last
//! attention.
//!
//! Both operators read three things: the index of each sequence's last token, which is on the device; the attention's
//! input, whose shape says how many tokens there are; and the values from before. Both decide from shapes alone whether
//! there are rows to leave out. If not, each passes its values through.
//!
//! The number of tokens is data too, not a constant in an expression: prompts of all lengths share the same kernels.
use crate::expr::{Binary, Expr};
use crate::lower::Lower;
use crate::ops::Op;
use crate::prim::Map;
use crate::{DType, LowerError, Prim, Scalar, Tensor, Val};

/// Extracts the row of each sequence's last token from several values.
///
/// The inputs are the lengths, the attention's input, and the values. The outputs are the positions of the rows among
/// the new tokens, and the rows, `[batch, 1, …]`.
#[derive(Debug)]
pub(crate) struct LastRows;

/// Puts rows computed from the output of [`LastRows`] back in their positions, among zeros.
///
/// The inputs are the lengths, the attention's input, the rows, their positions, and the values that `LastRows` got.
#[derive(Debug)]
pub(crate) struct PlacedRows;

impl Op for LastRows {
    fn name(&self) -> &'static str {
        "LastRows"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (lengths, read) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let values = &inputs[2..];
        let Some([batch, tokens]) = extents(lengths, read, values) else {
            return Ok([lengths].into_iter().chain(values.iter().flatten()).cloned().collect());
        };
        let places = places(cx, lengths, [batch, tokens])?;
        let indices = places.unsqueezed(1);
        let mut made = vec![places];
        for value in values.iter().flatten() {
            made.push(cx.gather_nd(value, &indices, 1)?.unsqueezed(1));
        }
        Ok(made)
    }
}

impl Op for PlacedRows {
    fn name(&self) -> &'static str {
        "PlacedRows"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (lengths, read, rows) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let Some([batch, tokens]) = extents(lengths, read, &inputs[4..]) else { return Ok(vec![rows.clone()]) };
        let &[_, 1, width] = rows.shape() else {
            return Err(cx.invalid(format!("rows have shape {:?}, expected [{batch}, 1, …]", rows.shape())));
        };
        let places = cx.required(inputs, 3)?.unsqueezed(1).unsqueezed(2);
        let dtype = rows.dtype();
        let placed = cx.map_to(&[rows, &places], dtype, &[batch, tokens, width], |expr, arguments| {
            let (token, place) = (expr.index(1), expr.cast(arguments[1], DType::I64));
            let is_last = expr.binary(Binary::Eq, token, place);
            let zero = expr.constant(Scalar::zero(dtype), dtype);
            expr.select(is_last, arguments[0], zero)
        })?;
        Ok(vec![placed])
    }
}

/// The number of sequences and of new tokens in each, if there are rows to leave out: every value has a row per token
/// that the attention reads.
fn extents(lengths: &Val, read: &Val, values: &[Option<Val>]) -> Option<[usize; 2]> {
    let &[batch, tokens, _] = read.shape() else { return None };
    let has_rows = |value: &Val| matches!(*value.shape(), [b, t, _] if (b, t) == (batch, tokens));
    let fits = tokens > 1 && batch > 0 && lengths.elems() == batch && values.iter().flatten().all(has_rows);
    fits.then_some([batch, tokens])
}

/// The position of each sequence's last token among its new ones. The attention finds `past = max(0, length - tokens)`
/// tokens in the cache, and none for a first prompt. So it is the last new token, or the one at the length if that is
/// less.
fn places(cx: &mut Lower<'_>, lengths: &Val, [batch, tokens]: [usize; 2]) -> Result<Val, LowerError> {
    let last = Tensor::from_scalars(DType::I32, &[1], [Scalar::Int(tokens as i64 - 1)]);
    let last = Val::known(last.ok_or_else(|| cx.invalid(format!("{tokens} tokens")))?);
    let (lengths, last) = (cx.reshape(lengths, &[batch])?, cx.expand(&last, &[batch])?);
    let mut expr = Expr::new();
    let [length, last_token] = [0, 1].map(|number| expr.input(number, DType::I32));
    let zero = expr.constant(Scalar::Int(0), DType::I32);
    let place = expr.binary(Binary::Min, length, last_token);
    let place = expr.binary(Binary::Max, place, zero);
    expr.finish(place);
    cx.apply(Prim::Map(Map { expr }), &[&lengths, &last], DType::I32, &[batch])
}
