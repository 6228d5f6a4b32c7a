//! Operations on one operand, a block at a time.
use graph::expr::Unary;

use super::lane::Int;
use crate::math::fused;
use crate::simd::{each, vectorised};

vectorised! {
    /// In single precision.
    pub(super) fn unary_f32(op: Unary, a: &[f32], out: &mut [f32]) {
        match op {
            Unary::Neg => each(a, out, |x| -x),
            Unary::Abs => each(a, out, f32::abs),
            Unary::Sign => each(a, out, |x| {
                let sign = f32::from(i8::from(x > 0.0) - i8::from(x < 0.0));
                if x.is_nan() { x } else { sign }
            }),
            Unary::Not => each(a, out, |x| f32::from(u8::from(x == 0.0))),
            Unary::Recip => each(a, out, |x| 1.0 / x),
            Unary::Sqrt => each(a, out, f32::sqrt),
            Unary::Rsqrt => each(a, out, |x| 1.0 / x.sqrt()),
            Unary::Exp => each(a, out, fused::exp::<WIDE>),
            Unary::Log => each(a, out, fused::ln::<WIDE>),
            Unary::Log1p => each(a, out, fused::ln_1p::<WIDE>),
            Unary::Expm1 => each(a, out, fused::expm1::<WIDE>),
            Unary::Erf => each(a, out, fused::erf::<WIDE>),
            Unary::Sin => each(a, out, f32::sin),
            Unary::Cos => each(a, out, f32::cos),
            Unary::Tan => each(a, out, f32::tan),
            Unary::Asin => each(a, out, f32::asin),
            Unary::Acos => each(a, out, f32::acos),
            Unary::Atan => each(a, out, f32::atan),
            Unary::Sinh => each(a, out, f32::sinh),
            Unary::Cosh => each(a, out, f32::cosh),
            Unary::Tanh => each(a, out, fused::tanh::<WIDE>),
            // The standard library's inverse hyperbolic functions lose digits in single precision.
            Unary::Asinh => each(a, out, |x| f64::from(x).asinh() as f32),
            Unary::Acosh => each(a, out, |x| f64::from(x).acosh() as f32),
            Unary::Atanh => each(a, out, |x| f64::from(x).atanh() as f32),
            Unary::Sigmoid => each(a, out, fused::sigmoid::<WIDE>),
            Unary::Ceil => each(a, out, f32::ceil),
            Unary::Floor => each(a, out, f32::floor),
            Unary::Round => each(a, out, f32::round_ties_even),
            Unary::Trunc => each(a, out, f32::trunc),
            // The results of these operations are bools.
            Unary::IsNan | Unary::IsInf => {}
        }
    }
}

/// In double precision.
pub(super) fn unary_f64(op: Unary, a: &[f64], out: &mut [f64]) {
    match op {
        Unary::Neg => each(a, out, |x| -x),
        Unary::Abs => each(a, out, f64::abs),
        Unary::Sign => each(a, out, |x| if x.is_nan() { x } else { f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)) }),
        Unary::Not => each(a, out, |x| f64::from(u8::from(x == 0.0))),
        Unary::Recip => each(a, out, f64::recip),
        Unary::Sqrt => each(a, out, f64::sqrt),
        Unary::Rsqrt => each(a, out, |x| x.sqrt().recip()),
        Unary::Exp => each(a, out, f64::exp),
        Unary::Log => each(a, out, f64::ln),
        Unary::Log1p => each(a, out, f64::ln_1p),
        Unary::Expm1 => each(a, out, f64::exp_m1),
        Unary::Erf => each(a, out, graph::expr::erf),
        Unary::Sin => each(a, out, f64::sin),
        Unary::Cos => each(a, out, f64::cos),
        Unary::Tan => each(a, out, f64::tan),
        Unary::Asin => each(a, out, f64::asin),
        Unary::Acos => each(a, out, f64::acos),
        Unary::Atan => each(a, out, f64::atan),
        Unary::Sinh => each(a, out, f64::sinh),
        Unary::Cosh => each(a, out, f64::cosh),
        Unary::Tanh => each(a, out, f64::tanh),
        Unary::Asinh => each(a, out, f64::asinh),
        Unary::Acosh => each(a, out, f64::acosh),
        Unary::Atanh => each(a, out, f64::atanh),
        Unary::Sigmoid => each(a, out, |x| (1.0 + (-x).exp()).recip()),
        Unary::Ceil => each(a, out, f64::ceil),
        Unary::Floor => each(a, out, f64::floor),
        Unary::Round => each(a, out, f64::round_ties_even),
        Unary::Trunc => each(a, out, f64::trunc),
        // The results of these operations are bools.
        Unary::IsNan | Unary::IsInf => {}
    }
}

vectorised! {
    /// On integers. Operations that are not defined for integers leave them unchanged.
    pub(super) fn unary_int<T: Int>(op: Unary, a: &[T], out: &mut [T]) {
        match op {
            Unary::Neg => each(a, out, T::neg),
            Unary::Abs => each(a, out, T::abs),
            Unary::Sign => each(a, out, T::sign),
            Unary::Not => each(a, out, T::not),
            _ => out.copy_from_slice(a),
        }
    }
}

/// On bools.
pub(super) fn unary_bool(op: Unary, a: &[u8], out: &mut [u8]) {
    match op {
        Unary::Not => each(a, out, |x| x ^ 1),
        _ => out.copy_from_slice(a),
    }
}

/// Classification of floating-point numbers.
pub(super) fn classify<T: Copy>(op: Unary, a: &[T], out: &mut [u8], is_nan: fn(T) -> bool, is_infinite: fn(T) -> bool) {
    match op {
        Unary::IsNan => each(a, out, |x| u8::from(is_nan(x))),
        _ => each(a, out, |x| u8::from(is_infinite(x))),
    }
}
