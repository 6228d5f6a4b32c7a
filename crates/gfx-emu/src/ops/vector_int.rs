//! Integer operations of 32 bits in each lane.

use super::lane::{b32_1, b32_2, b32_3};
use super::{Entry, op, op_carry};
use crate::inst::{Dst, Inst};
use crate::simd::wide;
use crate::wave::{LANES, Wave};

fn signed(value: u32) -> i32 {
    value as i32
}

/// A 24-bit unsigned number.
fn u24(value: u32) -> u64 {
    u64::from(value & 0xff_ffff)
}

/// A 24-bit signed number.
fn i24(value: u32) -> i64 {
    i64::from((value << 8) as i32 >> 8)
}

/// Sums with carry in and out of each lane.
#[inline(always)]
fn carry(w: &mut Wave, i: &Inst, with_carry: bool, f: impl Fn(u32, u32, u32) -> (u32, bool)) {
    let mut carries = 0u64;
    let taken = if with_carry { w.mask_of(i.src[2]) } else { 0 };
    for half in 0..w.halves {
        let (mut room0, mut room1) = ([0; LANES], [0; LANES]);
        let (mut out, mut over) = ([0; LANES], [0; LANES]);
        let a = w.lanes32(i.src[0], half, &mut room0);
        let b = w.lanes32(i.src[1], half, &mut room1);
        let taken = (taken >> (half * LANES)) as u32;
        wide(
            #[inline(always)]
            || {
                for lane in 0..LANES {
                    let (value, carry) = f(a[lane], b[lane], taken >> lane & 1);
                    (out[lane], over[lane]) = (value, u32::from(carry));
                }
            },
        );
        if i.mods.clamp {
            // Saturates: the largest number for sums, 0 for differences.
            for lane in 0..LANES {
                let difference = over[lane] == 1 && f(0, 1, 0).1;
                out[lane] = if over[lane] == 0 {
                    out[lane]
                } else if difference {
                    0
                } else {
                    u32::MAX
                };
            }
        }
        carries |= u64::from(super::lane::mask_of(&over) & w.exec_half(half)) << (half * LANES);
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &out);
        }
    }
    w.set_mask(i.sdst, carries);
}

#[inline(always)]
fn add(a: u32, b: u32, carry: u32) -> (u32, bool) {
    let sum = u64::from(a) + u64::from(b) + u64::from(carry);
    (sum as u32, sum >> 32 != 0)
}

#[inline(always)]
fn sub(a: u32, b: u32, borrow: u32) -> (u32, bool) {
    let difference = u64::from(a).wrapping_sub(u64::from(b)).wrapping_sub(u64::from(borrow));
    (difference as u32, difference >> 63 != 0)
}

/// A sum that saturates if the instruction says so.
#[inline(always)]
fn sum(w: &mut Wave, i: &Inst, f: fn(u32, u32) -> u32, saturating: fn(u32, u32) -> u32) {
    if i.mods.clamp { b32_2(w, i, saturating) } else { b32_2(w, i, f) }
}

#[inline(always)]
fn perm(high: u32, low: u32, select: u32) -> u32 {
    let both = u64::from(high) << 32 | u64::from(low);
    let byte = |at: u32| {
        let pick = select >> (at * 8) & 0xff;
        match pick {
            0..=7 => (both >> (pick * 8)) as u32 & 0xff,
            // The sign of one of the odd bytes.
            8..=11 => (((both >> ((pick - 8) * 16 + 15)) & 1) as u32) * 0xff,
            12 => 0,
            _ => 0xff,
        }
    };
    byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24
}

#[inline(always)]
fn bfe_u(value: u32, offset: u32, width: u32) -> u32 {
    let mask = (1u32 << (width & 31)) - 1;
    value >> (offset & 31) & mask
}

#[inline(always)]
fn bfe_i(value: u32, offset: u32, width: u32) -> u32 {
    let width = width & 31;
    let bits = bfe_u(value, offset, width);
    // Arithmetic shift: what lies above bit 31 is the sign.
    let (offset, whole) = (offset & 31, value as i32);
    let shifted = (whole >> offset) as u32;
    if width == 0 {
        0
    } else if offset + width >= 32 {
        shifted
    } else {
        ((bits << (32 - width)) as i32 >> (32 - width)) as u32
    }
}

fn clz(value: u32) -> u32 {
    if value == 0 { u32::MAX } else { value.leading_zeros() }
}

fn ctz(value: u32) -> u32 {
    if value == 0 { u32::MAX } else { value.trailing_zeros() }
}

fn cls(value: u32) -> u32 {
    let ones = (value as i32 >> 31) as u32;
    if value == ones { u32::MAX } else { (value ^ ones).leading_zeros() }
}

fn bitop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    (0..8).filter(|row| table >> row & 1 == 1).fold(0, |result, row: u32| {
        let pick = |value: u32, bit: u32| if row >> bit & 1 == 1 { value } else { !value };
        result | pick(a, 2) & pick(b, 1) & pick(c, 0)
    })
}

fn sad_u8(a: u32, b: u32, c: u32) -> u32 {
    let byte = |value: u32, at: u32| value >> (at * 8) & 0xff;
    (0..4).fold(c, |sum, at| sum.wrapping_add(byte(a, at).abs_diff(byte(b, at))))
}

pub const TABLE: &[Entry] = &[
    op("v_mov_b32", |w, i| b32_1(w, i, |a| a)),
    op("v_not_b32", |w, i| b32_1(w, i, |a| !a)),
    op("v_bfrev_b32", |w, i| b32_1(w, i, u32::reverse_bits)),
    op("v_ffbh_u32", |w, i| b32_1(w, i, clz)),
    op("v_clz_i32_u32", |w, i| b32_1(w, i, clz)),
    op("v_ffbl_b32", |w, i| b32_1(w, i, ctz)),
    op("v_ctz_i32_b32", |w, i| b32_1(w, i, ctz)),
    op("v_ffbh_i32", |w, i| b32_1(w, i, cls)),
    op("v_cls_i32", |w, i| b32_1(w, i, cls)),
    op("v_accvgpr_read_b32", |w, i| b32_1(w, i, |a| a)),
    op("v_accvgpr_write_b32", |w, i| b32_1(w, i, |a| a)),
    op("v_accvgpr_mov_b32", |w, i| b32_1(w, i, |a| a)),
    op("v_add_u32", |w, i| sum(w, i, u32::wrapping_add, u32::saturating_add)),
    op("v_add_nc_u32", |w, i| sum(w, i, u32::wrapping_add, u32::saturating_add)),
    op("v_sub_u32", |w, i| sum(w, i, u32::wrapping_sub, u32::saturating_sub)),
    op("v_sub_nc_u32", |w, i| sum(w, i, u32::wrapping_sub, u32::saturating_sub)),
    op("v_subrev_u32", |w, i| sum(w, i, |a, b| b.wrapping_sub(a), |a, b| b.saturating_sub(a))),
    op("v_subrev_nc_u32", |w, i| sum(w, i, |a, b| b.wrapping_sub(a), |a, b| b.saturating_sub(a))),
    op("v_add_i32", |w, i| sum(w, i, u32::wrapping_add, add_i32_saturating)),
    op("v_add_nc_i32", |w, i| sum(w, i, u32::wrapping_add, add_i32_saturating)),
    op("v_sub_i32", |w, i| sum(w, i, u32::wrapping_sub, sub_i32_saturating)),
    op("v_sub_nc_i32", |w, i| sum(w, i, u32::wrapping_sub, sub_i32_saturating)),
    op_carry("v_add_co_u32", |w, i| carry(w, i, false, add)),
    op_carry("v_sub_co_u32", |w, i| carry(w, i, false, sub)),
    op_carry("v_subrev_co_u32", |w, i| carry(w, i, false, |a, b, c| sub(b, a, c))),
    op_carry("v_addc_co_u32", |w, i| carry(w, i, true, add)),
    op_carry("v_add_co_ci_u32", |w, i| carry(w, i, true, add)),
    op_carry("v_subb_co_u32", |w, i| carry(w, i, true, sub)),
    op_carry("v_sub_co_ci_u32", |w, i| carry(w, i, true, sub)),
    op_carry("v_subbrev_co_u32", |w, i| carry(w, i, true, |a, b, c| sub(b, a, c))),
    op_carry("v_subrev_co_ci_u32", |w, i| carry(w, i, true, |a, b, c| sub(b, a, c))),
    op("v_mul_lo_u32", |w, i| b32_2(w, i, u32::wrapping_mul)),
    op("v_mul_lo_i32", |w, i| b32_2(w, i, u32::wrapping_mul)),
    op("v_mul_hi_u32", |w, i| b32_2(w, i, |a, b| (u64::from(a) * u64::from(b) >> 32) as u32)),
    op("v_mul_hi_i32", |w, i| b32_2(w, i, |a, b| (i64::from(a as i32) * i64::from(b as i32) >> 32) as u32)),
    op("v_mul_u32_u24", |w, i| b32_2(w, i, |a, b| (u24(a) * u24(b)) as u32)),
    op("v_mul_hi_u32_u24", |w, i| b32_2(w, i, |a, b| (u24(a) * u24(b) >> 32) as u32)),
    op("v_mul_i32_i24", |w, i| b32_2(w, i, |a, b| (i24(a) * i24(b)) as u32)),
    op("v_mul_hi_i32_i24", |w, i| b32_2(w, i, |a, b| (i24(a) * i24(b) >> 32) as u32)),
    op("v_mad_u32_u24", |w, i| b32_3(w, i, |a, b, c| ((u24(a) * u24(b)) as u32).wrapping_add(c))),
    op("v_mad_i32_i24", |w, i| b32_3(w, i, |a, b, c| ((i24(a) * i24(b)) as u32).wrapping_add(c))),
    op("v_min_i32", |w, i| b32_2(w, i, |a, b| signed(a).min(signed(b)) as u32)),
    op("v_max_i32", |w, i| b32_2(w, i, |a, b| signed(a).max(signed(b)) as u32)),
    op("v_min_u32", |w, i| b32_2(w, i, Ord::min)),
    op("v_max_u32", |w, i| b32_2(w, i, Ord::max)),
    op("v_min3_i32", |w, i| b32_3(w, i, |a, b, c| signed(a).min(signed(b)).min(signed(c)) as u32)),
    op("v_max3_i32", |w, i| b32_3(w, i, |a, b, c| signed(a).max(signed(b)).max(signed(c)) as u32)),
    op("v_min3_u32", |w, i| b32_3(w, i, |a, b, c| a.min(b).min(c))),
    op("v_max3_u32", |w, i| b32_3(w, i, |a, b, c| a.max(b).max(c))),
    op("v_med3_i32", |w, i| {
        b32_3(w, i, |a, b, c| {
            let (a, b, c) = (signed(a), signed(b), signed(c));
            a.min(b).max(a.max(b).min(c)) as u32
        });
    }),
    op("v_med3_u32", |w, i| b32_3(w, i, |a, b, c| a.min(b).max(a.max(b).min(c)))),
    op("v_minmax_i32", |w, i| b32_3(w, i, |a, b, c| signed(a).min(signed(b)).max(signed(c)) as u32)),
    op("v_maxmin_i32", |w, i| b32_3(w, i, |a, b, c| signed(a).max(signed(b)).min(signed(c)) as u32)),
    op("v_minmax_u32", |w, i| b32_3(w, i, |a, b, c| a.min(b).max(c))),
    op("v_maxmin_u32", |w, i| b32_3(w, i, |a, b, c| a.max(b).min(c))),
    op("v_and_b32", |w, i| b32_2(w, i, |a, b| a & b)),
    op("v_or_b32", |w, i| b32_2(w, i, |a, b| a | b)),
    op("v_xor_b32", |w, i| b32_2(w, i, |a, b| a ^ b)),
    op("v_xnor_b32", |w, i| b32_2(w, i, |a, b| !(a ^ b))),
    op("v_and_or_b32", |w, i| b32_3(w, i, |a, b, c| a & b | c)),
    op("v_or3_b32", |w, i| b32_3(w, i, |a, b, c| a | b | c)),
    op("v_xor3_b32", |w, i| b32_3(w, i, |a, b, c| a ^ b ^ c)),
    op("v_lshlrev_b32", |w, i| b32_2(w, i, |a, b| b << (a & 31))),
    op("v_lshrrev_b32", |w, i| b32_2(w, i, |a, b| b >> (a & 31))),
    op("v_ashrrev_i32", |w, i| b32_2(w, i, |a, b| (b as i32 >> (a & 31)) as u32)),
    op("v_lshl_or_b32", |w, i| b32_3(w, i, |a, b, c| a << (b & 31) | c)),
    op("v_lshl_add_u32", |w, i| b32_3(w, i, |a, b, c| (a << (b & 31)).wrapping_add(c))),
    op("v_add_lshl_u32", |w, i| b32_3(w, i, |a, b, c| a.wrapping_add(b) << (c & 31))),
    op("v_add3_u32", |w, i| b32_3(w, i, |a, b, c| a.wrapping_add(b).wrapping_add(c))),
    op("v_xad_u32", |w, i| b32_3(w, i, |a, b, c| (a ^ b).wrapping_add(c))),
    op("v_bfe_u32", |w, i| b32_3(w, i, bfe_u)),
    op("v_bfe_i32", |w, i| b32_3(w, i, bfe_i)),
    op("v_bfi_b32", |w, i| b32_3(w, i, |a, b, c| a & b | !a & c)),
    op("v_bfm_b32", |w, i| b32_2(w, i, |a, b| ((1u32 << (a & 31)) - 1) << (b & 31))),
    op("v_bcnt_u32_b32", |w, i| b32_2(w, i, |a, b| a.count_ones().wrapping_add(b))),
    op("v_alignbit_b32", |w, i| {
        b32_3(w, i, |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32);
    }),
    op("v_alignbyte_b32", |w, i| {
        b32_3(w, i, |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> ((c & 3) * 8)) as u32);
    }),
    op("v_perm_b32", |w, i| b32_3(w, i, perm)),
    op("v_sad_u8", |w, i| b32_3(w, i, sad_u8)),
    op("v_sad_u32", |w, i| b32_3(w, i, |a, b, c| a.abs_diff(b).wrapping_add(c))),
    op("v_bitop3_b32", |w, i| b32_3(w, i, |a, b, c| bitop3(a, b, c, i.imm))),
    op("v_cndmask_b32", |w, i| {
        // Sign modifiers work on the bits of a float.
        let mask = w.mask_of(i.src[2]);
        for half in 0..w.halves {
            let (mut room0, mut room1, mut out) = ([0; LANES], [0; LANES], [0; LANES]);
            let change = |k: usize, bits: u32| {
                let bits = if i.mods.abs >> k & 1 == 1 { bits & 0x7fff_ffff } else { bits };
                if i.mods.neg >> k & 1 == 1 { bits ^ 0x8000_0000 } else { bits }
            };
            let a = w.lanes32(i.src[0], half, &mut room0);
            let b = w.lanes32(i.src[1], half, &mut room1);
            let mask = (mask >> (half * LANES)) as u32;
            wide(
                #[inline(always)]
                || {
                    for lane in 0..LANES {
                        out[lane] = if mask >> lane & 1 == 1 { change(1, b[lane]) } else { change(0, a[lane]) };
                    }
                },
            );
            if let Dst::V(register) = i.dst {
                w.set_lanes32(register, half, &out);
            }
        }
    }),
];

fn add_i32_saturating(a: u32, b: u32) -> u32 {
    (a as i32).saturating_add(b as i32) as u32
}

fn sub_i32_saturating(a: u32, b: u32) -> u32 {
    (a as i32).saturating_sub(b as i32) as u32
}
