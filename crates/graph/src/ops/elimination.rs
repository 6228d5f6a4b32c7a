//! Determinants and inverses of matrices, by elimination with row exchanges: Det and Inverse.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{Declined, LowerError, Scalar, Shape, Val};

/// What elimination is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Determinant,
    Inverse,
}

#[derive(Debug)]
struct Elimination(Purpose);

impl Op for Elimination {
    fn name(&self) -> &'static str {
        match self.0 {
            Purpose::Determinant => "Det",
            Purpose::Inverse => "Inverse",
        }
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let (outer, n) = match *x.shape() {
            [ref outer @ .., rows, columns] if rows == columns => (Shape::from_slice(outer), rows),
            ref other => return Err(cx.invalid(format!("{other:?} is not a square matrix"))),
        };
        let batch = crate::shape::elems(&outer).unwrap_or(0);
        let compute = x.dtype().compute();
        let start = cx.reshape(x, &[batch, n, n])?;
        let start = cx.cast(&start, compute)?;
        match self.0 {
            Purpose::Determinant => {
                let mut rest = Rows { all: start, sign: cx.full(compute, &[batch], Scalar::Float(1.0))? };
                for _ in 0..n {
                    let (pivot, below) = rest.exchange(cx)?;
                    let value = cx.reshape(&pivot.sliced(2, 0, 1, 1), &[batch])?;
                    let sign = cx.binary(Binary::Mul, &rest.sign, &value)?;
                    let all = eliminated(cx, &below, &pivot)?;
                    rest = Rows { all, sign };
                }
                let result = cx.cast(&rest.sign, x.dtype())?;
                Ok(vec![cx.reshape(&result, &outer)?])
            }
            Purpose::Inverse => {
                let unit = cx.map_to(&[], compute, &[1, n, n], |expr, _| {
                    let (row, column) = (expr.index(1), expr.index(2));
                    let is_same = expr.binary(Binary::Eq, row, column);
                    let [one, zero] = [1.0, 0.0].map(|value| expr.constant(Scalar::Float(value), compute));
                    expr.select(is_same, one, zero)
                })?;
                let unit = cx.expand(&unit, &[batch, n, n])?;
                let mut done: Option<Val> = None;
                let mut all = cx.concat(&[&start, &unit], 2)?;
                // The first column of `all` and `done` is that of the next pivot; earlier ones are those of a unit matrix.
                for _ in 0..n {
                    let sign = cx.full(compute, &[batch], Scalar::Float(1.0))?;
                    let (pivot, below) = Rows { all, sign }.exchange(cx)?;
                    all = eliminated(cx, &below, &pivot)?;
                    let others = done.map(|done| eliminated(cx, &done, &pivot)).transpose()?;
                    let width = pivot.shape()[2];
                    let scaled =
                        cx.binary(Binary::Div, &pivot.sliced(2, 1, 1, width - 1), &pivot.sliced(2, 0, 1, 1))?;
                    done = Some(match others {
                        Some(others) => cx.concat(&[&others, &scaled], 1)?,
                        None => scaled,
                    });
                }
                let Some(done) = done else { return Ok(vec![x.clone()]) };
                let result = cx.cast(&done, x.dtype())?;
                Ok(vec![cx.reshape(&result, x.shape())?])
            }
        }
    }
}

/// The rows that are left `[batch, rows, columns]`, and the product of the pivots so far with its sign.
struct Rows {
    all: Val,
    sign: Val,
}

impl Rows {
    /// The row with the largest element in the first column `[batch, 1, columns]`, and the others, of which the first row
    /// takes its place. An exchange changes the sign.
    fn exchange(&mut self, cx: &mut Lower<'_>) -> Result<(Val, Val), LowerError> {
        let &[batch, rows, columns] = self.all.shape() else { return Err(cx.invalid("a matrix without rows")) };
        if rows == 1 || batch == 0 {
            return Ok((self.all.sliced(1, 0, 1, 1), self.all.sliced(1, 1, 1, rows - 1)));
        }
        let first = cx.reshape(&self.all.sliced(2, 0, 1, 1), &[batch, rows])?;
        let sizes = cx.unary(Unary::Abs, &first)?;
        let place = cx.arg_reduce(&sizes, 1, true, true, false)?;
        let at = cx.expand(&place.unsqueezed(2), &[batch, 1, columns])?;
        let pivot = cx.gather_elements(&self.all, &at, 1)?;
        let dtype = self.all.dtype();
        let (top, rest) = (self.all.sliced(1, 0, 1, 1), self.all.sliced(1, 1, 1, rows - 1));
        let below = cx.map_to(&[&rest, &top, &place.unsqueezed(2)], dtype, rest.shape(), |expr, operands| {
            let (index, one) = (expr.index(1), expr.constant(Scalar::Int(1), crate::DType::I64));
            let row = expr.binary(Binary::Add, index, one);
            let is_pivot = expr.binary(Binary::Eq, row, operands[2]);
            expr.select(is_pivot, operands[1], operands[0])
        })?;
        let place = cx.reshape(&place, &[batch])?;
        self.sign = cx.map(&[&self.sign, &place], dtype, |expr, operands| {
            let zero = expr.constant(Scalar::Int(0), crate::DType::I64);
            let stays = expr.binary(Binary::Eq, operands[1], zero);
            let negative = expr.unary(Unary::Neg, operands[0]);
            expr.select(stays, operands[0], negative)
        })?;
        Ok((pivot, below))
    }
}

/// Rows without their first column, which the pivot row has eliminated. A pivot of zero has nothing but zeros below.
fn eliminated(cx: &mut Lower<'_>, rows: &Val, pivot: &Val) -> Result<Val, LowerError> {
    let &[batch, count, columns] = rows.shape() else { return Err(cx.invalid("a matrix without rows")) };
    let tail = |value: &Val| value.sliced(2, 1, 1, columns - 1);
    if batch * count == 0 {
        return Ok(tail(rows));
    }
    let heads = [rows.sliced(2, 0, 1, 1), pivot.sliced(2, 0, 1, 1)];
    let dtype = rows.dtype();
    let to = [batch, count, columns - 1];
    cx.map_to(&[&tail(rows), &heads[0], &heads[1], &tail(pivot)], dtype, &to, |expr, operands| {
        let zero = expr.constant(Scalar::Float(0.0), dtype);
        let ratio = expr.binary(Binary::Div, operands[1], operands[2]);
        let is_zero = expr.binary(Binary::Eq, operands[1], zero);
        let factor = expr.select(is_zero, zero, ratio);
        let part = expr.binary(Binary::Mul, factor, operands[3]);
        expr.binary(Binary::Sub, operands[0], part)
    })
}

fn parse(node: &NodeInfo<'_>, purpose: Purpose) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype.is_float())?;
    Ok(Box::new(Elimination(purpose)))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "Det", parse: |node| parse(node, Purpose::Determinant) },
    Entry { domain: "com.microsoft", op_type: "Inverse", parse: |node| parse(node, Purpose::Inverse) },
];
