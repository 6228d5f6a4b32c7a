//! Floating-point operations, against arithmetic of 64 bits.

use super::machine::{FLOATS, as_float, each_triple, exactly, step, wave};
use half::f16;

type Row = (&'static str, fn(f64, f64, f64) -> f64);

/// 64 bits hold twice as many digits as 32, so rounding these to 32 bits is the same as rounding once.
const ROWS: [Row; 16] = [
    ("v_add_f32 v0, v1, v2", |a, b, _| a + b),
    ("v_sub_f32 v0, v1, v2", |a, b, _| a - b),
    ("v_subrev_f32 v0, v1, v2", |a, b, _| b - a),
    ("v_mul_f32 v0, v1, v2", |a, b, _| a * b),
    ("v_mul_f32 v0, -v1, |v2|", |a, b, _| -a * b.abs()),
    ("v_add_f32 v0, -|v1|, v2", |a, b, _| b - a.abs()),
    ("v_trunc_f32 v0, v1", |a, _, _| a.trunc()),
    ("v_floor_f32 v0, v1", |a, _, _| a.floor()),
    ("v_ceil_f32 v0, v1", |a, _, _| a.ceil()),
    ("v_rndne_f32 v0, v1", |a, _, _| a.round_ties_even()),
    ("v_cvt_f32_i32 v0, 7", |_, _, _| 7.0),
    (
        "v_mul_f32_e64 v0, v1, v2 clamp",
        |a, b, _| if (a * b).is_nan() { f64::NAN } else { (a * b).clamp(0.0, 1.0) + 0.0 },
    ),
    ("v_max_f32 v0, v1, v2", |a, b, _| larger(a, b)),
    ("v_min_f32 v0, v1, v2", |a, b, _| -larger(-a, -b)),
    ("v_max3_f32 v0, v1, v2, v3", |a, b, c| larger(larger(a, b), c)),
    ("v_maxmin_f32 v0, v1, v2, v3", |a, b, c| -larger(-larger(a, b), -c)),
];

/// The larger number; a number rather than NaN; +0 rather than -0.
fn larger(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == 0.0 && b == 0.0 => {
            if a.is_sign_positive() {
                a
            } else {
                b
            }
        }
        _ => {
            if a > b {
                a
            } else {
                b
            }
        }
    }
}

#[test]
fn single_precision_matches_double_precision_rounded_once() {
    let bits = FLOATS.map(f32::to_bits);
    for (text, want) in ROWS {
        let wide = |bits: u32| f64::from(f32::from_bits(bits));
        let want = |a, b, c| (want(wide(a), wide(b), wide(c)) as f32).to_bits();
        each_triple("gfx1100", text, &bits, as_float, &want);
    }
}

#[test]
fn fused_multiply_adds_round_once() {
    let mut wave = wave("gfx1100", 32);
    // (1 + e)(1 - e) - 1 = -e^2, which a product rounded first would lose.
    let e = f32::EPSILON;
    for (a, b, c, want) in [
        (1.0 + e, 1.0 - e, -1.0, -(e * e)),
        (f32::MAX, 2.0, f32::NEG_INFINITY, f32::NEG_INFINITY),
        (f32::MAX, 2.0, -f32::MAX, f32::MAX),
        (f32::from_bits(1), 0.5, 0.0, 0.0),
        (3.0, 4.0, 5.0, 17.0),
    ] {
        for text in ["v_fma_f32 v0, v1, v2, v3", "v_fmac_f32 v3, v1, v2"] {
            for (register, value) in [(1, a), (2, b), (3, c)] {
                wave.set_lane(register, 5, f32::to_bits(value));
            }
            step(&mut wave, text);
            let have = f32::from_bits(wave.lane(if text.contains("fmac") { 3 } else { 0 }, 5));
            assert_eq!(have, want, "{text} {a:e} {b:e} {c:e}");
        }
    }
}

#[test]
fn the_mode_flushes_denormals_of_32_bits_only() {
    let mut wave = wave("gfx1100", 32);
    step(&mut wave, "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0");
    wave.set_lane(1, 0, 1.0e-40f32.to_bits());
    wave.set_lane(2, 0, 1.0f32.to_bits());
    step(&mut wave, "v_mul_f32 v0, v1, v2");
    assert_eq!(wave.lane(0, 0), 0);
    wave.set_lane(1, 0, f32::MIN_POSITIVE.to_bits());
    step(&mut wave, "v_mul_f32 v0, -0.5, v1");
    assert_eq!(wave.lane(0, 0), 0x8000_0000);
    wave.set_lane(1, 0, 1);
    step(&mut wave, "v_add_f16 v0, v1, v1");
    assert_eq!(wave.lane(0, 0) & 0xffff, 2);
    step(&mut wave, "s_denorm_mode 15");
    wave.set_lane(1, 0, 1);
    step(&mut wave, "v_mul_f32 v0, 1.0, v1");
    assert_eq!(wave.lane(0, 0), 1);
}

#[test]
fn half_precision_matches_the_half_crate_and_keeps_the_other_half_on_rdna() {
    let values = [0.0, -0.0, 1.0, -2.5, 6.0e-8, 6.1e-5, 65504.0, f32::INFINITY, f32::NAN, 0.333_251_95, 1023.5];
    let bits: Vec<u32> = values.iter().map(|value| u32::from(f16::from_f32(*value).to_bits())).collect();
    let rows: [Row; 5] = [
        ("v_add_f16 v0, v1, v2", |a, b, _| a + b),
        ("v_sub_f16 v0, v1, v2", |a, b, _| a - b),
        ("v_mul_f16 v0, v1, v2", |a, b, _| a * b),
        ("v_mul_f16_e64 v0, -v1, v2", |a, b, _| -a * b),
        ("v_sqrt_f16 v0, v1", |a, _, _| a.sqrt()),
    ];
    let same = |have: u32, want: u32| {
        let nan = |bits: u32| f16::from_bits(bits as u16).is_nan();
        have & 0xffff == want & 0xffff || nan(have) && nan(want)
    };
    for (text, want) in rows {
        for (target, high) in [("gfx1100", 0xdead_0000), ("gfx942", 0)] {
            let wide = |bits: u32| f64::from(f16::from_bits(bits as u16));
            let want = |a, b, c| high | u32::from(f16::from_f32(want(wide(a), wide(b), wide(c)) as f32).to_bits());
            each_triple(target, text, &bits, same, &want);
            let mut wave = wave(target, if target == "gfx942" { 64 } else { 32 });
            wave.set_lane(0, 1, 0xdead_beef);
            step(&mut wave, text);
            assert_eq!(wave.lane(0, 1) & 0xffff_0000, high, "{text} {target}");
        }
    }
}

#[test]
fn halves_are_selected_by_name_and_by_op_sel() {
    let mut wave = wave("gfx1100", 32);
    let both =
        |low: f32, high: f32| u32::from(f16::from_f32(low).to_bits()) | u32::from(f16::from_f32(high).to_bits()) << 16;
    wave.set_lane(1, 0, both(1.0, 2.0));
    wave.set_lane(2, 0, both(10.0, 20.0));
    for (text, low, high) in [
        ("v_add_f16_e32 v0.l, v1.h, v2.l", 12.0, 0.0),
        ("v_add_f16_e64 v0.h, v1.l, v2.h", 0.0, 21.0),
        ("v_add_f16_e64 v0, v1, v2 op_sel:[1,1,1]", 0.0, 22.0),
        ("v_pk_add_f16 v0, v1, v2", 11.0, 22.0),
        ("v_pk_add_f16 v0, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]", 12.0, 21.0),
        ("v_pk_mul_f16 v0, v1, v2 neg_lo:[1,0] neg_hi:[0,1]", -10.0, -40.0),
        ("v_pk_fma_f16 v0, v1, 2.0, v2 op_sel_hi:[1,0,1]", 12.0, 24.0),
        ("v_fma_mixlo_f16 v0, v1, v2, 1.0 op_sel_hi:[1,1,0]", 11.0, 0.0),
        ("v_fma_mixhi_f16 v0, v1, v2, v1 op_sel:[1,1,0] op_sel_hi:[1,1,1]", 0.0, 41.0),
    ] {
        wave.set_lane(0, 0, 0);
        step(&mut wave, text);
        assert_eq!(wave.lane(0, 0), both(low, high), "{text}");
    }
    wave.set_lane(3, 0, 100.0f32.to_bits());
    step(&mut wave, "v_fma_mix_f32 v0, v1, v2, -v3 op_sel:[0,1,0] op_sel_hi:[1,1,0]");
    assert_eq!(f32::from_bits(wave.lane(0, 0)), -80.0);
}

#[test]
fn conversions_saturate_and_turn_nan_into_zero() {
    for (text, value, want) in [
        ("v_cvt_i32_f32 v0, v1", 3.0e9, i32::MAX as u32),
        ("v_cvt_i32_f32 v0, v1", -3.0e9, i32::MIN as u32),
        ("v_cvt_i32_f32 v0, v1", -1.9, -1i32 as u32),
        ("v_cvt_u32_f32 v0, v1", -1.0, 0),
        ("v_cvt_u32_f32 v0, v1", 5.0e9, u32::MAX),
        ("v_cvt_u32_f32 v0, v1", f32::NAN, 0),
        ("v_cvt_f16_f32 v0, v1", 65520.0, 0x7c00),
        ("v_cvt_f16_f32 v0, v1", 2049.0, 0x6800),
        ("v_cvt_pk_rtz_f16_f32 v0, v1, v1", 65520.0, 0x7bff_7bff),
        ("v_ldexp_f32 v0, v1, -10", 1024.0, 1.0f32.to_bits()),
        ("v_ldexp_f32 v0, v1, 200", 1.0, f32::INFINITY.to_bits()),
        ("v_frexp_exp_i32_f32 v0, v1", 8.0, 4),
        ("v_fract_f32 v0, v1", -0.25, 0.75f32.to_bits()),
    ] {
        let mut wave = wave("gfx1100", 32);
        wave.set_lane(1, 0, value.to_bits());
        step(&mut wave, text);
        assert!(exactly(wave.lane(0, 0), want), "{text} of {value:e} gave {:#x}", wave.lane(0, 0));
    }
}

#[test]
fn comparisons_of_floats_know_nan() {
    type Test = fn(f32, f32) -> bool;
    let tests: [(&str, Test); 14] = [
        ("eq", |a, b| a == b),
        ("neq", |a, b| a != b),
        ("lg", |a, b| matches!(a.partial_cmp(&b), Some(order) if order.is_ne())),
        ("nlg", |a, b| !matches!(a.partial_cmp(&b), Some(order) if order.is_ne())),
        ("lt", |a, b| matches!(a.partial_cmp(&b), Some(order) if order.is_lt())),
        ("nlt", |a, b| !matches!(a.partial_cmp(&b), Some(order) if order.is_lt())),
        ("le", |a, b| matches!(a.partial_cmp(&b), Some(order) if order.is_le())),
        ("nle", |a, b| !matches!(a.partial_cmp(&b), Some(order) if order.is_le())),
        ("gt", |a, b| matches!(a.partial_cmp(&b), Some(order) if order.is_gt())),
        ("ngt", |a, b| !matches!(a.partial_cmp(&b), Some(order) if order.is_gt())),
        ("ge", |a, b| matches!(a.partial_cmp(&b), Some(order) if order.is_ge())),
        ("nge", |a, b| !matches!(a.partial_cmp(&b), Some(order) if order.is_ge())),
        ("o", |a, b| a.partial_cmp(&b).is_some()),
        ("u", |a, b| a.partial_cmp(&b).is_none()),
    ];
    for (name, test) in tests {
        for other in FLOATS {
            let mut wave = wave("gfx1100", 32);
            (0..32).for_each(|lane| wave.set_lane(1, lane, FLOATS[lane as usize % 13].to_bits()));
            (0..32).for_each(|lane| wave.set_lane(2, lane, other.to_bits()));
            step(&mut wave, &format!("v_cmp_{name}_f32 vcc_lo, v1, v2"));
            let want = (0..32).filter(|lane| test(FLOATS[*lane as usize % 13], other));
            assert_eq!(wave.vcc(), want.fold(0, |mask, lane| mask | 1 << lane), "{name} {other:e}");
        }
    }
    // Classes: signalling and quiet NaN, then from -infinity to +infinity.
    let values =
        [0x7f80_0001, 0x7fc0_0000, 0xff80_0000, 0xbf80_0000, 0x8000_0001, 0x8000_0000, 0, 1, 0x3f80_0000, 0x7f80_0000];
    for (class, bits) in values.into_iter().enumerate() {
        let mut wave = wave("gfx1100", 32);
        wave.set_lane(1, 0, bits);
        for mask in 0..10 {
            wave.set_lane(2, 0, 1 << mask);
            step(&mut wave, "v_cmp_class_f32 vcc_lo, v1, v2");
            assert_eq!(wave.vcc() & 1 == 1, class == mask, "{bits:#x} {mask}");
        }
    }
}
