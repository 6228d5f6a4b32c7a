//! Operations across lanes.

use super::{Entry, op};
use crate::inst::{Dst, Inst, Src};
use crate::wave::{LANES, Wave};

/// The first active lane, or lane 0 if none is.
fn first_lane(w: &Wave) -> u32 {
    let exec = w.exec();
    if exec == 0 { 0 } else { exec.trailing_zeros() }
}

fn read_first(w: &mut Wave, i: &Inst) {
    let value = match i.src[0] {
        Src::V(register) => w.lane(register, first_lane(w)),
        scalar => w.s32(scalar),
    };
    w.set_s32(i.dst, value);
}

fn read(w: &mut Wave, i: &Inst) {
    let lane = w.s32(i.src[1]) & (w.lanes() - 1);
    let value = match i.src[0] {
        Src::V(register) => w.lane(register, lane),
        scalar => w.s32(scalar),
    };
    w.set_s32(i.dst, value);
}

fn write(w: &mut Wave, i: &Inst) {
    let (value, lane) = (w.s32(i.src[0]), w.s32(i.src[1]) & (w.lanes() - 1));
    if let Dst::V(register) = i.dst {
        w.set_lane(register, lane, value);
    }
}

/// Counts the bits of a mask below each lane.
fn mbcnt(w: &mut Wave, i: &Inst, high: bool) {
    for half in 0..w.halves {
        let (mut room0, mut room1) = ([0; LANES], [0; LANES]);
        let mask = w.lanes32(i.src[0], half, &mut room0);
        let add = w.lanes32(i.src[1], half, &mut room1);
        let out = std::array::from_fn(|lane| {
            let below = match (high, half) {
                (false, 0) | (true, 1) => (1u32 << lane) - 1,
                (false, _) => u32::MAX,
                (true, _) => 0,
            };
            (mask[lane] & below).count_ones().wrapping_add(add[lane])
        });
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &out);
        }
    }
}

/// Each lane reads a lane of its row of 16, or of the other row of its half, that a number of four bits names.
fn permlane16(w: &mut Wave, i: &Inst, cross: bool, select: impl Fn(&Wave, u32) -> u32) {
    let (Src::V(source), Dst::V(register)) = (i.src[0], i.dst) else { return };
    // op_sel: bit 0 reads inactive lanes, bit 1 makes lanes without a source 0.
    let (inactive, bound) = (i.mods.sel & 1 != 0, i.mods.sel & 2 != 0);
    let exec = w.exec();
    for half in 0..w.halves {
        let mut out = *w.v(register, half);
        for (at, value) in out.iter_mut().enumerate() {
            let lane = (half * LANES + at) as u32;
            let row = if cross { lane & !15 ^ 16 } else { lane & !15 };
            let from = row | select(w, lane) & 15;
            if inactive || exec >> from & 1 == 1 {
                *value = w.lane(source, from);
            } else if bound {
                *value = 0;
            }
        }
        w.set_lanes32(register, half, &out);
    }
}

/// The number of four bits in two scalar operands.
fn in_scalars(i: &Inst, w: &Wave, lane: u32) -> u32 {
    let at = lane & 15;
    let word = w.s32(i.src[if at < 8 { 1 } else { 2 }]);
    word >> (at % 8 * 4)
}

fn in_vector(i: &Inst, w: &Wave, lane: u32) -> u32 {
    match i.src[1] {
        Src::V(register) => w.lane(register, lane),
        scalar => w.s32(scalar),
    }
}

/// Exchanges the halves of a wave of 64 lanes.
fn permlane64(w: &mut Wave, i: &Inst) {
    let (Src::V(source), Dst::V(register)) = (i.src[0], i.dst) else { return };
    if w.halves == 1 {
        return;
    }
    let values = [*w.v(source, 1), *w.v(source, 0)];
    for (half, values) in values.iter().enumerate() {
        w.set_lanes32(register, half, values);
    }
}

/// Exchanges the odd groups of `count` lanes of the result's register with the even ones of the source (gfx950).
fn permlane_swap(w: &mut Wave, i: &Inst, count: u32) {
    let (Dst::V(one), Src::V(other)) = (i.dst, i.src[0]) else { return };
    if w.exec() != u64::MAX {
        return w.stop("exchanges of groups of lanes with inactive lanes are not modelled");
    }
    for even in (0..w.lanes()).filter(|lane| (lane / count).is_multiple_of(2)) {
        let (low, high) = (w.lane(other, even), w.lane(one, even + count));
        w.set_lane(other, even, high);
        w.set_lane(one, even + count, low);
    }
}

pub const TABLE: &[Entry] = &[
    op("v_permlane16_swap_b32", |w, i| permlane_swap(w, i, 16)),
    op("v_permlane32_swap_b32", |w, i| permlane_swap(w, i, 32)),
    op("v_readfirstlane_b32", read_first),
    op("v_readlane_b32", read),
    op("v_writelane_b32", write),
    op("v_mbcnt_lo_u32_b32", |w, i| mbcnt(w, i, false)),
    op("v_mbcnt_hi_u32_b32", |w, i| mbcnt(w, i, true)),
    op("v_permlane16_b32", |w, i| permlane16(w, i, false, |w, lane| in_scalars(i, w, lane))),
    op("v_permlanex16_b32", |w, i| permlane16(w, i, true, |w, lane| in_scalars(i, w, lane))),
    op("v_permlane16_var_b32", |w, i| permlane16(w, i, false, |w, lane| in_vector(i, w, lane))),
    op("v_permlanex16_var_b32", |w, i| permlane16(w, i, true, |w, lane| in_vector(i, w, lane))),
    op("v_permlane64_b32", permlane64),
];
