//! Operations on all lanes, made from a function of one lane's values.
//!
//! Each of these reads its operands with their modifiers, applies the function to 32 lanes at a time, and writes the
//! active ones. The loops are simple enough that the compiler vectorises them.

use super::float::{f16_to_f32, f32_to_f16};
use crate::inst::{Dst, Inst, Src};
use crate::simd::wide;
use crate::wave::{Half, LANES, Wave};

/// 64 bits in each lane.
pub type Wide = [u64; LANES];

#[inline(always)]
fn write(wave: &mut Wave, inst: &Inst, half: usize, values: &Half) {
    if let Dst::V(register) = inst.dst {
        wave.set_lanes32(register, half, values);
    }
}

/// Applies a function of bits to one operand.
#[inline(always)]
pub fn b32_1(wave: &mut Wave, inst: &Inst, f: impl Fn(u32) -> u32) {
    for half in 0..wave.halves {
        let (mut room, mut out) = ([0; LANES], [0; LANES]);
        let a = wave.lanes32(inst.src[0], half, &mut room);
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(a[lane])),
        );
        write(wave, inst, half, &out);
    }
}

/// Applies a function of bits to two operands.
#[inline(always)]
pub fn b32_2(wave: &mut Wave, inst: &Inst, f: impl Fn(u32, u32) -> u32) {
    for half in 0..wave.halves {
        let (mut room0, mut room1, mut out) = ([0; LANES], [0; LANES], [0; LANES]);
        let a = wave.lanes32(inst.src[0], half, &mut room0);
        let b = wave.lanes32(inst.src[1], half, &mut room1);
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(a[lane], b[lane])),
        );
        write(wave, inst, half, &out);
    }
}

/// Applies a function of bits to three operands.
#[inline(always)]
pub fn b32_3(wave: &mut Wave, inst: &Inst, f: impl Fn(u32, u32, u32) -> u32) {
    for half in 0..wave.halves {
        let (mut room0, mut room1, mut room2, mut out) = ([0; LANES], [0; LANES], [0; LANES], [0; LANES]);
        let a = wave.lanes32(inst.src[0], half, &mut room0);
        let b = wave.lanes32(inst.src[1], half, &mut room1);
        let c = wave.lanes32(inst.src[2], half, &mut room2);
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(a[lane], b[lane], c[lane])),
        );
        write(wave, inst, half, &out);
    }
}

/// Applies a function to two 64-bit operands.
#[inline(always)]
pub fn b64_2(wave: &mut Wave, inst: &Inst, f: impl Fn(u64, u64) -> u64) {
    for half in 0..wave.halves {
        let (a, b) = (wave.lanes64(inst.src[0], half), wave.lanes64(inst.src[1], half));
        let out = std::array::from_fn(|lane| f(a[lane], b[lane]));
        if let Dst::V(register) = inst.dst {
            wave.set_lanes64(register, half, &out);
        }
    }
}

/// Applies a function to a 32-bit and a 64-bit operand: shifts.
#[inline(always)]
pub fn shift64(wave: &mut Wave, inst: &Inst, f: impl Fn(u32, u64) -> u64) {
    for half in 0..wave.halves {
        let mut room = [0; LANES];
        let b = wave.lanes64(inst.src[1], half);
        let a = wave.lanes32(inst.src[0], half, &mut room);
        let out = std::array::from_fn(|lane| f(a[lane], b[lane]));
        if let Dst::V(register) = inst.dst {
            wave.set_lanes64(register, half, &out);
        }
    }
}

/// Applies a function of bits to 16-bit operands, in the low halves.
#[inline(always)]
pub fn b16<const N: usize>(wave: &mut Wave, inst: &Inst, f: impl Fn([u32; N]) -> u32) {
    for half in 0..wave.halves {
        let sources: [Half; N] = std::array::from_fn(|k| wave.lanes16(inst, k, half));
        let mut out = [0; LANES];
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(std::array::from_fn(|k| sources[k][lane]))),
        );
        wave.set_lanes16(inst, half, &out);
    }
}

/// A 32-bit float operand with its modifiers, and denormals flushed if the mode says so.
#[inline(always)]
pub fn source_f32<'a>(wave: &'a Wave, inst: &Inst, k: usize, half: usize, room: &'a mut Half) -> &'a Half {
    if inst.mods.plain_sources() && !wave.mode.flushes_inputs_f32() {
        return wave.lanes32(inst.src[k], half, room);
    }
    modified_f32(wave, inst, k, half, room)
}

#[inline(never)]
fn modified_f32<'a>(wave: &'a Wave, inst: &Inst, k: usize, half: usize, room: &'a mut Half) -> &'a Half {
    let clear = if inst.mods.abs >> k & 1 == 1 { 0x8000_0000 } else { 0 };
    let flip = if inst.mods.neg >> k & 1 == 1 { 0x8000_0000 } else { 0 };
    let flush = wave.mode.flushes_inputs_f32();
    let change = |bits: u32| {
        let bits = if flush && bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits };
        bits & !clear ^ flip
    };
    *room = match inst.src[k] {
        Src::V(register) => wave.v(register, half).map(change),
        scalar => [change(wave.s32(scalar)); LANES],
    };
    room
}

/// Output modifiers and flushing of a 32-bit float result.
#[inline(always)]
pub fn finish_f32(wave: &Wave, inst: &Inst, out: &mut Half) {
    if !inst.mods.plain_result() || wave.mode.flushes_outputs_f32() {
        finish_f32_rare(wave, inst, out);
    }
}

#[inline(never)]
fn finish_f32_rare(wave: &Wave, inst: &Inst, out: &mut Half) {
    let factor = [1.0, 2.0, 4.0, 0.5][inst.mods.omod as usize & 3];
    for bits in out.iter_mut() {
        let mut value = f32::from_bits(*bits);
        if inst.mods.omod != 0 {
            value *= factor;
        }
        // Output modifiers work only on normal numbers, so they flush too.
        if (wave.mode.flushes_outputs_f32() || inst.mods.omod != 0) && value.is_subnormal() {
            value = 0.0f32.copysign(value);
        }
        if inst.mods.clamp {
            value = if value.is_nan() && wave.mode.clamps_nan() { 0.0 } else { clamp01(value) };
        }
        *bits = value.to_bits();
    }
}

fn clamp01(value: f32) -> f32 {
    // A comparison with NaN is false, so NaN stays.
    if value <= 0.0 {
        0.0
    } else if value > 1.0 {
        1.0
    } else {
        value
    }
}

/// Applies a function to one 32-bit float.
#[inline(always)]
pub fn f32_1(wave: &mut Wave, inst: &Inst, f: impl Fn(f32) -> f32) {
    for half in 0..wave.halves {
        let (mut room, mut out) = ([0; LANES], [0; LANES]);
        let a = source_f32(wave, inst, 0, half, &mut room);
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(f32::from_bits(a[lane])).to_bits()),
        );
        finish_f32(wave, inst, &mut out);
        write(wave, inst, half, &out);
    }
}

/// Applies a function to two 32-bit floats.
#[inline(always)]
pub fn f32_2(wave: &mut Wave, inst: &Inst, f: impl Fn(f32, f32) -> f32) {
    for half in 0..wave.halves {
        let (mut room0, mut room1, mut out) = ([0; LANES], [0; LANES], [0; LANES]);
        let a = source_f32(wave, inst, 0, half, &mut room0);
        let b = source_f32(wave, inst, 1, half, &mut room1);
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(f32::from_bits(a[lane]), f32::from_bits(b[lane])).to_bits()),
        );
        finish_f32(wave, inst, &mut out);
        write(wave, inst, half, &out);
    }
}

/// Applies a function to three 32-bit floats. `third` is the third operand: a source, or the result's register.
#[inline(always)]
pub fn f32_3(wave: &mut Wave, inst: &Inst, f: impl Fn(f32, f32, f32) -> f32) {
    for half in 0..wave.halves {
        let (mut room0, mut room1, mut room2, mut out) = ([0; LANES], [0; LANES], [0; LANES], [0; LANES]);
        let a = source_f32(wave, inst, 0, half, &mut room0);
        let b = source_f32(wave, inst, 1, half, &mut room1);
        let c = match (inst.src[2], inst.dst) {
            // v_fmac and v_mac add to their result.
            (Src::None, Dst::V(register)) => wave.v(register, half),
            _ => source_f32(wave, inst, 2, half, &mut room2),
        };
        wide(
            #[inline(always)]
            || {
                for lane in 0..LANES {
                    out[lane] = f(f32::from_bits(a[lane]), f32::from_bits(b[lane]), f32::from_bits(c[lane])).to_bits();
                }
            },
        );
        finish_f32(wave, inst, &mut out);
        write(wave, inst, half, &out);
    }
}

/// A 16-bit float operand with its modifiers, as bits in the low halves.
#[inline(always)]
pub fn source_f16(wave: &Wave, inst: &Inst, k: usize, half: usize) -> Half {
    let mut values = match (inst.src[k], inst.dst) {
        // v_fmac adds to its result.
        (Src::None, Dst::V(register)) => {
            let shift = if inst.mods.sel & 8 != 0 { 16 } else { 0 };
            wave.v(register, half).map(|bits| bits >> shift & 0xffff)
        }
        _ => wave.lanes16(inst, k, half),
    };
    let clear = if inst.mods.abs >> k & 1 == 1 { 0x8000 } else { 0 };
    let flip = if inst.mods.neg >> k & 1 == 1 { 0x8000 } else { 0 };
    if clear | flip != 0 || wave.mode.flushes_inputs_f16_f64() {
        let flush = wave.mode.flushes_inputs_f16_f64();
        for bits in &mut values {
            let kept = if flush && *bits & 0x7c00 == 0 { *bits & 0x8000 } else { *bits };
            *bits = kept & !clear ^ flip;
        }
    }
    values
}

/// Applies a function of 16-bit floats that returns the bits of one.
#[inline(always)]
pub fn f16_bits<const N: usize>(wave: &mut Wave, inst: &Inst, f: impl Fn([f32; N]) -> u32) {
    for half in 0..wave.halves {
        let sources: [Half; N] = std::array::from_fn(|k| source_f16(wave, inst, k, half));
        let mut out = [0; LANES];
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(std::array::from_fn(|k| f16_to_f32(sources[k][lane])))),
        );
        finish_f16(wave, inst, &mut out);
        wave.set_lanes16(inst, half, &out);
    }
}

/// Output modifiers and flushing of a 16-bit float result.
#[inline(always)]
pub fn finish_f16(wave: &Wave, inst: &Inst, out: &mut Half) {
    if inst.mods.plain_result() && !wave.mode.flushes_outputs_f16_f64() {
        return;
    }
    let factor = [1.0, 2.0, 4.0, 0.5][inst.mods.omod as usize & 3];
    for bits in out.iter_mut() {
        let mut value = f16_to_f32(*bits) * factor;
        if wave.mode.flushes_outputs_f16_f64() && value.abs() < 6.103_515_6e-5 {
            value = 0.0f32.copysign(value);
        }
        if inst.mods.clamp {
            value = if value.is_nan() && wave.mode.clamps_nan() { 0.0 } else { clamp01(value) };
        }
        *bits = f32_to_f16(value);
    }
}

/// Applies a function of 16-bit floats. 32 bits are enough to round sums, products and quotients only once.
#[inline(always)]
pub fn f16<const N: usize>(wave: &mut Wave, inst: &Inst, f: impl Fn([f32; N]) -> f32) {
    f16_bits(wave, inst, |values| f32_to_f16(f(values)));
}

/// A 64-bit float operand with its modifiers.
#[inline(always)]
pub fn source_f64(wave: &Wave, inst: &Inst, k: usize, half: usize) -> [f64; LANES] {
    let bits = match (inst.src[k], inst.dst) {
        // A literal is the high half.
        (Src::Lit(high), _) => [u64::from(high) << 32; LANES],
        // v_fmac adds to its result.
        (Src::None, Dst::V(register)) => wave.lanes64(Src::V(register), half),
        (src, _) => wave.lanes64(src, half),
    };
    let clear = u64::from(inst.mods.abs >> k & 1) << 63;
    let flip = u64::from(inst.mods.neg >> k & 1) << 63;
    let flush = wave.mode.flushes_inputs_f16_f64();
    bits.map(|bits| {
        let bits = if flush && bits & (0x7ff << 52) == 0 { bits & (1 << 63) } else { bits };
        f64::from_bits(bits & !clear ^ flip)
    })
}

/// Writes a 64-bit float result with its modifiers.
#[inline(always)]
pub fn write_f64(wave: &mut Wave, inst: &Inst, half: usize, mut out: [f64; LANES]) {
    if !inst.mods.plain_result() || wave.mode.flushes_outputs_f16_f64() {
        let factor = [1.0, 2.0, 4.0, 0.5][inst.mods.omod as usize & 3];
        for value in &mut out {
            *value *= factor;
            if wave.mode.flushes_outputs_f16_f64() && value.is_subnormal() {
                *value = 0.0f64.copysign(*value);
            }
            if inst.mods.clamp {
                let nan = value.is_nan();
                *value = if nan && !wave.mode.clamps_nan() {
                    *value
                } else if *value > 0.0 {
                    value.min(1.0)
                } else {
                    0.0
                };
            }
        }
    }
    if let Dst::V(register) = inst.dst {
        wave.set_lanes64(register, half, &out.map(f64::to_bits));
    }
}

/// Applies a function to 64-bit floats.
#[inline(always)]
pub fn f64<const N: usize>(wave: &mut Wave, inst: &Inst, f: impl Fn([f64; N]) -> f64) {
    for half in 0..wave.halves {
        let sources: [[f64; LANES]; N] = std::array::from_fn(|k| source_f64(wave, inst, k, half));
        let mut out = [0.0; LANES];
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(std::array::from_fn(|k| sources[k][lane]))),
        );
        write_f64(wave, inst, half, out);
    }
}

/// Packs one bit of each lane into a mask.
#[inline(always)]
pub fn mask_of(bits: &Half) -> u32 {
    let mut mask = 0;
    for (lane, bit) in bits.iter().enumerate() {
        mask |= (*bit & 1) << lane;
    }
    mask
}

/// Writes the result of a comparison: 0 for inactive lanes.
#[inline(always)]
pub fn write_compare(wave: &mut Wave, inst: &Inst, result: [Half; 2]) {
    let mut mask = 0;
    for (half, bits) in result.iter().enumerate().take(wave.halves) {
        mask |= u64::from(mask_of(bits) & wave.exec_half(half)) << (half * LANES);
    }
    wave.set_mask(inst.dst, mask);
}

/// Compares two 32-bit operands.
#[inline(always)]
pub fn compare_b32(wave: &mut Wave, inst: &Inst, f: impl Fn(u32, u32) -> bool) {
    let mut result = [[0; LANES]; 2];
    for (half, out) in result.iter_mut().enumerate().take(wave.halves) {
        let (mut room0, mut room1) = ([0; LANES], [0; LANES]);
        let a = wave.lanes32(inst.src[0], half, &mut room0);
        let b = wave.lanes32(inst.src[1], half, &mut room1);
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = u32::from(f(a[lane], b[lane]))),
        );
    }
    write_compare(wave, inst, result);
}

/// Compares two 32-bit floats.
#[inline(always)]
pub fn compare_f32(wave: &mut Wave, inst: &Inst, f: impl Fn(f32, f32) -> bool) {
    let mut result = [[0; LANES]; 2];
    for (half, out) in result.iter_mut().enumerate().take(wave.halves) {
        let (mut room0, mut room1) = ([0; LANES], [0; LANES]);
        let a = source_f32(wave, inst, 0, half, &mut room0);
        let b = source_f32(wave, inst, 1, half, &mut room1);
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = u32::from(f(f32::from_bits(a[lane]), f32::from_bits(b[lane])))),
        );
    }
    write_compare(wave, inst, result);
}

/// Compares two 16-bit floats.
#[inline(always)]
pub fn compare_f16(wave: &mut Wave, inst: &Inst, f: impl Fn(f32, f32) -> bool) {
    let mut result = [[0; LANES]; 2];
    for (half, out) in result.iter_mut().enumerate().take(wave.halves) {
        let (a, b) = (source_f16(wave, inst, 0, half), source_f16(wave, inst, 1, half));
        (0..LANES).for_each(|lane| out[lane] = u32::from(f(f16_to_f32(a[lane]), f16_to_f32(b[lane]))));
    }
    write_compare(wave, inst, result);
}

/// Compares two 16-bit integers.
#[inline(always)]
pub fn compare_b16(wave: &mut Wave, inst: &Inst, f: impl Fn(u16, u16) -> bool) {
    let mut result = [[0; LANES]; 2];
    for (half, out) in result.iter_mut().enumerate().take(wave.halves) {
        let (a, b) = (wave.lanes16(inst, 0, half), wave.lanes16(inst, 1, half));
        (0..LANES).for_each(|lane| out[lane] = u32::from(f(a[lane] as u16, b[lane] as u16)));
    }
    write_compare(wave, inst, result);
}

/// Compares two 64-bit integers.
#[inline(always)]
pub fn compare_b64(wave: &mut Wave, inst: &Inst, f: impl Fn(u64, u64) -> bool) {
    let mut result = [[0; LANES]; 2];
    for (half, out) in result.iter_mut().enumerate().take(wave.halves) {
        let (a, b) = (wave.lanes64(inst.src[0], half), wave.lanes64(inst.src[1], half));
        (0..LANES).for_each(|lane| out[lane] = u32::from(f(a[lane], b[lane])));
    }
    write_compare(wave, inst, result);
}

/// Compares two 64-bit floats.
#[inline(always)]
pub fn compare_f64(wave: &mut Wave, inst: &Inst, f: impl Fn(f64, f64) -> bool) {
    let mut result = [[0; LANES]; 2];
    for (half, out) in result.iter_mut().enumerate().take(wave.halves) {
        let (a, b) = (source_f64(wave, inst, 0, half), source_f64(wave, inst, 1, half));
        (0..LANES).for_each(|lane| out[lane] = u32::from(f(a[lane], b[lane])));
    }
    write_compare(wave, inst, result);
}
