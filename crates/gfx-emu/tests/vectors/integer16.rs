//! Integers of 16 bits, alone and packed in pairs.

use super::lanes::{Case, Same, check};
use super::soft::{INTS, SHORTS};
use super::text_only::each;

type Row = (&'static str, &'static str, fn([u64; 3]) -> u64);

fn u(value: u64) -> u64 {
    value & 0xffff
}

fn s(value: u64) -> i64 {
    i64::from(value as u16 as i16)
}

fn unsigned_limit(value: i64) -> u64 {
    value.clamp(0, 0xffff) as u64
}

fn signed_limit(value: i64) -> u64 {
    value.clamp(-0x8000, 0x7fff) as u64 & 0xffff
}

fn middle<T: Ord>(mut values: [T; 3]) -> T {
    values.sort();
    let [_, middle, _] = values;
    middle
}

const ROWS: &[Row] = &[
    ("v_not_b16", "v0, v2", |[a, ..]| !a),
    ("v_add_u16 v_add_nc_u16", "v0, v2, v4", |[a, b, _]| a + b),
    ("v_add_u16 v_add_nc_u16", "v0, v2, v4 clamp", |[a, b, _]| (u(a) + u(b)).min(0xffff)),
    ("v_sub_u16 v_sub_nc_u16", "v0, v2, v4", |[a, b, _]| a.wrapping_sub(b)),
    ("v_sub_u16 v_sub_nc_u16", "v0, v2, v4 clamp", |[a, b, _]| u(a).max(u(b)) - u(b)),
    ("v_subrev_u16", "v0, v2, v4", |[a, b, _]| b.wrapping_sub(a)),
    ("v_add_i16 v_add_nc_i16", "v0, v2, v4", |[a, b, _]| a + b),
    ("v_add_i16 v_add_nc_i16", "v0, v2, v4 clamp", |[a, b, _]| signed_limit(s(a) + s(b))),
    ("v_sub_i16 v_sub_nc_i16", "v0, v2, v4", |[a, b, _]| a.wrapping_sub(b)),
    ("v_sub_i16 v_sub_nc_i16", "v0, v2, v4 clamp", |[a, b, _]| signed_limit(s(a) - s(b))),
    ("v_mul_lo_u16", "v0, v2, v4", |[a, b, _]| u(a) * u(b)),
    ("v_mad_u16 v_mad_legacy_u16", "v0, v2, v4, v6", |[a, b, c]| u(a) * u(b) + c),
    ("v_mad_u16", "v0, v2, v4, v6 clamp", |[a, b, c]| (u(a) * u(b) + u(c)).min(0xffff)),
    ("v_mad_i16", "v0, v2, v4, v6", |[a, b, c]| (s(a) * s(b) + s(c)) as u64),
    ("v_mad_i16", "v0, v2, v4, v6 clamp", |[a, b, c]| signed_limit(s(a) * s(b) + s(c))),
    ("v_min_u16", "v0, v2, v4", |[a, b, _]| u(a).min(u(b))),
    ("v_max_u16", "v0, v2, v4", |[a, b, _]| u(a).max(u(b))),
    ("v_min_i16", "v0, v2, v4", |[a, b, _]| s(a).min(s(b)) as u64),
    ("v_max_i16", "v0, v2, v4", |[a, b, _]| s(a).max(s(b)) as u64),
    ("v_min3_u16", "v0, v2, v4, v6", |v| v.map(u).into_iter().min().unwrap()),
    ("v_max3_u16", "v0, v2, v4, v6", |v| v.map(u).into_iter().max().unwrap()),
    ("v_min3_i16", "v0, v2, v4, v6", |v| v.map(s).into_iter().min().unwrap() as u64),
    ("v_max3_i16", "v0, v2, v4, v6", |v| v.map(s).into_iter().max().unwrap() as u64),
    ("v_med3_u16", "v0, v2, v4, v6", |v| middle(v.map(u))),
    ("v_med3_i16", "v0, v2, v4, v6", |v| middle(v.map(s)) as u64),
    ("v_lshlrev_b16", "v0, v2, v4", |[a, b, _]| b << (a % 16)),
    ("v_lshrrev_b16", "v0, v2, v4", |[a, b, _]| u(b) >> (a % 16)),
    ("v_ashrrev_i16", "v0, v2, v4", |[a, b, _]| (s(b) >> (a % 16)) as u64),
    ("v_and_b16", "v0, v2, v4", |[a, b, _]| a & b),
    ("v_or_b16", "v0, v2, v4", |[a, b, _]| a | b),
    ("v_xor_b16", "v0, v2, v4", |[a, b, _]| a ^ b),
];

/// 16-bit sources, 32-bit results.
const WIDE: &[Row] = &[
    ("v_mad_u32_u16", "v0, v2, v4, v6", |[a, b, c]| u(a) * u(b) + c),
    ("v_mad_i32_i16", "v0, v2, v4, v6", |[a, b, c]| ((s(a) * s(b)) as u64).wrapping_add(c)),
    ("v_cvt_i32_i16", "v0, v2", |[a, ..]| s(a) as u64),
    ("v_cvt_u32_u16", "v0, v2", |[a, ..]| u(a)),
];

/// A function of both halves of each source.
fn both(sources: [u64; 3], of: impl Fn([u64; 3]) -> u64) -> u64 {
    u(of(sources.map(u))) | u(of(sources.map(|value| u(value >> 16)))) << 16
}

const PACKED: &[Row] = &[
    ("v_pk_add_u16", "v0, v2, v4", |v| both(v, |[a, b, _]| a + b)),
    ("v_pk_add_u16", "v0, v2, v4 clamp", |v| both(v, |[a, b, _]| (a + b).min(0xffff))),
    ("v_pk_add_i16", "v0, v2, v4", |v| both(v, |[a, b, _]| a + b)),
    ("v_pk_add_i16", "v0, v2, v4 clamp", |v| both(v, |[a, b, _]| signed_limit(s(a) + s(b)))),
    ("v_pk_sub_u16", "v0, v2, v4", |v| both(v, |[a, b, _]| a.wrapping_sub(b))),
    ("v_pk_sub_u16", "v0, v2, v4 clamp", |v| both(v, |[a, b, _]| unsigned_limit(a as i64 - b as i64))),
    ("v_pk_sub_i16", "v0, v2, v4", |v| both(v, |[a, b, _]| a.wrapping_sub(b))),
    ("v_pk_sub_i16", "v0, v2, v4 clamp", |v| both(v, |[a, b, _]| signed_limit(s(a) - s(b)))),
    ("v_pk_mul_lo_u16", "v0, v2, v4", |v| both(v, |[a, b, _]| a * b)),
    ("v_pk_mad_u16", "v0, v2, v4, v6", |v| both(v, |[a, b, c]| a * b + c)),
    ("v_pk_mad_u16", "v0, v2, v4, v6 clamp", |v| both(v, |[a, b, c]| (a * b + c).min(0xffff))),
    ("v_pk_mad_i16", "v0, v2, v4, v6", |v| both(v, |[a, b, c]| a.wrapping_mul(b) + c)),
    ("v_pk_mad_i16", "v0, v2, v4, v6 clamp", |v| both(v, |[a, b, c]| signed_limit(s(a) * s(b) + s(c)))),
    ("v_pk_min_u16", "v0, v2, v4", |v| both(v, |[a, b, _]| a.min(b))),
    ("v_pk_max_u16", "v0, v2, v4", |v| both(v, |[a, b, _]| a.max(b))),
    ("v_pk_min_i16", "v0, v2, v4", |v| both(v, |[a, b, _]| s(a).min(s(b)) as u64)),
    ("v_pk_max_i16", "v0, v2, v4", |v| both(v, |[a, b, _]| s(a).max(s(b)) as u64)),
    ("v_pk_lshlrev_b16", "v0, v2, v4", |v| both(v, |[a, b, _]| b << (a % 16))),
    ("v_pk_lshrrev_b16", "v0, v2, v4", |v| both(v, |[a, b, _]| b >> (a % 16))),
    ("v_pk_ashrrev_i16", "v0, v2, v4", |v| both(v, |[a, b, _]| (s(b) >> (a % 16)) as u64)),
    // The low result reads the high half of the first source, the high one the low half of the second.
    ("v_pk_sub_u16", "v0, v2, v4 op_sel:[1,0] op_sel_hi:[1,0]", |[a, b, _]| {
        u((a >> 16).wrapping_sub(b)) | u((a >> 16).wrapping_sub(b)) << 16
    }),
    // Inline integers are in the low half.
    ("v_pk_add_u16", "v0, v2, 5 op_sel_hi:[1,0]", |v| both(v, |[a, ..]| a + 5)),
    ("v_sat_pk_u8_i16", "v0, v2", |[a, ..]| (s(a).clamp(0, 255) | s(a >> 16).clamp(0, 255) << 8) as u64),
];

const FROM_INTS: &[Row] = &[
    ("v_cvt_pk_u16_u32", "v0, v2, v4", |[a, b, _]| a.min(0xffff) | b.min(0xffff) << 16),
    ("v_cvt_pk_i16_i32", "v0, v2, v4", |[a, b, _]| {
        let of = |value: u64| signed_limit(i64::from(value as u32 as i32));
        of(a) | of(b) << 16
    }),
];

fn cases() -> Vec<Case> {
    let row = |values, bits| {
        move |&(names, operands, want): &Row| Case::new(names, operands, (values, bits, Same::Bits), want)
    };
    let packed = PACKED.iter().map(|line| row(SHORTS, if line.0 == "v_sat_pk_u8_i16" { 16 } else { 32 })(line));
    ROWS.iter()
        .map(row(SHORTS, 16))
        .chain(WIDE.iter().map(row(SHORTS, 32)))
        .chain(packed)
        .chain(FROM_INTS.iter().map(row(INTS, 32)))
        .collect()
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    cases().iter().flat_map(|case| case.names.split(' ')).chain(["v_mov_b16"]).collect()
}

#[test]
fn integers_of_16_bits_match_wide_arithmetic() {
    check(&cases());
}

/// The assembler of clang 19 does not know the names of halves.
#[test]
fn halves_are_moved() {
    each("gfx1100", "v_mov_b16_e32 v0.l, v2.h", SHORTS, 16, &|[a, ..]| a >> 16);
    each("gfx1201", "v_mov_b16_e64 v0.h, v2.l", SHORTS, 32, &|[a, ..]| 0xbeef | (a & 0xffff) << 16);
}
