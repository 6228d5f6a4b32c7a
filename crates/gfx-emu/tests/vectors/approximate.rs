//! Functions that the chips approximate, to two units in the last place.

use super::lanes::{Case, Same, check};
use super::soft::{DOUBLES, HALVES, SINGLES, from_f16, from_f32, to_f16, to_f32};

type Row = (&'static str, fn(f64) -> f64);

/// Denormals of 32 bits read as 0 and results that are denormal become 0, whatever the mode is.
const SINGLE: &[Row] = &[
    ("v_rcp_f32 v_rcp_iflag_f32", |a| 1.0 / a),
    ("v_rsq_f32", |a| 1.0 / a.sqrt()),
    ("v_sqrt_f32", |a| a.sqrt()),
    ("v_exp_f32 v_exp_legacy_f32", |a| a.exp2()),
    ("v_log_f32 v_log_legacy_f32", |a| a.log2()),
];

const HALF: &[Row] = &[
    ("v_rcp_f16", |a| 1.0 / a),
    ("v_rsq_f16", |a| 1.0 / a.sqrt()),
    ("v_sqrt_f16", |a| a.sqrt()),
    ("v_exp_f16", |a| a.exp2()),
    ("v_log_f16", |a| a.log2()),
];

/// Numbers of turns of a circle within the documented range of 256.
const TURNS: &[u64] = &[0, 0x8000_0000, 0x3e80_0000, 0x3f00_0000, 0xbe00_0000, 0x3f40_0000, 0x4020_0000, 0x42f7_8000];
/// Multiples of an eighth of a turn, as 16-bit floats: 0, 1/8, 1/4, 3/8, -1/8, 1.
const HALF_TURNS: &[u64] = &[0, 0x3000, 0x3400, 0x3600, 0xb000, 0x3c00];

/// The sine of a number of turns, reduced before it is rounded.
fn sine(turns: f64) -> f64 {
    let part = turns - turns.round();
    if part.abs() == 0.5 { 0.0 } else { (part * std::f64::consts::TAU).sin() }
}

fn cosine(turns: f64) -> f64 {
    let part = (turns - turns.round()).abs();
    if part == 0.25 { 0.0 } else { (part * std::f64::consts::TAU).cos() }
}

fn flushed(bits: u64) -> u64 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for &(names, of) in SINGLE {
        cases.push(Case::new(names, "v0, v2", (SINGLES, 32, Same::Near), move |[a, ..]| {
            flushed(to_f32(of(from_f32(flushed(a)))))
        }));
    }
    for &(names, of) in HALF {
        cases.push(Case::new(names, "v0, v2", (HALVES, 16, Same::Near), move |[a, ..]| to_f16(of(from_f16(a)))));
    }
    let doubles = |name, of: fn(f64) -> f64| {
        Case::new(name, "v[0:1], v[2:3]", (DOUBLES, 64, Same::Near), move |[a, ..]| of(f64::from_bits(a)).to_bits())
    };
    cases.push(doubles("v_rcp_f64", |a| 1.0 / a));
    cases.push(doubles("v_rsq_f64", |a| 1.0 / a.sqrt()));
    cases.push(doubles("v_sqrt_f64", f64::sqrt));
    cases
}

/// Sines and cosines near 0 have a large relative error.
fn turns() -> Vec<Case> {
    let close = |have: fn(f64) -> f64, name, values, half: bool| {
        Case::new(name, "v0, v2", (values, if half { 16 } else { 32 }, Same::Absolute), move |[a, ..]| {
            if half { to_f16(have(from_f16(a))) } else { to_f32(have(from_f32(a))) }
        })
    };
    vec![
        close(sine, "v_sin_f32", TURNS, false),
        close(cosine, "v_cos_f32", TURNS, false),
        close(sine, "v_sin_f16", HALF_TURNS, true),
        close(cosine, "v_cos_f16", HALF_TURNS, true),
    ]
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    cases().iter().chain(&turns()).flat_map(|case| case.names.split(' ')).collect()
}

#[test]
fn approximate_functions_are_close_and_flush_denormals_of_32_bits() {
    check(&cases());
}

#[test]
fn sines_and_cosines_take_turns() {
    check(&turns());
}
