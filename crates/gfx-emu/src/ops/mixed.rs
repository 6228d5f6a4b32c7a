//! Multiply-adds whose sources are 16- or 32-bit floats, each as `op_sel_hi` says.

use super::float::{f16_to_f32, f64_to_f16, round_to_odd, two_sum};
use super::lane::{finish_f16, finish_f32};
use super::{Entry, op};
use crate::inst::{Dst, INLINE_FLOATS, Inst, Src};
use crate::wave::{LANES, Wave};

fn source(w: &Wave, i: &Inst, k: usize, half: usize) -> [f32; LANES] {
    let (short, high) = (i.mods.sel_hi >> k & 1 == 1, i.mods.sel >> k & 1 == 1);
    let (abs, neg) = (i.mods.abs >> k & 1 == 1, i.mods.neg >> k & 1 == 1);
    let widen = |bits: u32| {
        let value = if short { f16_to_f32(bits >> if high { 16 } else { 0 } & 0xffff) } else { f32::from_bits(bits) };
        let value = if abs { value.abs() } else { value };
        if neg { -value } else { value }
    };
    match i.src[k] {
        Src::V(register) => w.v(register, half).map(widen),
        Src::Float(index) if short => [widen(u32::from(INLINE_FLOATS[index as usize].1)); LANES],
        scalar => [widen(w.s32(scalar)); LANES],
    }
}

fn mix_f32(w: &mut Wave, i: &Inst) {
    for half in 0..w.halves {
        let [a, b, c] = std::array::from_fn(|k| source(w, i, k, half));
        let mut out = std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]).to_bits());
        finish_f32(w, i, &mut out);
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &out);
        }
    }
}

/// Rounds to 16 bits, into one half of the register; the other half stays.
fn mix_f16(w: &mut Wave, i: &Inst, high: bool) {
    let Dst::V(register) = i.dst else { return };
    for half in 0..w.halves {
        let [a, b, c]: [[f32; LANES]; 3] = std::array::from_fn(|k| source(w, i, k, half));
        let mut out = std::array::from_fn(|lane| {
            // A product of two 32-bit floats is exact in 64 bits.
            let product = f64::from(a[lane]) * f64::from(b[lane]);
            f64_to_f16(round_to_odd(two_sum(product, f64::from(c[lane]))))
        });
        finish_f16(w, i, &mut out);
        let old = *w.v(register, half);
        let merged = std::array::from_fn(|lane| {
            if high { old[lane] & 0xffff | out[lane] << 16 } else { old[lane] & 0xffff_0000 | out[lane] }
        });
        w.set_lanes32(register, half, &merged);
    }
}

pub const TABLE: &[Entry] = &[
    op("v_fma_mix_f32", mix_f32),
    op("v_fma_mixlo_f16", |w, i| mix_f16(w, i, false)),
    op("v_fma_mixhi_f16", |w, i| mix_f16(w, i, true)),
];
