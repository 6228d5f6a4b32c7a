//! Rounding to formats of fewer bits in plain arithmetic, and values for the tables.

/// Rounds to `digits` binary digits, to nearest even, with denormals below `2^lowest`.
pub fn rounded(value: f64, digits: i32, lowest: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(lowest);
    // Two steps: one factor alone might be out of range.
    let steps = digits - 1 - exponent;
    let scaled = value * power(steps / 2) * power(steps - steps / 2);
    scaled.round_ties_even() * power(-(steps / 2)) * power(-(steps - steps / 2))
}

/// 2 to the power of a number.
pub fn power(exponent: i32) -> f64 {
    2f64.powi(exponent)
}

/// The bits of a number rounded to a format with `fraction` bits after the point and exponents up to `bias`.
fn encoded(value: f64, fraction: i32, bias: i32) -> u64 {
    let sign = u64::from(value.is_sign_negative()) << (fraction + if bias == 15 { 5 } else { 8 });
    let infinity = (2 * bias as u64 + 1) << fraction;
    if value.is_nan() {
        return infinity | 1 << (fraction - 1);
    }
    let value = rounded(value, fraction + 1, 1 - bias).abs();
    if value >= power(bias + 1) {
        return sign | infinity;
    }
    if value == 0.0 {
        return sign;
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(1 - bias);
    let units = (value * power(fraction - exponent)) as u64;
    // The leading digit of normal numbers adds one to the exponent field.
    sign | (((exponent + bias - 1) as u64) << fraction) + units
}

/// The bits of a 16-bit float.
pub fn to_f16(value: f64) -> u64 {
    encoded(value, 10, 15)
}

/// The bits of a bfloat16.
pub fn to_bf16(value: f64) -> u64 {
    encoded(value, 7, 127)
}

/// The bits of a 32-bit float.
pub fn to_f32(value: f64) -> u64 {
    u64::from((value as f32).to_bits())
}

/// The number in 16 bits.
pub fn from_f16(bits: u64) -> f64 {
    let (sign, exponent, fraction) = (bits >> 15 & 1, (bits >> 10 & 31) as i32, (bits & 0x3ff) as f64);
    let value = match exponent {
        0 => fraction * power(-24),
        31 if fraction != 0.0 => f64::NAN,
        31 => f64::INFINITY,
        _ => (1024.0 + fraction) * power(exponent - 25),
    };
    if sign == 1 { -value } else { value }
}

/// The number in 32 bits.
pub fn from_f32(bits: u64) -> f64 {
    f64::from(f32::from_bits(bits as u32))
}

/// The number of a bfloat16.
pub fn from_bf16(bits: u64) -> f64 {
    from_f32((bits & 0xffff) << 16)
}

/// `a * b + c` of 16-bit floats, exact to within a sticky last bit of a 64-bit float.
pub fn fma_f16(a: f64, b: f64, c: f64) -> f64 {
    if !(a.is_finite() && b.is_finite() && c.is_finite()) || a * b == 0.0 || c == 0.0 {
        return a * b + c;
    }
    // In units of 2^-24 and 2^-48, which hold every 16-bit float and every product.
    let unit = |value: f64| (value * power(24)) as i128;
    let sum = unit(a) * unit(b) + (unit(c) << 24);
    if sum == 0 {
        return 0.0;
    }
    let spare = (128 - sum.unsigned_abs().leading_zeros()).saturating_sub(50);
    let sticky = sum.unsigned_abs() & ((1 << spare) - 1) != 0;
    let magnitude = (sum.unsigned_abs() >> spare << 1 | u128::from(sticky)) as f64 * power(spare as i32 - 49);
    if sum < 0 { -magnitude } else { magnitude }
}

/// The larger number; a number rather than NaN; +0 rather than -0.
pub fn larger(a: f64, b: f64) -> f64 {
    match a.partial_cmp(&b) {
        None if a.is_nan() => b,
        None => a,
        Some(std::cmp::Ordering::Greater) => a,
        Some(std::cmp::Ordering::Less) => b,
        Some(std::cmp::Ordering::Equal) => {
            if a.is_sign_negative() {
                b
            } else {
                a
            }
        }
    }
}

/// The smaller number; a number rather than NaN; -0 rather than +0.
pub fn smaller(a: f64, b: f64) -> f64 {
    -larger(-a, -b)
}

/// The larger number, or NaN.
pub fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { larger(a, b) }
}

/// The smaller number, or NaN.
pub fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { smaller(a, b) }
}

/// The middle one in order; with a NaN, the smallest of the others.
pub fn middle(mut values: [f64; 3]) -> f64 {
    if values.iter().any(|value| value.is_nan()) {
        return values.into_iter().reduce(smaller).unwrap();
    }
    values.sort_by(f64::total_cmp);
    values[1]
}

/// Integers of 32 bits with carries, signs and shifts at their limits.
pub const INTS: &[u64] = &[
    0,
    1,
    5,
    31,
    32,
    33,
    0xff,
    0x8000,
    0xffff,
    0x80_0000,
    0x1234_5678,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_0000,
    0xffff_ffff,
];

/// Integers of 16 bits, in registers whose high halves are not 0.
pub const SHORTS: &[u64] = &[
    0x5a5a_0000,
    0x1234_0001,
    0xffff_0007,
    0x000f,
    0x8000_0010,
    0x1_00ff,
    0x7fff_1234,
    0x7fff,
    0x4321_8000,
    0x8001,
    0xcafe_ffff,
];

/// Integers of 64 bits.
pub const LONGS: &[u64] = &[
    0,
    1,
    31,
    33,
    63,
    64,
    0xffff_ffff,
    0x1_0000_0000,
    0x1234_5678_9abc_def0,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0x8000_0000_0000_0001,
    0xffff_ffff_0000_0000,
    u64::MAX,
];

/// 32-bit floats: zeros, denormals, limits, halves, infinities and NaN.
pub const SINGLES: &[u64] = &[
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbfc0_0000,
    0x4049_0fdb,
    0x0001_16c2,
    0x8000_0001,
    0x0080_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xcb80_0000,
    0x3eff_ffff,
    0x4020_0000,
    0xc300_8000,
];

/// 16-bit floats.
pub const HALVES: &[u64] = &[
    0, 0x8000, 0x3c00, 0xbe00, 0x4248, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3555, 0x63ff,
    0x4100,
];

/// 64-bit floats.
pub const DOUBLES: &[u64] = &[
    0,
    0x8000_0000_0000_0000,
    0x3ff0_0000_0000_0000,
    0xbff8_0000_0000_0000,
    0x4009_21fb_5444_2d18,
    1,
    0x800f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0x4004_0000_0000_0000,
    0xc1e0_0000_0020_0000,
    0x3fdf_ffff_ffff_ffff,
];
