//! What quantised products and convolutions share: integers minus their zero point in, rescaled 8-bit integers out.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::{DType, LowerError, Scalar, Val};

/// Types of quantised operands.
pub(super) const fn byte(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8)
}

/// The value minus its zero point, in 32 bits.
pub(super) fn centred(cx: &mut Lower<'_>, value: &Val, zero: Option<&Val>) -> Result<Val, LowerError> {
    let Some(zero) = zero.filter(|zero| !is_zero(zero)) else { return cx.cast(value, DType::I32) };
    let to = value.shape().to_vec();
    // A single zero point may come as a vector of one element, which must not add an axis.
    let zero = if zero.elems() == 1 { cx.reshape(zero, &[])? } else { zero.clone() };
    cx.map_to(&[value, &zero], DType::I32, &to, |expr, arguments| {
        let value = expr.cast(arguments[0], DType::I32);
        let zero = expr.cast(arguments[1], DType::I32);
        expr.binary(Binary::Sub, value, zero)
    })
}

/// True if the value is known to be a single zero.
fn is_zero(value: &Val) -> bool {
    value.elems() == 1 && value.to_tensor().is_some_and(|tensor| !tensor.get(0).as_bool())
}

/// The factor for sums of products: `a · b / y` in single precision.
pub(super) fn scale(cx: &mut Lower<'_>, a: &Val, b: &Val, y: &Val) -> Result<Val, LowerError> {
    let mut list = Vec::new();
    for value in [a, b, y] {
        let value = if value.elems() == 1 { cx.reshape(value, &[])? } else { value.clone() };
        list.push(cx.cast(&value, DType::F32)?);
    }
    cx.map(&[&list[0], &list[1], &list[2]], DType::F32, |expr, arguments| {
        let product = expr.binary(Binary::Mul, arguments[0], arguments[1]);
        expr.binary(Binary::Div, product, arguments[2])
    })
}

/// Sums of products scaled, rounded to nearest with ties to even, offset by the output's zero point and saturated.
pub(super) fn requantized(cx: &mut Lower<'_>, sums: &Val, scale: &Val, zero: &Val) -> Result<Val, LowerError> {
    let dtype = zero.dtype();
    let (low, high) = if dtype == DType::I8 { (-128.0, 127.0) } else { (0.0, 255.0) };
    let zero = if zero.elems() == 1 { cx.reshape(zero, &[])? } else { zero.clone() };
    let to = sums.shape().to_vec();
    cx.map_to(&[sums, scale, &zero], dtype, &to, |expr, arguments| {
        let sum = expr.cast(arguments[0], DType::F32);
        let scaled = expr.binary(Binary::Mul, sum, arguments[1]);
        let rounded = expr.unary(Unary::Round, scaled);
        let zero = expr.cast(arguments[2], DType::F32);
        let moved = expr.binary(Binary::Add, rounded, zero);
        let low = expr.constant(Scalar::Float(low), DType::F32);
        let high = expr.constant(Scalar::Float(high), DType::F32);
        let bounded = expr.binary(Binary::Max, moved, low);
        let bounded = expr.binary(Binary::Min, bounded, high);
        expr.cast(bounded, dtype)
    })
}
