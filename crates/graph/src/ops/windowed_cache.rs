//! The windowed cache of `GroupQueryAttention`: `sliding_window_cache=1`.
//!
//! A cache of `capacity` rows holds the newest positions of a sequence, in order and from row 0 on. How many depends
//! only on the sequence's length: when a row is missing, `capacity - window + 1` rows leave the cache at once. A step
//! appends its tokens to a longer copy of the cache, attends over that, and then keeps the newest rows: no token's window
//! is cut, however many tokens a step has.
use crate::expr::{Binary, Expr, Ref};
use crate::lower::{Lower, Val};
use crate::prim::{Append, Filled};
use crate::{DType, LowerError, Prim, Scalar};

/// A cache shorter than the sequences.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// Rows of the cache.
    pub capacity: usize,
    /// Keys that a token sees.
    pub size: usize,
}

/// A step on a windowed cache.
pub(super) struct Staged {
    /// Keys and values of the cache so far and of the new tokens, `[batch, heads, rows, size]`.
    pub all: [Val; 2],
    /// How many of these rows come before the new tokens, `[batch]`.
    pub before: Val,
    /// The updated cache.
    pub present: [Val; 2],
    /// The bias with a column for each of these rows.
    pub bias: Option<Val>,
}

/// The lengths of sequences: the index of each one's last token, and the number of new tokens.
pub(super) struct Lengths<'a> {
    pub last: &'a Val,
    pub rows: usize,
    /// The step is a first prompt: the cache is empty, whatever the lengths say.
    pub is_first: bool,
}

impl Window {
    /// Appends new keys and values `[batch, heads, rows, size]` to a cache. A bias has a column for each position.
    pub(super) fn step(
        self,
        cx: &mut Lower<'_>,
        lengths: &Lengths<'_>,
        new: [&Val; 2],
        past: [&Val; 2],
        bias: Option<&Val>,
    ) -> Result<Staged, LowerError> {
        let (batch, heads, rows) = (new[0].shape()[0], new[0].shape()[1], lengths.rows);
        let last = cx.reshape(lengths.last, &[batch])?;
        let of = |cx: &mut Lower<'_>, result: fn(Place) -> Ref| {
            cx.map_to(&[&last], DType::I64, &[batch], |expr, operands| result(self.place(expr, operands[0], lengths)))
        };
        let (before, start) = (of(cx, |place| place.before)?, of(cx, |place| place.start)?);
        let extent = if lengths.is_first { rows } else { self.capacity + rows };
        let fresh =
            |cx: &mut Lower<'_>, of: &Val, extent: usize| cx.fresh(of.dtype(), &[batch, heads, extent, of.shape()[3]]);
        let all = [fresh(cx, new[0], extent)?, fresh(cx, new[1], extent)?];
        let append = Append { filled: Filled { shift: 0 }, past: !lengths.is_first, rotary: None };
        let held = if lengths.is_first { &[][..] } else { &past[..] };
        let operands: Vec<&Val> = [&before].into_iter().chain(new).chain(held.iter().copied()).collect();
        cx.emit(Prim::Append(append), &operands, &[&all[0], &all[1]]);
        let present = [fresh(cx, new[0], self.capacity)?, fresh(cx, new[1], self.capacity)?];
        cx.emit(Prim::Retain, &[&start, &all[0], &all[1], past[0], past[1]], &[&present[0], &present[1]]);
        let bias = match bias {
            Some(bias) => {
                let first = of(cx, |place| place.first)?;
                Some(columns_of(cx, bias, &first, extent)?)
            }
            None => None,
        };
        Ok(Staged { all, before, present, bias })
    }

    /// The places of a sequence's rows, by the index of its last token.
    fn place(self, expr: &mut Expr, last: Ref, lengths: &Lengths<'_>) -> Place {
        let number = |expr: &mut Expr, value: usize| expr.constant(Scalar::Int(value as i64), DType::I64);
        let (zero, one, rows) = (number(expr, 0), number(expr, 1), number(expr, lengths.rows));
        let last = expr.cast(last, DType::I64);
        let length = expr.binary(Binary::Add, last, one);
        let length = expr.binary(Binary::Max, length, zero);
        let past = expr.binary(Binary::Sub, length, rows);
        let past = if lengths.is_first { zero } else { expr.binary(Binary::Max, past, zero) };
        let before = self.resident(expr, past);
        let kept = self.resident(expr, length);
        let new = expr.binary(Binary::Sub, length, past);
        let end = expr.binary(Binary::Add, before, new);
        Place {
            before,
            first: expr.binary(Binary::Sub, past, before),
            // The operator does not define results for lengths beyond its tokens, but the rows must exist.
            start: {
                let start = expr.binary(Binary::Sub, end, kept);
                let extent = if lengths.is_first { lengths.rows } else { self.capacity + lengths.rows };
                let extent = number(expr, extent);
                expr.binary(Binary::Min, start, extent)
            },
        }
    }

    /// How many positions of a sequence of this length are in the cache.
    fn resident(self, expr: &mut Expr, length: Ref) -> Ref {
        let number = |expr: &mut Expr, value: usize| expr.constant(Scalar::Int(value as i64), DType::I64);
        let evicted = self.capacity - self.size + 1;
        let (capacity, step, up) = (number(expr, self.capacity), number(expr, evicted), number(expr, evicted - 1));
        let zero = number(expr, 0);
        let excess = expr.binary(Binary::Sub, length, capacity);
        let excess = expr.binary(Binary::Max, excess, zero);
        let rounded = expr.binary(Binary::Add, excess, up);
        let times = expr.binary(Binary::Div, rounded, step);
        let gone = expr.binary(Binary::Mul, times, step);
        expr.binary(Binary::Sub, length, gone)
    }
}

/// Where the rows of a sequence are.
struct Place {
    /// Rows in the cache before the step.
    before: Ref,
    /// The position of the first of them.
    first: Ref,
    /// The first row that stays after the step, counted with the new tokens.
    start: Ref,
}

/// The columns of a bias `[batch, heads, tokens, positions]` for `rows` positions from `first [batch]` on.
fn columns_of(cx: &mut Lower<'_>, bias: &Val, first: &Val, rows: usize) -> Result<Val, LowerError> {
    let &[batch, heads, tokens, positions] = bias.shape() else { return Err(cx.invalid("a bias without four axes")) };
    let first = cx.reshape(first, &[batch, 1, 1, 1])?;
    // No token sees the rows after the last position.
    let most = Scalar::Int(positions as i64 - 1);
    let columns = cx.map_to(&[&first], DType::I64, &[batch, 1, 1, rows], |expr, operands| {
        let (row, most) = (expr.index(3), expr.constant(most, DType::I64));
        let column = expr.binary(Binary::Add, operands[0], row);
        expr.binary(Binary::Min, column, most)
    })?;
    let columns = cx.expand(&columns, &[batch, heads, tokens, rows])?;
    cx.gather_elements(bias, &columns, 3)
}
