//! Packed operations on two values of a register, and dot products.

use super::float::{bf16_to_f32, f16_to_f32, f32_to_f16, fma_f16, max_f32, maximum_f32, min_f32, minimum_f32};
use super::{Entry, op};
use crate::inst::{Dst, INLINE_FLOATS, Inst, Src};
use crate::simd::wide;
use crate::wave::{Half, LANES, Wave};

/// The operand of the low (0) or high (1) result, as 16 bits, with signs for floats.
#[inline(always)]
fn source16(w: &Wave, i: &Inst, k: usize, half: usize, high: bool, float: bool) -> Half {
    let picks = if high { i.mods.sel_hi } else { i.mods.sel };
    let shift = if picks >> k & 1 == 1 { 16 } else { 0 };
    let negs = if high { i.mods.neg_hi } else { i.mods.neg };
    let flip = if float && negs >> k & 1 == 1 { 0x8000 } else { 0 };
    match i.src[k] {
        Src::V(register) => w.v(register, half).map(|bits| bits >> shift & 0xffff ^ flip),
        // An inline float is in the low half.
        Src::Float(index) if float => {
            let bits = if shift == 0 { u32::from(INLINE_FLOATS[index as usize].1) } else { 0 };
            [bits ^ flip; LANES]
        }
        scalar => [w.s32(scalar) >> shift & 0xffff ^ flip; LANES],
    }
}

/// Applies a function to both halves.
#[inline(always)]
fn both<const N: usize>(w: &mut Wave, i: &Inst, float: bool, f: impl Fn([u32; N]) -> u32) {
    for half in 0..w.halves {
        let low: [Half; N] = std::array::from_fn(|k| source16(w, i, k, half, false, float));
        let high: [Half; N] = std::array::from_fn(|k| source16(w, i, k, half, true, float));
        let mut out = [0; LANES];
        wide(
            #[inline(always)]
            || {
                for lane in 0..LANES {
                    let below = f(std::array::from_fn(|k| low[k][lane]));
                    let above = f(std::array::from_fn(|k| high[k][lane]));
                    out[lane] = below & 0xffff | above << 16;
                }
            },
        );
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &out);
        }
    }
}

#[inline(always)]
fn floats<const N: usize>(w: &mut Wave, i: &Inst, f: impl Fn([f32; N]) -> u32) {
    let clamp = i.mods.clamp;
    both(w, i, true, |values: [u32; N]| {
        let bits = f(values.map(f16_to_f32));
        if clamp { clamp16(bits) } else { bits }
    });
}

#[inline(always)]
fn clamp16(bits: u32) -> u32 {
    let value = f16_to_f32(bits);
    if value <= 0.0 {
        0
    } else if value > 1.0 {
        0x3c00
    } else {
        bits
    }
}

/// Integers that saturate if the instruction says so.
#[inline(always)]
fn ints<const N: usize>(w: &mut Wave, i: &Inst, signed: bool, f: impl Fn([i64; N]) -> i64) {
    let (low, high) = if signed { (-0x8000, 0x7fff) } else { (0, 0xffff) };
    let clamp = i.mods.clamp;
    both(w, i, false, |values: [u32; N]| {
        let exact = f(values.map(|value| if signed { i64::from(value as i16) } else { i64::from(value) }));
        (if clamp { exact.clamp(low, high) } else { exact }) as u32
    });
}

/// Two 32-bit values in a pair of registers; `op_sel` picks the register.
#[inline(always)]
fn pair<const N: usize>(w: &mut Wave, i: &Inst, float: bool, f: impl Fn([u32; N]) -> u32) {
    for half in 0..w.halves {
        let source = |k: usize, high: bool| -> Half {
            let picks = if high { i.mods.sel_hi } else { i.mods.sel };
            let negs = if high { i.mods.neg_hi } else { i.mods.neg };
            let flip = if float && negs >> k & 1 == 1 { 0x8000_0000 } else { 0 };
            let pick = u16::from(picks >> k & 1);
            match i.src[k] {
                Src::V(register) => w.v(register + pick, half).map(|bits| bits ^ flip),
                Src::S(register) => [w.s32(Src::S(register + pick)) ^ flip; LANES],
                constant => [w.s32(constant) ^ flip; LANES],
            }
        };
        let low: [Half; N] = std::array::from_fn(|k| source(k, false));
        let high: [Half; N] = std::array::from_fn(|k| source(k, true));
        let (mut below, mut above) = ([0; LANES], [0; LANES]);
        wide(
            #[inline(always)]
            || {
                for lane in 0..LANES {
                    below[lane] = f(std::array::from_fn(|k| low[k][lane]));
                    above[lane] = f(std::array::from_fn(|k| high[k][lane]));
                }
            },
        );
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &below);
            w.set_lanes32(register + 1, half, &above);
        }
    }
}

fn pair_mov(w: &mut Wave, i: &Inst) {
    // The low result comes from the first source and the high one from the second; both picks are in op_sel.
    for half in 0..w.halves {
        let source = |k: usize| -> Half {
            let pick = u16::from(i.mods.sel >> k & 1);
            match i.src[k] {
                Src::V(register) => *w.v(register + pick, half),
                Src::S(register) => [w.s32(Src::S(register + pick)); LANES],
                constant => [w.s32(constant); LANES],
            }
        };
        let (low, high) = (source(0), source(1));
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &low);
            w.set_lanes32(register + 1, half, &high);
        }
    }
}

/// A sum of products of parts of two registers. `signs` says whether each operand is signed.
#[inline(always)]
fn dot_int(w: &mut Wave, i: &Inst, bits: u32, signs: [bool; 2], unsigned_sum: bool) {
    let part = |value: u32, at: u32, signed: bool| {
        let up = value << (32 - bits - at * bits);
        if signed { i64::from(up as i32 >> (32 - bits)) } else { i64::from(up >> (32 - bits)) }
    };
    let clamp = i.mods.clamp;
    accumulate(w, i, |a, b, c| {
        let products = (0..32 / bits).map(|at| part(a, at, signs[0]) * part(b, at, signs[1])).sum::<i64>();
        if unsigned_sum {
            let sum = products + i64::from(c);
            if clamp { sum.clamp(0, i64::from(u32::MAX)) as u32 } else { sum as u32 }
        } else {
            let sum = products + i64::from(c as i32);
            if clamp { sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32 } else { sum as u32 }
        }
    });
}

/// A function of two registers and a sum: the third source, or the result's register.
#[inline(always)]
fn accumulate(w: &mut Wave, i: &Inst, f: impl Fn(u32, u32, u32) -> u32) {
    for half in 0..w.halves {
        let (mut room0, mut room1, mut room2, mut out) = ([0; LANES], [0; LANES], [0; LANES], [0; LANES]);
        let a = w.lanes32(i.src[0], half, &mut room0);
        let b = w.lanes32(i.src[1], half, &mut room1);
        let c = match (i.src[2], i.dst) {
            (Src::None, Dst::V(register)) => w.v(register, half),
            (src, _) => w.lanes32(src, half, &mut room2),
        };
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(a[lane], b[lane], c[lane])),
        );
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &out);
        }
    }
}

/// Two products of 16-bit floats and a 32-bit sum.
#[inline(always)]
fn dot_float(w: &mut Wave, i: &Inst, widen: impl Fn(u32) -> f32) {
    let flip = |negs: u8, k: usize| if negs >> k & 1 == 1 { 0x8000 } else { 0 };
    let negate_sum = i.mods.neg >> 2 & 1 == 1;
    for half in 0..w.halves {
        let mut room = [0; LANES];
        let [al, bl]: [Half; 2] = std::array::from_fn(|k| source16(w, i, k, half, false, false));
        let [ah, bh]: [Half; 2] = std::array::from_fn(|k| source16(w, i, k, half, true, false));
        let c = match (i.src[2], i.dst) {
            (Src::None, Dst::V(register)) => w.v(register, half),
            (src, _) => w.lanes32(src, half, &mut room),
        };
        let out = std::array::from_fn(|lane| {
            let low = (widen(al[lane] ^ flip(i.mods.neg, 0)), widen(bl[lane] ^ flip(i.mods.neg, 1)));
            let high = (widen(ah[lane] ^ flip(i.mods.neg_hi, 0)), widen(bh[lane] ^ flip(i.mods.neg_hi, 1)));
            let sum = f32::from_bits(c[lane]);
            let sum = if negate_sum { -sum } else { sum };
            // The chips round once at the end of the sum; 64 bits hold both products and nearly all of the sum.
            let exact = f64::from(low.0) * f64::from(low.1) + f64::from(high.0) * f64::from(high.1) + f64::from(sum);
            (exact as f32).to_bits()
        });
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &out);
        }
    }
}

/// The operands are signed where neg_lo says so (gfx11 and later).
fn dot_iu(w: &mut Wave, i: &Inst, bits: u32) {
    let signs = [i.mods.neg & 1 != 0, i.mods.neg & 2 != 0];
    dot_int(w, i, bits, signs, false);
}

pub const TABLE: &[Entry] = &[
    op("v_pk_add_f16", |w, i| floats(w, i, |[a, b]| f32_to_f16(a + b))),
    op("v_pk_mul_f16", |w, i| floats(w, i, |[a, b]| f32_to_f16(a * b))),
    op("v_pk_fma_f16", |w, i| floats(w, i, |[a, b, c]| fma_f16(a, b, c))),
    op("v_pk_min_f16", |w, i| floats(w, i, |[a, b]| f32_to_f16(min_f32(a, b)))),
    op("v_pk_min_num_f16", |w, i| floats(w, i, |[a, b]| f32_to_f16(min_f32(a, b)))),
    op("v_pk_max_f16", |w, i| floats(w, i, |[a, b]| f32_to_f16(max_f32(a, b)))),
    op("v_pk_max_num_f16", |w, i| floats(w, i, |[a, b]| f32_to_f16(max_f32(a, b)))),
    op("v_pk_minimum_f16", |w, i| floats(w, i, |[a, b]| f32_to_f16(minimum_f32(a, b)))),
    op("v_pk_maximum_f16", |w, i| floats(w, i, |[a, b]| f32_to_f16(maximum_f32(a, b)))),
    op("v_pk_add_u16", |w, i| ints(w, i, false, |[a, b]| a + b)),
    op("v_pk_add_i16", |w, i| ints(w, i, true, |[a, b]| a + b)),
    op("v_pk_sub_u16", |w, i| ints(w, i, false, |[a, b]| a - b)),
    op("v_pk_sub_i16", |w, i| ints(w, i, true, |[a, b]| a - b)),
    op("v_pk_mul_lo_u16", |w, i| both(w, i, false, |[a, b]| a.wrapping_mul(b))),
    op("v_pk_mad_u16", |w, i| ints(w, i, false, |[a, b, c]| a * b + c)),
    op("v_pk_mad_i16", |w, i| ints(w, i, true, |[a, b, c]| a * b + c)),
    op("v_pk_min_u16", |w, i| ints(w, i, false, |[a, b]| a.min(b))),
    op("v_pk_max_u16", |w, i| ints(w, i, false, |[a, b]| a.max(b))),
    op("v_pk_min_i16", |w, i| ints(w, i, true, |[a, b]| a.min(b))),
    op("v_pk_max_i16", |w, i| ints(w, i, true, |[a, b]| a.max(b))),
    op("v_pk_lshlrev_b16", |w, i| both(w, i, false, |[a, b]| b << (a & 15))),
    op("v_pk_lshrrev_b16", |w, i| both(w, i, false, |[a, b]| b >> (a & 15))),
    op("v_pk_ashrrev_i16", |w, i| both(w, i, false, |[a, b]| (i32::from(b as i16) >> (a & 15)) as u32)),
    op("v_pk_add_f32", |w, i| pair(w, i, true, |[a, b]| (f32::from_bits(a) + f32::from_bits(b)).to_bits())),
    op("v_pk_mul_f32", |w, i| pair(w, i, true, |[a, b]| (f32::from_bits(a) * f32::from_bits(b)).to_bits())),
    op("v_pk_fma_f32", |w, i| {
        pair(w, i, true, |[a, b, c]| f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)).to_bits());
    }),
    op("v_pk_mov_b32", pair_mov),
    op("v_pk_fmac_f16", |w, i| {
        let Dst::V(register) = i.dst else { return };
        let mut with_sum = i.clone();
        with_sum.src[2] = Src::V(register);
        floats(w, &with_sum, |[a, b, c]| fma_f16(a, b, c));
    }),
    op("v_dot2_f32_f16", |w, i| dot_float(w, i, f16_to_f32)),
    op("v_dot2c_f32_f16", |w, i| dot_float(w, i, f16_to_f32)),
    op("v_dot2acc_f32_f16", |w, i| dot_float(w, i, f16_to_f32)),
    op("v_dot2_f32_bf16", |w, i| dot_float(w, i, bf16_to_f32)),
    op("v_dot2c_f32_bf16", |w, i| dot_float(w, i, bf16_to_f32)),
    op("v_dot2_i32_i16", |w, i| dot_int(w, i, 16, [true, true], false)),
    op("v_dot2_u32_u16", |w, i| dot_int(w, i, 16, [false, false], true)),
    op("v_dot4_i32_i8", |w, i| dot_int(w, i, 8, [true, true], false)),
    op("v_dot4c_i32_i8", |w, i| dot_int(w, i, 8, [true, true], false)),
    op("v_dot4_u32_u8", |w, i| dot_int(w, i, 8, [false, false], true)),
    op("v_dot4_i32_iu8", |w, i| dot_iu(w, i, 8)),
    op("v_dot8_i32_i4", |w, i| dot_int(w, i, 4, [true, true], false)),
    op("v_dot8_u32_u4", |w, i| dot_int(w, i, 4, [false, false], true)),
    op("v_dot8_i32_iu4", |w, i| dot_iu(w, i, 4)),
];
