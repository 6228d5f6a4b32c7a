//! Scalar operations: results and SCC.

use super::machine::{INTS, step, wave};

/// The result, and SCC or `None` if it stays.
type Row = (&'static str, fn(u64, u64) -> (u64, Option<bool>));

fn nonzero(value: u64) -> (u64, Option<bool>) {
    (value & 0xffff_ffff, Some(value & 0xffff_ffff != 0))
}

fn signed(value: u64) -> i64 {
    i64::from(value as u32 as i32)
}

fn overflows(value: i64) -> (u64, Option<bool>) {
    (value as u64 & 0xffff_ffff, Some(i32::try_from(value).is_err()))
}

const ROWS: [Row; 24] = [
    ("s_mov_b32 s0, s2", |a, _| (a, None)),
    ("s_not_b32 s0, s2", |a, _| nonzero(!a)),
    ("s_add_u32 s0, s2, s4", |a, b| ((a + b) & 0xffff_ffff, Some(a + b > 0xffff_ffff))),
    ("s_sub_u32 s0, s2, s4", |a, b| (a.wrapping_sub(b) & 0xffff_ffff, Some(b > a))),
    ("s_add_i32 s0, s2, s4", |a, b| overflows(signed(a) + signed(b))),
    ("s_sub_i32 s0, s2, s4", |a, b| overflows(signed(a) - signed(b))),
    ("s_mul_i32 s0, s2, s4", |a, b| ((a * b) & 0xffff_ffff, None)),
    ("s_mul_hi_u32 s0, s2, s4", |a, b| ((a * b) >> 32, None)),
    ("s_mul_hi_i32 s0, s2, s4", |a, b| (((signed(a) * signed(b)) >> 32) as u64 & 0xffff_ffff, None)),
    ("s_and_b32 s0, s2, s4", |a, b| nonzero(a & b)),
    ("s_or_b32 s0, s2, s4", |a, b| nonzero(a | b)),
    ("s_xor_b32 s0, s2, s4", |a, b| nonzero(a ^ b)),
    ("s_and_not1_b32 s0, s2, s4", |a, b| nonzero(a & !b)),
    ("s_or_not1_b32 s0, s2, s4", |a, b| nonzero(a | !b)),
    ("s_lshl_b32 s0, s2, s4", |a, b| nonzero(a << (b % 32))),
    ("s_lshr_b32 s0, s2, s4", |a, b| nonzero(a >> (b % 32))),
    ("s_ashr_i32 s0, s2, s4", |a, b| nonzero((signed(a) >> (b % 32)) as u64)),
    ("s_min_u32 s0, s2, s4", |a, b| (a.min(b), Some(a < b))),
    ("s_max_u32 s0, s2, s4", |a, b| (a.max(b), Some(a >= b))),
    ("s_min_i32 s0, s2, s4", |a, b| (signed(a).min(signed(b)) as u64 & 0xffff_ffff, Some(signed(a) < signed(b)))),
    ("s_abs_i32 s0, s2", |a, _| nonzero(signed(a).unsigned_abs())),
    ("s_bcnt1_i32_b32 s0, s2", |a, _| nonzero((0..32).map(|bit| a >> bit & 1).sum())),
    ("s_brev_b32 s0, s2", |a, _| ((0..32).fold(0, |result, bit| result | (a >> bit & 1) << (31 - bit)), None)),
    ("s_bfe_u32 s0, s2, 0x80004", |a, _| nonzero(a >> 4 & 0xff)),
];

#[test]
fn results_and_scc_match_wide_arithmetic() {
    for (text, want) in ROWS {
        for a in INTS {
            for b in INTS {
                for scc in [false, true] {
                    let mut wave = wave("gfx1100", 32);
                    (wave.scalar[2], wave.scalar[4], wave.scc) = (a, b, scc);
                    step(&mut wave, text);
                    let (result, new) = want(u64::from(a), u64::from(b));
                    assert_eq!(u64::from(wave.scalar[0]), result, "{text} {a:#x} {b:#x}");
                    assert_eq!(wave.scc, new.unwrap_or(scc), "{text} {a:#x} {b:#x}: SCC");
                }
            }
        }
    }
}

#[test]
fn carries_chain_through_scc() {
    let mut wave = wave("gfx1100", 32);
    let (a, b) = (0xffff_ffff_ffff_fffe_u64, 0x0000_0001_0000_0003_u64);
    (wave.scalar[2], wave.scalar[3]) = (a as u32, (a >> 32) as u32);
    (wave.scalar[4], wave.scalar[5]) = (b as u32, (b >> 32) as u32);
    step(&mut wave, "s_add_u32 s0, s2, s4");
    step(&mut wave, "s_addc_u32 s1, s3, s5");
    let have = u64::from(wave.scalar[0]) | u64::from(wave.scalar[1]) << 32;
    assert_eq!((have, wave.scc), (a.wrapping_add(b), true));
    step(&mut wave, "s_sub_u32 s0, s4, s2");
    step(&mut wave, "s_subb_u32 s1, s5, s3");
    let have = u64::from(wave.scalar[0]) | u64::from(wave.scalar[1]) << 32;
    assert_eq!((have, wave.scc), (b.wrapping_sub(a), true));
}

#[test]
fn saved_masks_and_selects_follow_exec_and_scc() {
    let mut wave = wave("gfx1100", 32);
    wave.set_exec(0xff00);
    wave.scalar[2] = 0x0ff0;
    step(&mut wave, "s_and_saveexec_b32 s0, s2");
    assert_eq!((wave.scalar[0], wave.exec(), wave.scc), (0xff00, 0x0f00, true));
    step(&mut wave, "s_or_saveexec_b32 s1, s2");
    assert_eq!((wave.scalar[1], wave.exec()), (0x0f00, 0x0ff0));
    step(&mut wave, "s_and_not1_saveexec_b32 s1, s2");
    assert_eq!((wave.exec(), wave.scc), (0, false));
    step(&mut wave, "s_cselect_b32 s3, 5, 9");
    assert_eq!(wave.scalar[3], 9);
    step(&mut wave, "s_cmp_lg_u32 s3, 5");
    step(&mut wave, "s_cselect_b64 s[6:7], -1, 0");
    assert_eq!((wave.scalar[6], wave.scalar[7]), (u32::MAX, u32::MAX));
    step(&mut wave, "s_bitcmp1_b32 s3, 3");
    assert!(wave.scc);
    step(&mut wave, "s_movk_i32 s0, 0xfff0");
    step(&mut wave, "s_addk_i32 s0, 0x20");
    assert_eq!((wave.scalar[0], wave.scc), (16, false));
    step(&mut wave, "s_mov_b32 null, 7");
    step(&mut wave, "s_or_b32 s0, null, 0");
    assert_eq!(wave.scalar[0], 0);
}
