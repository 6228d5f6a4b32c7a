//! Conversions between formats.

use super::lanes::{Case, Same, check};
use super::soft::{DOUBLES, INTS, SINGLES, from_f16, from_f32, power, rounded, to_bf16, to_f16, to_f32};
use super::text_only::{each, each_as};

fn s(value: u64) -> f64 {
    f64::from(value as u32 as i32)
}

/// Towards zero, within limits, and 0 for NaN.
fn whole(value: f64, low: f64, high: f64) -> u64 {
    if value.is_nan() { 0 } else { value.trunc().clamp(low, high) as i64 as u64 }
}

const I32: (f64, f64) = (-2147483648.0, 2147483647.0);
const U32: (f64, f64) = (0.0, 4294967295.0);

/// 16 bits, rounded towards zero: never infinite unless the source is.
fn to_f16_down(value: f64) -> u64 {
    if !value.is_finite() {
        return to_f16(value);
    }
    let size = value.abs();
    let nearest = rounded(size, 11, -14);
    let exponent = ((size.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(-14);
    let down = if nearest > size { nearest - power(exponent - 10) } else { nearest };
    to_f16(down.min(65504.0).copysign(value))
}

/// A number of -1 to 1, or 0 to 1, as a fraction of the largest integer.
fn norm(value: f64, low: f64, scale: f64) -> u64 {
    if value.is_nan() { 0 } else { (value.clamp(low, 1.0) * scale).round_ties_even() as i64 as u64 & 0xffff }
}

/// Floats without ties in the conversions to fractions, and with signs.
const UNITS: &[u64] = &[
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3e99_999a,
    0xbf33_3333,
    0x4040_0000,
    0xc040_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut row =
        |names, operands: &str, kind, want: fn([u64; 3]) -> u64| cases.push(Case::new(names, operands, kind, want));
    let (ints, singles, doubles) = ((INTS, 32, Same::Bits), (SINGLES, 32, Same::Bits), (DOUBLES, 32, Same::Bits));
    row("v_cvt_f32_i32", "v0, v2", ints, |[a, ..]| to_f32(s(a)));
    row("v_cvt_f32_u32", "v0, v2", ints, |[a, ..]| to_f32(a as f64));
    row("v_cvt_f32_ubyte0", "v0, v2", ints, |[a, ..]| to_f32((a % 256) as f64));
    row("v_cvt_f32_ubyte1", "v0, v2", ints, |[a, ..]| to_f32((a / 0x100 % 256) as f64));
    row("v_cvt_f32_ubyte2", "v0, v2", ints, |[a, ..]| to_f32((a / 0x1_0000 % 256) as f64));
    row("v_cvt_f32_ubyte3", "v0, v2", ints, |[a, ..]| to_f32((a / 0x100_0000) as f64));
    // Four bits from -8 to 7, in sixteenths.
    row("v_cvt_off_f32_i4", "v0, v2", ints, |[a, ..]| to_f32(((a % 16 + 8) % 16) as f64 / 16.0 - 0.5));
    row("v_cvt_f16_f32", "v0, v2", (SINGLES, 16, Same::Float), |[a, ..]| to_f16(from_f32(a)));
    row("v_cvt_f32_f64", "v0, v[2:3]", (DOUBLES, 32, Same::Float), |[a, ..]| to_f32(f64::from_bits(a)));
    row("v_cvt_f64_f32", "v[0:1], v2", (SINGLES, 64, Same::Float), |[a, ..]| from_f32(a).to_bits());
    row("v_cvt_f64_i32", "v[0:1], v2", (INTS, 64, Same::Bits), |[a, ..]| s(a).to_bits());
    row("v_cvt_f64_u32", "v[0:1], v2", (INTS, 64, Same::Bits), |[a, ..]| (a as f64).to_bits());
    row("v_cvt_i32_f32", "v0, v2", singles, |[a, ..]| whole(from_f32(a), I32.0, I32.1));
    row("v_cvt_u32_f32", "v0, v2", singles, |[a, ..]| whole(from_f32(a), U32.0, U32.1));
    row("v_cvt_i32_f64", "v0, v[2:3]", doubles, |[a, ..]| whole(f64::from_bits(a), I32.0, I32.1));
    row("v_cvt_u32_f64", "v0, v[2:3]", doubles, |[a, ..]| whole(f64::from_bits(a), U32.0, U32.1));
    row("v_cvt_rpi_i32_f32 v_cvt_nearest_i32_f32", "v0, v2", singles, |[a, ..]| {
        // The sum is a 32-bit float: 0.49999997 + 0.5 is 1.
        whole(from_f32(to_f32(from_f32(a) + 0.5)).floor(), I32.0, I32.1)
    });
    row("v_cvt_flr_i32_f32 v_cvt_floor_i32_f32", "v0, v2", singles, |[a, ..]| whole(from_f32(a).floor(), I32.0, I32.1));
    row("v_cvt_pkrtz_f16_f32 v_cvt_pk_rtz_f16_f32", "v0, v2, v4", (FINITE, 32, Same::Bits), |[a, b, _]| {
        to_f16_down(from_f32(a)) | to_f16_down(from_f32(b)) << 16
    });
    row("v_cvt_pknorm_i16_f32 v_cvt_pk_norm_i16_f32", "v0, v2, v4", (UNITS, 32, Same::Bits), |[a, b, _]| {
        norm(from_f32(a), -1.0, 32767.0) | norm(from_f32(b), -1.0, 32767.0) << 16
    });
    row("v_cvt_pknorm_u16_f32 v_cvt_pk_norm_u16_f32", "v0, v2, v4", (UNITS, 32, Same::Bits), |[a, b, _]| {
        norm(from_f32(a), 0.0, 65535.0) | norm(from_f32(b), 0.0, 65535.0) << 16
    });
    row("v_cvt_norm_i16_f16", "v0, v2", (HALF_UNITS, 16, Same::Bits), |[a, ..]| norm(from_f16(a), -1.0, 32767.0));
    row("v_cvt_norm_u16_f16", "v0, v2", (HALF_UNITS, 16, Same::Bits), |[a, ..]| norm(from_f16(a), 0.0, 65535.0));
    row("v_cvt_pk_u8_f32", "v0, v2, 2, v4", (BYTES, 32, Same::Bits), |[a, b, _]| {
        b & 0xff00_ffff | (from_f32(a).clamp(0.0, 255.0).round_ties_even() as u64) << 16
    });
    row("v_cvt_pk_i16_f32", "v0, v2, v4", (UNITS, 32, Same::Bits), |[a, b, _]| {
        let of = |bits| whole(from_f32(bits), -32768.0, 32767.0) & 0xffff;
        of(a) | of(b) << 16
    });
    row("v_cvt_pk_u16_f32", "v0, v2, v4", (UNITS, 32, Same::Bits), |[a, b, _]| {
        whole(from_f32(a), 0.0, 65535.0) | whole(from_f32(b), 0.0, 65535.0) << 16
    });
    cases
}

/// Numbers without NaN, around the limits of 16 bits.
const FINITE: &[u64] = &[
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_1fff,
    0x477f_efff,
    0x477f_f000,
    0xc7c3_5000,
    0x3280_0000,
    0x33ff_ffff,
    0xb380_0001,
    0x3880_0000,
    0x387f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x0000_0001,
];

const HALF_UNITS: &[u64] = &[0, 0x8000, 0x3c00, 0xbc00, 0x3555, 0xb99a, 0x4200, 0xc200, 0x7c00, 0xfc00, 0x7e00];

/// Numbers around the limits of a byte.
const BYTES: &[u64] = &[0, 0x3f80_0000, 0x4020_0000, 0x4060_0000, 0x437f_0000, 0x4380_8000, 0xc020_0000, 0x7f80_0000];

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    let text = ["v_cvt_f32_bf16", "v_cvt_pk_bf16_f32", "v_cvt_pk_f16_f32"];
    cases().iter().flat_map(|case| case.names.split(' ')).chain(text).collect()
}

#[test]
fn conversions_round_saturate_and_turn_nan_into_zero() {
    check(&cases());
}

#[test]
fn conversions_of_gfx950_are_executed_from_their_text() {
    let pair = |of: fn(f64) -> u64| move |[a, b, _]: [u64; 3]| of(from_f32(a)) | of(from_f32(b)) << 16;
    each("gfx950", "v_cvt_pk_bf16_f32 v0, v2, v4", FINITE, 32, Box::leak(Box::new(pair(to_bf16))));
    each("gfx950", "v_cvt_pk_f16_f32 v0, v2, v4", FINITE, 32, Box::leak(Box::new(pair(to_f16))));
    each_as("gfx950", "v_cvt_f32_bf16 v0, v2", SINGLES, (32, Same::Float), &|[a, ..]| (a & 0xffff) << 16);
}
