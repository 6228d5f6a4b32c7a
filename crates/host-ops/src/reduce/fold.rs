//! Folds many numbers into one, or rows of numbers into a row.
use graph::prim::ReduceKind;

use crate::math;
use crate::number::Number;
use crate::simd::vectorised;

/// How a number is combined with the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    Sum,
    SumSquare,
    SumAbs,
    Product,
    Max,
    Min,
    /// The sum of the exponentials of shifted numbers.
    SumExp,
}

impl Fold {
    /// The fold that a kind of reduction is based on.
    pub(super) fn of(kind: ReduceKind) -> Self {
        match kind {
            ReduceKind::Sum | ReduceKind::Mean | ReduceKind::LogSum => Self::Sum,
            ReduceKind::Prod => Self::Product,
            ReduceKind::Max => Self::Max,
            ReduceKind::Min => Self::Min,
            ReduceKind::SumSquare | ReduceKind::L2 => Self::SumSquare,
            ReduceKind::L1 => Self::SumAbs,
            ReduceKind::LogSumExp => Self::SumExp,
        }
    }

    /// How two results are combined.
    const fn merged(self) -> Self {
        match self {
            Self::SumSquare | Self::SumAbs | Self::SumExp => Self::Sum,
            other => other,
        }
    }
}

/// Arithmetic of reductions. Integers wrap.
pub(super) trait Arith: Number {
    /// The type in which partial results are combined.
    type Wide: Arith;
    const ONE: Self;
    const LOWEST: Self;
    const HIGHEST: Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn magnitude(self) -> Self;
    /// NaN wins.
    fn larger(self, other: Self) -> Self;
    /// NaN wins.
    fn smaller(self, other: Self) -> Self;
    fn exp(self, shift: Self) -> Self;
    /// A shift that keeps exponentials finite, from the largest number.
    fn shift(self) -> Self;
    fn widen(self) -> Self::Wide;
    /// The result of a reduction of `count` numbers.
    fn finish(kind: ReduceKind, folded: Self::Wide, count: usize, shift: Self) -> Self;
}

macro_rules! float_arith {
    ($float:ident, $exp:expr) => {
        impl Arith for $float {
            type Wide = f64;
            const ONE: Self = 1.0;
            const LOWEST: Self = $float::NEG_INFINITY;
            const HIGHEST: Self = $float::INFINITY;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                if self > other || self.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                if self < other || self.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn exp(self, shift: Self) -> Self {
                $exp(self - shift)
            }
            fn shift(self) -> Self {
                if self.is_finite() { self } else { 0.0 }
            }
            #[inline(always)]
            fn widen(self) -> f64 {
                self.into()
            }
            fn finish(kind: ReduceKind, folded: f64, count: usize, shift: Self) -> Self {
                let result = match kind {
                    ReduceKind::Mean => folded / count as f64,
                    ReduceKind::L2 => folded.sqrt(),
                    ReduceKind::LogSum => folded.ln(),
                    ReduceKind::LogSumExp => folded.ln() + f64::from(shift),
                    _ => folded,
                };
                result as $float
            }
        }
    };
}

float_arith!(f32, math::exp);
float_arith!(f64, f64::exp);

macro_rules! int_arith {
    ($int:ident, $magnitude:expr) => {
        impl Arith for $int {
            type Wide = $int;
            const ONE: Self = 1;
            const LOWEST: Self = $int::MIN;
            const HIGHEST: Self = $int::MAX;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn magnitude(self) -> Self {
                $magnitude(self)
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn exp(self, shift: Self) -> Self {
                ((self.wrapping_sub(shift)) as f64).exp() as $int
            }
            fn shift(self) -> Self {
                0
            }
            #[inline(always)]
            fn widen(self) -> $int {
                self
            }
            fn finish(kind: ReduceKind, folded: $int, count: usize, _: Self) -> Self {
                match kind {
                    ReduceKind::Mean => folded.checked_div(count as $int).unwrap_or(0),
                    ReduceKind::L2 => (folded as f64).sqrt() as $int,
                    ReduceKind::LogSum | ReduceKind::LogSumExp => (folded as f64).ln() as $int,
                    _ => folded,
                }
            }
        }
    };
}

int_arith!(i64, i64::wrapping_abs);
int_arith!(u64, |x| x);

/// The result of folding no numbers.
pub(super) fn identity<N: Arith>(fold: Fold) -> N {
    match fold {
        Fold::Product => N::ONE,
        Fold::Max => N::LOWEST,
        Fold::Min => N::HIGHEST,
        _ => N::ZERO,
    }
}

/// Combines two results.
pub(super) fn merge<N: Arith>(fold: Fold, a: N, b: N) -> N {
    match fold.merged() {
        Fold::Product => a.times(b),
        Fold::Max => a.larger(b),
        Fold::Min => a.smaller(b),
        _ => a.plus(b),
    }
}

/// Independent partial results, so that the operations do not wait for each other.
const LANES: usize = 32;

#[inline(always)]
fn row<N: Arith>(x: &[N], start: N, step: impl Fn(N, N) -> N, merge: impl Fn(N, N) -> N) -> N {
    let mut lanes = [start; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = step(*lane, x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, x);
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for at in 0..width {
            lanes[at] = merge(lanes[at], lanes[at + width]);
        }
    }
    lanes[0]
}

vectorised! {
    /// Folds a row into one number.
    pub(super) fn fold_row<N: Arith>(fold: Fold, x: &[N], shift: N) -> N {
        match fold {
            Fold::Sum => row(x, N::ZERO, N::plus, N::plus),
            Fold::SumSquare => row(x, N::ZERO, |sum, x| sum.plus(x.times(x)), N::plus),
            Fold::SumAbs => row(x, N::ZERO, |sum, x| sum.plus(x.magnitude()), N::plus),
            Fold::Product => row(x, N::ONE, N::times, N::times),
            Fold::Max => row(x, N::LOWEST, |best, x| x.larger(best), N::larger),
            Fold::Min => row(x, N::HIGHEST, |best, x| x.smaller(best), N::smaller),
            Fold::SumExp => row(x, N::ZERO, |sum, x| sum.plus(x.exp(shift)), N::plus),
        }
    }
}

#[inline(always)]
fn columns<N: Arith>(results: &mut [N], x: &[N], step: impl Fn(N, N) -> N) {
    for (result, &x) in results.iter_mut().zip(x) {
        *result = step(*result, x);
    }
}

vectorised! {
    /// Folds each number of a row into the result of its column.
    pub(super) fn fold_columns<N: Arith>(fold: Fold, results: &mut [N], x: &[N], shifts: &[N]) {
        match fold {
            Fold::Sum => columns(results, x, N::plus),
            Fold::SumSquare => columns(results, x, |sum, x| sum.plus(x.times(x))),
            Fold::SumAbs => columns(results, x, |sum, x| sum.plus(x.magnitude())),
            Fold::Product => columns(results, x, N::times),
            Fold::Max => columns(results, x, |best, x| x.larger(best)),
            Fold::Min => columns(results, x, |best, x| x.smaller(best)),
            Fold::SumExp => {
                for ((result, &x), &shift) in results.iter_mut().zip(x).zip(shifts) {
                    *result = result.plus(x.exp(shift));
                }
            }
        }
    }
}
