//! The steps of a correctly rounded division: scaling, the last correction, and the special cases.

use super::float::{ldexp_f32, ldexp_f64};
use super::lane::{source_f32, source_f64, write_f64};
use super::{Entry, op, op_carry};
use crate::inst::{Dst, Inst};
use crate::wave::{LANES, Wave};

fn exponent_f32(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xff) as i32
}

fn exponent_f64(value: f64) -> i32 {
    (value.to_bits() >> 52 & 0x7ff) as i32
}

/// What to scale, if the operand is one of the two, and whether the quotient must be scaled back.
struct Limits<T> {
    reciprocal_is_tiny: fn(T) -> bool,
    quotient_is_tiny: fn(T, T) -> bool,
}

/// Scales one of denominator and numerator so that no step of the division leaves the normal numbers.
///
/// AMD's documents scale a denominator up whose reciprocal and quotient are both tiny. It is so large that it would
/// overflow, and the quotient would be NaN, so it is scaled down here: only then is the compilers' division right.
fn scale_f32(value: f32, denominator: f32, numerator: f32) -> (f32, bool) {
    const LIMITS: Limits<f32> = Limits {
        reciprocal_is_tiny: |d| (1.0 / f64::from(d)).abs() < f64::from(f32::MIN_POSITIVE),
        quotient_is_tiny: |d, n| (f64::from(n) / f64::from(d)).abs() < f64::from(f32::MIN_POSITIVE),
    };
    let (d, n) = (denominator, numerator);
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits();
    if d == 0.0 || n == 0.0 {
        (f32::NAN, false)
    } else if exponent_f32(n) - exponent_f32(d) >= 96 {
        (if same(value, d) { ldexp_f32(value, 64) } else { value }, true)
    } else if d.is_subnormal() {
        (ldexp_f32(value, 64), false)
    } else if (LIMITS.reciprocal_is_tiny)(d) && (LIMITS.quotient_is_tiny)(d, n) {
        (if same(value, d) { ldexp_f32(value, -64) } else { value }, true)
    } else if (LIMITS.reciprocal_is_tiny)(d) {
        (ldexp_f32(value, -64), false)
    } else if (LIMITS.quotient_is_tiny)(d, n) {
        (if same(value, n) { ldexp_f32(value, 64) } else { value }, true)
    } else if exponent_f32(n) <= 23 {
        (ldexp_f32(value, 64), false)
    } else {
        (value, false)
    }
}

fn scale_f64(value: f64, denominator: f64, numerator: f64) -> (f64, bool) {
    const LIMITS: Limits<f64> = Limits {
        reciprocal_is_tiny: |d| (1.0 / d).abs() < f64::MIN_POSITIVE,
        quotient_is_tiny: |d, n| (n / d).abs() < f64::MIN_POSITIVE,
    };
    let (d, n) = (denominator, numerator);
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
    if d == 0.0 || n == 0.0 {
        (f64::NAN, false)
    } else if exponent_f64(n) - exponent_f64(d) >= 768 {
        (if same(value, d) { ldexp_f64(value, 128) } else { value }, true)
    } else if d.is_subnormal() {
        (ldexp_f64(value, 128), false)
    } else if (LIMITS.reciprocal_is_tiny)(d) && (LIMITS.quotient_is_tiny)(d, n) {
        (if same(value, d) { ldexp_f64(value, -128) } else { value }, true)
    } else if (LIMITS.reciprocal_is_tiny)(d) {
        (ldexp_f64(value, -128), false)
    } else if (LIMITS.quotient_is_tiny)(d, n) {
        (if same(value, n) { ldexp_f64(value, 128) } else { value }, true)
    } else if exponent_f64(n) <= 53 {
        (ldexp_f64(value, 128), false)
    } else {
        (value, false)
    }
}

macro_rules! fixup {
    ($name:ident, $float:ty, $exponent:expr, $lowest:expr) => {
        /// The quotient's special cases, from quotient, denominator and numerator.
        fn $name(quotient: $float, denominator: $float, numerator: $float) -> $float {
            let negative = denominator.is_sign_negative() != numerator.is_sign_negative();
            let signed = |value: $float| if negative { -value } else { value };
            if numerator.is_nan() {
                // An addition makes it quiet.
                numerator + 0.0
            } else if denominator.is_nan() {
                denominator + 0.0
            } else if (denominator == 0.0 && numerator == 0.0) || (denominator.is_infinite() && numerator.is_infinite())
            {
                -<$float>::NAN.abs()
            } else if denominator == 0.0 || numerator.is_infinite() {
                signed(<$float>::INFINITY)
            } else if denominator.is_infinite() || numerator == 0.0 {
                signed(0.0)
            } else if $exponent(numerator) - $exponent(denominator) < $lowest {
                signed(0.0)
            } else if quotient.is_nan() {
                // The steps before overflowed.
                signed(<$float>::INFINITY)
            } else {
                signed(quotient.abs())
            }
        }
    };
}

fixup!(fixup_f32, f32, exponent_f32, -150);
fixup!(fixup_f64, f64, exponent_f64, -1075);

/// The same for 16-bit floats, which are given exactly in 32 bits.
pub fn fixup_f16(quotient: f32, denominator: f32, numerator: f32) -> f32 {
    fixup_f32(quotient, denominator, numerator)
}

fn div_scale_f32(w: &mut Wave, i: &Inst) {
    let mut flags = 0u64;
    for half in 0..w.halves {
        let (mut room0, mut room1, mut room2) = ([0; LANES], [0; LANES], [0; LANES]);
        let a = source_f32(w, i, 0, half, &mut room0);
        let b = source_f32(w, i, 1, half, &mut room1);
        let c = source_f32(w, i, 2, half, &mut room2);
        let (mut out, mut set) = ([0; LANES], 0u32);
        for lane in 0..LANES {
            let (value, flag) = scale_f32(f32::from_bits(a[lane]), f32::from_bits(b[lane]), f32::from_bits(c[lane]));
            out[lane] = value.to_bits();
            set |= u32::from(flag) << lane;
        }
        flags |= u64::from(set & w.exec_half(half)) << (half * LANES);
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &out);
        }
    }
    w.set_mask(i.sdst, flags);
}

fn div_scale_f64(w: &mut Wave, i: &Inst) {
    let mut flags = 0u64;
    for half in 0..w.halves {
        let [a, b, c] = std::array::from_fn(|k| source_f64(w, i, k, half));
        let (mut out, mut set) = ([0.0; LANES], 0u32);
        for lane in 0..LANES {
            let (value, flag) = scale_f64(a[lane], b[lane], c[lane]);
            out[lane] = value;
            set |= u32::from(flag) << lane;
        }
        flags |= u64::from(set & w.exec_half(half)) << (half * LANES);
        write_f64(w, i, half, out);
    }
    w.set_mask(i.sdst, flags);
}

/// A fused multiply-add, scaled back where VCC says so: up or down, by which side of 1 the third operand is on.
fn div_fmas_f32(w: &mut Wave, i: &Inst) {
    let vcc = w.vcc();
    for half in 0..w.halves {
        let (mut room0, mut room1, mut room2) = ([0; LANES], [0; LANES], [0; LANES]);
        let a = source_f32(w, i, 0, half, &mut room0);
        let b = source_f32(w, i, 1, half, &mut room1);
        let c = source_f32(w, i, 2, half, &mut room2);
        let vcc = (vcc >> (half * LANES)) as u32;
        let out = std::array::from_fn(|lane| {
            let (a, b, c) = (f32::from_bits(a[lane]), f32::from_bits(b[lane]), f32::from_bits(c[lane]));
            let value = a.mul_add(b, c);
            let by = if exponent_f32(c) > 127 { 64 } else { -64 };
            (if vcc >> lane & 1 == 1 { ldexp_f32(value, by) } else { value }).to_bits()
        });
        if let Dst::V(register) = i.dst {
            w.set_lanes32(register, half, &out);
        }
    }
}

fn div_fmas_f64(w: &mut Wave, i: &Inst) {
    let vcc = w.vcc();
    for half in 0..w.halves {
        let [a, b, c]: [[f64; LANES]; 3] = std::array::from_fn(|k| source_f64(w, i, k, half));
        let vcc = (vcc >> (half * LANES)) as u32;
        let out = std::array::from_fn(|lane| {
            let value = a[lane].mul_add(b[lane], c[lane]);
            let by = if exponent_f64(c[lane]) > 1023 { 128 } else { -128 };
            if vcc >> lane & 1 == 1 { ldexp_f64(value, by) } else { value }
        });
        write_f64(w, i, half, out);
    }
}

pub const TABLE: &[Entry] = &[
    op_carry("v_div_scale_f32", div_scale_f32),
    op_carry("v_div_scale_f64", div_scale_f64),
    op("v_div_fmas_f32", div_fmas_f32),
    op("v_div_fmas_f64", div_fmas_f64),
    op("v_div_fixup_f32", |w, i| super::lane::f32_3(w, i, fixup_f32)),
    op("v_div_fixup_f64", |w, i| super::lane::f64(w, i, |[a, b, c]| fixup_f64(a, b, c))),
];
