//! Integer operations of 64 bits in each lane.

use super::lane::{b64_2, shift64};
use super::{Entry, op, op_carry};
use crate::inst::{Dst, Inst};
use crate::wave::{LANES, Wave};

/// A product of 32 bits plus 64 bits, and whether the sum overflows.
#[inline(always)]
fn mad(w: &mut Wave, i: &Inst, product: impl Fn(u32, u32) -> i128, signed: bool) {
    let mut carries = 0u64;
    for half in 0..w.halves {
        let (mut room0, mut room1) = ([0; LANES], [0; LANES]);
        let c = w.lanes64(i.src[2], half);
        let a = w.lanes32(i.src[0], half, &mut room0);
        let b = w.lanes32(i.src[1], half, &mut room1);
        let (mut out, mut over) = ([0; LANES], 0);
        for lane in 0..LANES {
            let addend = if signed { i128::from(c[lane] as i64) } else { i128::from(c[lane]) };
            let sum = product(a[lane], b[lane]) + addend;
            out[lane] = sum as u64;
            let fits = if signed { i64::try_from(sum).is_ok() } else { u64::try_from(sum).is_ok() };
            over |= u32::from(!fits) << lane;
        }
        carries |= u64::from(over & w.exec_half(half)) << (half * LANES);
        if let Dst::V(register) = i.dst {
            w.set_lanes64(register, half, &out);
        }
    }
    w.set_mask(i.sdst, carries);
}

pub const TABLE: &[Entry] = &[
    op_carry("v_mad_u64_u32", |w, i| mad(w, i, |a, b| i128::from(u64::from(a) * u64::from(b)), false)),
    op_carry("v_mad_co_u64_u32", |w, i| mad(w, i, |a, b| i128::from(u64::from(a) * u64::from(b)), false)),
    op_carry("v_mad_i64_i32", |w, i| mad(w, i, |a, b| i128::from(i64::from(a as i32) * i64::from(b as i32)), true)),
    op_carry("v_mad_co_i64_i32", |w, i| mad(w, i, |a, b| i128::from(i64::from(a as i32) * i64::from(b as i32)), true)),
    op("v_lshlrev_b64", |w, i| shift64(w, i, |a, b| b << (a & 63))),
    op("v_lshrrev_b64", |w, i| shift64(w, i, |a, b| b >> (a & 63))),
    op("v_ashrrev_i64", |w, i| shift64(w, i, |a, b| (b as i64 >> (a & 63)) as u64)),
    op("v_lshl_add_u64", |w, i| {
        for half in 0..w.halves {
            let mut room = [0; LANES];
            let (a, c) = (w.lanes64(i.src[0], half), w.lanes64(i.src[2], half));
            let b = w.lanes32(i.src[1], half, &mut room);
            let out = std::array::from_fn(|lane| (a[lane] << (b[lane] & 63)).wrapping_add(c[lane]));
            if let Dst::V(register) = i.dst {
                w.set_lanes64(register, half, &out);
            }
        }
    }),
    op("v_mov_b64", |w, i| {
        for half in 0..w.halves {
            let a = w.lanes64(i.src[0], half);
            if let Dst::V(register) = i.dst {
                w.set_lanes64(register, half, &a);
            }
        }
    }),
    op("v_add_nc_u64", |w, i| b64_2(w, i, u64::wrapping_add)),
    op("v_sub_nc_u64", |w, i| b64_2(w, i, u64::wrapping_sub)),
];
