//! Dot products of parts of registers.

use super::lanes::{Case, Same, check};
use super::soft::{from_bf16, from_f16, from_f32, to_f32};

/// Parts of a register: `bits` each, signed or not.
fn parts(value: u64, bits: u32, signed: bool) -> impl Iterator<Item = i128> {
    (0..32 / bits).map(move |at| {
        let part = (value >> (at * bits) & ((1 << bits) - 1)) as i128;
        if signed && part >> (bits - 1) == 1 { part - (1 << bits) } else { part }
    })
}

fn sum([a, b, c]: [u64; 3], bits: u32, signs: [bool; 2], signed_sum: bool) -> i128 {
    let start = if signed_sum { i128::from(c as i32) } else { i128::from(c as u32) };
    start + parts(a, bits, signs[0]).zip(parts(b, bits, signs[1])).map(|(a, b)| a * b).sum::<i128>()
}

const SIGNED: [bool; 2] = [true, true];
const UNSIGNED: [bool; 2] = [false, false];

/// Registers with large and small parts, and sums at the limits.
const VALUES: &[u64] =
    &[0, 1, 0x8080_8080, 0x7f80_ff01, 0x1234_5678, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xfedc_ba98];

/// 16-bit floats in pairs: products and sums are exact in 64 bits.
const FLOATS: &[u64] = &[0x3c00_4000, 0xb800_3800, 0x4500_c200, 0x0000_8000, 0x3555_3c01, 0x5640_4900];
const SUMS: &[u64] = &[0x3f80_4000, 0xc120_3f00, 0x3f80_bf80, 0x0000_8000, 0x40a0_3eab, 0x42c8_4120];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut row = |names, operands: &str, adds, want: fn([u64; 3]) -> i128| {
        let case = Case::new(names, operands, (VALUES, 32, Same::Bits), move |v| want(v) as u64);
        cases.push(Case { adds, ..case });
    };
    let (all, two) = ("v0, v2, v4, v6", "v0, v2, v4");
    row("v_dot2_i32_i16", all, false, |v| sum(v, 16, SIGNED, true));
    row("v_dot2_i32_i16", "v0, v2, v4, v6 clamp", false, |v| {
        sum(v, 16, SIGNED, true).clamp(i128::from(i32::MIN), i128::from(i32::MAX))
    });
    row("v_dot2_u32_u16", all, false, |v| sum(v, 16, UNSIGNED, false));
    row("v_dot2_u32_u16", "v0, v2, v4, v6 clamp", false, |v| sum(v, 16, UNSIGNED, false).min(0xffff_ffff));
    row("v_dot4_i32_i8", all, false, |v| sum(v, 8, SIGNED, true));
    row("v_dot4_i32_i8", "v0, v2, v4, v6 clamp", false, |v| {
        sum(v, 8, SIGNED, true).clamp(i128::from(i32::MIN), i128::from(i32::MAX))
    });
    row("v_dot4c_i32_i8", two, true, |v| sum(v, 8, SIGNED, true));
    row("v_dot4_u32_u8", all, false, |v| sum(v, 8, UNSIGNED, false));
    row("v_dot4_u32_u8", "v0, v2, v4, v6 clamp", false, |v| sum(v, 8, UNSIGNED, false).min(0xffff_ffff));
    row("v_dot4_i32_iu8", all, false, |v| sum(v, 8, UNSIGNED, true));
    row("v_dot4_i32_iu8", "v0, v2, v4, v6 neg_lo:[1,0,0]", false, |v| sum(v, 8, [true, false], true));
    row("v_dot4_i32_iu8", "v0, v2, v4, v6 neg_lo:[1,1,0] clamp", false, |v| {
        sum(v, 8, SIGNED, true).clamp(i128::from(i32::MIN), i128::from(i32::MAX))
    });
    row("v_dot8_i32_i4", all, false, |v| sum(v, 4, SIGNED, true));
    row("v_dot8_u32_u4", all, false, |v| sum(v, 4, UNSIGNED, false));
    row("v_dot8_i32_iu4", "v0, v2, v4, v6 neg_lo:[0,1,0]", false, |v| sum(v, 4, [false, true], true));
    let products = |[a, b, c]: [u64; 3], of: fn(u64) -> f64| {
        of(a & 0xffff) * of(b & 0xffff) + of(a >> 16) * of(b >> 16) + from_f32(c)
    };
    for (names, operands, adds, of) in [
        ("v_dot2_f32_f16", all, false, from_f16 as fn(u64) -> f64),
        ("v_dot2c_f32_f16 v_dot2acc_f32_f16", two, true, from_f16),
        ("v_dot2_f32_bf16", all, false, from_bf16),
    ] {
        let values = if names.contains("bf16") { SUMS } else { FLOATS };
        // The third source is a 32-bit float, here a small one or one like the products.
        let case = Case::new(names, operands, (values, 32, Same::Near), move |v| to_f32(products(v, of)));
        cases.push(Case { adds, ..case });
    }
    cases
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    cases().iter().flat_map(|case| case.names.split(' ')).chain(["v_dot2c_f32_bf16"]).collect()
}

#[test]
fn dot_products_match_wide_arithmetic() {
    check(&cases());
}

#[test]
fn products_of_bfloat16_are_added_to_the_result() {
    use super::assembler::SETTINGS;
    use super::lanes::run;
    let case = Case {
        adds: true,
        text: "v_dot2c_f32_bf16 v0, v2, v4".to_owned(),
        ..Case::new("v_dot2c_f32_bf16", "", (SUMS, 32, Same::Near), |[a, b, c]| {
            let low = from_bf16(a) * from_bf16(b);
            to_f32(low + from_bf16(a >> 16) * from_bf16(b >> 16) + from_f32(c))
        })
    };
    for setting in SETTINGS.into_iter().filter(|setting| setting.target == "gfx950") {
        run(&case, case.names, setting, std::slice::from_ref(&case.text));
    }
}
