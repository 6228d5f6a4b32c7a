//! Operations on 16-bit floats.

use super::float::{f32_to_f16, f64_to_f16, fma_f16, max_f32, maximum_f32, med3_f32, min_f32, minimum_f32};
use super::lane::{b16, f16, f16_bits, finish_f16, source_f16};
use super::{Entry, op};
use crate::inst::Inst;
use crate::wave::{LANES, Wave};

fn fma(w: &mut Wave, i: &Inst) {
    f16_bits(w, i, |[a, b, c]| fma_f16(a, b, c));
}

/// Multiplies by a power of two; the exponent is a 16-bit integer.
fn ldexp(w: &mut Wave, i: &Inst) {
    for half in 0..w.halves {
        let (a, b) = (source_f16(w, i, 0, half), w.lanes16(i, 1, half));
        let mut out = std::array::from_fn(|lane| {
            let value = f64::from(super::float::f16_to_f32(a[lane]));
            f64_to_f16(super::float::ldexp_f64(value, i32::from(b[lane] as i16)))
        });
        finish_f16(w, i, &mut out);
        w.set_lanes16(i, half, &out);
    }
}

fn frexp_exp(w: &mut Wave, i: &Inst) {
    for half in 0..w.halves {
        let a = source_f16(w, i, 0, half);
        let mut out = [0; LANES];
        for lane in 0..LANES {
            out[lane] = super::float::frexp_f64(f64::from(super::float::f16_to_f32(a[lane]))).1 as u32 & 0xffff;
        }
        w.set_lanes16(i, half, &out);
    }
}

#[inline(always)]
fn fract(value: f32) -> f32 {
    let fraction = value - value.floor();
    // The largest 16-bit number below 1 at most.
    if fraction > 0.999_511_7 { 0.999_511_7 } else { fraction }
}

pub const TABLE: &[Entry] = &[
    op("v_add_f16", |w, i| f16(w, i, |[a, b]| a + b)),
    op("v_sub_f16", |w, i| f16(w, i, |[a, b]| a - b)),
    op("v_subrev_f16", |w, i| f16(w, i, |[a, b]| b - a)),
    op("v_mul_f16", |w, i| f16(w, i, |[a, b]| a * b)),
    op("v_fma_f16", fma),
    op("v_fmac_f16", fma),
    op("v_fmamk_f16", fma),
    op("v_fmaak_f16", fma),
    op("v_mac_f16", |w, i| {
        f16_bits(w, i, |[a, b, c]| {
            let product = super::float::f16_to_f32(f32_to_f16(a * b));
            f32_to_f16(product + c)
        })
    }),
    op("v_min_f16", |w, i| f16(w, i, |[a, b]| min_f32(a, b))),
    op("v_min_num_f16", |w, i| f16(w, i, |[a, b]| min_f32(a, b))),
    op("v_max_f16", |w, i| f16(w, i, |[a, b]| max_f32(a, b))),
    op("v_max_num_f16", |w, i| f16(w, i, |[a, b]| max_f32(a, b))),
    op("v_minimum_f16", |w, i| f16(w, i, |[a, b]| minimum_f32(a, b))),
    op("v_maximum_f16", |w, i| f16(w, i, |[a, b]| maximum_f32(a, b))),
    op("v_min3_f16", |w, i| f16(w, i, |[a, b, c]| min_f32(min_f32(a, b), c))),
    op("v_min3_num_f16", |w, i| f16(w, i, |[a, b, c]| min_f32(min_f32(a, b), c))),
    op("v_max3_f16", |w, i| f16(w, i, |[a, b, c]| max_f32(max_f32(a, b), c))),
    op("v_max3_num_f16", |w, i| f16(w, i, |[a, b, c]| max_f32(max_f32(a, b), c))),
    op("v_minimum3_f16", |w, i| f16(w, i, |[a, b, c]| minimum_f32(minimum_f32(a, b), c))),
    op("v_maximum3_f16", |w, i| f16(w, i, |[a, b, c]| maximum_f32(maximum_f32(a, b), c))),
    op("v_med3_f16", |w, i| f16(w, i, |[a, b, c]| med3_f32(a, b, c))),
    op("v_med3_num_f16", |w, i| f16(w, i, |[a, b, c]| med3_f32(a, b, c))),
    op("v_minmax_f16", |w, i| f16(w, i, |[a, b, c]| max_f32(min_f32(a, b), c))),
    op("v_minmax_num_f16", |w, i| f16(w, i, |[a, b, c]| max_f32(min_f32(a, b), c))),
    op("v_maxmin_f16", |w, i| f16(w, i, |[a, b, c]| min_f32(max_f32(a, b), c))),
    op("v_maxmin_num_f16", |w, i| f16(w, i, |[a, b, c]| min_f32(max_f32(a, b), c))),
    op("v_trunc_f16", |w, i| f16(w, i, |[a]| a.trunc())),
    op("v_ceil_f16", |w, i| f16(w, i, |[a]| a.ceil())),
    op("v_floor_f16", |w, i| f16(w, i, |[a]| a.floor())),
    op("v_rndne_f16", |w, i| f16(w, i, |[a]| a.round_ties_even())),
    op("v_fract_f16", |w, i| f16(w, i, |[a]| fract(a))),
    op("v_rcp_f16", |w, i| f16(w, i, |[a]| 1.0 / a)),
    op("v_rsq_f16", |w, i| f16_bits(w, i, |[a]| f64_to_f16(1.0 / f64::from(a).sqrt()))),
    op("v_sqrt_f16", |w, i| f16(w, i, |[a]| a.sqrt())),
    op("v_exp_f16", |w, i| f16_bits(w, i, |[a]| f64_to_f16(f64::from(a).exp2()))),
    op("v_log_f16", |w, i| f16_bits(w, i, |[a]| f64_to_f16(f64::from(a).log2()))),
    op("v_sin_f16", |w, i| f16_bits(w, i, |[a]| f64_to_f16((f64::from(a) * std::f64::consts::TAU).sin()))),
    op("v_cos_f16", |w, i| f16_bits(w, i, |[a]| f64_to_f16((f64::from(a) * std::f64::consts::TAU).cos()))),
    op("v_ldexp_f16", ldexp),
    op("v_frexp_exp_i16_f16", frexp_exp),
    op("v_frexp_mant_f16", |w, i| f16(w, i, |[a]| super::float::frexp_f64(f64::from(a)).0 as f32)),
    op("v_cvt_f16_u16", |w, i| b16(w, i, |[a]| f32_to_f16(a as f32))),
    op("v_cvt_f16_i16", |w, i| b16(w, i, |[a]| f32_to_f16(f32::from(a as i16)))),
    op("v_cvt_u16_f16", |w, i| f16_bits(w, i, |[a]| u32::from(a as u16))),
    op("v_cvt_i16_f16", |w, i| f16_bits(w, i, |[a]| u32::from(a as i16 as u16))),
    op("v_div_fixup_f16", |w, i| f16(w, i, |[a, b, c]| super::vector_divide::fixup_f16(a, b, c))),
    op("v_cndmask_b16", |w, i| {
        let mask = w.mask_of(i.src[2]);
        for half in 0..w.halves {
            let (a, b) = (source_f16(w, i, 0, half), source_f16(w, i, 1, half));
            let mask = (mask >> (half * LANES)) as u32;
            let out = std::array::from_fn(|lane| if mask >> lane & 1 == 1 { b[lane] } else { a[lane] });
            w.set_lanes16(i, half, &out);
        }
    }),
];
