//! Conversions between formats.

use super::float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f32_to_f16_towards_zero};
use super::lane::{finish_f16, finish_f32, source_f16, source_f32, source_f64, write_f64};
use super::{Entry, op};
use crate::Family;
use crate::inst::{Dst, Inst};
use crate::simd::wide;
use crate::wave::{Half, LANES, Wave};

fn write(w: &mut Wave, i: &Inst, half: usize, out: &Half) {
    if let Dst::V(register) = i.dst {
        w.set_lanes32(register, half, out);
    }
}

/// A 32-bit float to bits.
#[inline(always)]
fn from_f32(w: &mut Wave, i: &Inst, f: impl Fn(f32) -> u32) {
    for half in 0..w.halves {
        let (mut room, mut out) = ([0; LANES], [0; LANES]);
        let a = source_f32(w, i, 0, half, &mut room);
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(f32::from_bits(a[lane]))),
        );
        write(w, i, half, &out);
    }
}

/// Bits to a 32-bit float.
#[inline(always)]
fn to_f32(w: &mut Wave, i: &Inst, f: impl Fn(u32) -> f32) {
    for half in 0..w.halves {
        let (mut room, mut out) = ([0; LANES], [0; LANES]);
        let a = w.lanes32(i.src[0], half, &mut room);
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f(a[lane]).to_bits()),
        );
        finish_f32(w, i, &mut out);
        write(w, i, half, &out);
    }
}

/// Bits to a 64-bit float.
#[inline(always)]
fn to_f64(w: &mut Wave, i: &Inst, f: impl Fn(u32) -> f64) {
    for half in 0..w.halves {
        let mut room = [0; LANES];
        let out = w.lanes32(i.src[0], half, &mut room).map(&f);
        write_f64(w, i, half, out);
    }
}

/// A 64-bit float to bits.
#[inline(always)]
fn from_f64(w: &mut Wave, i: &Inst, f: impl Fn(f64) -> u32) {
    for half in 0..w.halves {
        let out = source_f64(w, i, 0, half).map(&f);
        write(w, i, half, &out);
    }
}

/// Two 32-bit floats to one register.
#[inline(always)]
fn pack(w: &mut Wave, i: &Inst, f: impl Fn(f32, f32) -> u32) {
    for half in 0..w.halves {
        let (mut room0, mut room1) = ([0; LANES], [0; LANES]);
        let a = source_f32(w, i, 0, half, &mut room0);
        let b = source_f32(w, i, 1, half, &mut room1);
        let out = std::array::from_fn(|lane| f(f32::from_bits(a[lane]), f32::from_bits(b[lane])));
        write(w, i, half, &out);
    }
}

fn f32_from_f16(w: &mut Wave, i: &Inst) {
    for half in 0..w.halves {
        let a = source_f16(w, i, 0, half);
        let mut out = [0; LANES];
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f16_to_f32(a[lane]).to_bits()),
        );
        finish_f32(w, i, &mut out);
        write(w, i, half, &out);
    }
}

fn f16_from_f32(w: &mut Wave, i: &Inst) {
    for half in 0..w.halves {
        let (mut room, mut out) = ([0; LANES], [0; LANES]);
        let a = source_f32(w, i, 0, half, &mut room);
        wide(
            #[inline(always)]
            || (0..LANES).for_each(|lane| out[lane] = f32_to_f16(f32::from_bits(a[lane]))),
        );
        finish_f16(w, i, &mut out);
        w.set_lanes16(i, half, &out);
    }
}

fn norm_i16(value: f32) -> u32 {
    let limited = if value.is_nan() { 0.0 } else { f64::from(value.clamp(-1.0, 1.0)) };
    // The product is exact in 64 bits, so it is rounded once.
    ((limited * 32767.0).round_ties_even() as i32 as u32) & 0xffff
}

fn norm_u16(value: f32) -> u32 {
    let limited = if value.is_nan() { 0.0 } else { f64::from(value.clamp(0.0, 1.0)) };
    (limited * 65535.0).round_ties_even() as u32
}

/// Puts a byte into a register.
fn pack_u8(w: &mut Wave, i: &Inst) {
    for half in 0..w.halves {
        let (mut room0, mut room1, mut room2) = ([0; LANES], [0; LANES], [0; LANES]);
        let a = source_f32(w, i, 0, half, &mut room0);
        let at = w.lanes32(i.src[1], half, &mut room1);
        let old = w.lanes32(i.src[2], half, &mut room2);
        let out = std::array::from_fn(|lane| {
            let value = u32::from(f32::from_bits(a[lane]).round_ties_even() as u8);
            let shift = (at[lane] & 3) * 8;
            old[lane] & !(0xff << shift) | value << shift
        });
        write(w, i, half, &out);
    }
}

/// Two signed numbers of 16 bits to bytes. Since gfx11, the other half of the register stays.
fn sat_pk_u8(w: &mut Wave, i: &Inst) {
    let keeps = w.is(Family::Rdna3) || w.is(Family::Rdna4);
    let clamp = |value: u32| u32::from((value as i16).clamp(0, 255) as u8);
    for half in 0..w.halves {
        let mut room = [0; LANES];
        let out = w.lanes32(i.src[0], half, &mut room).map(|a| clamp(a & 0xffff) | clamp(a >> 16) << 8);
        if keeps { w.set_lanes16(i, half, &out) } else { write(w, i, half, &out) }
    }
}

pub const TABLE: &[Entry] = &[
    op("v_cvt_f32_i32", |w, i| to_f32(w, i, |a| a as i32 as f32)),
    op("v_cvt_f32_u32", |w, i| to_f32(w, i, |a| a as f32)),
    op("v_cvt_f32_ubyte0", |w, i| to_f32(w, i, |a| (a & 0xff) as f32)),
    op("v_cvt_f32_ubyte1", |w, i| to_f32(w, i, |a| (a >> 8 & 0xff) as f32)),
    op("v_cvt_f32_ubyte2", |w, i| to_f32(w, i, |a| (a >> 16 & 0xff) as f32)),
    op("v_cvt_f32_ubyte3", |w, i| to_f32(w, i, |a| (a >> 24) as f32)),
    op("v_cvt_off_f32_i4", |w, i| to_f32(w, i, |a| ((a << 28) as i32 >> 28) as f32 / 16.0)),
    op("v_cvt_f32_f16", f32_from_f16),
    op("v_cvt_f16_f32", f16_from_f32),
    op("v_cvt_f32_bf16", |w, i| {
        for half in 0..w.halves {
            let out = w.lanes16(i, 0, half).map(|bits| bf16_to_f32(bits).to_bits());
            write(w, i, half, &out);
        }
    }),
    op("v_cvt_f32_f64", |w, i| {
        for half in 0..w.halves {
            let mut out = source_f64(w, i, 0, half).map(|value| (value as f32).to_bits());
            finish_f32(w, i, &mut out);
            write(w, i, half, &out);
        }
    }),
    op("v_cvt_f64_f32", |w, i| {
        for half in 0..w.halves {
            let mut room = [0; LANES];
            let out = source_f32(w, i, 0, half, &mut room).map(|bits| f64::from(f32::from_bits(bits)));
            write_f64(w, i, half, out);
        }
    }),
    op("v_cvt_f64_i32", |w, i| to_f64(w, i, |a| f64::from(a as i32))),
    op("v_cvt_f64_u32", |w, i| to_f64(w, i, f64::from)),
    // Rust's conversions saturate and turn NaN into 0, as the instructions do.
    op("v_cvt_i32_f32", |w, i| from_f32(w, i, |a| a as i32 as u32)),
    op("v_cvt_u32_f32", |w, i| from_f32(w, i, |a| a as u32)),
    op("v_cvt_i32_f64", |w, i| from_f64(w, i, |a| a as i32 as u32)),
    op("v_cvt_u32_f64", |w, i| from_f64(w, i, |a| a as u32)),
    op("v_cvt_rpi_i32_f32", |w, i| from_f32(w, i, |a| (a + 0.5).floor() as i32 as u32)),
    op("v_cvt_nearest_i32_f32", |w, i| from_f32(w, i, |a| (a + 0.5).floor() as i32 as u32)),
    op("v_cvt_flr_i32_f32", |w, i| from_f32(w, i, |a| a.floor() as i32 as u32)),
    op("v_cvt_floor_i32_f32", |w, i| from_f32(w, i, |a| a.floor() as i32 as u32)),
    op("v_cvt_i32_i16", |w, i| {
        for half in 0..w.halves {
            let out = w.lanes16(i, 0, half).map(|bits| bits as i16 as u32);
            write(w, i, half, &out);
        }
    }),
    op("v_cvt_u32_u16", |w, i| {
        for half in 0..w.halves {
            let out = w.lanes16(i, 0, half);
            write(w, i, half, &out);
        }
    }),
    op("v_cvt_pkrtz_f16_f32", |w, i| {
        pack(w, i, |a, b| f32_to_f16_towards_zero(a) | f32_to_f16_towards_zero(b) << 16);
    }),
    op("v_cvt_pk_rtz_f16_f32", |w, i| {
        pack(w, i, |a, b| f32_to_f16_towards_zero(a) | f32_to_f16_towards_zero(b) << 16);
    }),
    op("v_cvt_pk_bf16_f32", |w, i| pack(w, i, |a, b| f32_to_bf16(a) | f32_to_bf16(b) << 16)),
    op("v_cvt_pk_f16_f32", |w, i| pack(w, i, |a, b| f32_to_f16(a) | f32_to_f16(b) << 16)),
    op("v_cvt_pknorm_i16_f32", |w, i| pack(w, i, |a, b| norm_i16(a) | norm_i16(b) << 16)),
    op("v_cvt_pk_norm_i16_f32", |w, i| pack(w, i, |a, b| norm_i16(a) | norm_i16(b) << 16)),
    op("v_cvt_pknorm_u16_f32", |w, i| pack(w, i, |a, b| norm_u16(a) | norm_u16(b) << 16)),
    op("v_cvt_pk_norm_u16_f32", |w, i| pack(w, i, |a, b| norm_u16(a) | norm_u16(b) << 16)),
    op("v_cvt_pk_u8_f32", pack_u8),
    op("v_cvt_pk_i16_f32", |w, i| pack(w, i, |a, b| u32::from(a as i16 as u16) | u32::from(b as i16 as u16) << 16)),
    op("v_cvt_pk_u16_f32", |w, i| pack(w, i, |a, b| u32::from(a as u16) | u32::from(b as u16) << 16)),
    op("v_sat_pk_u8_i16", sat_pk_u8),
    op("v_cvt_norm_i16_f16", |w, i| super::lane::f16_bits(w, i, |[a]| norm_i16(a))),
    op("v_cvt_norm_u16_f16", |w, i| super::lane::f16_bits(w, i, |[a]| norm_u16(a))),
];
