//! Transcendental functions in single precision that the compiler can vectorise: no branches, no tables, no calls.
//!
//! Errors are within a few units in the last place (see the tests); infinities, NaN and zeros are handled correctly.
//! The functions in [`fused`] take one parameter: true if the CPU has fused multiply-add.

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts: multiples of the first up to 2^8 are exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding and subtracting it rounds to the nearest integer, which is then in the low bits of the sum.
const ROUNDER: f32 = 12_582_912.0;

/// e^x.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    fused::exp::<false>(x)
}

/// e^x - 1 without loss of precision near zero.
#[inline(always)]
pub(crate) fn expm1(x: f32) -> f32 {
    fused::expm1::<false>(x)
}

/// ln(1 + x) without loss of precision near zero.
#[inline(always)]
pub(crate) fn ln_1p(x: f32) -> f32 {
    fused::ln_1p::<false>(x)
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    fused::tanh::<false>(x)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    fused::sigmoid::<false>(x)
}

/// For loops that are compiled for specific CPU features.
pub(crate) mod fused {
    use super::{LN2_HIGH, LN2_LOW, LOG2_E, ROUNDER};

    /// `a·b + c`.
    #[inline(always)]
    pub(crate) fn fma<const F: bool>(a: f32, b: f32, c: f32) -> f32 {
        if F { a.mul_add(b, c) } else { a * b + c }
    }

    /// `x` as `n·ln 2 + r` with |r| ≤ ln 2 / 2; then `e^r - 1` and `n`.
    #[inline(always)]
    fn reduce_exp<const F: bool>(x: f32) -> (f32, i32) {
        let shifted = fma::<F>(x, LOG2_E, ROUNDER);
        let n = (shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
        let whole = shifted - ROUNDER;
        let r = fma::<F>(-whole, LN2_LOW, fma::<F>(-whole, LN2_HIGH, x));
        let p = 1.987_569_1e-4;
        let p = fma::<F>(p, r, 1.398_199_9e-3);
        let p = fma::<F>(p, r, 8.333_452e-3);
        let p = fma::<F>(p, r, 4.166_579_6e-2);
        let p = fma::<F>(p, r, 1.666_666_5e-1);
        let p = fma::<F>(p, r, 0.5);
        (fma::<F>(p, r * r, r), n)
    }

    /// 2^n for |n| below 127.
    #[inline(always)]
    fn power_of_two(n: i32) -> f32 {
        f32::from_bits((n.wrapping_add(127) as u32) << 23)
    }

    #[inline(always)]
    fn at_most(x: f32, bound: f32) -> f32 {
        // Keeps NaN.
        if x > bound { bound } else { x }
    }

    #[inline(always)]
    fn at_least(x: f32, bound: f32) -> f32 {
        if x < bound { bound } else { x }
    }

    /// e^x.
    #[inline(always)]
    pub(crate) fn exp<const F: bool>(x: f32) -> f32 {
        let (p, n) = reduce_exp::<F>(at_most(at_least(x, -104.0), 89.0));
        // In two steps, because 2^n itself may be outside the normal range.
        let half = n >> 1;
        (1.0 + p) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
    }

    /// e^x - 1 without loss of precision near zero.
    #[inline(always)]
    pub(crate) fn expm1<const F: bool>(x: f32) -> f32 {
        let (p, n) = reduce_exp::<F>(at_most(at_least(x, -20.0), 89.0));
        // 2^n·p + (2^n - 1) in two steps, because 2^n itself may be outside the range.
        let half = n >> 1;
        let rest = n.wrapping_sub(half);
        let scale = power_of_two(half);
        let y = fma::<F>(p, scale, scale - power_of_two(rest.wrapping_neg())) * power_of_two(rest);
        // Subnormals and the sign of zero pass unchanged.
        if x.abs() < 1e-7 { x } else { y }
    }

    /// The natural logarithm.
    #[inline(always)]
    pub(crate) fn ln<const F: bool>(x: f32) -> f32 {
        let is_small = x < f32::MIN_POSITIVE;
        let scaled = if is_small { x * 33_554_432.0 } else { x };
        // Mantissa between √½ and √2.
        let bits = (scaled.to_bits() as i32).wrapping_add(0x3f80_0000 - 0x3f35_04f3);
        let exponent = (bits >> 23) - 127 - if is_small { 25 } else { 0 };
        let mantissa = f32::from_bits(((bits & 0x007f_ffff) + 0x3f35_04f3) as u32);
        let f = mantissa - 1.0;
        let s = f / (2.0 + f);
        let z = s * s;
        let w = z * z;
        let even = z * fma::<F>(w, 0.284_987_87, 0.666_666_6);
        let series = fma::<F>(w, fma::<F>(w, 0.242_790_79, 0.400_009_72), even);
        let square = 0.5 * f * f;
        let k = exponent as f32;
        let small = fma::<F>(k, 9.058_001e-6, s * (square + series));
        let y = fma::<F>(k, 0.693_138_1, small - square + f);
        let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
        let y = if x == f32::INFINITY { x } else { y };
        // Negative numbers and NaN.
        if x >= 0.0 { y } else { f32::NAN }
    }

    /// ln(1 + x) without loss of precision near zero.
    #[inline(always)]
    pub(crate) fn ln_1p<const F: bool>(x: f32) -> f32 {
        let u = 1.0 + x;
        let y = ln::<F>(u) * (x / (u - 1.0));
        let y = if u == 1.0 { x } else { y };
        if x == f32::INFINITY { x } else { y }
    }

    /// The hyperbolic tangent.
    #[inline(always)]
    pub(crate) fn tanh<const F: bool>(x: f32) -> f32 {
        // Beyond ten, tanh rounds to one.
        let e = expm1::<F>(2.0 * at_most(x.abs(), 10.0));
        (e / (e + 2.0)).copysign(x)
    }

    /// 1 / (1 + e^-x).
    #[inline(always)]
    pub(crate) fn sigmoid<const F: bool>(x: f32) -> f32 {
        1.0 / (1.0 + exp::<F>(-x))
    }

    /// The error function: a polynomial near zero, one minus an exponential further out.
    #[inline(always)]
    pub(crate) fn erf<const F: bool>(x: f32) -> f32 {
        // Beyond four, erf rounds to one.
        let t = at_most(x.abs(), 4.0);
        let s = t * t;
        let far = fma::<F>(-1.728_534_7e-5, t, 3.831_971_3e-4);
        let far = fma::<F>(far, s, fma::<F>(-3.883_964_4e-3, t, 2.425_462_2e-2));
        let far = fma::<F>(far, t, -1.067_778_8e-1);
        let far = fma::<F>(far, t, -6.348_467e-1);
        let far = fma::<F>(far, t, -1.287_175_1e-1);
        let far = 1.0 - exp::<F>(fma::<F>(far, t, -t));
        let near = -5.967_617e-4;
        let near = fma::<F>(near, s, 4.991_194e-3);
        let near = fma::<F>(near, s, -2.676_813_5e-2);
        let near = fma::<F>(near, s, 1.128_199_3e-1);
        let near = fma::<F>(near, s, -3.761_253_4e-1);
        let near = fma::<F>(near, s, 1.283_791_7e-1);
        let near = fma::<F>(near, t, t);
        (if t > 0.927_734_4 { far } else { near }).copysign(x)
    }
}

#[cfg(test)]
mod tests {
    use super::fused::{erf, exp, expm1, ln, ln_1p, sigmoid, tanh};

    /// The largest relative error over many numbers of every magnitude, against double precision; results below the
    /// normal range count with their absolute error.
    fn worst(ours: fn(f32) -> f32, exact: impl Fn(f64) -> f64, range: std::ops::Range<f32>) -> (f64, f32) {
        let mut worst = (0.0, 0.0);
        for step in 0..400_000u32 {
            let linear = range.start + (range.end - range.start) * (step as f32 / 400_000.0);
            // Covers every magnitude as well.
            let any = f32::from_bits(step * 5_368 + 1) * if step % 2 == 0 { 1.0 } else { -1.0 };
            for x in [linear, any] {
                if !range.contains(&x) {
                    continue;
                }
                let (got, want) = (f64::from(ours(x)), exact(f64::from(x)));
                if f64::from(want as f32) == got {
                    continue;
                }
                let error = (got - want).abs() / want.abs().max(f64::from(f32::MIN_POSITIVE));
                if error > worst.0 || error.is_nan() {
                    worst = (error, x);
                }
            }
        }
        worst
    }

    #[test]
    fn errors_stay_within_three_ten_millionths() {
        check_errors::<false>();
        check_errors::<true>();
    }

    fn check_errors<const F: bool>() {
        type Exact = fn(f64) -> f64;
        type Row = (&'static str, fn(f32) -> f32, Exact, std::ops::Range<f32>);
        let sigmoid_exact: Exact = |x| 1.0 / (1.0 + (-x).exp());
        let cases: [Row; 7] = [
            ("exp", exp::<F>, f64::exp, -103.0..88.7),
            ("expm1", expm1::<F>, f64::exp_m1, -103.0..88.7),
            ("ln", ln::<F>, f64::ln, 1e-45..3e38),
            ("ln_1p", ln_1p::<F>, f64::ln_1p, -0.999..3e38),
            ("tanh", tanh::<F>, f64::tanh, -20.0..20.0),
            ("sigmoid", sigmoid::<F>, sigmoid_exact, -87.0..100.0),
            ("erf", erf::<F>, graph::expr::erf, -6.0..6.0),
        ];
        for (name, ours, exact, range) in cases {
            let (error, at) = worst(ours, exact, range);
            assert!(error < 3e-7, "{name}({at}) = {}, not {}: {error}", ours(at), exact(f64::from(at)));
        }
    }

    #[test]
    fn special_values_are_exact() {
        check_special_values::<false>();
        check_special_values::<true>();
    }

    fn check_special_values<const F: bool>() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        for (name, ours, exact) in [
            ("exp", exp::<F> as fn(f32) -> f32, f32::exp as fn(f32) -> f32),
            ("expm1", expm1::<F>, f32::exp_m1),
            ("ln", ln::<F>, f32::ln),
            ("ln_1p", ln_1p::<F>, f32::ln_1p),
            ("tanh", tanh::<F>, f32::tanh),
            ("sigmoid", sigmoid::<F>, |x| 1.0 / (1.0 + (-x).exp())),
            ("erf", erf::<F>, |x| graph::expr::erf(f64::from(x)) as f32),
        ] {
            for x in [0.0, -0.0, inf, -inf, nan, 1e-45, -1e-45, f32::MAX, f32::MIN, -1.0, -2.0, 200.0, -200.0] {
                let (got, want) = (ours(x), exact(x));
                let same = (got.is_nan() && want.is_nan()) || (got - want).abs() <= want.abs() * 3e-7 || got == want;
                assert!(same, "{name}({x}) = {got}, not {want}");
            }
        }
        assert!(tanh::<F>(-0.0).is_sign_negative() && erf::<F>(-0.0).is_sign_negative());
    }
}
