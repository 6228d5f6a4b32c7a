//! 16-bit floats, alone, packed in pairs, and mixed with 32-bit ones.

use super::lanes::{Case, Same, check};
use super::soft::{
    HALVES, SHORTS, fma_f16, from_f16, from_f32, larger, maximum, middle, minimum, power, smaller, to_f16, to_f32,
};

type Row = (&'static str, &'static str, fn([f64; 3]) -> f64);

/// 64 bits hold sums and products of 16-bit floats exactly, and more than twice their digits for roots.
const ROWS: &[Row] = &[
    ("v_add_f16", "v0, v2, v4", |[a, b, _]| a + b),
    ("v_add_f16", "v0, |v2|, -v4", |[a, b, _]| a.abs() - b),
    ("v_sub_f16", "v0, v2, v4", |[a, b, _]| a - b),
    ("v_subrev_f16", "v0, v2, v4", |[a, b, _]| b - a),
    ("v_mul_f16", "v0, v2, v4", |[a, b, _]| a * b),
    ("v_fma_f16", "v0, v2, v4, v6", |[a, b, c]| fma_f16(a, b, c)),
    ("v_fma_f16", "v0, v2, -v4, v6", |[a, b, c]| fma_f16(a, -b, c)),
    // 1.5 is 0x3e00.
    ("v_fmamk_f16", "v0, v2, 0x3e00, v4", |[a, b, _]| fma_f16(a, 1.5, b)),
    ("v_fmaak_f16", "v0, v2, v4, 0x3e00", |[a, b, _]| fma_f16(a, b, 1.5)),
    ("v_min_f16 v_min_num_f16", "v0, v2, v4", |[a, b, _]| smaller(a, b)),
    ("v_max_f16 v_max_num_f16", "v0, v2, v4", |[a, b, _]| larger(a, b)),
    ("v_minimum_f16", "v0, v2, v4", |[a, b, _]| minimum(a, b)),
    ("v_maximum_f16", "v0, v2, v4", |[a, b, _]| maximum(a, b)),
    ("v_min3_f16 v_min3_num_f16", "v0, v2, v4, v6", |[a, b, c]| smaller(smaller(a, b), c)),
    ("v_max3_f16 v_max3_num_f16", "v0, v2, v4, v6", |[a, b, c]| larger(larger(a, b), c)),
    ("v_minimum3_f16", "v0, v2, v4, v6", |[a, b, c]| minimum(minimum(a, b), c)),
    ("v_maximum3_f16", "v0, v2, v4, v6", |[a, b, c]| maximum(maximum(a, b), c)),
    ("v_med3_f16 v_med3_num_f16", "v0, v2, v4, v6", |v| middle(v)),
    ("v_minmax_f16 v_minmax_num_f16", "v0, v2, v4, v6", |[a, b, c]| larger(smaller(a, b), c)),
    ("v_maxmin_f16 v_maxmin_num_f16", "v0, v2, v4, v6", |[a, b, c]| smaller(larger(a, b), c)),
    ("v_trunc_f16", "v0, v2", |[a, ..]| a.trunc()),
    ("v_ceil_f16", "v0, v2", |[a, ..]| a.ceil()),
    ("v_floor_f16", "v0, v2", |[a, ..]| a.floor()),
    ("v_rndne_f16", "v0, v2", |[a, ..]| a.round_ties_even()),
    ("v_fract_f16", "v0, v2", |[a, ..]| if a.is_finite() { (a - a.floor()).min(1.0 - power(-11)) } else { f64::NAN }),
    ("v_ldexp_f16", "v0, v2, 3", |[a, ..]| a * 8.0),
    ("v_ldexp_f16", "v0, v2, -12", |[a, ..]| a * power(-12)),
    ("v_frexp_mant_f16", "v0, v2", |[a, ..]| if a == 0.0 || !a.is_finite() { a } else { a * power(-exponent(a)) }),
];

fn exponent(value: f64) -> i32 {
    if value == 0.0 || !value.is_finite() { 0 } else { value.abs().log2().floor() as i32 + 1 }
}

/// Both halves of the sources.
const PACKED: &[Row] = &[
    ("v_pk_add_f16", "v0, v2, v4", |[a, b, _]| a + b),
    ("v_pk_mul_f16", "v0, v2, v4", |[a, b, _]| a * b),
    ("v_pk_fma_f16", "v0, v2, v4, v6", |[a, b, c]| fma_f16(a, b, c)),
    ("v_pk_min_f16 v_pk_min_num_f16", "v0, v2, v4", |[a, b, _]| smaller(a, b)),
    ("v_pk_max_f16 v_pk_max_num_f16", "v0, v2, v4", |[a, b, _]| larger(a, b)),
    ("v_pk_minimum_f16", "v0, v2, v4", |[a, b, _]| minimum(a, b)),
    ("v_pk_maximum_f16", "v0, v2, v4", |[a, b, _]| maximum(a, b)),
    ("v_pk_add_f16", "v0, v2, v4 neg_lo:[0,1] neg_hi:[0,1]", |[a, b, _]| a - b),
    ("v_pk_mul_f16", "v0, v2, v4 clamp", |[a, b, _]| if a * b > 0.0 { (a * b).min(1.0) } else { 0.0 }),
];

/// Finite numbers in both halves: results have one pattern of bits only.
const PAIRS: &[u64] =
    &[0x3c00_4000, 0x0001_3800, 0xc500_0400, 0x7bff_3c01, 0x3555_b555, 0x0000_8000, 0x8400_63ff, 0x4200_03ff];

fn both(sources: [u64; 3], of: fn([f64; 3]) -> f64) -> u64 {
    to_f16(of(sources.map(|bits| from_f16(bits & 0xffff)))) | to_f16(of(sources.map(|bits| from_f16(bits >> 16)))) << 16
}

fn cases() -> Vec<Case> {
    let kind = (HALVES, 16, Same::Float);
    let mut cases: Vec<Case> = ROWS
        .iter()
        .map(|&(names, operands, want)| Case::new(names, operands, kind, move |v| to_f16(want(v.map(from_f16)))))
        .collect();
    cases.extend(
        PACKED.iter().map(|&(names, operands, want)| {
            Case::new(names, operands, (PAIRS, 32, Same::Bits), move |v| both(v, want))
        }),
    );
    let adds = |names, values, bits, want: fn([u64; 3]) -> u64| Case {
        adds: true,
        ..Case::new(names, "v0, v2, v4", (values, bits, Same::Float), want)
    };
    cases.push(adds("v_fmac_f16", HALVES, 16, |v| {
        let [a, b, c] = v.map(from_f16);
        to_f16(fma_f16(a, b, c))
    }));
    cases.push(adds("v_mac_f16", HALVES, 16, |v| {
        let [a, b, c] = v.map(from_f16);
        to_f16(from_f16(to_f16(a * b)) + c)
    }));
    cases.push(adds("v_pk_fmac_f16", PAIRS, 32, |v| both(v, |[a, b, c]| fma_f16(a, b, c))));
    cases.push(Case::new("v_frexp_exp_i16_f16", "v0, v2", (HALVES, 16, Same::Bits), |[a, ..]| {
        exponent(from_f16(a)) as u64
    }));
    cases.push(Case::new("v_cvt_f16_u16", "v0, v2", (SHORTS, 16, Same::Bits), |[a, ..]| to_f16((a & 0xffff) as f64)));
    cases.push(Case::new("v_cvt_f16_i16", "v0, v2", (SHORTS, 16, Same::Bits), |[a, ..]| to_f16(f64::from(a as i16))));
    cases.push(Case::new("v_cvt_u16_f16", "v0, v2", (HALVES, 16, Same::Bits), |[a, ..]| {
        let value = from_f16(a);
        if value.is_nan() { 0 } else { value.trunc().clamp(0.0, 65535.0) as u64 }
    }));
    cases.push(Case::new("v_cvt_i16_f16", "v0, v2", (HALVES, 16, Same::Bits), |[a, ..]| {
        let value = from_f16(a);
        if value.is_nan() { 0 } else { value.trunc().clamp(-32768.0, 32767.0) as i64 as u64 }
    }));
    cases.push(Case::new("v_cvt_f32_f16", "v0, v2", (HALVES, 32, Same::Float), |[a, ..]| to_f32(from_f16(a))));
    // Two 16-bit sources and a 32-bit one.
    let mixed = |v: [u64; 3]| fma_f16(from_f16(v[0] & 0xffff), from_f16(v[1] >> 16), from_f16(v[2] & 0xffff));
    let modifiers = "v0, v2, v4, v6 op_sel:[0,1,0] op_sel_hi:[1,1,1]";
    cases.push(Case::new("v_fma_mix_f32", modifiers, (PAIRS, 32, Same::Bits), move |v| to_f32(mixed(v))));
    cases.push(Case::new("v_fma_mixlo_f16", modifiers, (PAIRS, 16, Same::Bits), move |v| to_f16(mixed(v))));
    cases.push(Case::new("v_fma_mixhi_f16", modifiers, (PAIRS, 32, Same::Bits), move |v| {
        0xbeef | to_f16(mixed(v)) << 16
    }));
    cases.push(Case::new(
        "v_fma_mix_f32",
        "v0, v2, v4, -v6 op_sel_hi:[1,0,0]",
        (PAIRS, 32, Same::Float),
        |[a, b, c]| {
            let (a, b, c) = (from_f16(a & 0xffff) as f32, from_f32(b) as f32, from_f32(c) as f32);
            u64::from(a.mul_add(b, -c).to_bits())
        },
    ));
    cases
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    cases().iter().flat_map(|case| case.names.split(' ')).chain(["v_cndmask_b16"]).collect()
}

#[test]
fn half_precision_is_rounded_once() {
    check(&cases());
}

#[test]
fn halves_are_chosen_by_a_mask() {
    let want = Box::new(|[a, b, _]: [u64; 3], taken| (if taken { b } else { a } & 0xffff, None));
    let text = "{} v0, v2, v4, IN".to_owned();
    let names = "v_cndmask_b16";
    check(&[Case { names, text, values: SHORTS, bits: 16, same: Same::Bits, adds: false, want }]);
}
