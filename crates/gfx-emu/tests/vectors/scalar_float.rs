//! Scalar floats of RDNA 3.5 and 4.

use super::scalar::{In, Kind, Out, Row, check, only, with};
use super::soft::{
    HALVES, INTS, SINGLES, fma_f16, from_f16, from_f32, larger, maximum, minimum, smaller, to_f16, to_f32,
};

/// A function of 32-bit floats.
fn single(i: In, of: fn(f64, f64) -> f64) -> Out {
    only(to_f32(of(from_f32(i.a), from_f32(i.b))))
}

/// A function of 16-bit floats.
fn half(i: In, of: fn(f64, f64) -> f64) -> Out {
    only(to_f16(of(from_f16(i.a), from_f16(i.b))))
}

fn fused(a: u64, b: u64, c: u64) -> Out {
    let float = |bits: u64| f32::from_bits(bits as u32);
    only(u64::from(float(a).mul_add(float(b), float(c)).to_bits()))
}

fn compare32(i: In, of: fn(f64, f64) -> bool) -> Out {
    with(i.old, of(from_f32(i.a), from_f32(i.b)))
}

fn compare16(i: In, of: fn(f64, f64) -> bool) -> Out {
    with(i.old, of(from_f16(i.a), from_f16(i.b)))
}

/// Towards zero, within limits, and 0 for NaN.
fn whole(value: f64, low: f64, high: f64) -> u64 {
    if value.is_nan() { 0 } else { value.trunc().clamp(low, high) as i64 as u64 }
}

const TWO: &str = "s0, s2, s4";

const SINGLE_ROWS: &[Row] = &[
    ("s_add_f32", TWO, |i| single(i, |a, b| a + b)),
    ("s_sub_f32", TWO, |i| single(i, |a, b| a - b)),
    ("s_mul_f32", TWO, |i| single(i, |a, b| a * b)),
    // The old result is the second source, too.
    ("s_fmac_f32", TWO, |i| fused(i.a, i.b, i.old)),
    ("s_fmaak_f32", "s0, s2, s4, 0x3fc00000", |i| fused(i.a, i.b, 0x3fc0_0000)),
    ("s_fmamk_f32", "s0, s2, 0x3fc00000, s4", |i| fused(i.a, 0x3fc0_0000, i.b)),
    ("s_min_f32 s_min_num_f32", TWO, |i| single(i, smaller)),
    ("s_max_f32 s_max_num_f32", TWO, |i| single(i, larger)),
    ("s_minimum_f32", TWO, |i| single(i, minimum)),
    ("s_maximum_f32", TWO, |i| single(i, maximum)),
    ("s_ceil_f32", "s0, s2", |i| single(i, |a, _| a.ceil())),
    ("s_floor_f32", "s0, s2", |i| single(i, |a, _| a.floor())),
    ("s_trunc_f32", "s0, s2", |i| single(i, |a, _| a.trunc())),
    ("s_rndne_f32", "s0, s2", |i| single(i, |a, _| a.round_ties_even())),
    ("s_cvt_i32_f32", "s0, s2", |i| only(whole(from_f32(i.a), -2147483648.0, 2147483647.0))),
    ("s_cvt_u32_f32", "s0, s2", |i| only(whole(from_f32(i.a), 0.0, 4294967295.0))),
    ("s_cmp_eq_f32", "s2, s4", |i| compare32(i, |a, b| a == b)),
    ("s_cmp_neq_f32", "s2, s4", |i| compare32(i, |a, b| a != b)),
    ("s_cmp_lg_f32", "s2, s4", |i| compare32(i, |a, b| a.partial_cmp(&b).is_some_and(|order| order.is_ne()))),
    ("s_cmp_nlg_f32", "s2, s4", |i| compare32(i, |a, b| a.partial_cmp(&b).is_none_or(|order| order.is_eq()))),
    ("s_cmp_lt_f32", "s2, s4", |i| compare32(i, |a, b| a < b)),
    ("s_cmp_nlt_f32", "s2, s4", |i| compare32(i, |a, b| !(a < b))),
    ("s_cmp_le_f32", "s2, s4", |i| compare32(i, |a, b| a <= b)),
    ("s_cmp_nle_f32", "s2, s4", |i| compare32(i, |a, b| !(a <= b))),
    ("s_cmp_gt_f32", "s2, s4", |i| compare32(i, |a, b| a > b)),
    ("s_cmp_ngt_f32", "s2, s4", |i| compare32(i, |a, b| !(a > b))),
    ("s_cmp_ge_f32", "s2, s4", |i| compare32(i, |a, b| a >= b)),
    ("s_cmp_nge_f32", "s2, s4", |i| compare32(i, |a, b| !(a >= b))),
    ("s_cmp_o_f32", "s2, s4", |i| compare32(i, |a, b| a.partial_cmp(&b).is_some())),
    ("s_cmp_u_f32", "s2, s4", |i| compare32(i, |a, b| a.partial_cmp(&b).is_none())),
];

const HALF_ROWS: &[Row] = &[
    ("s_add_f16", TWO, |i| half(i, |a, b| a + b)),
    ("s_sub_f16", TWO, |i| half(i, |a, b| a - b)),
    ("s_mul_f16", TWO, |i| half(i, |a, b| a * b)),
    ("s_fmac_f16", TWO, |i| only(to_f16(fma_f16(from_f16(i.a), from_f16(i.b), from_f16(i.old))))),
    ("s_min_f16 s_min_num_f16", TWO, |i| half(i, smaller)),
    ("s_max_f16 s_max_num_f16", TWO, |i| half(i, larger)),
    ("s_minimum_f16", TWO, |i| half(i, minimum)),
    ("s_maximum_f16", TWO, |i| half(i, maximum)),
    ("s_ceil_f16", "s0, s2", |i| half(i, |a, _| a.ceil())),
    ("s_floor_f16", "s0, s2", |i| half(i, |a, _| a.floor())),
    ("s_trunc_f16", "s0, s2", |i| half(i, |a, _| a.trunc())),
    ("s_rndne_f16", "s0, s2", |i| half(i, |a, _| a.round_ties_even())),
    ("s_cmp_eq_f16", "s2, s4", |i| compare16(i, |a, b| a == b)),
    ("s_cmp_neq_f16", "s2, s4", |i| compare16(i, |a, b| a != b)),
    ("s_cmp_lg_f16", "s2, s4", |i| compare16(i, |a, b| a.partial_cmp(&b).is_some_and(|order| order.is_ne()))),
    ("s_cmp_nlg_f16", "s2, s4", |i| compare16(i, |a, b| a.partial_cmp(&b).is_none_or(|order| order.is_eq()))),
    ("s_cmp_lt_f16", "s2, s4", |i| compare16(i, |a, b| a < b)),
    ("s_cmp_nlt_f16", "s2, s4", |i| compare16(i, |a, b| !(a < b))),
    ("s_cmp_le_f16", "s2, s4", |i| compare16(i, |a, b| a <= b)),
    ("s_cmp_nle_f16", "s2, s4", |i| compare16(i, |a, b| !(a <= b))),
    ("s_cmp_gt_f16", "s2, s4", |i| compare16(i, |a, b| a > b)),
    ("s_cmp_ngt_f16", "s2, s4", |i| compare16(i, |a, b| !(a > b))),
    ("s_cmp_ge_f16", "s2, s4", |i| compare16(i, |a, b| a >= b)),
    ("s_cmp_nge_f16", "s2, s4", |i| compare16(i, |a, b| !(a >= b))),
    ("s_cmp_o_f16", "s2, s4", |i| compare16(i, |a, b| a.partial_cmp(&b).is_some())),
    ("s_cmp_u_f16", "s2, s4", |i| compare16(i, |a, b| a.partial_cmp(&b).is_none())),
];

const FROM_INTS: &[Row] = &[
    ("s_cvt_f32_i32", "s0, s2", |i| only(to_f32(f64::from(i.a as i32)))),
    ("s_cvt_f32_u32", "s0, s2", |i| only(to_f32(f64::from(i.a as u32)))),
    ("s_cvt_f32_f16", "s0, s2", |i| only(to_f32(from_f16(i.a & 0xffff)))),
    ("s_cvt_hi_f32_f16", "s0, s2", |i| only(to_f32(from_f16(i.a >> 16)))),
];

const TO_HALF: &[Row] = &[("s_cvt_f16_f32", "s0, s2", |i| only(to_f16(from_f32(i.a))))];

/// Numbers that 16 bits hold exactly, and limits that rounding towards zero does not cross.
const SMALL: &[u64] = &[0x3f80_0000, 0xc020_0000, 0x477f_e000, 0x477f_f000, 0x3880_0000, 0x7f7f_ffff];

fn towards_zero(bits: u64) -> u64 {
    let value = from_f32(bits);
    to_f16(value.clamp(-65504.0, 65504.0))
}

const PACKED: &[Row] = &[("s_cvt_pk_rtz_f16_f32", TWO, |i| only(towards_zero(i.a) | towards_zero(i.b) << 16))];

/// Exact powers of two, so that approximate functions have exact results.
const POWERS: &[u64] = &[0x3f80_0000, 0x4080_0000, 0x3e80_0000, 0x4180_0000, 0x3d80_0000];

const APPROXIMATE: &[Row] = &[
    ("v_s_exp_f32", "s0, s2", |i| only(to_f32(from_f32(i.a).exp2()))),
    ("v_s_log_f32", "s0, s2", |i| only(to_f32(from_f32(i.a).log2()))),
    ("v_s_rcp_f32", "s0, -s2", |i| only(to_f32(-1.0 / from_f32(i.a)))),
    ("v_s_rsq_f32", "s0, s2", |i| only(to_f32(1.0 / from_f32(i.a).sqrt()))),
    ("v_s_sqrt_f32", "s0, |s2|", |i| only(to_f32(from_f32(i.a).sqrt()))),
];

const TABLES: [(&[Row], &[u64], u32, bool); 6] = [
    (SINGLE_ROWS, SINGLES, 32, true),
    (HALF_ROWS, HALVES, 16, true),
    (FROM_INTS, INTS, 32, true),
    (TO_HALF, SINGLES, 16, true),
    (PACKED, SMALL, 32, false),
    (APPROXIMATE, POWERS, 32, true),
];

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    TABLES.into_iter().flat_map(|(rows, ..)| rows.iter()).flat_map(|(names, ..)| names.split(' ')).collect()
}

#[test]
fn scalar_floats_match_double_precision_rounded_once() {
    for (rows, values, bits, float) in TABLES {
        check(rows, Kind { values, bits, lanes: None, float });
    }
}
