//! Instructions of the LDS unit that move data between lanes and do not touch memory.

use super::{Entry, op};
use crate::Family;
use crate::inst::{Dst, Inst, Src};
use crate::wave::{LANES, Wave};

/// Lanes that can exchange data: half a wave of 64 on RDNA before gfx12.
fn reach(w: &Wave) -> u32 {
    if w.is(Family::Rdna2) || w.is(Family::Rdna3) { LANES as u32 } else { w.lanes() }
}

/// Each lane reads the lane that its address names; 0 from inactive ones.
fn bpermute(w: &mut Wave, i: &Inst, inactive: bool) {
    let (Src::V(address), Src::V(data), Dst::V(register)) = (i.src[0], i.src[1], i.dst) else { return };
    let (exec, reach) = (w.exec(), reach(w));
    if reach == LANES as u32 {
        for half in 0..w.halves {
            let (address, data) = (w.v(address, half), w.v(data, half));
            let readable = if inactive { u32::MAX } else { w.exec_half(half) };
            let mut out = [0; LANES];
            for (out, address) in out.iter_mut().zip(address) {
                let from = (address.wrapping_add(i.imm) / 4) as usize % LANES;
                *out = data[from] & (readable >> from & 1).wrapping_neg();
            }
            w.set_lanes32(register, half, &out);
        }
        return;
    }
    let mut out = [[0; LANES]; 2];
    for lane in 0..w.lanes() {
        let from = lane & !(reach - 1) | w.lane(address, lane).wrapping_add(i.imm) / 4 & (reach - 1);
        if inactive || exec >> from & 1 == 1 {
            out[lane as usize / LANES][lane as usize % LANES] = w.lane(data, from);
        }
    }
    (0..w.halves).for_each(|half| w.set_lanes32(register, half, &out[half]));
}

/// Each lane writes to the lane that its address names; the highest lane wins, and lanes without a writer get 0.
fn permute(w: &mut Wave, i: &Inst) {
    let (Src::V(address), Src::V(data), Dst::V(register)) = (i.src[0], i.src[1], i.dst) else { return };
    let reach = reach(w);
    let mut out = [[0; LANES]; 2];
    for lane in crate::access::bits(w.exec()) {
        let to = lane & !(reach - 1) | w.lane(address, lane).wrapping_add(i.imm) / 4 & (reach - 1);
        out[to as usize / LANES][to as usize % LANES] = w.lane(data, lane);
    }
    (0..w.halves).for_each(|half| w.set_lanes32(register, half, &out[half]));
}

/// A fixed pattern in groups of 4 or 32 lanes.
fn swizzle(w: &mut Wave, i: &Inst) {
    let (Src::V(data), Dst::V(register)) = (i.src[0], i.dst) else { return };
    let (pattern, exec) = (i.imm, w.exec());
    let mut out = [[0; LANES]; 2];
    for lane in 0..w.lanes() {
        let at = lane & 31;
        let from = if pattern & 0xe000 == 0xe000 {
            return w.stop("swizzles for fast Fourier transforms are not modelled");
        } else if pattern & 0xe000 == 0xc000 {
            // Rotation within 32 lanes.
            let (by, mask) = (pattern >> 5 & 31, pattern & 31);
            let by = if pattern >> 10 & 1 == 1 { 32 - by } else { by };
            at & mask | at.wrapping_add(by) & 31 & !mask
        } else if pattern & 0x8000 != 0 {
            at & !3 | pattern >> (at % 4 * 2) & 3
        } else {
            (at & pattern & 31 | pattern >> 5 & 31) ^ pattern >> 10 & 31
        };
        let from = lane & !31 | from;
        if exec >> from & 1 == 1 {
            out[lane as usize / LANES][lane as usize % LANES] = w.lane(data, from);
        }
    }
    (0..w.halves).for_each(|half| w.set_lanes32(register, half, &out[half]));
}

pub const TABLE: &[Entry] = &[
    op("ds_bpermute_b32", |w, i| bpermute(w, i, false)),
    op("ds_bpermute_fi_b32", |w, i| bpermute(w, i, true)),
    op("ds_permute_b32", permute),
    op("ds_swizzle_b32", swizzle),
];
