//! The 8-bit float formats, as expressions on their bits.
//!
//! All steps are exact in single precision: scaling by powers of two, and one rounding to the nearest code.
use crate::expr::{Binary, Expr, Ref, Unary};
use crate::{DType, Scalar};

/// A format by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    mantissa_bits: u32,
    bias: i32,
    /// The code of the largest finite number.
    largest: u32,
    infinity: Option<u32>,
    not_a_number: u32,
    /// Whether the format has a negative zero. Formats without one use its code for NaN.
    has_negative_zero: bool,
}

/// The number of a byte of [`DType::F8E8M0`], in single precision: every step is a multiplication by a power of two.
pub(crate) fn power_of_two(expr: &mut Expr, code: Ref) -> Ref {
    let int = |expr: &mut Expr, value: i64| expr.constant(Scalar::Int(value), DType::I32);
    let float = |expr: &mut Expr, value: f64| expr.constant(Scalar::Float(value), DType::F32);
    let code = expr.cast(code, DType::I32);
    let (zero, bias) = (int(expr, 0), int(expr, 127));
    let exponent = expr.binary(Binary::Sub, code, bias);
    let is_negative = expr.binary(Binary::Lt, exponent, zero);
    let magnitude = expr.unary(Unary::Abs, exponent);
    let one = float(expr, 1.0);
    let mut value = one;
    for bit in 0..7 {
        let mask = int(expr, 1 << bit);
        let part = expr.binary(Binary::And, magnitude, mask);
        let is_set = expr.binary(Binary::Ne, part, zero);
        let [up, down] = [1 << bit, -(1 << bit)].map(|power| float(expr, 2.0f64.powi(power)));
        let factor = expr.select(is_negative, down, up);
        let factor = expr.select(is_set, factor, one);
        value = expr.binary(Binary::Mul, value, factor);
    }
    let last = int(expr, 0xFF);
    let is_nan = expr.binary(Binary::Eq, code, last);
    let nan = float(expr, f64::NAN);
    expr.select(is_nan, nan, value)
}

impl Format {
    /// The format of a type, if it is an 8-bit float.
    pub fn of(dtype: DType) -> Option<Self> {
        let finite = |mantissa_bits, bias, largest, not_a_number| Self {
            mantissa_bits,
            bias,
            largest,
            infinity: None,
            not_a_number,
            has_negative_zero: not_a_number != 0x80,
        };
        Some(match dtype {
            DType::F8E4M3Fn => finite(3, 7, 0x7E, 0x7F),
            DType::F8E4M3Fnuz => finite(3, 8, 0x7F, 0x80),
            DType::F8E5M2 => Self { infinity: Some(0x7C), ..finite(2, 15, 0x7B, 0x7F) },
            DType::F8E5M2Fnuz => finite(2, 16, 0x7F, 0x80),
            _ => return None,
        })
    }

    /// The number of a byte, in single precision.
    pub fn decoded(self, expr: &mut Expr, code: Ref) -> Ref {
        let bits = expr.cast(code, DType::I32);
        let int = |expr: &mut Expr, value: i64| expr.constant(Scalar::Int(value), DType::I32);
        let float = |expr: &mut Expr, value: f64| expr.constant(Scalar::Float(value), DType::F32);
        let (low_bits, mantissa_mask) = (int(expr, 0x7F), int(expr, (1 << self.mantissa_bits) - 1));
        let magnitude = expr.binary(Binary::And, bits, low_bits);
        let mantissa = expr.binary(Binary::And, bits, mantissa_mask);
        let width = int(expr, i64::from(self.mantissa_bits));
        let exponent = expr.binary(Binary::Shr, magnitude, width);
        let (zero, one) = (int(expr, 0), int(expr, 1));
        // Numbers with exponent 0 have the scale of exponent 1, but no leading one.
        let is_normal = expr.binary(Binary::Gt, exponent, zero);
        let leading = int(expr, 1 << self.mantissa_bits);
        let with_leading = expr.binary(Binary::Or, mantissa, leading);
        let significand = expr.select(is_normal, with_leading, mantissa);
        let exponent = expr.binary(Binary::Max, exponent, one);
        let mut value = expr.cast(significand, DType::F32);
        let unit = float(expr, 2.0f64.powi(-self.bias - self.mantissa_bits as i32));
        value = expr.binary(Binary::Mul, value, unit);
        let unscaled = float(expr, 1.0);
        for bit in 0..7 - self.mantissa_bits {
            let mask = int(expr, 1 << bit);
            let part = expr.binary(Binary::And, exponent, mask);
            let is_set = expr.binary(Binary::Ne, part, zero);
            let factor = float(expr, 2.0f64.powi(1 << bit));
            let factor = expr.select(is_set, factor, unscaled);
            value = expr.binary(Binary::Mul, value, factor);
        }
        if let Some(infinity) = self.infinity {
            let code = int(expr, i64::from(infinity));
            let is_infinite = expr.binary(Binary::Eq, magnitude, code);
            let infinity = float(expr, f64::INFINITY);
            value = expr.select(is_infinite, infinity, value);
        }
        let sign = int(expr, 0x80);
        let negative = expr.binary(Binary::Ge, bits, sign);
        let opposite = expr.unary(Unary::Neg, value);
        value = expr.select(negative, opposite, value);
        let is_nan = if self.has_negative_zero {
            let last = int(expr, i64::from(self.infinity.unwrap_or(self.largest)));
            expr.binary(Binary::Gt, magnitude, last)
        } else {
            expr.binary(Binary::Eq, bits, sign)
        };
        let nan = float(expr, f64::NAN);
        expr.select(is_nan, nan, value)
    }

    /// The byte of a number, rounded to nearest even. Numbers that are too large become the largest finite one if
    /// `saturate`, else infinity, or NaN in a format without infinity.
    pub fn encoded(self, expr: &mut Expr, x: Ref, saturate: bool) -> Ref {
        let float = |expr: &mut Expr, value: f64| expr.constant(Scalar::Float(value), DType::F32);
        let x = if expr.dtype(x) == DType::F32 { x } else { expr.cast(x, DType::F32) };
        // Scales the smallest normal number to one. Numbers that are too large for any format are clamped first.
        let magnitude = expr.unary(Unary::Abs, x);
        let cut = float(expr, 2.0f64.powi(20));
        let magnitude = expr.binary(Binary::Min, magnitude, cut);
        let scale = float(expr, 2.0f64.powi(self.bias - 1));
        let scaled = expr.binary(Binary::Mul, magnitude, scale);
        let one = float(expr, 1.0);
        // The part between one and two, and the exponent as a float.
        let (mut part, mut exponent) = (scaled, float(expr, 1.0));
        for power in [32, 16, 8, 4, 2, 1] {
            let bound = float(expr, 2.0f64.powi(power));
            let is_above = expr.binary(Binary::Ge, part, bound);
            let inverse = float(expr, 2.0f64.powi(-power));
            let lower = expr.binary(Binary::Mul, part, inverse);
            part = expr.select(is_above, lower, part);
            let step = float(expr, f64::from(power));
            let raised = expr.binary(Binary::Add, exponent, step);
            exponent = expr.select(is_above, raised, exponent);
        }
        let steps = float(expr, f64::from(1u32 << self.mantissa_bits));
        let fraction = expr.binary(Binary::Sub, part, one);
        let fraction = expr.binary(Binary::Mul, fraction, steps);
        let first = expr.binary(Binary::Mul, exponent, steps);
        let normal = expr.unary(Unary::Round, fraction);
        let normal = expr.binary(Binary::Add, first, normal);
        let small = expr.binary(Binary::Mul, scaled, steps);
        let small = expr.unary(Unary::Round, small);
        let is_small = expr.binary(Binary::Lt, scaled, one);
        let code = expr.select(is_small, small, normal);
        self.bounded(expr, x, code, saturate)
    }

    /// The byte for the rounded code of a magnitude: range, sign and NaN.
    fn bounded(self, expr: &mut Expr, x: Ref, code: Ref, saturate: bool) -> Ref {
        let float = |expr: &mut Expr, value: f64| expr.constant(Scalar::Float(value), DType::F32);
        let largest = float(expr, f64::from(self.largest));
        let overflows = expr.binary(Binary::Gt, code, largest);
        let beyond = if saturate { self.largest } else { self.infinity.unwrap_or(self.not_a_number) };
        let beyond = float(expr, f64::from(beyond));
        let code = expr.select(overflows, beyond, code);
        let zero = float(expr, 0.0);
        let mut negative = expr.binary(Binary::Lt, x, zero);
        if self.has_negative_zero {
            // The two zeros compare as equal; only their reciprocals differ.
            let reciprocal = expr.unary(Unary::Recip, x);
            let below = expr.binary(Binary::Lt, reciprocal, zero);
            negative = expr.binary(Binary::Or, negative, below);
        } else {
            // NaN has no sign, and neither has zero.
            let sign = float(expr, 128.0);
            let is_number = expr.binary(Binary::Lt, code, sign);
            let is_positive = expr.binary(Binary::Gt, code, zero);
            negative = expr.binary(Binary::And, negative, is_number);
            negative = expr.binary(Binary::And, negative, is_positive);
        }
        let sign = float(expr, 128.0);
        let with_sign = expr.binary(Binary::Add, code, sign);
        let code = expr.select(negative, with_sign, code);
        let is_nan = expr.unary(Unary::IsNan, x);
        let nan = float(expr, f64::from(self.not_a_number));
        let code = expr.select(is_nan, nan, code);
        expr.cast(code, DType::U8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a code by the definition of its format.
    fn defined(format: Format, code: u32) -> f64 {
        let (magnitude, sign) = (code & 0x7F, if code >= 0x80 { -1.0 } else { 1.0 });
        if code == 0x80 && !format.has_negative_zero {
            return f64::NAN;
        }
        if format.has_negative_zero && magnitude > format.largest {
            return if format.infinity == Some(magnitude) { sign * f64::INFINITY } else { f64::NAN };
        }
        let (exponent, steps) = (magnitude >> format.mantissa_bits, f64::from(1u32 << format.mantissa_bits));
        let fraction = f64::from(magnitude) % steps / steps;
        let lowest = 1 - format.bias;
        if exponent == 0 {
            sign * fraction * 2.0f64.powi(lowest)
        } else {
            sign * (1.0 + fraction) * 2.0f64.powi(exponent as i32 - format.bias)
        }
    }

    fn eval(build: impl FnOnce(&mut Expr, Ref) -> Ref, from: DType, value: Scalar) -> Scalar {
        let mut expr = Expr::new();
        let x = expr.input(0, from);
        let result = build(&mut expr, x);
        expr.finish(result);
        expr.eval(&[value], &[])
    }

    fn encode(format: Format, x: f64, saturate: bool) -> u32 {
        let code = eval(|expr, x| format.encoded(expr, x, saturate), DType::F32, Scalar::Float(x));
        code.as_i64() as u32
    }

    fn formats() -> impl Iterator<Item = Format> {
        DType::FLOAT8.into_iter().filter_map(Format::of)
    }

    #[test]
    fn every_byte_has_its_number_and_comes_back() {
        for format in formats() {
            for code in 0..=0xFF {
                let wanted = defined(format, code);
                let found = eval(|expr, x| format.decoded(expr, x), DType::U8, Scalar::Uint(u64::from(code))).as_f64();
                assert!(found == wanted || found.is_nan() && wanted.is_nan(), "{code:#x}: {found} is not {wanted}");
                assert_eq!(found.is_sign_negative(), wanted.is_sign_negative() && !wanted.is_nan(), "{code:#x}");
                if wanted.is_finite() {
                    assert_eq!(encode(format, wanted, true), code, "{format:?}");
                }
            }
        }
    }

    #[test]
    fn every_power_of_two_is_exact() {
        for code in 0..=0xFFu64 {
            let found = eval(power_of_two, DType::U8, Scalar::Uint(code)).as_f64();
            match code {
                0xFF => assert!(found.is_nan()),
                _ => assert_eq!(found, 2f64.powi(code as i32 - 127)),
            }
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_code_and_ties_to_even() {
        for format in formats() {
            for code in 0..format.largest {
                let (low, high) = (defined(format, code), defined(format, code + 1));
                let middle = (low + high) / 2.0;
                let even = code + code % 2;
                let sign = |code: u32| if code == 0 && !format.has_negative_zero { 0 } else { code | 0x80 };
                for (x, wanted) in [(middle, even), ((low + middle) / 2.0, code), ((middle + high) / 2.0, code + 1)] {
                    assert_eq!(encode(format, x, true), wanted, "{x} {format:?}");
                    assert_eq!(encode(format, -x, false), sign(wanted), "-{x} {format:?}");
                }
            }
        }
    }

    #[test]
    fn large_numbers_saturate_or_overflow() {
        for format in formats() {
            let overflow = format.infinity.unwrap_or(format.not_a_number);
            for x in [1e6, 1e38, f64::INFINITY] {
                assert_eq!(encode(format, x, true), format.largest);
                assert_eq!(encode(format, -x, true), format.largest | 0x80);
                assert_eq!(encode(format, x, false), overflow);
                assert_eq!(encode(format, -x, false), overflow | 0x80);
            }
            assert_eq!(encode(format, f64::NAN, true), format.not_a_number);
        }
    }
}
