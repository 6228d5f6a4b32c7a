//! Integer operations of 16 bits in each lane.

use super::lane::{b16, b32_2};
use super::{Entry, op};
use crate::inst::{Dst, Inst};
use crate::wave::{LANES, Wave};

fn s(value: u32) -> i32 {
    i32::from(value as i16)
}

/// A sum that saturates if the instruction says so.
#[inline(always)]
fn sum<const N: usize>(w: &mut Wave, i: &Inst, f: impl Fn([i64; N]) -> i64, signed: bool) {
    let (low, high) = if signed { (-0x8000, 0x7fff) } else { (0, 0xffff) };
    let clamp = i.mods.clamp;
    b16(w, i, |values: [u32; N]| {
        let exact = f(values.map(|value| if signed { i64::from(value as i16) } else { i64::from(value) }));
        (if clamp { exact.clamp(low, high) } else { exact }) as u32 & 0xffff
    });
}

/// A product of 16-bit factors plus 32 bits.
#[inline(always)]
fn mad_wide(w: &mut Wave, i: &Inst, product: impl Fn(u32, u32) -> u32) {
    for half in 0..w.halves {
        let mut room = [0; LANES];
        let (a, b) = (w.lanes16(i, 0, half), w.lanes16(i, 1, half));
        let c = w.lanes32(i.src[2], half, &mut room);
        let out = std::array::from_fn(|lane| product(a[lane], b[lane]).wrapping_add(c[lane]));
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &out);
        }
    }
}

pub const TABLE: &[Entry] = &[
    op("v_mov_b16", |w, i| b16(w, i, |[a]| a)),
    op("v_not_b16", |w, i| b16(w, i, |[a]| !a & 0xffff)),
    op("v_add_u16", |w, i| sum(w, i, |[a, b]| a + b, false)),
    op("v_add_nc_u16", |w, i| sum(w, i, |[a, b]| a + b, false)),
    op("v_sub_u16", |w, i| sum(w, i, |[a, b]| a - b, false)),
    op("v_sub_nc_u16", |w, i| sum(w, i, |[a, b]| a - b, false)),
    op("v_subrev_u16", |w, i| sum(w, i, |[a, b]| b - a, false)),
    op("v_add_i16", |w, i| sum(w, i, |[a, b]| a + b, true)),
    op("v_add_nc_i16", |w, i| sum(w, i, |[a, b]| a + b, true)),
    op("v_sub_i16", |w, i| sum(w, i, |[a, b]| a - b, true)),
    op("v_sub_nc_i16", |w, i| sum(w, i, |[a, b]| a - b, true)),
    op("v_mul_lo_u16", |w, i| b16(w, i, |[a, b]| a.wrapping_mul(b) & 0xffff)),
    op("v_mad_u16", |w, i| sum(w, i, |[a, b, c]| a * b + c, false)),
    op("v_mad_legacy_u16", |w, i| sum(w, i, |[a, b, c]| a * b + c, false)),
    op("v_mad_i16", |w, i| sum(w, i, |[a, b, c]| a * b + c, true)),
    op("v_min_u16", |w, i| b16(w, i, |[a, b]| a.min(b))),
    op("v_max_u16", |w, i| b16(w, i, |[a, b]| a.max(b))),
    op("v_min_i16", |w, i| b16(w, i, |[a, b]| s(a).min(s(b)) as u32 & 0xffff)),
    op("v_max_i16", |w, i| b16(w, i, |[a, b]| s(a).max(s(b)) as u32 & 0xffff)),
    op("v_min3_u16", |w, i| b16(w, i, |[a, b, c]| a.min(b).min(c))),
    op("v_max3_u16", |w, i| b16(w, i, |[a, b, c]| a.max(b).max(c))),
    op("v_min3_i16", |w, i| b16(w, i, |[a, b, c]| s(a).min(s(b)).min(s(c)) as u32 & 0xffff)),
    op("v_max3_i16", |w, i| b16(w, i, |[a, b, c]| s(a).max(s(b)).max(s(c)) as u32 & 0xffff)),
    op("v_med3_u16", |w, i| b16(w, i, |[a, b, c]| a.min(b).max(a.max(b).min(c)))),
    op("v_med3_i16", |w, i| {
        b16(w, i, |[a, b, c]| {
            let (a, b, c) = (s(a), s(b), s(c));
            a.min(b).max(a.max(b).min(c)) as u32 & 0xffff
        });
    }),
    op("v_lshlrev_b16", |w, i| b16(w, i, |[a, b]| b << (a & 15) & 0xffff)),
    op("v_lshrrev_b16", |w, i| b16(w, i, |[a, b]| b >> (a & 15))),
    op("v_ashrrev_i16", |w, i| b16(w, i, |[a, b]| (s(b) >> (a & 15)) as u32 & 0xffff)),
    op("v_and_b16", |w, i| b16(w, i, |[a, b]| a & b)),
    op("v_or_b16", |w, i| b16(w, i, |[a, b]| a | b)),
    op("v_xor_b16", |w, i| b16(w, i, |[a, b]| a ^ b)),
    // 16-bit factors, 32-bit sum.
    op("v_mad_u32_u16", |w, i| mad_wide(w, i, u32::wrapping_mul)),
    op("v_mad_i32_i16", |w, i| mad_wide(w, i, |a, b| (s(a) * s(b)) as u32)),
    op("v_cvt_pk_u16_u32", |w, i| b32_2(w, i, |a, b| a.min(0xffff) | b.min(0xffff) << 16)),
    op("v_cvt_pk_i16_i32", |w, i| {
        let clamp = |value: u32| (value as i32).clamp(-0x8000, 0x7fff) as u32 & 0xffff;
        b32_2(w, i, |a, b| clamp(a) | clamp(b) << 16);
    }),
];
