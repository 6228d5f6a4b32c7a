//! Floating-point helpers that compile to branch-free vector code.

/// A 16-bit float to 32 bits, exactly.
#[inline(always)]
pub fn f16_to_f32(bits: u32) -> f32 {
    let magnitude = bits & 0x7fff;
    // Exponents are rebiased by a multiplication, which also turns denormals into normal numbers.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = if magnitude >= 0x7c00 { 0x7f80_0000 | (magnitude & 0x3ff) << 13 } else { scaled.to_bits() };
    f32::from_bits(special | (bits & 0x8000) << 16)
}

/// A 32-bit float to 16 bits, rounded to nearest even.
#[inline(always)]
pub fn f32_to_f16(value: f32) -> u32 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let sign = bits >> 16 & 0x8000;
    // Normal results: add half of the last place, and one more if that place is odd.
    let normal = magnitude.wrapping_sub(0x3800_0000).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    // Denormal results: a float addition aligns and rounds them.
    let denormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let finite = if magnitude < 0x3880_0000 { denormal } else { normal };
    let limited = if magnitude >= 0x477f_f000 { 0x7c00 } else { finite };
    let nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    sign | if magnitude > 0x7f80_0000 { nan } else { limited }
}

/// A 32-bit float to 16 bits, rounded towards zero.
#[inline(always)]
pub fn f32_to_f16_towards_zero(value: f32) -> u32 {
    let magnitude = value.abs();
    let near = f32_to_f16(magnitude);
    let above = f16_to_f32(near) > magnitude;
    let limited = if near == 0x7c00 && magnitude.is_finite() { 0x7bff } else { near - u32::from(above) };
    limited | value.to_bits() >> 16 & 0x8000
}

/// A bfloat16 to 32 bits.
#[inline(always)]
pub fn bf16_to_f32(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// A 32-bit float to bfloat16, rounded to nearest even.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_nan() { bits >> 16 | 0x40 } else { bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16 }
}

/// A 64-bit float to 32 bits so that a second rounding to fewer bits is right: inexact results become odd.
#[inline(always)]
pub fn round_to_odd(exact_sum: (f64, f64)) -> f64 {
    let (sum, error) = exact_sum;
    let bits = sum.to_bits();
    let inexact = error != 0.0 && sum.is_finite() && error.is_finite();
    let even = bits & 1 == 0;
    // Towards the error's sign: away from zero if both signs agree.
    let outward = (error > 0.0) == (sum > 0.0);
    let step = if outward { 1 } else { u64::MAX };
    f64::from_bits(if inexact && even { bits.wrapping_add(step) } else { bits })
}

/// A sum and its rounding error.
#[inline(always)]
pub fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// `a * b + c` for 16-bit floats, given exactly, rounded once.
#[inline(always)]
pub fn fma_f16(a: f32, b: f32, c: f32) -> u32 {
    let product = f64::from(a) * f64::from(b);
    f64_to_f16(round_to_odd(two_sum(product, f64::from(c))))
}

/// A 64-bit float to 16 bits; right for values of at least 2^-149, or rounded to odd before.
#[inline(always)]
pub fn f64_to_f16(value: f64) -> u32 {
    // The detour over 32 bits must not round a second time: keep what is cut off as a sticky last bit.
    let near = value as f32;
    let error = value - f64::from(near);
    let bits = near.to_bits();
    let inexact = error != 0.0 && near.is_finite() && bits & 1 == 0;
    let step = if (error > 0.0) == (near > 0.0) { 1 } else { u32::MAX };
    f32_to_f16(f32::from_bits(if inexact && near != 0.0 { bits.wrapping_add(step) } else { bits }))
}

macro_rules! min_max {
    ($min:ident, $max:ident, $float:ty) => {
        /// The smaller number; a number if the other is NaN; -0 is smaller than +0.
        #[inline(always)]
        pub fn $min(a: $float, b: $float) -> $float {
            let less = a < b || (a == b && a.is_sign_negative());
            if a.is_nan() {
                b
            } else if b.is_nan() || less {
                a
            } else {
                b
            }
        }

        /// The larger number; a number if the other is NaN; +0 is larger than -0.
        #[inline(always)]
        pub fn $max(a: $float, b: $float) -> $float {
            let more = a > b || (a == b && a.is_sign_positive());
            if a.is_nan() {
                b
            } else if b.is_nan() || more {
                a
            } else {
                b
            }
        }
    };
}

min_max!(min_f32, max_f32, f32);
min_max!(min_f64, max_f64, f64);

/// The smaller number, or NaN if one is.
#[inline(always)]
pub fn minimum_f32(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::from_bits((if a.is_nan() { a } else { b }).to_bits() | 0x40_0000)
    } else {
        min_f32(a, b)
    }
}

/// The larger number, or NaN if one is.
#[inline(always)]
pub fn maximum_f32(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::from_bits((if a.is_nan() { a } else { b }).to_bits() | 0x40_0000)
    } else {
        max_f32(a, b)
    }
}

/// The middle one of three; with a NaN, the smallest of the others.
#[inline(always)]
pub fn med3_f32(a: f32, b: f32, c: f32) -> f32 {
    if a.is_nan() || b.is_nan() || c.is_nan() {
        min_f32(min_f32(a, b), c)
    } else {
        max_f32(min_f32(a, b), min_f32(max_f32(a, b), c))
    }
}

/// Applies a function to two pairs of 16-bit floats.
#[inline(always)]
pub fn packed_f16(a: u32, b: u32, f: impl Fn(f32, f32) -> f32) -> u32 {
    let low = f32_to_f16(f(f16_to_f32(a & 0xffff), f16_to_f32(b & 0xffff)));
    low | f32_to_f16(f(f16_to_f32(a >> 16), f16_to_f32(b >> 16))) << 16
}

/// Applies a function to two pairs of bfloat16.
#[inline(always)]
pub fn packed_bf16(a: u32, b: u32, f: impl Fn(f32, f32) -> f32) -> u32 {
    let low = f32_to_bf16(f(bf16_to_f32(a & 0xffff), bf16_to_f32(b & 0xffff)));
    low | f32_to_bf16(f(bf16_to_f32(a >> 16), bf16_to_f32(b >> 16))) << 16
}

/// `value * 2^exponent`, rounded once.
#[inline(always)]
pub fn ldexp_f64(value: f64, exponent: i32) -> f64 {
    // Three steps reach every exponent; only the last one can be inexact.
    let exponent = exponent.clamp(-2200, 2200);
    let power = |exponent: i32| f64::from_bits(((1023 + exponent) as u64) << 52);
    if exponent > 0 {
        let first = exponent.min(1023);
        let second = (exponent - first).min(1023);
        value * power(first) * power(second) * power((exponent - first - second).min(1023))
    } else {
        // Stay clear of the denormals until the last step.
        let first = exponent.max(-969);
        let second = (exponent - first).max(-969);
        let last = (exponent - first - second).max(-1022);
        if exponent >= -1022 { value * power(exponent) } else { scale_down(value, [first, second, last]) }
    }
}

#[inline(always)]
fn scale_down(value: f64, steps: [i32; 3]) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    // Normalise, then multiply once so that the result is rounded once.
    let (fraction, own) = frexp_f64(value);
    let total = own + steps.iter().sum::<i32>();
    if total < -1080 {
        return 0.0f64.copysign(value);
    }
    let power = |exponent: i32| f64::from_bits(((1023 + exponent) as u64) << 52);
    if total >= -1021 {
        fraction * 2.0 * power((total - 1).min(1023))
    } else {
        fraction * power(-1000) * power(total + 1000)
    }
}

/// A fraction of at least 0.5 and below 1, and an exponent; 0 for the exponent of zeros, infinities and NaN.
#[inline(always)]
pub fn frexp_f64(value: f64) -> (f64, i32) {
    if value == 0.0 || !value.is_finite() {
        return (value, 0);
    }
    let (scaled, shift) =
        if value.abs() < f64::MIN_POSITIVE { (value * f64::from_bits((1023 + 64) << 52), 64) } else { (value, 0) };
    let bits = scaled.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1022 - shift;
    (f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52), exponent)
}

/// Rounds to a 32-bit float after a scaling in 64 bits, which is exact for 32-bit floats.
#[inline(always)]
pub fn ldexp_f32(value: f32, exponent: i32) -> f32 {
    let exponent = exponent.clamp(-400, 400);
    (f64::from(value) * f64::from_bits(((1023 + exponent) as u64) << 52)) as f32
}

/// Whether a number is in one of the classes of a mask: signalling and quiet NaN, -infinity, -normal, -denormal, -0,
/// +0, +denormal, +normal, +infinity. `exponent` is the mask of the exponent's bits, `quiet` the highest bit below.
#[inline(always)]
pub fn is_class(bits: u64, exponent: u64, quiet: u64, sign: u64, mask: u32) -> bool {
    let magnitude = bits & (sign - 1);
    let class = if magnitude > exponent {
        u32::from(magnitude & quiet != 0)
    } else {
        let positive = if magnitude == exponent {
            9
        } else if magnitude & exponent != 0 {
            8
        } else if magnitude != 0 {
            7
        } else {
            6
        };
        if bits & sign != 0 { 11 - positive } else { positive }
    };
    mask >> class & 1 == 1
}
