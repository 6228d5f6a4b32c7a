//! The rows of last tokens alone: what the pass `last-rows` puts around the nodes behind a decoder's last attention.
//!
//! Both operators read the index of each sequence's last token, which is device data, what the attention reads, whose
//! shape says how many tokens there are, and the values that come from before. They agree by shapes alone whether there is
//! anything to leave out; if there is not, each gives what it gets.
use crate::{
    DType, LowerError, Scalar, Val,
    expr::{Binary, Expr, Ref},
    lower::Lower,
    ops::Op,
};

/// The row of each sequence's last token, of each of several values.
///
/// Inputs are the lengths, what the attention reads, and the values; the outputs are `[batch, 1, …]`.
#[derive(Debug)]
pub(crate) struct LastRows;

/// Rows made of what [`LastRows`] gives, back in their places among zeros.
///
/// Inputs are the lengths, what the attention reads, the rows, and the values that `LastRows` got.
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
            return Ok(values.iter().flatten().cloned().collect());
        };
        let lengths = cx.reshape(lengths, &[batch])?;
        let places = cx.map(&[&lengths], DType::I64, |expr, arguments| {
            let last = last_token(expr, arguments[0], tokens);
            let sequence = expr.index(0);
            let rows = expr.constant(Scalar::Int(tokens as i64), DType::I64);
            let before = expr.binary(Binary::Mul, sequence, rows);
            expr.binary(Binary::Add, before, last)
        })?;
        let mut taken = Vec::with_capacity(values.len());
        for value in values.iter().flatten() {
            let width = value.shape()[2];
            let rows = cx.reshape(value, &[batch * tokens, width])?;
            let rows = cx.gather(&rows, &places, 0)?;
            taken.push(cx.reshape(&rows, &[batch, 1, width])?);
        }
        Ok(taken)
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
        let Some([batch, tokens]) = extents(lengths, read, &inputs[3..]) else { return Ok(vec![rows.clone()]) };
        let &[_, 1, width] = rows.shape() else {
            return Err(cx.invalid(format!("rows of shape {:?} instead of [{batch}, 1, …]", rows.shape())));
        };
        let lengths = cx.reshape(lengths, &[batch, 1, 1])?;
        let dtype = rows.dtype();
        let placed = cx.map_to(&[rows, &lengths], dtype, &[batch, tokens, width], |expr, arguments| {
            let last = last_token(expr, arguments[1], tokens);
            let token = expr.index(1);
            let is_last = expr.binary(Binary::Eq, token, last);
            let zero = expr.constant(Scalar::zero(dtype), dtype);
            expr.select(is_last, arguments[0], zero)
        })?;
        Ok(vec![placed])
    }
}

/// Sequences and new tokens of each, if there are rows to leave out: all values have a row for each token that the attention
/// reads.
fn extents(lengths: &Val, read: &Val, values: &[Option<Val>]) -> Option<[usize; 2]> {
    let &[batch, tokens, _] = read.shape() else { return None };
    let has_rows = |value: &Val| matches!(*value.shape(), [b, t, _] if (b, t) == (batch, tokens));
    let fits = tokens > 1 && batch > 0 && lengths.elems() == batch && values.iter().flatten().all(has_rows);
    fits.then_some([batch, tokens])
}

/// The place of a sequence's last token among its new ones. The attention has `past = max(0, length - tokens)` of them in the
/// cache, and none in a first prompt, so it is the last one, or the one that the length says if that is less.
fn last_token(expr: &mut Expr, last: Ref, tokens: usize) -> Ref {
    let last = expr.cast(last, DType::I64);
    let most = expr.constant(Scalar::Int(tokens as i64 - 1), DType::I64);
    let zero = expr.constant(Scalar::Int(0), DType::I64);
    let last = expr.binary(Binary::Min, last, most);
    expr.binary(Binary::Max, last, zero)
}
