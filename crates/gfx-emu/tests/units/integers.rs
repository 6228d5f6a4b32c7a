//! Integer operations of 32 bits, against arithmetic of 128 bits.

use super::machine::{INTS, each_triple, exactly, step, wave};

type Row = (&'static str, fn(i128, i128, i128) -> i128);

/// Operands as unsigned numbers; the result is cut to 32 bits.
const UNSIGNED: [Row; 30] = [
    ("v_mov_b32 v0, v1", |a, _, _| a),
    ("v_not_b32_e32 v0, v1", |a, _, _| -1 - a),
    ("v_add_nc_u32 v0, v1, v2", |a, b, _| a + b),
    ("v_sub_nc_u32_e64 v0, v1, v2", |a, b, _| a - b),
    ("v_subrev_nc_u32 v0, v1, v2", |a, b, _| b - a),
    ("v_add_nc_u32_e64 v0, v1, v2 clamp", |a, b, _| (a + b).min(0xffff_ffff)),
    ("v_sub_nc_u32_e64 v0, v1, v2 clamp", |a, b, _| (a - b).max(0)),
    ("v_mul_lo_u32 v0, v1, v2", |a, b, _| a * b),
    ("v_mul_hi_u32 v0, v1, v2", |a, b, _| (a * b) >> 32),
    ("v_mul_u32_u24 v0, v1, v2", |a, b, _| a % (1 << 24) * (b % (1 << 24))),
    ("v_mad_u32_u24 v0, v1, v2, v3", |a, b, c| a % (1 << 24) * (b % (1 << 24)) + c),
    ("v_min_u32 v0, v1, v2", |a, b, _| a.min(b)),
    ("v_max_u32 v0, v1, v2", |a, b, _| a.max(b)),
    ("v_min3_u32 v0, v1, v2, v3", |a, b, c| *[a, b, c].iter().min().unwrap()),
    ("v_max3_u32 v0, v1, v2, v3", |a, b, c| *[a, b, c].iter().max().unwrap()),
    ("v_med3_u32 v0, v1, v2, v3", |a, b, c| sorted([a, b, c])[1]),
    ("v_add3_u32 v0, v1, v2, v3", |a, b, c| a + b + c),
    ("v_lshl_add_u32 v0, v1, v2, v3", |a, b, c| (a << (b % 32)) + c),
    ("v_add_lshl_u32 v0, v1, v2, v3", |a, b, c| (a + b) << (c % 32)),
    ("v_lshl_or_b32 v0, v1, v2, v3", |a, b, c| a << (b % 32) | c),
    ("v_and_or_b32 v0, v1, v2, v3", |a, b, c| a & b | c),
    ("v_or3_b32 v0, v1, v2, v3", |a, b, c| a | b | c),
    ("v_xad_u32 v0, v1, v2, v3", |a, b, c| (a ^ b) + c),
    ("v_lshlrev_b32 v0, v1, v2", |a, b, _| b << (a % 32)),
    ("v_lshrrev_b32 v0, v1, v2", |a, b, _| b >> (a % 32)),
    ("v_bfe_u32 v0, v1, v2, v3", |a, b, c| (a >> (b % 32)) % (1 << (c % 32))),
    ("v_bfi_b32 v0, v1, v2, v3", |a, b, c| a & b | (0xffff_ffff - a) & c),
    ("v_alignbit_b32 v0, v1, v2, v3", |a, b, c| ((a << 32) + b) >> (c % 32)),
    ("v_clz_i32_u32 v0, v1", |a, _, _| (0..32).find(|n| a >> (31 - n) & 1 == 1).unwrap_or(-1)),
    ("v_ctz_i32_b32 v0, v1", |a, _, _| (0..32).find(|n| a >> n & 1 == 1).unwrap_or(-1)),
];

/// Operands as signed numbers.
const SIGNED: [Row; 12] = [
    ("v_min_i32 v0, v1, v2", |a, b, _| a.min(b)),
    ("v_max_i32 v0, v1, v2", |a, b, _| a.max(b)),
    ("v_med3_i32 v0, v1, v2, v3", |a, b, c| sorted([a, b, c])[1]),
    ("v_minmax_i32 v0, v1, v2, v3", |a, b, c| a.min(b).max(c)),
    ("v_maxmin_i32 v0, v1, v2, v3", |a, b, c| a.max(b).min(c)),
    ("v_ashrrev_i32 v0, v1, v2", |a, b, _| b >> (a & 31)),
    ("v_mul_hi_i32 v0, v1, v2", |a, b, _| (a * b) >> 32),
    ("v_mul_i32_i24 v0, v1, v2", |a, b, _| low24(a) * low24(b)),
    ("v_add_nc_i32 v0, v1, v2 clamp", |a, b, _| (a + b).clamp(-(1 << 31), (1 << 31) - 1)),
    ("v_sub_nc_i32 v0, v1, v2 clamp", |a, b, _| (a - b).clamp(-(1 << 31), (1 << 31) - 1)),
    ("v_cls_i32 v0, v1", |a, _, _| (1..32).find(|n| a >> (31 - n) & 1 != a >> 31 & 1).unwrap_or(-1)),
    ("v_bfe_i32 v0, v1, v2, v3", |a, b, c| {
        let (offset, width) = (b & 31, c & 31);
        let field = (a >> offset) & ((1 << width) - 1);
        if width > 0 && field >> (width - 1) & 1 == 1 { field - (1 << width) } else { field }
    }),
];

fn sorted(mut values: [i128; 3]) -> [i128; 3] {
    values.sort_unstable();
    values
}

fn low24(value: i128) -> i128 {
    let low = value & 0xff_ffff;
    if low >= 1 << 23 { low - (1 << 24) } else { low }
}

#[test]
fn unsigned_operations_match_wide_arithmetic() {
    for (text, want) in UNSIGNED {
        let want = |a, b, c| want(i128::from(a), i128::from(b), i128::from(c)) as u32;
        each_triple("gfx1100", text, &INTS, exactly, &want);
    }
}

#[test]
fn signed_operations_match_wide_arithmetic() {
    for (text, want) in SIGNED {
        let wide = |value: u32| i128::from(value as i32);
        let want = |a, b, c| want(wide(a), wide(b), wide(c)) as u32;
        each_triple("gfx1100", text, &INTS, exactly, &want);
    }
}

#[test]
fn bytes_are_permuted_by_their_selectors() {
    let mut wave = wave("gfx1100", 32);
    for (selector, want) in [
        (0x0706_0504, 0x1122_3344),
        (0x0302_0100, 0x5566_7788),
        (0x0c0c_0c07, 0x0000_0011),
        (0x0d0c_0c0c, 0xff00_0000),
        // Signs of bytes 1, 3, 5 and 7.
        (0x0b0a_0908, 0x0000_00ff),
    ] {
        wave.set_lane(1, 0, 0x1122_3344);
        wave.set_lane(2, 0, if selector == 0x0b0a_0908 { 0x0000_8000 } else { 0x5566_7788 });
        wave.set_lane(3, 0, selector);
        step(&mut wave, "v_perm_b32 v0, v1, v2, v3");
        assert_eq!(wave.lane(0, 0), want, "{selector:#x}");
    }
}

#[test]
fn carries_go_in_and_out_of_masks_and_inactive_lanes_have_none() {
    for (target, lanes, vcc) in [("gfx1100", 32, "vcc_lo"), ("gfx942", 64, "vcc")] {
        let mut wave = wave(target, lanes);
        for lane in 0..lanes {
            wave.set_lane(1, lane, u32::MAX - lane % 3);
            wave.set_lane(2, lane, 1);
        }
        wave.set_exec(!0 << 3);
        step(&mut wave, &format!("v_add_co_u32 v0, {vcc}, v1, v2"));
        let all = if lanes == 64 { u64::MAX } else { u64::from(u32::MAX) };
        let want = (3..lanes).filter(|lane| lane % 3 == 0).fold(0, |mask, lane| mask | 1u64 << lane);
        assert_eq!(wave.vcc(), want & all, "{target}");
        let name = if lanes == 64 { "v_addc_co_u32" } else { "v_add_co_ci_u32" };
        step(&mut wave, &format!("{name} v3, {vcc}, v1, v2, {vcc}"));
        for lane in 3..lanes {
            let sum = u64::from(u32::MAX - lane % 3) + 1 + (want >> lane & 1);
            assert_eq!(wave.lane(3, lane), sum as u32);
            assert_eq!(wave.vcc() >> lane & 1, sum >> 32, "{target} lane {lane}");
        }
        assert_eq!(wave.lane(3, 0), 0);
    }
}

#[test]
fn products_of_64_bits_and_shifts_match_wide_arithmetic() {
    let mut wave = wave("gfx1100", 32);
    for (a, b, c) in [(u32::MAX, u32::MAX, u64::MAX), (3, 5, 7), (0x8000_0000, 2, 1 << 63), (0xffff_fffe, 9, 1 << 40)] {
        wave.set_lane(2, 0, a);
        wave.set_lane(3, 0, b);
        wave.set_lane(4, 0, c as u32);
        wave.set_lane(5, 0, (c >> 32) as u32);
        step(&mut wave, "v_mad_u64_u32 v[0:1], vcc_lo, v2, v3, v[4:5]");
        let want = u128::from(a) * u128::from(b) + u128::from(c);
        let have = u64::from(wave.lane(0, 0)) | u64::from(wave.lane(1, 0)) << 32;
        assert_eq!((have, wave.vcc() & 1), (want as u64, u64::from(want >> 64 != 0)));
        for by in [0u32, 1, 31, 32, 63, 64, 65] {
            wave.set_lane(2, 0, by);
            step(&mut wave, "v_lshlrev_b64 v[0:1], v2, v[4:5]");
            let have = u64::from(wave.lane(0, 0)) | u64::from(wave.lane(1, 0)) << 32;
            assert_eq!(have, (u128::from(c) << (by % 64)) as u64);
            step(&mut wave, "v_ashrrev_i64 v[0:1], v2, v[4:5]");
            let have = u64::from(wave.lane(0, 0)) | u64::from(wave.lane(1, 0)) << 32;
            assert_eq!(have, (i128::from(c as i64) >> (by % 64)) as u64);
        }
    }
}

#[test]
fn comparisons_write_masks_with_zeros_for_inactive_lanes() {
    type Test = fn(i64, i64) -> bool;
    type Widen = fn(u32) -> i64;
    let tests: [(&str, Test); 6] = [
        ("eq", |a, b| a == b),
        ("ne", |a, b| a != b),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
    ];
    let widths: [(&str, Widen); 4] = [
        ("u32", i64::from),
        ("i32", |value| i64::from(value as i32)),
        ("u16", |value| i64::from(value as u16)),
        ("i16", |value| i64::from(value as i16)),
    ];
    for (name, test) in tests {
        for (kind, widen) in widths {
            for other in INTS {
                let mut wave = wave("gfx1100", 32);
                (0..32).for_each(|lane| wave.set_lane(1, lane, INTS[lane as usize % 13]));
                (0..32).for_each(|lane| wave.set_lane(2, lane, other));
                wave.set_exec(0xffff_fff0);
                step(&mut wave, &format!("v_cmp_{name}_{kind} s5, v1, v2"));
                let want = (4..32).filter(|lane| test(widen(INTS[*lane as usize % 13]), widen(other)));
                let want = want.fold(0u32, |mask, lane| mask | 1 << lane);
                assert_eq!(wave.scalar[5], want, "{name} {kind} {other:#x}");
                step(&mut wave, &format!("v_cmpx_{name}_{kind} v1, v2"));
                assert_eq!(wave.exec(), u64::from(want), "{name} {kind} {other:#x}");
            }
        }
    }
}
