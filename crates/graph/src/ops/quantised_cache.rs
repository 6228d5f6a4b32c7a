//! The quantised caches of `GroupQueryAttention`: integers of 8 bits, or 4 bits in pairs, or 8-bit floats, with scales for
//! all or for each channel.
use crate::expr::{Binary, Unary};
use crate::float8::Format;
use crate::lower::Lower;
use crate::{DType, LowerError, Scalar, Shape, Val};

/// How the numbers of a cache are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// Signed bytes.
    Eight,
    /// Two numbers in a byte, the first in the lower bits, each with 8 added.
    Four,
    /// 8-bit floats.
    Float8,
}

impl Width {
    /// The element type of a cache.
    pub(super) const fn dtype(self) -> DType {
        match self {
            Self::Eight => DType::I8,
            Self::Four => DType::U8,
            Self::Float8 => DType::F8E4M3Fn,
        }
    }

    /// How many elements hold this many numbers; `None` if one would be left over.
    pub(super) fn elements(self, numbers: usize) -> Option<usize> {
        match self {
            Self::Eight | Self::Float8 => Some(numbers),
            Self::Four => numbers.is_multiple_of(2).then_some(numbers / 2),
        }
    }

    /// Quantises rows `[batch, heads, rows, size]`.
    pub(super) fn stored(self, cx: &mut Lower<'_>, rows: &Val, scale: &Val) -> Result<Val, LowerError> {
        let scale = broadcast(cx, scale, rows.shape())?;
        let (low, high) = match self {
            Self::Eight => (-128.0, 127.0),
            Self::Four => (-8.0, 7.0),
            Self::Float8 => return float8(cx, rows, &scale),
        };
        let numbers = cx.map_to(&[rows, &scale], DType::I8, rows.shape(), |expr, operands| {
            let ratio = expr.binary(Binary::Div, operands[0], operands[1]);
            let whole = expr.unary(Unary::Round, ratio);
            let (low, high) =
                (expr.constant(Scalar::Float(low), DType::F32), expr.constant(Scalar::Float(high), DType::F32));
            let raised = expr.binary(Binary::Max, whole, low);
            expr.binary(Binary::Min, raised, high)
        })?;
        match self {
            Self::Four => paired(cx, &numbers),
            _ => Ok(numbers),
        }
    }

    /// The numbers of a cache `[batch, heads, rows, …]` as `dtype`.
    pub(super) fn loaded(self, cx: &mut Lower<'_>, cache: &Val, scale: &Val, dtype: DType) -> Result<Val, LowerError> {
        let whole = match self {
            Self::Four => apart(cx, cache)?,
            _ => cache.clone(),
        };
        let scale = broadcast(cx, scale, whole.shape())?;
        let to: Shape = whole.shape().into();
        cx.map_to(&[&whole, &scale], dtype, &to, |expr, operands| {
            let number = match Format::of(self.dtype()) {
                Some(format) => format.decoded(expr, operands[0]),
                None => expr.cast(operands[0], DType::F32),
            };
            expr.binary(Binary::Mul, number, operands[1])
        })
    }
}

/// Rows divided by their scales, as 8-bit floats.
fn float8(cx: &mut Lower<'_>, rows: &Val, scale: &Val) -> Result<Val, LowerError> {
    cx.map_to(&[rows, scale], DType::U8, rows.shape(), |expr, operands| {
        let wide = expr.cast(operands[0], DType::F32);
        let ratio = expr.binary(Binary::Div, wide, operands[1]);
        match Format::of(Width::Float8.dtype()) {
            Some(format) => format.encoded(expr, ratio, true),
            None => ratio,
        }
    })
}

/// A scale for everything as a scalar; scales of channels, which may be flat, as `[1, heads, 1, size]`.
fn broadcast(cx: &mut Lower<'_>, scale: &Val, rows: &[usize]) -> Result<Val, LowerError> {
    let (heads, size) = (rows[1], rows[3]);
    match scale.elems() {
        1 => cx.reshape(scale, &[]),
        elems if elems == heads * size => cx.reshape(scale, &[1, heads, 1, size]),
        _ => Err(cx.invalid(format!("scales of shape {:?} for {heads} heads of {size} channels", scale.shape()))),
    }
}

/// Two signed numbers in a byte.
fn paired(cx: &mut Lower<'_>, numbers: &Val) -> Result<Val, LowerError> {
    let last = numbers.rank() - 1;
    let half = |first| numbers.sliced(last, first, 2, numbers.shape()[last] / 2);
    cx.map(&[&half(0), &half(1)], DType::U8, |expr, operands| {
        let eight = expr.constant(Scalar::Int(8), DType::I32);
        let [low, high] = [0, 1].map(|at| {
            let wide = expr.cast(operands[at], DType::I32);
            expr.binary(Binary::Add, wide, eight)
        });
        let sixteen = expr.constant(Scalar::Int(16), DType::I32);
        let high = expr.binary(Binary::Mul, high, sixteen);
        let both = expr.binary(Binary::Add, low, high);
        expr.cast(both, DType::U8)
    })
}

/// The numbers of bytes that hold two each.
fn apart(cx: &mut Lower<'_>, cache: &Val) -> Result<Val, LowerError> {
    let last = cache.rank() - 1;
    let mut to: Shape = cache.shape().into();
    to.push(2);
    let split = cx.map_to(&[&cache.unsqueezed(last + 1)], DType::I8, &to, |expr, operands| {
        let (index, bits) = (expr.index(last as u16 + 1), expr.constant(Scalar::Uint(4), DType::U8));
        let place = expr.cast(index, DType::U8);
        let shift = expr.binary(Binary::Mul, place, bits);
        let moved = expr.binary(Binary::Shr, operands[0], shift);
        let mask = expr.constant(Scalar::Uint(15), DType::U8);
        let number = expr.binary(Binary::And, moved, mask);
        let number = expr.cast(number, DType::I32);
        let eight = expr.constant(Scalar::Int(8), DType::I32);
        let signed = expr.binary(Binary::Sub, number, eight);
        expr.cast(signed, DType::I8)
    })?;
    to.pop();
    to[last] *= 2;
    cx.reshape(&split, &to)
}
