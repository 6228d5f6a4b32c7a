//! Operations on 64-bit floats.

use super::float::{frexp_f64, ldexp_f64, max_f64, min_f64};
use super::lane::{f64, source_f64, write_f64};
use super::{Entry, op};
use crate::inst::{Dst, Inst};
use crate::wave::{LANES, Wave};

fn ldexp(w: &mut Wave, i: &Inst) {
    for half in 0..w.halves {
        let mut room = [0; LANES];
        let a = source_f64(w, i, 0, half);
        let b = w.lanes32(i.src[1], half, &mut room);
        let out = std::array::from_fn(|lane| ldexp_f64(a[lane], b[lane] as i32));
        write_f64(w, i, half, out);
    }
}

fn fract(value: f64) -> f64 {
    let fraction = value - value.floor();
    if fraction >= 1.0 { f64::from_bits(0x3fef_ffff_ffff_ffff) } else { fraction }
}

/// 1201 bits of 2 / pi, from the highest.
const TWO_OVER_PI: [u64; 19] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
];

/// A part of 2 / pi, for the reduction of the argument of sine and cosine: 53 bits from a place that the exponent and
/// the part's number choose.
fn trig_preop(value: f64, part: u32) -> f64 {
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i32;
    let mut shift = (part & 31) as i32 * 53;
    if exponent > 1077 {
        shift += exponent - 1077;
    }
    let bit = |at: i32| {
        let at = at as usize;
        TWO_OVER_PI.get(at / 64).map_or(0, |word| word >> (63 - at % 64) & 1)
    };
    let bits = (0..53).fold(0u64, |bits, at| bits << 1 | bit(shift + at));
    let mut scale = -53 - shift;
    if exponent >= 1968 {
        scale += 128;
    }
    ldexp_f64(bits as f64, scale)
}

pub const TABLE: &[Entry] = &[
    op("v_add_f64", |w, i| f64(w, i, |[a, b]| a + b)),
    op("v_mul_f64", |w, i| f64(w, i, |[a, b]| a * b)),
    op("v_fma_f64", |w, i| f64(w, i, |[a, b, c]| a.mul_add(b, c))),
    op("v_fmac_f64", |w, i| f64(w, i, |[a, b, c]| a.mul_add(b, c))),
    op("v_min_f64", |w, i| f64(w, i, |[a, b]| min_f64(a, b))),
    op("v_min_num_f64", |w, i| f64(w, i, |[a, b]| min_f64(a, b))),
    op("v_max_f64", |w, i| f64(w, i, |[a, b]| max_f64(a, b))),
    op("v_max_num_f64", |w, i| f64(w, i, |[a, b]| max_f64(a, b))),
    op("v_trunc_f64", |w, i| f64(w, i, |[a]| a.trunc())),
    op("v_ceil_f64", |w, i| f64(w, i, |[a]| a.ceil())),
    op("v_floor_f64", |w, i| f64(w, i, |[a]| a.floor())),
    op("v_rndne_f64", |w, i| f64(w, i, |[a]| a.round_ties_even())),
    op("v_fract_f64", |w, i| f64(w, i, |[a]| fract(a))),
    op("v_rcp_f64", |w, i| f64(w, i, |[a]| 1.0 / a)),
    op("v_rsq_f64", |w, i| f64(w, i, |[a]| 1.0 / a.sqrt())),
    op("v_sqrt_f64", |w, i| f64(w, i, |[a]| a.sqrt())),
    op("v_ldexp_f64", ldexp),
    op("v_frexp_mant_f64", |w, i| f64(w, i, |[a]| frexp_f64(a).0)),
    op("v_frexp_exp_i32_f64", |w, i| {
        for half in 0..w.halves {
            let a = source_f64(w, i, 0, half);
            if let Dst::V(register) = i.dst {
                w.set_lanes32(register, half, &a.map(|value| frexp_f64(value).1 as u32));
            }
        }
    }),
    op("v_trig_preop_f64", |w, i| {
        for half in 0..w.halves {
            let mut room = [0; LANES];
            let a = source_f64(w, i, 0, half);
            let b = w.lanes32(i.src[1], half, &mut room);
            let out = std::array::from_fn(|lane| trig_preop(a[lane], b[lane]));
            write_f64(w, i, half, out);
        }
    }),
];
