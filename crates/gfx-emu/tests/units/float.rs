//! Conversions and roundings against the half crate and exact arithmetic.

use gfx_emu::ops::float::*;

use half::{bf16, f16};

#[test]
fn all_16_bit_floats_convert_both_ways() {
    for bits in 0..=u16::MAX {
        let want = f16::from_bits(bits).to_f32();
        let have = f16_to_f32(u32::from(bits));
        assert!(have.to_bits() == want.to_bits() || want.is_nan() && have.is_nan(), "{bits:#x}");
        if !want.is_nan() {
            assert_eq!(f32_to_f16(have), u32::from(bits));
            assert_eq!(f32_to_f16_towards_zero(have), u32::from(bits));
        }
    }
}

#[test]
fn rounding_to_16_bits_is_that_of_the_half_crate() {
    let mut bits = 0x1234_5678u32;
    for _ in 0..200_000 {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Exponents around those of 16-bit floats.
        let value = f32::from_bits(bits & 0x807f_ffff | (100 + (bits >> 7) % 48) << 23);
        assert_eq!(f32_to_f16(value), u32::from(f16::from_f32(value).to_bits()), "{value:e}");
        assert_eq!(f32_to_bf16(value), u32::from(bf16::from_f32(value).to_bits()), "{value:e}");
        let wide = f64::from(value) * (1.0 + f64::EPSILON * f64::from(bits >> 9));
        // The half crate cuts the low bits of a 64-bit float before it rounds, so look for the nearest one here.
        let near = f64_to_f16(wide);
        let distance = |bits: u32| (f64::from(f16_to_f32(bits)) - wide).abs();
        let closest = [near.wrapping_sub(1), near + 1].iter().all(|other| {
            let (have, other) = (distance(near), distance(*other));
            have < other || (have == other && near & 1 == 0)
        });
        assert!(closest || near & 0x7fff >= 0x7bff || near & 0x7fff == 0, "{wide:e}");
        let cut = f16_to_f32(f32_to_f16_towards_zero(value)).abs();
        assert!(
            cut <= value.abs()
                && (value.abs() >= 65504.0 || f16_to_f32(f32_to_f16_towards_zero(value) + 1).abs() > value.abs())
        );
    }
}

#[test]
fn ldexp_rounds_once() {
    assert_eq!(ldexp_f64(1.0, -1074), f64::from_bits(1));
    assert_eq!(ldexp_f64(1.5, -1074), f64::from_bits(2));
    assert_eq!(ldexp_f64(f64::from_bits(1), 1074), 1.0);
    assert_eq!(ldexp_f64(f64::from_bits(1), 2097), f64::from_bits(0x7fe0_0000_0000_0000));
    assert_eq!(ldexp_f64(f64::MAX, -2097), f64::from_bits(2));
    assert_eq!(ldexp_f64(-1.0, 1024), f64::NEG_INFINITY);
    assert_eq!(ldexp_f64(3.0, -5000).to_bits(), 0);
    assert_eq!(ldexp_f32(1.0, -149), f32::from_bits(1));
    assert_eq!(ldexp_f32(1.0, 300), f32::INFINITY);
    assert_eq!(frexp_f64(8.0), (0.5, 4));
    assert_eq!(frexp_f64(f64::from_bits(1)), (0.5, -1073));
}

#[test]
fn minimum_and_maximum_order_zeros_and_skip_nan() {
    assert!(min_f32(0.0, -0.0).is_sign_negative() && min_f32(-0.0, 0.0).is_sign_negative());
    assert!(max_f32(0.0, -0.0).is_sign_positive() && max_f32(-0.0, 0.0).is_sign_positive());
    assert_eq!((min_f32(f32::NAN, 2.0), max_f32(2.0, f32::NAN)), (2.0, 2.0));
    assert!(maximum_f32(1.0, f32::NAN).is_nan() && minimum_f32(f32::NAN, 1.0).is_nan());
    assert_eq!(med3_f32(3.0, 1.0, 2.0), 2.0);
}
