//! Scalar floating-point operations of RDNA 3.5 and 4.

use super::float::{
    f16_to_f32, f32_to_f16, f32_to_f16_towards_zero, fma_f16, max_f32, maximum_f32, min_f32, minimum_f32,
};
use super::lane::finish_f32;
use super::{Entry, op, op_sources};
use crate::inst::{Dst, INLINE_FLOATS, Inst, Src};
use crate::wave::{LANES, Wave};

#[inline(always)]
fn bits16(w: &Wave, src: Src) -> f32 {
    match src {
        Src::Float(index) => f16_to_f32(u32::from(INLINE_FLOATS[index as usize].1)),
        other => f16_to_f32(w.s32(other) & 0xffff),
    }
}

#[inline(always)]
fn to_float<const N: usize>(w: &mut Wave, i: &Inst, f: impl Fn([f32; N]) -> f32) {
    let result = f(std::array::from_fn(|k| f32::from_bits(w.s32(source(i, k)))));
    w.set_s32(i.dst, result.to_bits());
}

/// The third source of s_fmac is its result.
fn source(i: &Inst, k: usize) -> Src {
    match (i.src[k], i.dst) {
        (Src::None, Dst::S(register)) => Src::S(register),
        (src, _) => src,
    }
}

#[inline(always)]
fn half<const N: usize>(w: &mut Wave, i: &Inst, f: impl Fn([f32; N]) -> u32) {
    let result = f(std::array::from_fn(|k| bits16(w, source(i, k))));
    w.set_s32(i.dst, result);
}

#[inline(always)]
fn bits(w: &mut Wave, i: &Inst, f: impl Fn(u32) -> u32) {
    let result = f(w.s32(i.src[0]));
    w.set_s32(i.dst, result);
}

/// A function of one scalar with sign and output modifiers.
#[inline(always)]
fn unit(w: &mut Wave, i: &Inst, f: impl Fn(f64) -> f32) {
    let bits = w.s32(i.src[0]);
    let bits = if i.mods.abs & 1 == 1 { bits & 0x7fff_ffff } else { bits };
    let bits = if i.mods.neg & 1 == 1 { bits ^ 0x8000_0000 } else { bits };
    let mut out = [f(f64::from(f32::from_bits(bits))).to_bits(); LANES];
    finish_f32(w, i, &mut out);
    w.set_s32(i.dst, out[0]);
}

macro_rules! compare {
    ($test:literal, $f:expr) => {
        [
            op_sources(concat!("s_cmp_", $test, "_f32"), |w, i| {
                let test: fn(f32, f32) -> bool = $f;
                w.scc = test(f32::from_bits(w.s32(i.src[0])), f32::from_bits(w.s32(i.src[1])));
            }),
            op_sources(concat!("s_cmp_", $test, "_f16"), |w, i| {
                let test: fn(f32, f32) -> bool = $f;
                w.scc = test(bits16(w, i.src[0]), bits16(w, i.src[1]));
            }),
        ]
    };
}

static ALL_COMPARES: [[Entry; 2]; 14] = [
    compare!("eq", |a, b| a == b),
    compare!("neq", |a, b| a != b),
    compare!("lg", |a, b| a < b || a > b),
    compare!("nlg", |a, b| !(a < b || a > b)),
    compare!("lt", |a, b| a < b),
    compare!("nlt", |a, b| !(a < b)),
    compare!("le", |a, b| a <= b),
    compare!("nle", |a, b| !(a <= b)),
    compare!("gt", |a, b| a > b),
    compare!("ngt", |a, b| !(a > b)),
    compare!("ge", |a, b| a >= b),
    compare!("nge", |a, b| !(a >= b)),
    compare!("o", |a, b| !(a.is_nan() || b.is_nan())),
    compare!("u", |a, b| a.is_nan() || b.is_nan()),
];

pub const COMPARES: &[Entry] = ALL_COMPARES.as_flattened();

pub const TABLE: &[Entry] = &[
    op("s_add_f32", |w, i| to_float(w, i, |[a, b]| a + b)),
    op("s_sub_f32", |w, i| to_float(w, i, |[a, b]| a - b)),
    op("s_mul_f32", |w, i| to_float(w, i, |[a, b]| a * b)),
    op("s_fmac_f32", |w, i| to_float(w, i, |[a, b, c]| a.mul_add(b, c))),
    op("s_fmaak_f32", |w, i| to_float(w, i, |[a, b, c]| a.mul_add(b, c))),
    op("s_fmamk_f32", |w, i| to_float(w, i, |[a, b, c]| a.mul_add(b, c))),
    op("s_min_f32", |w, i| to_float(w, i, |[a, b]| min_f32(a, b))),
    op("s_min_num_f32", |w, i| to_float(w, i, |[a, b]| min_f32(a, b))),
    op("s_max_f32", |w, i| to_float(w, i, |[a, b]| max_f32(a, b))),
    op("s_max_num_f32", |w, i| to_float(w, i, |[a, b]| max_f32(a, b))),
    op("s_minimum_f32", |w, i| to_float(w, i, |[a, b]| minimum_f32(a, b))),
    op("s_maximum_f32", |w, i| to_float(w, i, |[a, b]| maximum_f32(a, b))),
    op("s_ceil_f32", |w, i| to_float(w, i, |[a]| a.ceil())),
    op("s_floor_f32", |w, i| to_float(w, i, |[a]| a.floor())),
    op("s_trunc_f32", |w, i| to_float(w, i, |[a]| a.trunc())),
    op("s_rndne_f32", |w, i| to_float(w, i, |[a]| a.round_ties_even())),
    op("s_cvt_f32_i32", |w, i| bits(w, i, |a| (a as i32 as f32).to_bits())),
    op("s_cvt_f32_u32", |w, i| bits(w, i, |a| (a as f32).to_bits())),
    op("s_cvt_i32_f32", |w, i| bits(w, i, |a| f32::from_bits(a) as i32 as u32)),
    op("s_cvt_u32_f32", |w, i| bits(w, i, |a| f32::from_bits(a) as u32)),
    op("s_cvt_f16_f32", |w, i| bits(w, i, |a| f32_to_f16(f32::from_bits(a)))),
    op("s_cvt_f32_f16", |w, i| bits(w, i, |a| f16_to_f32(a & 0xffff).to_bits())),
    op("s_cvt_hi_f32_f16", |w, i| bits(w, i, |a| f16_to_f32(a >> 16).to_bits())),
    op("s_cvt_pk_rtz_f16_f32", |w, i| {
        let (a, b) = (f32::from_bits(w.s32(i.src[0])), f32::from_bits(w.s32(i.src[1])));
        w.set_s32(i.dst, f32_to_f16_towards_zero(a) | f32_to_f16_towards_zero(b) << 16);
    }),
    // Approximate functions of the vector unit on scalar registers (gfx12), with the sign modifiers of VOP3.
    op("v_s_exp_f32", |w, i| unit(w, i, |a| a.exp2() as f32)),
    op("v_s_log_f32", |w, i| unit(w, i, |a| a.log2() as f32)),
    op("v_s_rcp_f32", |w, i| unit(w, i, |a| (1.0 / a) as f32)),
    op("v_s_rsq_f32", |w, i| unit(w, i, |a| (1.0 / a.sqrt()) as f32)),
    op("v_s_sqrt_f32", |w, i| unit(w, i, |a| a.sqrt() as f32)),
    op("s_add_f16", |w, i| half(w, i, |[a, b]| f32_to_f16(a + b))),
    op("s_sub_f16", |w, i| half(w, i, |[a, b]| f32_to_f16(a - b))),
    op("s_mul_f16", |w, i| half(w, i, |[a, b]| f32_to_f16(a * b))),
    op("s_fmac_f16", |w, i| half(w, i, |[a, b, c]| fma_f16(a, b, c))),
    op("s_min_f16", |w, i| half(w, i, |[a, b]| f32_to_f16(min_f32(a, b)))),
    op("s_min_num_f16", |w, i| half(w, i, |[a, b]| f32_to_f16(min_f32(a, b)))),
    op("s_max_f16", |w, i| half(w, i, |[a, b]| f32_to_f16(max_f32(a, b)))),
    op("s_max_num_f16", |w, i| half(w, i, |[a, b]| f32_to_f16(max_f32(a, b)))),
    op("s_minimum_f16", |w, i| half(w, i, |[a, b]| f32_to_f16(minimum_f32(a, b)))),
    op("s_maximum_f16", |w, i| half(w, i, |[a, b]| f32_to_f16(maximum_f32(a, b)))),
    op("s_ceil_f16", |w, i| half(w, i, |[a]| f32_to_f16(a.ceil()))),
    op("s_floor_f16", |w, i| half(w, i, |[a]| f32_to_f16(a.floor()))),
    op("s_trunc_f16", |w, i| half(w, i, |[a]| f32_to_f16(a.trunc()))),
    op("s_rndne_f16", |w, i| half(w, i, |[a]| f32_to_f16(a.round_ties_even()))),
];
