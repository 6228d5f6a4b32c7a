//! Arithmetic of floating-point types.
use crate::math;
use crate::microkernel::Compute;

/// A floating-point type to compute in.
pub(crate) trait Real: Compute {
    /// Converts a parameter.
    fn of(value: f32) -> Self;

    /// Converts a count.
    fn count(value: usize) -> Self;

    fn minus(self, other: Self) -> Self;

    fn times(self, other: Self) -> Self;

    fn over(self, other: Self) -> Self;

    fn absolute(self) -> Self;

    fn root(self) -> Self;

    fn power(self, exponent: Self) -> Self;

    /// e^x.
    fn exp(self) -> Self;

    /// e^x - 1.
    fn expm1(self) -> Self;

    /// ln(1 + x).
    fn ln_1p(self) -> Self;

    fn tanh(self) -> Self;

    /// 1 / (1 + e^-x).
    fn sigmoid(self) -> Self;
}

macro_rules! real {
    ($type:ty: $exp:path, $expm1:path, $ln_1p:path, $tanh:path, $sigmoid:expr) => {
        impl Real for $type {
            #[inline(always)]
            fn of(value: f32) -> Self {
                Self::from(value)
            }

            #[inline(always)]
            fn count(value: usize) -> Self {
                value as Self
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                self / other
            }

            #[inline(always)]
            fn absolute(self) -> Self {
                self.abs()
            }

            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }

            #[inline(always)]
            fn power(self, exponent: Self) -> Self {
                self.powf(exponent)
            }

            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }

            #[inline(always)]
            fn expm1(self) -> Self {
                $expm1(self)
            }

            #[inline(always)]
            fn ln_1p(self) -> Self {
                $ln_1p(self)
            }

            #[inline(always)]
            fn tanh(self) -> Self {
                $tanh(self)
            }

            #[inline(always)]
            fn sigmoid(self) -> Self {
                $sigmoid(self)
            }
        }
    };
}

real!(f32: math::exp, math::expm1, math::ln_1p, math::tanh, math::sigmoid);
real!(f64: f64::exp, f64::exp_m1, f64::ln_1p, f64::tanh, |x: f64| 1.0 / (1.0 + (-x).exp()));
