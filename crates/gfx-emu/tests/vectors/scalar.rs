//! Scalar integers: results, SCC and EXEC.

use gfx_emu::Wave;

use super::assembler::SETTINGS;
use super::common::Compiler;
use super::lanes::execute;
use super::soft::{INTS, LONGS, from_f16, from_f32};

/// What an instruction reads: two sources, its old result, SCC and EXEC.
#[derive(Clone, Copy)]
pub struct In {
    pub a: u64,
    pub b: u64,
    pub old: u64,
    pub scc: bool,
    pub exec: u64,
}

/// What it writes: the result, and SCC and EXEC if they change.
#[derive(Default)]
pub struct Out {
    value: u64,
    scc: Option<bool>,
    exec: Option<u64>,
}

/// SCC stays.
pub fn only(value: u64) -> Out {
    Out { value, ..Out::default() }
}

/// SCC tells something.
pub fn with(value: u64, scc: bool) -> Out {
    Out { value, scc: Some(scc), exec: None }
}

/// SCC tells whether the result of 32 bits is not 0.
fn some(value: u64) -> Out {
    with(value & 0xffff_ffff, value & 0xffff_ffff != 0)
}

/// The same of 64 bits.
fn some64(value: u64) -> Out {
    with(value, value != 0)
}

fn s(value: u64) -> i64 {
    i64::from(value as u32 as i32)
}

fn overflow(value: i64) -> Out {
    with(value as u64, i32::try_from(value).is_err())
}

/// The place of the first bit that satisfies a test, or -1.
fn place(count: u64, test: impl Fn(u64) -> bool) -> u64 {
    (0..count).find(|at| test(*at)).unwrap_or(0xffff_ffff)
}

fn reversed(value: u64, count: u64) -> u64 {
    (0..count).fold(0, |result, bit| result | (value >> bit & 1) << (count - 1 - bit))
}

fn ones(value: u64, count: u64) -> u64 {
    (0..count).filter(|bit| value >> bit & 1 == 1).count() as u64
}

/// Bits `offset` to `offset + width`, where the control holds both.
fn field(value: u64, control: u64, bits: u64) -> u64 {
    let (offset, width) = (control % bits, control >> 16 & 0x7f);
    (0..width.min(bits - offset)).fold(0, |result, bit| result | (value >> (offset + bit) & 1) << bit)
}

/// The same, with the sign of the highest bit of the field, or of the operand where the field ends beyond it.
fn signed_field(value: u64, control: u64, bits: u64) -> u64 {
    let (offset, width) = (control % bits, control >> 16 & 0x7f);
    let width = width.min(bits - offset);
    let plain = field(value, control, bits);
    if width > 0 && plain >> (width - 1) & 1 == 1 && width < 64 { plain | u64::MAX << width } else { plain }
}

/// Saves EXEC and replaces it.
fn saves(new: u64, old: u64) -> Out {
    Out { value: old, scc: Some(new != 0), exec: Some(new) }
}

/// Replaces EXEC and returns the new one.
fn writes(new: u64) -> Out {
    Out { value: new, scc: Some(new != 0), exec: Some(new) }
}

pub type Row = (&'static str, &'static str, fn(In) -> Out);

const ONE: &str = "s0, s2";
const TWO: &str = "s0, s2, s4";
const WIDE: &str = "s[0:1], s[2:3]";
const WIDE_TWO: &str = "s[0:1], s[2:3], s[4:5]";
const SHIFT: &str = "s[0:1], s[2:3], s4";

const ROWS: &[Row] = &[
    ("s_mov_b32", ONE, |i| only(i.a)),
    ("s_cmov_b32", ONE, |i| only(if i.scc { i.a } else { i.old })),
    ("s_not_b32", ONE, |i| some(!i.a)),
    ("s_wqm_b32", ONE, |i| {
        some((0..8).filter(|quad| i.a >> (quad * 4) & 15 != 0).fold(0, |r, quad| r | 15 << (quad * 4)))
    }),
    ("s_quadmask_b32", ONE, |i| {
        some((0..8).filter(|quad| i.a >> (quad * 4) & 15 != 0).fold(0, |r, quad| r | 1 << quad))
    }),
    ("s_brev_b32", ONE, |i| only(reversed(i.a, 32))),
    ("s_bcnt0_i32_b32", ONE, |i| some(32 - ones(i.a, 32))),
    ("s_bcnt1_i32_b32", ONE, |i| some(ones(i.a, 32))),
    ("s_ff0_i32_b32", ONE, |i| only(place(32, |at| i.a >> at & 1 == 0))),
    ("s_ff1_i32_b32 s_ctz_i32_b32", ONE, |i| only(place(32, |at| i.a >> at & 1 == 1))),
    ("s_flbit_i32_b32 s_clz_i32_u32", ONE, |i| only(place(32, |at| i.a >> (31 - at) & 1 == 1))),
    ("s_flbit_i32 s_cls_i32", ONE, |i| only(place(32, |at| i.a >> (31 - at) & 1 != i.a >> 31 & 1))),
    ("s_sext_i32_i8", ONE, |i| only(i64::from(i.a as i8) as u64)),
    ("s_sext_i32_i16", ONE, |i| only(i64::from(i.a as i16) as u64)),
    ("s_bitset0_b32", ONE, |i| only(i.old & !(1 << (i.a % 32)))),
    ("s_bitset1_b32", ONE, |i| only(i.old | 1 << (i.a % 32))),
    ("s_abs_i32", ONE, |i| some(s(i.a).unsigned_abs())),
    ("s_add_u32 s_add_co_u32", TWO, |i| with(i.a + i.b, i.a + i.b > 0xffff_ffff)),
    ("s_addc_u32 s_add_co_ci_u32", TWO, |i| {
        let sum = i.a + i.b + u64::from(i.scc);
        with(sum, sum > 0xffff_ffff)
    }),
    ("s_sub_u32 s_sub_co_u32", TWO, |i| with(i.a.wrapping_sub(i.b), i.b > i.a)),
    ("s_subb_u32 s_sub_co_ci_u32", TWO, |i| {
        let difference = i.a as i64 - i.b as i64 - i64::from(i.scc);
        with(difference as u64, difference < 0)
    }),
    ("s_add_i32 s_add_co_i32", TWO, |i| overflow(s(i.a) + s(i.b))),
    ("s_sub_i32 s_sub_co_i32", TWO, |i| overflow(s(i.a) - s(i.b))),
    // The difference is cut to 32 bits before its sign is dropped.
    ("s_absdiff_i32", TWO, |i| some(s(i.a.wrapping_sub(i.b)).unsigned_abs())),
    ("s_min_i32", TWO, |i| with(s(i.a).min(s(i.b)) as u64, s(i.a) < s(i.b))),
    ("s_min_u32", TWO, |i| with(i.a.min(i.b), i.a < i.b)),
    ("s_max_i32", TWO, |i| with(s(i.a).max(s(i.b)) as u64, s(i.a) >= s(i.b))),
    ("s_max_u32", TWO, |i| with(i.a.max(i.b), i.a >= i.b)),
    ("s_cselect_b32", TWO, |i| only(if i.scc { i.a } else { i.b })),
    ("s_and_b32", TWO, |i| some(i.a & i.b)),
    ("s_or_b32", TWO, |i| some(i.a | i.b)),
    ("s_xor_b32", TWO, |i| some(i.a ^ i.b)),
    ("s_andn2_b32 s_and_not1_b32", TWO, |i| some(i.a & !i.b)),
    ("s_orn2_b32 s_or_not1_b32", TWO, |i| some(i.a | !i.b)),
    ("s_nand_b32", TWO, |i| some(!(i.a & i.b))),
    ("s_nor_b32", TWO, |i| some(!(i.a | i.b))),
    ("s_xnor_b32", TWO, |i| some(!(i.a ^ i.b))),
    ("s_lshl_b32", TWO, |i| some(i.a << (i.b % 32))),
    ("s_lshr_b32", TWO, |i| some(i.a >> (i.b % 32))),
    ("s_ashr_i32", TWO, |i| some((s(i.a) >> (i.b % 32)) as u64)),
    ("s_bfm_b32", TWO, |i| only(((1 << (i.a % 32)) - 1) << (i.b % 32))),
    ("s_mul_i32", TWO, |i| only(i.a * i.b)),
    ("s_mul_hi_u32", TWO, |i| only(i.a * i.b >> 32)),
    ("s_mul_hi_i32", TWO, |i| only((s(i.a) * s(i.b) >> 32) as u64)),
    ("s_bfe_u32", TWO, |i| some(field(i.a, i.b, 32))),
    ("s_bfe_u32", "s0, s2, 0x90004", |i| some(i.a >> 4 & 0x1ff)),
    ("s_bfe_i32", TWO, |i| some(signed_field(i.a, i.b, 32))),
    ("s_bfe_i32", "s0, s2, 0x50003", |i| some(signed_field(i.a, 0x5_0003, 32))),
    ("s_lshl1_add_u32", TWO, |i| with(i.a * 2 + i.b, i.a * 2 + i.b > 0xffff_ffff)),
    ("s_lshl2_add_u32", TWO, |i| with(i.a * 4 + i.b, i.a * 4 + i.b > 0xffff_ffff)),
    ("s_lshl3_add_u32", TWO, |i| with(i.a * 8 + i.b, i.a * 8 + i.b > 0xffff_ffff)),
    ("s_lshl4_add_u32", TWO, |i| with(i.a * 16 + i.b, i.a * 16 + i.b > 0xffff_ffff)),
    ("s_pack_ll_b32_b16", TWO, |i| only(i.a & 0xffff | i.b << 16)),
    ("s_pack_lh_b32_b16", TWO, |i| only(i.a & 0xffff | i.b >> 16 << 16)),
    ("s_pack_hh_b32_b16", TWO, |i| only(i.a >> 16 | i.b >> 16 << 16)),
    ("s_pack_hl_b32_b16", TWO, |i| only(i.a >> 16 | i.b << 16)),
    ("s_movk_i32", "s0, 0xfff0", |_| only(0xffff_fff0)),
    ("s_cmovk_i32", "s0, 0x1234", |i| only(if i.scc { 0x1234 } else { i.old })),
    ("s_addk_i32 s_addk_co_i32", "s0, 0xfff0", |i| overflow(s(i.old) - 16)),
    ("s_mulk_i32", "s0, 0xfffd", |i| only((s(i.old) * -3) as u64)),
    ("s_cmp_eq_i32 s_cmp_eq_u32", "s2, s4", |i| with(i.old, i.a == i.b)),
    ("s_cmp_lg_i32 s_cmp_lg_u32", "s2, s4", |i| with(i.old, i.a != i.b)),
    ("s_cmp_gt_i32", "s2, s4", |i| with(i.old, s(i.a) > s(i.b))),
    ("s_cmp_ge_i32", "s2, s4", |i| with(i.old, s(i.a) >= s(i.b))),
    ("s_cmp_lt_i32", "s2, s4", |i| with(i.old, s(i.a) < s(i.b))),
    ("s_cmp_le_i32", "s2, s4", |i| with(i.old, s(i.a) <= s(i.b))),
    ("s_cmp_gt_u32", "s2, s4", |i| with(i.old, i.a > i.b)),
    ("s_cmp_ge_u32", "s2, s4", |i| with(i.old, i.a >= i.b)),
    ("s_cmp_lt_u32", "s2, s4", |i| with(i.old, i.a < i.b)),
    ("s_cmp_le_u32", "s2, s4", |i| with(i.old, i.a <= i.b)),
    ("s_bitcmp0_b32", "s2, s4", |i| with(i.old, i.a >> (i.b % 32) & 1 == 0)),
    ("s_bitcmp1_b32", "s2, s4", |i| with(i.old, i.a >> (i.b % 32) & 1 == 1)),
    // Signed constants are sign-extended, unsigned ones are not.
    ("s_cmpk_eq_i32", "s2, 0x8001", |i| with(i.old, s(i.a) == -0x7fff)),
    ("s_cmpk_lg_i32", "s2, 0x8001", |i| with(i.old, s(i.a) != -0x7fff)),
    ("s_cmpk_gt_i32", "s2, 0x8001", |i| with(i.old, s(i.a) > -0x7fff)),
    ("s_cmpk_ge_i32", "s2, 0x8001", |i| with(i.old, s(i.a) >= -0x7fff)),
    ("s_cmpk_lt_i32", "s2, 0x8001", |i| with(i.old, s(i.a) < -0x7fff)),
    ("s_cmpk_le_i32", "s2, 0x8001", |i| with(i.old, s(i.a) <= -0x7fff)),
    ("s_cmpk_eq_u32", "s2, 0xffff", |i| with(i.old, i.a == 0xffff)),
    ("s_cmpk_lg_u32", "s2, 0xffff", |i| with(i.old, i.a != 0xffff)),
    ("s_cmpk_gt_u32", "s2, 0xffff", |i| with(i.old, i.a > 0xffff)),
    ("s_cmpk_ge_u32", "s2, 0xffff", |i| with(i.old, i.a >= 0xffff)),
    ("s_cmpk_lt_u32", "s2, 0xffff", |i| with(i.old, i.a < 0xffff)),
    ("s_cmpk_le_u32", "s2, 0xffff", |i| with(i.old, i.a <= 0xffff)),
];

/// Rows with sources of 64 bits.
const LONG_ROWS: &[Row] = &[
    ("s_mov_b64", WIDE, |i| only(i.a)),
    ("s_cmov_b64", WIDE, |i| only(if i.scc { i.a } else { i.old })),
    ("s_not_b64", WIDE, |i| some64(!i.a)),
    ("s_wqm_b64", WIDE, |i| {
        some64((0..16).filter(|quad| i.a >> (quad * 4) & 15 != 0).fold(0, |r, quad| r | 15 << (quad * 4)))
    }),
    ("s_quadmask_b64", WIDE, |i| {
        some64((0..16).filter(|quad| i.a >> (quad * 4) & 15 != 0).fold(0, |r, quad| r | 1 << quad))
    }),
    ("s_brev_b64", WIDE, |i| only(reversed(i.a, 64))),
    ("s_bitreplicate_b64_b32", "s[0:1], s2", |i| only((0..64).fold(0, |r, bit| r | (i.a >> (bit / 2) & 1) << bit))),
    ("s_bitset0_b64", "s[0:1], s2", |i| only(i.old & !(1 << (i.a % 64)))),
    ("s_bitset1_b64", "s[0:1], s2", |i| only(i.old | 1 << (i.a % 64))),
    ("s_cselect_b64", WIDE_TWO, |i| only(if i.scc { i.a } else { i.b })),
    ("s_and_b64", WIDE_TWO, |i| some64(i.a & i.b)),
    ("s_or_b64", WIDE_TWO, |i| some64(i.a | i.b)),
    ("s_xor_b64", WIDE_TWO, |i| some64(i.a ^ i.b)),
    ("s_andn2_b64 s_and_not1_b64", WIDE_TWO, |i| some64(i.a & !i.b)),
    ("s_orn2_b64 s_or_not1_b64", WIDE_TWO, |i| some64(i.a | !i.b)),
    ("s_nand_b64", WIDE_TWO, |i| some64(!(i.a & i.b))),
    ("s_nor_b64", WIDE_TWO, |i| some64(!(i.a | i.b))),
    ("s_xnor_b64", WIDE_TWO, |i| some64(!(i.a ^ i.b))),
    ("s_lshl_b64", SHIFT, |i| some64(i.a << (i.b % 64))),
    ("s_lshr_b64", SHIFT, |i| some64(i.a >> (i.b % 64))),
    ("s_ashr_i64", SHIFT, |i| some64((i.a as i64 >> (i.b % 64)) as u64)),
    ("s_bfm_b64", "s[0:1], s2, s4", |i| only(((1 << (i.a % 64)) - 1) << (i.b % 64))),
    ("s_bfe_u64", "s[0:1], s[2:3], 0x280008", |i| some64(field(i.a, 0x28_0008, 64))),
    ("s_bfe_u64", SHIFT, |i| some64(field(i.a, i.b, 64))),
    ("s_bfe_i64", "s[0:1], s[2:3], 0x210003", |i| some64(signed_field(i.a, 0x21_0003, 64))),
    ("s_add_u64 s_add_nc_u64", WIDE_TWO, |i| only(i.a.wrapping_add(i.b))),
    ("s_sub_u64 s_sub_nc_u64", WIDE_TWO, |i| only(i.a.wrapping_sub(i.b))),
    ("s_mul_u64", WIDE_TWO, |i| only(i.a.wrapping_mul(i.b))),
    ("s_cmp_eq_u64", "s[2:3], s[4:5]", |i| with(i.old, i.a == i.b)),
    ("s_cmp_lg_u64", "s[2:3], s[4:5]", |i| with(i.old, i.a != i.b)),
    ("s_bitcmp0_b64", "s[2:3], s4", |i| with(i.old, i.a >> (i.b % 64) & 1 == 0)),
    ("s_bitcmp1_b64", "s[2:3], s4", |i| with(i.old, i.a >> (i.b % 64) & 1 == 1)),
];

/// Rows that replace all of EXEC: waves of 64 lanes.
const WIDE_EXEC_ROWS: &[Row] = &[
    ("s_and_saveexec_b64", WIDE, |i| saves(i.a & i.exec, i.exec)),
    ("s_or_saveexec_b64", WIDE, |i| saves(i.a | i.exec, i.exec)),
    ("s_xor_saveexec_b64", WIDE, |i| saves(i.a ^ i.exec, i.exec)),
    ("s_nand_saveexec_b64", WIDE, |i| saves(!(i.a & i.exec), i.exec)),
    ("s_nor_saveexec_b64", WIDE, |i| saves(!(i.a | i.exec), i.exec)),
    ("s_xnor_saveexec_b64", WIDE, |i| saves(!(i.a ^ i.exec), i.exec)),
    ("s_andn1_saveexec_b64 s_and_not0_saveexec_b64", WIDE, |i| saves(!i.a & i.exec, i.exec)),
    ("s_orn1_saveexec_b64 s_or_not0_saveexec_b64", WIDE, |i| saves(!i.a | i.exec, i.exec)),
    ("s_andn2_saveexec_b64 s_and_not1_saveexec_b64", WIDE, |i| saves(i.a & !i.exec, i.exec)),
    ("s_orn2_saveexec_b64 s_or_not1_saveexec_b64", WIDE, |i| saves(i.a | !i.exec, i.exec)),
    ("s_andn1_wrexec_b64 s_and_not0_wrexec_b64", WIDE, |i| writes(!i.a & i.exec)),
    ("s_andn2_wrexec_b64 s_and_not1_wrexec_b64", WIDE, |i| writes(i.a & !i.exec)),
];

/// Rows with sources of 64 bits and a result of 32.
const NARROW_ROWS: &[Row] = &[
    ("s_bcnt0_i32_b64", "s0, s[2:3]", |i| some(64 - ones(i.a, 64))),
    ("s_bcnt1_i32_b64", "s0, s[2:3]", |i| some(ones(i.a, 64))),
    ("s_ff1_i32_b64 s_ctz_i32_b64", "s0, s[2:3]", |i| only(place(64, |at| i.a >> at & 1 == 1))),
    ("s_flbit_i32_b64 s_clz_i32_u64", "s0, s[2:3]", |i| only(place(64, |at| i.a >> (63 - at) & 1 == 1))),
    ("s_flbit_i32_i64 s_cls_i32_i64", "s0, s[2:3]", |i| only(place(64, |at| i.a >> (63 - at) & 1 != i.a >> 63))),
];

/// Rows that replace the low half of EXEC: waves of 32 lanes.
const EXEC_ROWS: &[Row] = &[
    ("s_and_saveexec_b32", ONE, |i| saves(i.a & i.exec, i.exec)),
    ("s_or_saveexec_b32", ONE, |i| saves(i.a | i.exec, i.exec)),
    ("s_xor_saveexec_b32", ONE, |i| saves(i.a ^ i.exec, i.exec)),
    ("s_nand_saveexec_b32", ONE, |i| saves(!(i.a & i.exec) & LOW, i.exec)),
    ("s_nor_saveexec_b32", ONE, |i| saves(!(i.a | i.exec) & LOW, i.exec)),
    ("s_xnor_saveexec_b32", ONE, |i| saves(!(i.a ^ i.exec) & LOW, i.exec)),
    ("s_andn1_saveexec_b32 s_and_not0_saveexec_b32", ONE, |i| saves(!i.a & i.exec, i.exec)),
    ("s_orn1_saveexec_b32 s_or_not0_saveexec_b32", ONE, |i| saves((!i.a | i.exec) & LOW, i.exec)),
    ("s_andn2_saveexec_b32 s_and_not1_saveexec_b32", ONE, |i| saves(i.a & !i.exec, i.exec)),
    ("s_orn2_saveexec_b32 s_or_not1_saveexec_b32", ONE, |i| saves((i.a | !i.exec) & LOW, i.exec)),
    ("s_andn1_wrexec_b32 s_and_not0_wrexec_b32", ONE, |i| writes(!i.a & i.exec)),
    ("s_andn2_wrexec_b32 s_and_not1_wrexec_b32", ONE, |i| writes(i.a & !i.exec)),
];

const LOW: u64 = 0xffff_ffff;

/// Tables with their values, the bits of results, and the lanes of waves that run them if not all do.
const TABLES: [(&[Row], &[u64], u32, Option<u32>); 5] = [
    (ROWS, INTS, 32, None),
    (LONG_ROWS, LONGS, 64, None),
    (NARROW_ROWS, LONGS, 32, None),
    (EXEC_ROWS, INTS, 32, Some(32)),
    (WIDE_EXEC_ROWS, LONGS, 64, Some(64)),
];

/// Values, the bits of results, and the lanes of waves that run the rows if not all do.
#[derive(Clone, Copy)]
pub struct Kind {
    pub values: &'static [u64],
    pub bits: u32,
    pub lanes: Option<u32>,
    /// NaN equals NaN.
    pub float: bool,
}

#[test]
fn scalar_results_and_scc_match_wide_arithmetic() {
    for (rows, values, bits, lanes) in TABLES {
        check(rows, Kind { values, bits, lanes, float: false });
    }
}

/// Runs rows on all targets that know them.
pub fn check(rows: &[Row], kind: Kind) {
    let Some(compiler) = Compiler::find() else { return };
    let rows: Vec<(String, fn(In) -> Out)> = rows
        .iter()
        .flat_map(|(names, text, want)| names.split(' ').map(move |name| (format!("{name} {text}"), *want)))
        .collect();
    let texts: Vec<String> = rows.iter().map(|(text, _)| text.clone()).collect();
    let mut ran = vec![false; rows.len()];
    for setting in SETTINGS.into_iter().filter(|setting| kind.lanes.is_none_or(|lanes| setting.lanes == lanes)) {
        let Some(known) = setting.assembled(&compiler, &texts) else { return };
        for (((text, want), found), ran) in rows.iter().zip(known).zip(&mut ran) {
            let Some(found) = found else { continue };
            *ran = true;
            let has_second = text.contains("s4") || text.contains("s[4:5]");
            let seconds = if has_second { kind.values } else { &kind.values[3..5] };
            for (a, b) in kind.values.iter().flat_map(|a| seconds.iter().map(move |b| (*a, *b))) {
                for scc in [false, true] {
                    let exec = if setting.lanes == 64 { 0xf0f0_1234_8421_ffff } else { 0x8421_ffff };
                    let old = if kind.float { b } else { 0x8000_0000_7fff_fff1 >> (64 - kind.bits) };
                    let input = In { a, b, old, scc, exec };
                    let target = format!("{} of {} lanes", setting.target, setting.lanes);
                    let label = format!("{target}: {} of {a:#x} {b:#x} {scc}", found[0]);
                    let wave = Wave::new(setting.target.parse().unwrap(), setting.lanes);
                    one(wave, input, want(input), kind, &label, |wave| execute(wave, setting, &found));
                }
            }
        }
    }
    let never: Vec<&String> = texts.iter().zip(ran).filter(|(_, ran)| !ran).map(|(text, _)| text).collect();
    assert!(never.is_empty(), "no target's assembler knows {never:?}");
}

fn one(mut wave: Wave, input: In, want: Out, kind: Kind, label: &str, run: impl FnOnce(&mut Wave)) {
    for (register, value) in [(0, input.old), (2, input.a), (4, input.b)] {
        wave.scalar[register] = value as u32;
        wave.scalar[register + 1] = (value >> 32) as u32;
    }
    wave.scc = input.scc;
    wave.set_exec(input.exec);
    run(&mut wave);
    let have = u64::from(wave.scalar[0]) | u64::from(wave.scalar[1]) << 32;
    let mask = u64::MAX >> (64 - kind.bits);
    let nan = |bits: u64| kind.float && if kind.bits == 16 { from_f16(bits) } else { from_f32(bits) }.is_nan();
    if !(nan(have & mask) && nan(want.value & mask)) {
        assert_eq!(have & mask, want.value & mask, "{label}");
    }
    assert_eq!(wave.scc, want.scc.unwrap_or(input.scc), "{label}: SCC");
    assert_eq!(wave.exec(), want.exec.unwrap_or(input.exec), "{label}: EXEC");
}

/// Registers with a number in M0, and the MODE register.
#[test]
fn relative_moves_and_hardware_registers() {
    let Some(compiler) = Compiler::find() else { return };
    let texts = [
        "s_movrels_b32 s0, s2\ns_movreld_b32 s20, s2",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 0x5\ns_getreg_b32 s0, hwreg(HW_REG_MODE, 4, 4)",
        "s_setreg_b32 hwreg(HW_REG_MODE, 6, 2), s2\ns_getreg_b32 s0, hwreg(HW_REG_MODE, 0, 8)",
        "s_denorm_mode 0xa\ns_getreg_b32 s0, hwreg(HW_REG_MODE, 4, 4)",
        "s_round_mode 0x0\ns_getreg_b32 s0, hwreg(HW_REG_MODE, 0, 4)",
    ]
    .map(str::to_owned);
    let mut ran = [false; 5];
    for setting in SETTINGS {
        let Some(known) = setting.assembled(&compiler, &texts) else { return };
        for (at, found) in known.into_iter().enumerate() {
            let Some(found) = found else { continue };
            ran[at] = true;
            let mut wave = Wave::new(setting.target.parse().unwrap(), setting.lanes);
            (wave.scalar[2], wave.scalar[5], wave.scalar[124]) = (0x1_0001, 77, 3);
            execute(&mut wave, setting, &found);
            // MODE starts with all denormals on: 0xf0.
            let want = [77, 5, 0x70, 0xa, 0][at];
            assert_eq!(wave.scalar[0], want, "{}: {found:?}", setting.target);
            if at == 0 {
                assert_eq!((wave.scalar[20], wave.scalar[23]), (0, 0x1_0001), "{}: {found:?}", setting.target);
            }
        }
    }
    assert_eq!(ran, [true; 5]);
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    let special = [
        "s_movrels_b32",
        "s_movreld_b32",
        "s_setreg_imm32_b32",
        "s_setreg_b32",
        "s_getreg_b32",
        "s_denorm_mode",
        "s_round_mode",
    ];
    let rows = TABLES.into_iter().flat_map(|(rows, ..)| rows.iter()).flat_map(|(names, ..)| names.split(' '));
    rows.chain(special).collect()
}
