//! Operations on two operands, a block at a time.
use graph::expr::Binary;

use super::lane::{Int, Lane};
use crate::simd::{each, each_pair, vectorised};

macro_rules! float_binary {
    ($name:ident, $float:ident) => {
        vectorised! {
            /// On floating-point numbers.
            pub(super) fn $name(op: Binary, a: &[$float], b: &[$float], out: &mut [$float]) {
                match op {
                    Binary::Add => each_pair(a, b, out, |x, y| x + y),
                    Binary::Sub => each_pair(a, b, out, |x, y| x - y),
                    Binary::Mul => each_pair(a, b, out, |x, y| x * y),
                    Binary::Div => each_pair(a, b, out, |x, y| x / y),
                    // If `y` is NaN, the comparison fails and `y` wins; `x` is checked explicitly.
                    Binary::Max => each_pair(a, b, out, |x, y| if x > y || x.is_nan() { x } else { y }),
                    Binary::Min => each_pair(a, b, out, |x, y| if x < y || x.is_nan() { x } else { y }),
                    Binary::Pow => match uniform(b) {
                        Some(2.0) => each(a, out, |x| x * x),
                        Some(3.0) => each(a, out, |x| x * x * x),
                        _ => each_pair(a, b, out, $float::powf),
                    },
                    // In double precision, because the quotient may be large.
                    Binary::Mod => each_pair(a, b, out, |x, y| {
                        let (x, y) = (f64::from(x), f64::from(y));
                        (x - y * (x / y).floor()) as $float
                    }),
                    Binary::Fmod => each_pair(a, b, out, |x, y| x % y),
                    Binary::Atan2 => each_pair(a, b, out, $float::atan2),
                    // The other operations are not defined for this type.
                    _ => out.copy_from_slice(a),
                }
            }
        }
    };
}

float_binary!(binary_f32, f32);
float_binary!(binary_f64, f64);

/// The common value of all elements, if they are equal.
#[inline(always)]
fn uniform<T: Copy + PartialEq>(values: &[T]) -> Option<T> {
    let first = *values.first()?;
    values.iter().all(|&value| value == first).then_some(first)
}

vectorised! {
    /// On integers.
    pub(super) fn binary_int<T: Int>(op: Binary, a: &[T], b: &[T], out: &mut [T]) {
        match op {
            Binary::Add => each_pair(a, b, out, T::add),
            Binary::Sub => each_pair(a, b, out, T::sub),
            Binary::Mul => each_pair(a, b, out, T::mul),
            Binary::Div => each_pair(a, b, out, T::div),
            Binary::Max => each_pair(a, b, out, |x, y| if x > y { x } else { y }),
            Binary::Min => each_pair(a, b, out, |x, y| if x < y { x } else { y }),
            Binary::Pow => each_pair(a, b, out, T::pow),
            Binary::Mod => each_pair(a, b, out, T::modulo),
            Binary::Fmod => each_pair(a, b, out, T::rem),
            Binary::And => each_pair(a, b, out, T::and),
            Binary::Or => each_pair(a, b, out, T::or),
            Binary::Xor => each_pair(a, b, out, T::xor),
            Binary::Shl => each_pair(a, b, out, T::shl),
            Binary::Shr => each_pair(a, b, out, T::shr),
            // The other operations are not defined for this type.
            _ => out.copy_from_slice(a),
        }
    }
}

/// On bools: the lowest bit of the integer result.
pub(super) fn binary_bool(op: Binary, a: &[u8], b: &[u8], out: &mut [u8]) {
    binary_int(op, a, b, out);
    for bit in out {
        *bit &= 1;
    }
}

vectorised! {
    /// Comparisons.
    pub(super) fn compare<T: Lane>(op: Binary, a: &[T], b: &[T], out: &mut [u8]) {
        match op {
            Binary::Eq => each_pair(a, b, out, |x, y| u8::from(x == y)),
            Binary::Ne => each_pair(a, b, out, |x, y| u8::from(x != y)),
            Binary::Lt => each_pair(a, b, out, |x, y| u8::from(x < y)),
            Binary::Le => each_pair(a, b, out, |x, y| u8::from(x <= y)),
            Binary::Gt => each_pair(a, b, out, |x, y| u8::from(x > y)),
            _ => each_pair(a, b, out, |x, y| u8::from(x >= y)),
        }
    }
}

vectorised! {
    /// `a` where the condition holds, else `b`.
    pub(super) fn select<T: Lane>(condition: &[u8], a: &[T], b: &[T], out: &mut [T]) {
        for (((to, &c), &x), &y) in out.iter_mut().zip(condition).zip(a).zip(b) {
            *to = if c != 0 { x } else { y };
        }
    }
}
