//! 64-bit floats.

use super::lanes::{Case, Same, check};
use super::soft::{DOUBLES, larger, smaller};

type Row = (&'static str, &'static str, fn([f64; 3]) -> f64);

const ROWS: &[Row] = &[
    ("v_add_f64", "v[0:1], v[2:3], v[4:5]", |[a, b, _]| a + b),
    ("v_add_f64", "v[0:1], -v[2:3], |v[4:5]|", |[a, b, _]| b.abs() - a),
    ("v_mul_f64", "v[0:1], v[2:3], v[4:5]", |[a, b, _]| a * b),
    ("v_fma_f64", "v[0:1], v[2:3], v[4:5], v[6:7]", |[a, b, c]| a.mul_add(b, c)),
    ("v_min_f64 v_min_num_f64", "v[0:1], v[2:3], v[4:5]", |[a, b, _]| smaller(a, b)),
    ("v_max_f64 v_max_num_f64", "v[0:1], v[2:3], v[4:5]", |[a, b, _]| larger(a, b)),
    ("v_trunc_f64", "v[0:1], v[2:3]", |[a, ..]| a.trunc()),
    ("v_ceil_f64", "v[0:1], v[2:3]", |[a, ..]| a.ceil()),
    ("v_floor_f64", "v[0:1], v[2:3]", |[a, ..]| a.floor()),
    ("v_rndne_f64", "v[0:1], v[2:3]", |[a, ..]| a.round_ties_even()),
    ("v_fract_f64", "v[0:1], v[2:3]", |[a, ..]| {
        if a.is_finite() { (a - a.floor()).min(f64::from_bits(0x3fef_ffff_ffff_ffff)) } else { f64::NAN }
    }),
    ("v_ldexp_f64", "v[0:1], v[2:3], 9", |[a, ..]| a * 512.0),
    ("v_ldexp_f64", "v[0:1], v[2:3], -13", |[a, ..]| a / 8192.0),
    ("v_frexp_mant_f64", "v[0:1], v[2:3]", |[a, ..]| split(a).0),
];

/// A fraction of at least 0.5 and an exponent, by halving and doubling.
fn split(value: f64) -> (f64, i32) {
    if value == 0.0 || !value.is_finite() {
        return (value, 0);
    }
    let (mut fraction, mut exponent) = (value, 0);
    while fraction.abs() >= 1.0 {
        (fraction, exponent) = (fraction / 2.0, exponent + 1);
    }
    while fraction.abs() < 0.5 {
        (fraction, exponent) = (fraction * 2.0, exponent - 1);
    }
    (fraction, exponent)
}

fn cases() -> Vec<Case> {
    let kind = (DOUBLES, 64, Same::Float);
    let mut cases: Vec<Case> = ROWS
        .iter()
        .map(|&(names, operands, want)| {
            Case::new(names, operands, kind, move |v| want(v.map(f64::from_bits)).to_bits())
        })
        .collect();
    cases.push(Case {
        adds: true,
        ..Case::new("v_fmac_f64", "v[0:1], v[2:3], v[4:5]", kind, |v| {
            let [a, b, c] = v.map(f64::from_bits);
            a.mul_add(b, c).to_bits()
        })
    });
    cases.push(Case::new("v_frexp_exp_i32_f64", "v0, v[2:3]", (DOUBLES, 32, Same::Bits), |[a, ..]| {
        split(f64::from_bits(a)).1 as u64
    }));
    // Parts of 2 / pi: 0.a2f9836e4e441529fc27... in hexadecimal, 53 bits each.
    cases.push(Case::new("v_trig_preop_f64", "v[0:1], v[2:3], 0", (ORDINARY, 64, Same::Bits), |_| {
        ((0xa2f9_836e_4e44_1529_u64 >> 11) as f64 / 2f64.powi(53)).to_bits()
    }));
    cases.push(Case::new("v_trig_preop_f64", "v[0:1], v[2:3], 1", (ORDINARY, 64, Same::Bits), |_| {
        let bits = (0xa2f9_836e_4e44_1529_u64 & 0x7ff) << 42 | 0xfc27_57d1_f534_ddc0_u64 >> 22;
        (bits as f64 / 2f64.powi(106)).to_bits()
    }));
    cases
}

/// Numbers whose exponents do not move the place of v_trig_preop_f64.
const ORDINARY: &[u64] = &[0x3ff0_0000_0000_0000, 0xc009_21fb_5444_2d18, 0x40c3_8800_0000_0000];

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    cases().iter().flat_map(|case| case.names.split(' ')).collect()
}

#[test]
fn double_precision_matches_the_hosts() {
    check(&cases());
}
