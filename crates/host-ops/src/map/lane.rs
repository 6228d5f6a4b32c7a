//! The types that maps compute in, and casts between them.
use crate::scratch::Plain;
use crate::simd::{each, vectorised};

/// Integer arithmetic of maps: everything wraps.
pub(super) trait Int: Plain + Ord {
    const ZERO: Self;
    const ONE: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Rounds towards zero; division by zero gives zero.
    fn div(self, other: Self) -> Self;
    /// The remainder with the sign of the dividend; division by zero gives zero.
    fn rem(self, other: Self) -> Self;
    /// The remainder with the sign of the divisor; division by zero gives zero.
    fn modulo(self, other: Self) -> Self;
    fn pow(self, exponent: Self) -> Self;
    fn shl(self, by: Self) -> Self;
    fn shr(self, by: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn sign(self) -> Self;
}

macro_rules! ints {
    ($($type:ty)*) => {
        $(
            #[allow(unused_comparisons)]
            impl Int for $type {
                const ZERO: Self = 0;
                const ONE: Self = 1;
                #[inline(always)]
                fn add(self, other: Self) -> Self {
                    self.wrapping_add(other)
                }
                #[inline(always)]
                fn sub(self, other: Self) -> Self {
                    self.wrapping_sub(other)
                }
                #[inline(always)]
                fn mul(self, other: Self) -> Self {
                    self.wrapping_mul(other)
                }
                #[inline(always)]
                fn div(self, other: Self) -> Self {
                    if other == 0 { 0 } else { self.wrapping_div(other) }
                }
                #[inline(always)]
                fn rem(self, other: Self) -> Self {
                    if other == 0 { 0 } else { self.wrapping_rem(other) }
                }
                #[inline(always)]
                fn modulo(self, other: Self) -> Self {
                    let rest = self.rem(other);
                    if rest != 0 && (rest < 0) != (other < 0) { rest.wrapping_add(other) } else { rest }
                }
                #[inline(always)]
                fn pow(self, exponent: Self) -> Self {
                    if exponent >= 0 {
                        return self.wrapping_pow(u32::try_from(exponent).unwrap_or(u32::MAX));
                    }
                    if self.wrapping_add(1) == 0 {
                        return if exponent & 1 == 0 { 1 } else { self };
                    }
                    (self == 1) as $type
                }
                #[inline(always)]
                fn shl(self, by: Self) -> Self {
                    if by >= 0 && i128::from(by) < i128::from(Self::BITS) { self << by } else { 0 }
                }
                #[inline(always)]
                fn shr(self, by: Self) -> Self {
                    if by >= 0 && i128::from(by) < 64 { (i128::from(self) >> (by as u32)) as $type } else { 0 }
                }
                #[inline(always)]
                fn and(self, other: Self) -> Self {
                    self & other
                }
                #[inline(always)]
                fn or(self, other: Self) -> Self {
                    self | other
                }
                #[inline(always)]
                fn xor(self, other: Self) -> Self {
                    self ^ other
                }
                #[inline(always)]
                fn not(self) -> Self {
                    !self
                }
                #[inline(always)]
                fn neg(self) -> Self {
                    Self::ZERO.wrapping_sub(self)
                }
                #[inline(always)]
                fn abs(self) -> Self {
                    if self < 0 { self.neg() } else { self }
                }
                #[inline(always)]
                fn sign(self) -> Self {
                    if self < 0 { Self::ONE.neg() } else { (self != 0) as $type }
                }
            }
        )*
    };
}

ints!(i8 i16 i32 i64 u8 u16 u32 u64);

/// A cast with ONNX semantics.
pub(super) trait To<T>: Plain {
    fn to(self) -> T;
}

macro_rules! int_casts {
    ($($from:ty: $($to:ty)*;)*) => { $($(
        impl To<$to> for $from {
            #[inline(always)]
            fn to(self) -> $to {
                self as $to
            }
        }
    )*)* };
}

macro_rules! int_float_casts {
    ($($int:ty)*) => { $(
        impl To<f64> for $int {
            #[inline(always)]
            fn to(self) -> f64 {
                self as f64
            }
        }
        impl To<f32> for $int {
            #[inline(always)]
            fn to(self) -> f32 {
                // Small integers are exact either way; large ones go through double precision, like in the planner.
                if size_of::<$int>() < 8 { self as f32 } else { self as f64 as f32 }
            }
        }
        impl To<$int> for f64 {
            #[inline(always)]
            fn to(self) -> $int {
                // Out of range is undefined in ONNX: saturate at 64 bits, then wrap.
                if <$int>::MIN == 0 && self >= 9.2e18 { self as u64 as $int } else { self as i64 as $int }
            }
        }
        impl To<$int> for f32 {
            #[inline(always)]
            fn to(self) -> $int {
                f64::from(self).to()
            }
        }
    )* };
}

int_casts! {
    i8: i8 i16 i32 i64 u8 u16 u32 u64;
    i16: i8 i16 i32 i64 u8 u16 u32 u64;
    i32: i8 i16 i32 i64 u8 u16 u32 u64;
    i64: i8 i16 i32 i64 u8 u16 u32 u64;
    u8: i8 i16 i32 i64 u8 u16 u32 u64;
    u16: i8 i16 i32 i64 u8 u16 u32 u64;
    u32: i8 i16 i32 i64 u8 u16 u32 u64;
    u64: i8 i16 i32 i64 u8 u16 u32 u64;
    f32: f32 f64;
    f64: f32 f64;
}

int_float_casts!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Operations that casts to half precision and to bool need.
pub(super) trait Lane: Plain + PartialOrd {
    /// Zero.
    const NONE: Self;
    /// The number as f64, on the way to half precision.
    fn widened(self) -> f64;
}

macro_rules! lanes {
    ($($type:ty)*) => { $(
        impl Lane for $type {
            const NONE: Self = 0 as $type;
            #[inline(always)]
            fn widened(self) -> f64 {
                self as f64
            }
        }
    )* };
}

lanes!(i8 i16 i32 i64 u8 u16 u32 u64 f32 f64);

/// Integers made from the low bits of an i32.
pub(super) trait FromI32: Plain {
    fn narrow(value: i32) -> Self;
}

macro_rules! narrow {
    ($($type:ty)*) => { $(
        impl FromI32 for $type {
            #[inline(always)]
            fn narrow(value: i32) -> Self {
                value as $type
            }
        }
    )* };
}

narrow!(i8 i16 i32 i64 u8 u16 u32 u64);

vectorised! {
    /// Casts between numbers.
    pub(super) fn cast<A: To<B>, B: Plain>(a: &[A], out: &mut [B]) {
        each(a, out, A::to);
    }
}

vectorised! {
    /// Casts to integers of at most 32 bits: uses the fast instruction if all values fit, which is nearly always the
    /// case.
    pub(super) fn cast_f32<B: FromI32>(a: &[f32], out: &mut [B]) -> bool {
        let fits = a.iter().fold(true, |fits, x| fits & (x.abs() < 2_147_483_520.0));
        if fits {
            // SAFETY: every element was checked to fit into 32 bits.
            each(a, out, |x| B::narrow(unsafe { x.to_int_unchecked::<i32>() }));
        }
        fits
    }
}

vectorised! {
    /// 1 for every element that is not zero, else 0.
    pub(super) fn to_bool<A: Lane>(a: &[A], out: &mut [u8]) {
        each(a, out, |x| u8::from(x != A::NONE));
    }
}
