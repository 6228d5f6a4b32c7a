//! Integers of 32 and 64 bits.

use super::lanes::{Case, Same, check};
use super::soft::{INTS, LONGS};

type Row = (&'static str, &'static str, fn([u64; 3]) -> u64);

/// The low 32 bits as a signed number.
fn s(value: u64) -> i64 {
    i64::from(value as u32 as i32)
}

/// A signed number of 24 bits.
fn s24(value: u64) -> i64 {
    (s(value << 8)) >> 8
}

/// Stops at the limits of 32 bits.
fn limited(value: i64) -> u64 {
    value.clamp(-0x8000_0000, 0x7fff_ffff) as u64
}

fn middle<T: Ord>(mut values: [T; 3]) -> T {
    values.sort();
    let [_, middle, _] = values;
    middle
}

/// The number of the first place, from the top or from the bottom, that has a 1; else all ones.
fn first_one(value: u64, from_top: bool) -> u64 {
    let bit = |at: u64| value >> (if from_top { 31 - at } else { at }) & 1;
    (0..32).find(|at| bit(*at) == 1).unwrap_or(u64::MAX)
}

fn bytes(value: u64) -> [u64; 4] {
    [0, 8, 16, 24].map(|at| value >> at & 0xff)
}

/// One byte of v_perm_b32: of the eight bytes of both sources, a sign, 0 or 0xff.
fn permuted(a: u64, b: u64, select: u64) -> u64 {
    let all = [bytes(b), bytes(a)].concat();
    let one = |select: u64| match select {
        0..=7 => all[select as usize],
        8..=11 => {
            if all[select as usize * 2 - 15] >= 0x80 {
                0xff
            } else {
                0
            }
        }
        12 => 0,
        _ => 0xff,
    };
    bytes(select).into_iter().rev().fold(0, |result, select| result << 8 | one(select))
}

/// The truth table of v_bitop3: bit (a, b, c) of the control.
fn table(a: u64, b: u64, c: u64, control: u64) -> u64 {
    (0..32).fold(0, |result, bit| {
        let row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1;
        result | (control >> row & 1) << bit
    })
}

const ROWS: &[Row] = &[
    ("v_mov_b32", "v0, v2", |[a, ..]| a),
    ("v_not_b32", "v0, v2", |[a, ..]| 0xffff_ffff - a),
    ("v_bfrev_b32", "v0, v2", |[a, ..]| (0..32).fold(0, |result, bit| result | (a >> bit & 1) << (31 - bit))),
    ("v_ffbh_u32 v_clz_i32_u32", "v0, v2", |[a, ..]| first_one(a, true)),
    ("v_ffbl_b32 v_ctz_i32_b32", "v0, v2", |[a, ..]| first_one(a, false)),
    ("v_ffbh_i32 v_cls_i32", "v0, v2", |[a, ..]| first_one(if s(a) < 0 { !a } else { a }, true)),
    ("v_add_u32 v_add_nc_u32", "v0, v2, v4", |[a, b, _]| a + b),
    ("v_add_u32 v_add_nc_u32", "v0, v2, v4 clamp", |[a, b, _]| (a + b).min(0xffff_ffff)),
    ("v_sub_u32 v_sub_nc_u32", "v0, v2, v4", |[a, b, _]| a.wrapping_sub(b)),
    ("v_sub_u32 v_sub_nc_u32", "v0, v2, v4 clamp", |[a, b, _]| a.max(b) - b),
    ("v_subrev_u32 v_subrev_nc_u32", "v0, v2, v4", |[a, b, _]| b.wrapping_sub(a)),
    ("v_add_i32 v_add_nc_i32", "v0, v2, v4", |[a, b, _]| a + b),
    ("v_add_i32 v_add_nc_i32", "v0, v2, v4 clamp", |[a, b, _]| limited(s(a) + s(b))),
    ("v_sub_i32 v_sub_nc_i32", "v0, v2, v4", |[a, b, _]| a.wrapping_sub(b)),
    ("v_sub_i32 v_sub_nc_i32", "v0, v2, v4 clamp", |[a, b, _]| limited(s(a) - s(b))),
    ("v_mul_lo_u32", "v0, v2, v4", |[a, b, _]| a * b),
    ("v_mul_hi_u32", "v0, v2, v4", |[a, b, _]| a * b >> 32),
    ("v_mul_hi_i32", "v0, v2, v4", |[a, b, _]| (s(a) * s(b) >> 32) as u64),
    ("v_mul_u32_u24", "v0, v2, v4", |[a, b, _]| (a & 0xff_ffff) * (b & 0xff_ffff)),
    ("v_mul_hi_u32_u24", "v0, v2, v4", |[a, b, _]| (a & 0xff_ffff) * (b & 0xff_ffff) >> 32),
    ("v_mul_i32_i24", "v0, v2, v4", |[a, b, _]| (s24(a) * s24(b)) as u64),
    ("v_mul_hi_i32_i24", "v0, v2, v4", |[a, b, _]| (s24(a) * s24(b) >> 32) as u64),
    ("v_mad_u32_u24", "v0, v2, v4, v6", |[a, b, c]| (a & 0xff_ffff) * (b & 0xff_ffff) + c),
    ("v_mad_i32_i24", "v0, v2, v4, v6", |[a, b, c]| (s24(a) * s24(b) + s(c)) as u64),
    ("v_min_i32", "v0, v2, v4", |[a, b, _]| s(a).min(s(b)) as u64),
    ("v_max_i32", "v0, v2, v4", |[a, b, _]| s(a).max(s(b)) as u64),
    ("v_min_u32", "v0, v2, v4", |[a, b, _]| a.min(b)),
    ("v_max_u32", "v0, v2, v4", |[a, b, _]| a.max(b)),
    ("v_min3_i32", "v0, v2, v4, v6", |v| v.map(s).into_iter().min().unwrap() as u64),
    ("v_max3_i32", "v0, v2, v4, v6", |v| v.map(s).into_iter().max().unwrap() as u64),
    ("v_min3_u32", "v0, v2, v4, v6", |v| v.into_iter().min().unwrap()),
    ("v_max3_u32", "v0, v2, v4, v6", |v| v.into_iter().max().unwrap()),
    ("v_med3_i32", "v0, v2, v4, v6", |v| middle(v.map(s)) as u64),
    ("v_med3_u32", "v0, v2, v4, v6", |v| middle(v)),
    ("v_minmax_i32", "v0, v2, v4, v6", |[a, b, c]| s(a).min(s(b)).max(s(c)) as u64),
    ("v_maxmin_i32", "v0, v2, v4, v6", |[a, b, c]| s(a).max(s(b)).min(s(c)) as u64),
    ("v_minmax_u32", "v0, v2, v4, v6", |[a, b, c]| a.min(b).max(c)),
    ("v_maxmin_u32", "v0, v2, v4, v6", |[a, b, c]| a.max(b).min(c)),
    ("v_and_b32", "v0, v2, v4", |[a, b, _]| a & b),
    ("v_or_b32", "v0, v2, v4", |[a, b, _]| a | b),
    ("v_xor_b32", "v0, v2, v4", |[a, b, _]| a ^ b),
    ("v_xnor_b32", "v0, v2, v4", |[a, b, _]| !(a ^ b)),
    ("v_and_or_b32", "v0, v2, v4, v6", |[a, b, c]| a & b | c),
    ("v_or3_b32", "v0, v2, v4, v6", |[a, b, c]| a | b | c),
    ("v_xor3_b32", "v0, v2, v4, v6", |[a, b, c]| a ^ b ^ c),
    ("v_lshlrev_b32", "v0, v2, v4", |[a, b, _]| b << (a % 32)),
    ("v_lshrrev_b32", "v0, v2, v4", |[a, b, _]| b >> (a % 32)),
    ("v_ashrrev_i32", "v0, v2, v4", |[a, b, _]| (s(b) >> (a % 32)) as u64),
    ("v_lshl_or_b32", "v0, v2, v4, v6", |[a, b, c]| a << (b % 32) | c),
    ("v_lshl_add_u32", "v0, v2, v4, v6", |[a, b, c]| (a << (b % 32)) + c),
    ("v_add_lshl_u32", "v0, v2, v4, v6", |[a, b, c]| (a + b) << (c % 32)),
    ("v_add3_u32", "v0, v2, v4, v6", |[a, b, c]| a + b + c),
    ("v_xad_u32", "v0, v2, v4, v6", |[a, b, c]| (a ^ b) + c),
    ("v_bfe_u32", "v0, v2, v4, v6", |[a, b, c]| (a >> (b % 32)) % (1 << (c % 32))),
    ("v_bfe_i32", "v0, v2, v4, v6", |[a, b, c]| match c % 32 {
        0 => 0,
        // Bits above the 32nd are copies of the sign.
        width => ((s(a) >> (b % 32)) << (64 - width) >> (64 - width)) as u64,
    }),
    ("v_bfi_b32", "v0, v2, v4, v6", |[a, b, c]| {
        (0..32).fold(0, |r, n| r | (if a >> n & 1 == 1 { b } else { c }) & 1 << n)
    }),
    ("v_bfm_b32", "v0, v2, v4", |[a, b, _]| ((1 << (a % 32)) - 1) << (b % 32)),
    ("v_bcnt_u32_b32", "v0, v2, v4", |[a, b, _]| (0..32).map(|bit| a >> bit & 1).sum::<u64>() + b),
    ("v_alignbit_b32", "v0, v2, v4, v6", |[a, b, c]| (a << 32 | b) >> (c % 32)),
    ("v_alignbyte_b32", "v0, v2, v4, v6", |[a, b, c]| (a << 32 | b) >> (c % 4 * 8)),
    ("v_perm_b32", "v0, v2, v4, v6", |[a, b, c]| permuted(a, b, c)),
    ("v_perm_b32", "v0, v2, v4, 0x0b0a0908", |[a, b, _]| permuted(a, b, 0x0b0a_0908)),
    ("v_perm_b32", "v0, v2, v4, 0x070c0d02", |[a, b, _]| permuted(a, b, 0x070c_0d02)),
    ("v_sad_u8", "v0, v2, v4, v6", |[a, b, c]| {
        bytes(a).iter().zip(bytes(b)).map(|(a, b)| a.abs_diff(b)).sum::<u64>() + c
    }),
    ("v_sad_u32", "v0, v2, v4, v6", |[a, b, c]| a.abs_diff(b) + c),
];

const LONG_ROWS: &[Row] = &[
    ("v_lshlrev_b64", "v[0:1], v2, v[4:5]", |[a, b, _]| b << (a % 64)),
    ("v_lshrrev_b64", "v[0:1], v2, v[4:5]", |[a, b, _]| b >> (a % 64)),
    ("v_ashrrev_i64", "v[0:1], v2, v[4:5]", |[a, b, _]| (b as i64 >> (a % 64)) as u64),
    // The shift is at most 4.
    ("v_lshl_add_u64", "v[0:1], v[2:3], 3, v[6:7]", |[a, _, c]| (a << 3).wrapping_add(c)),
    ("v_mov_b64", "v[0:1], v[2:3]", |[a, ..]| a),
];

fn cases() -> Vec<Case> {
    let row = |values, bits| {
        move |&(names, operands, want): &Row| Case::new(names, operands, (values, bits, Same::Bits), want)
    };
    let mut cases: Vec<Case> = ROWS.iter().map(row(INTS, 32)).chain(LONG_ROWS.iter().map(row(LONGS, 64))).collect();
    let mut carries = |names, operands: &str, bits, want: fn([u64; 3], bool) -> (u64, bool)| {
        let want = Box::new(move |sources, taken| {
            let (value, carry) = want(sources, taken);
            (value, Some(carry))
        });
        let values = if bits == 64 { LONGS } else { INTS };
        cases.push(Case { names, text: format!("{{}} {operands}"), values, bits, same: Same::Bits, adds: false, want });
    };
    for operands in ["v0, VCC, v2, v4", "v0, MASK, v2, v4"] {
        carries("v_add_co_u32", operands, 32, |[a, b, _], _| (a + b, a + b > 0xffff_ffff));
        carries("v_sub_co_u32", operands, 32, |[a, b, _], _| (a.wrapping_sub(b), b > a));
        carries("v_subrev_co_u32", operands, 32, |[a, b, _], _| (b.wrapping_sub(a), a > b));
    }
    for operands in ["v0, VCC, v2, v4, VCC", "v0, MASK, v2, v4, IN"] {
        carries("v_addc_co_u32 v_add_co_ci_u32", operands, 32, |[a, b, _], taken| {
            let sum = a + b + u64::from(taken);
            (sum, sum > 0xffff_ffff)
        });
        carries("v_subb_co_u32 v_sub_co_ci_u32", operands, 32, |[a, b, _], taken| {
            let difference = a as i64 - b as i64 - i64::from(taken);
            (difference as u64, difference < 0)
        });
        carries("v_subbrev_co_u32 v_subrev_co_ci_u32", operands, 32, |[a, b, _], taken| {
            let difference = b as i64 - a as i64 - i64::from(taken);
            (difference as u64, difference < 0)
        });
    }
    carries("v_mad_u64_u32 v_mad_co_u64_u32", "v[0:1], MASK, v2, v4, v[6:7]", 64, |[a, b, c], _| {
        let sum = u128::from(a as u32) * u128::from(b as u32) + u128::from(c);
        (sum as u64, sum >> 64 != 0)
    });
    carries("v_mad_i64_i32 v_mad_co_i64_i32", "v[0:1], MASK, v2, v4, v[6:7]", 64, |[a, b, c], _| {
        let sum = i128::from(s(a)) * i128::from(s(b)) + i128::from(c as i64);
        (sum as u64, i64::try_from(sum).is_err())
    });
    for operands in ["v0, v2, v4, VCC", "v0, v2, v4, IN"] {
        cases.push(Case {
            names: "v_cndmask_b32",
            text: format!("{{}} {operands}"),
            values: INTS,
            bits: 32,
            same: Same::Bits,
            adds: false,
            want: Box::new(|[a, b, _], taken| (if taken { b } else { a }, None)),
        });
    }
    // The signs are those of floats.
    cases.push(Case {
        names: "v_cndmask_b32",
        text: "{}_e64 v0, -v2, |v4|, IN".to_owned(),
        values: INTS,
        bits: 32,
        same: Same::Bits,
        adds: false,
        want: Box::new(|[a, b, _], taken| (if taken { b & 0x7fff_ffff } else { a ^ 0x8000_0000 }, None)),
    });
    let accumulators = "v_accvgpr_write_b32 a1, v2\nv_accvgpr_mov_b32 a3, a1\nv_accvgpr_read_b32 v0, a3";
    cases.push(Case {
        text: accumulators.to_owned(),
        ..Case::new("v_accvgpr_write_b32", "", (INTS, 32, Same::Bits), |[a, ..]| a)
    });
    cases
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    let rows = cases();
    rows.iter().flat_map(|case| case.names.split(' ')).chain(["v_accvgpr_read_b32", "v_accvgpr_mov_b32"]).collect()
}

#[test]
fn integers_of_32_and_64_bits_match_wide_arithmetic() {
    check(&cases());
}

/// Instructions that no assembler here knows, from their text.
#[test]
fn newer_mnemonics_are_executed_from_their_text() {
    use super::text_only::each;
    each("gfx950", "v_bitop3_b32 v0, v2, v4, v6 bitop3:0x96", INTS, 32, &|[a, b, c]| a ^ b ^ c);
    each("gfx950", "v_bitop3_b32 v0, v2, v4, v6 bitop3:0x1d", INTS, 32, &|[a, b, c]| table(a, b, c, 0x1d));
    each("gfx1201", "v_add_nc_u64 v[0:1], v[2:3], v[4:5]", LONGS, 64, &|[a, b, _]| a.wrapping_add(b));
    each("gfx1201", "v_sub_nc_u64 v[0:1], v[2:3], v[4:5]", LONGS, 64, &|[a, b, _]| a.wrapping_sub(b));
    each("gfx942", "v_mul_lo_i32 v0, v2, v4", INTS, 32, &|[a, b, _]| a * b);
}

/// Mnemonics that the test above executes from their text.
pub fn text_names() -> [String; 4] {
    ["v_bitop3_b32", "v_add_nc_u64", "v_sub_nc_u64", "v_mul_lo_i32"].map(str::to_owned)
}
