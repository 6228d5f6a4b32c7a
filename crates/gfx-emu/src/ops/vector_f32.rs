//! Operations on 32-bit floats.

use super::float::{ldexp_f32, max_f32, maximum_f32, med3_f32, min_f32, minimum_f32};
use super::lane::{f32_1, f32_2, f32_3, finish_f32, source_f32};
use super::{Entry, op};
use crate::inst::{Dst, Inst, Src};
use crate::wave::{LANES, Wave};

/// `a * b`, where 0 times anything is 0.
#[inline(always)]
fn mul_zero(a: f32, b: f32) -> f32 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

#[inline(always)]
fn fma_zero(a: f32, b: f32, c: f32) -> f32 {
    if a == 0.0 || b == 0.0 { 0.0 + c } else { a.mul_add(b, c) }
}

/// Multiplies by a power of two; the exponent is an integer without modifiers.
fn ldexp(w: &mut Wave, i: &Inst) {
    for half in 0..w.halves {
        let (mut room0, mut room1) = ([0; LANES], [0; LANES]);
        let a = source_f32(w, i, 0, half, &mut room0);
        let b = w.lanes32(i.src[1], half, &mut room1);
        let mut out = std::array::from_fn(|lane| ldexp_f32(f32::from_bits(a[lane]), b[lane] as i32).to_bits());
        finish_f32(w, i, &mut out);
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &out);
        }
    }
}

/// The constant of v_fmamk is the middle source; v_fmaak's is the last. Both have the order of the text.
fn fma(w: &mut Wave, i: &Inst) {
    f32_3(w, i, f32::mul_add);
}

fn frexp_exp(value: f32) -> u32 {
    if value == 0.0 || !value.is_finite() { 0 } else { super::float::frexp_f64(f64::from(value)).1 as u32 }
}

fn frexp_mant(value: f32) -> f32 {
    if value.is_finite() { super::float::frexp_f64(f64::from(value)).0 as f32 } else { value }
}

/// The sine of a fraction of a turn.
fn sin(turns: f32) -> f32 {
    if turns.is_infinite() {
        return f32::NAN;
    }
    let turns = f64::from(turns);
    ((turns - turns.floor()) * std::f64::consts::TAU).sin() as f32
}

fn cos(turns: f32) -> f32 {
    if turns.is_infinite() {
        return f32::NAN;
    }
    let turns = f64::from(turns);
    ((turns - turns.floor()) * std::f64::consts::TAU).cos() as f32
}

/// Flushes denormals as the approximate functions do whatever the mode is.
fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

fn rcp(value: f32) -> f32 {
    flushed(1.0 / flushed(value))
}

fn rsq(value: f32) -> f32 {
    (1.0 / f64::from(flushed(value)).sqrt()) as f32
}

fn sqrt(value: f32) -> f32 {
    flushed(value).sqrt()
}

fn exp2(value: f32) -> f32 {
    flushed(f64::from(flushed(value)).exp2() as f32)
}

fn log2(value: f32) -> f32 {
    f64::from(flushed(value)).log2() as f32
}

#[inline(always)]
fn fract(value: f32) -> f32 {
    // The largest number below 1 at most.
    let fraction = value - value.floor();
    if fraction >= 1.0 { f32::from_bits(0x3f7f_ffff) } else { fraction }
}

fn cube_id(x: f32, y: f32, z: f32) -> f32 {
    if z.abs() >= x.abs() && z.abs() >= y.abs() {
        if z < 0.0 { 5.0 } else { 4.0 }
    } else if y.abs() >= x.abs() {
        if y < 0.0 { 3.0 } else { 2.0 }
    } else if x < 0.0 {
        1.0
    } else {
        0.0
    }
}

pub const TABLE: &[Entry] = &[
    op("v_add_f32", |w, i| f32_2(w, i, |a, b| a + b)),
    op("v_sub_f32", |w, i| f32_2(w, i, |a, b| a - b)),
    op("v_subrev_f32", |w, i| f32_2(w, i, |a, b| b - a)),
    op("v_mul_f32", |w, i| f32_2(w, i, |a, b| a * b)),
    op("v_mul_legacy_f32", |w, i| f32_2(w, i, mul_zero)),
    op("v_mul_dx9_zero_f32", |w, i| f32_2(w, i, mul_zero)),
    op("v_fma_f32", fma),
    op("v_fmac_f32", fma),
    op("v_fmamk_f32", fma),
    op("v_fmaak_f32", fma),
    op("v_fma_legacy_f32", |w, i| f32_3(w, i, fma_zero)),
    op("v_fma_dx9_zero_f32", |w, i| f32_3(w, i, fma_zero)),
    op("v_fmac_dx9_zero_f32", |w, i| f32_3(w, i, fma_zero)),
    op("v_mad_f32", |w, i| f32_3(w, i, |a, b, c| a * b + c)),
    op("v_mac_f32", |w, i| f32_3(w, i, |a, b, c| a * b + c)),
    op("v_madmk_f32", |w, i| f32_3(w, i, |a, b, c| a * b + c)),
    op("v_madak_f32", |w, i| f32_3(w, i, |a, b, c| a * b + c)),
    op("v_min_f32", |w, i| f32_2(w, i, min_f32)),
    op("v_min_num_f32", |w, i| f32_2(w, i, min_f32)),
    op("v_max_f32", |w, i| f32_2(w, i, max_f32)),
    op("v_max_num_f32", |w, i| f32_2(w, i, max_f32)),
    op("v_minimum_f32", |w, i| f32_2(w, i, minimum_f32)),
    op("v_maximum_f32", |w, i| f32_2(w, i, maximum_f32)),
    op("v_min3_f32", |w, i| f32_3(w, i, |a, b, c| min_f32(min_f32(a, b), c))),
    op("v_min3_num_f32", |w, i| f32_3(w, i, |a, b, c| min_f32(min_f32(a, b), c))),
    op("v_max3_f32", |w, i| f32_3(w, i, |a, b, c| max_f32(max_f32(a, b), c))),
    op("v_max3_num_f32", |w, i| f32_3(w, i, |a, b, c| max_f32(max_f32(a, b), c))),
    op("v_minimum3_f32", |w, i| f32_3(w, i, |a, b, c| minimum_f32(minimum_f32(a, b), c))),
    op("v_maximum3_f32", |w, i| f32_3(w, i, |a, b, c| maximum_f32(maximum_f32(a, b), c))),
    op("v_med3_f32", |w, i| f32_3(w, i, med3_f32)),
    op("v_med3_num_f32", |w, i| f32_3(w, i, med3_f32)),
    op("v_minmax_f32", |w, i| f32_3(w, i, |a, b, c| max_f32(min_f32(a, b), c))),
    op("v_minmax_num_f32", |w, i| f32_3(w, i, |a, b, c| max_f32(min_f32(a, b), c))),
    op("v_maxmin_f32", |w, i| f32_3(w, i, |a, b, c| min_f32(max_f32(a, b), c))),
    op("v_maxmin_num_f32", |w, i| f32_3(w, i, |a, b, c| min_f32(max_f32(a, b), c))),
    op("v_minimummaximum_f32", |w, i| f32_3(w, i, |a, b, c| maximum_f32(minimum_f32(a, b), c))),
    op("v_maximumminimum_f32", |w, i| f32_3(w, i, |a, b, c| minimum_f32(maximum_f32(a, b), c))),
    op("v_trunc_f32", |w, i| f32_1(w, i, f32::trunc)),
    op("v_ceil_f32", |w, i| f32_1(w, i, f32::ceil)),
    op("v_floor_f32", |w, i| f32_1(w, i, f32::floor)),
    op("v_rndne_f32", |w, i| f32_1(w, i, f32::round_ties_even)),
    op("v_fract_f32", |w, i| f32_1(w, i, fract)),
    op("v_rcp_f32", |w, i| f32_1(w, i, rcp)),
    op("v_rcp_iflag_f32", |w, i| f32_1(w, i, rcp)),
    op("v_rsq_f32", |w, i| f32_1(w, i, rsq)),
    op("v_sqrt_f32", |w, i| f32_1(w, i, sqrt)),
    op("v_exp_f32", |w, i| f32_1(w, i, exp2)),
    op("v_exp_legacy_f32", |w, i| f32_1(w, i, exp2)),
    op("v_log_f32", |w, i| f32_1(w, i, log2)),
    op("v_log_legacy_f32", |w, i| f32_1(w, i, log2)),
    op("v_sin_f32", |w, i| f32_1(w, i, sin)),
    op("v_cos_f32", |w, i| f32_1(w, i, cos)),
    op("v_ldexp_f32", ldexp),
    op("v_frexp_mant_f32", |w, i| f32_1(w, i, frexp_mant)),
    op("v_frexp_exp_i32_f32", |w, i| {
        for half in 0..w.halves {
            let mut room = [0; LANES];
            let a = source_f32(w, i, 0, half, &mut room);
            let out = a.map(|bits| frexp_exp(f32::from_bits(bits)));
            if let Dst::V(register) = i.dst {
                w.set_lanes32(register, half, &out);
            }
        }
    }),
    op("v_cubeid_f32", |w, i| f32_3(w, i, cube_id)),
    // Two results in one register each.
    op("v_swap_b32", |w, i| {
        let (Dst::V(one), Src::V(other)) = (i.dst, i.src[0]) else { return };
        for half in 0..w.halves {
            let (a, b) = (*w.v(one, half), *w.v(other, half));
            w.set_lanes32(one, half, &b);
            w.set_lanes32(other, half, &a);
        }
    }),
    op("v_pack_b32_f16", |w, i| {
        for half in 0..w.halves {
            let (a, b) = (super::lane::source_f16(w, i, 0, half), super::lane::source_f16(w, i, 1, half));
            let out = std::array::from_fn(|lane| a[lane] | b[lane] << 16);
            if let Dst::V(register) = i.dst {
                w.set_lanes32(register, half, &out);
            }
        }
    }),
];
