//! The steps of a division. The documents give each as a list of cases; the whole division is tested with kernels.

use super::lanes::{Case, Same, check};
use super::soft::{DOUBLES, HALVES, SINGLES, from_f16, from_f32, to_f16, to_f32};

/// What v_div_fixup makes of a quotient: the special cases of denominator and numerator.
fn fixed(quotient: f64, denominator: f64, numerator: f64, exponents: (i32, i32), lowest: i32) -> f64 {
    let sign = if denominator.is_sign_negative() != numerator.is_sign_negative() { -1.0 } else { 1.0 };
    if numerator.is_nan() || denominator.is_nan() {
        f64::NAN
    } else if numerator == 0.0 && denominator == 0.0 || numerator.is_infinite() && denominator.is_infinite() {
        f64::NAN
    } else if denominator == 0.0 || numerator.is_infinite() {
        sign * f64::INFINITY
    } else if denominator.is_infinite() || numerator == 0.0 || exponents.1 - exponents.0 < lowest {
        sign * 0.0
    } else {
        sign * quotient.abs()
    }
}

fn exponent32(bits: u64) -> i32 {
    (bits >> 23 & 0xff) as i32
}

fn exponent64(bits: u64) -> i32 {
    (bits >> 52 & 0x7ff) as i32
}

fn cases() -> Vec<Case> {
    // A quotient that is NaN although both operands are ordinary does not occur.
    vec![
        Case::new("v_div_fixup_f32", "v0, 1.0, v2, v4", (SINGLES, 32, Same::Float), |[d, n, _]| {
            to_f32(fixed(1.0, from_f32(d), from_f32(n), (exponent32(d), exponent32(n)), -150))
        }),
        Case::new("v_div_fixup_f64", "v[0:1], -4.0, v[2:3], v[4:5]", (DOUBLES, 64, Same::Float), |[d, n, _]| {
            let (exponents, [d, n]) = ((exponent64(d), exponent64(n)), [d, n].map(f64::from_bits));
            fixed(4.0, d, n, exponents, -1075).to_bits()
        }),
        Case::new("v_div_fixup_f16", "v0, 1.0, v2, v4", (HALVES, 16, Same::Float), |[d, n, _]| {
            to_f16(fixed(1.0, from_f16(d), from_f16(n), (0, 0), -150))
        }),
        scaled("v_div_fmas_f32", "v0, v2, v4, v6", (SINGLES, 32), |v, by| {
            let [a, b, c] = v.map(|bits| f32::from_bits(bits as u32));
            let sum = f64::from(a.mul_add(b, c));
            to_f32(if by { sum * 2f64.powi(if exponent32(v[2]) > 127 { 64 } else { -64 }) } else { sum })
        }),
        scaled("v_div_fmas_f64", "v[0:1], v[2:3], v[4:5], v[6:7]", (ORDINARY, 64), |v, by| {
            let [a, b, c] = v.map(f64::from_bits);
            let sum = a.mul_add(b, c);
            (if by { sum * 2f64.powi(if exponent64(v[2]) > 1023 { 128 } else { -128 }) } else { sum }).to_bits()
        }),
    ]
    .into_iter()
    .chain(
        [0, 1].map(|which| scale("v_div_scale_f32", ["v0, MASK, v2, v2, v4", "v0, MASK, v4, v2, v4"], which, &SINGLE)),
    )
    .chain([0, 1].map(|which| {
        let texts = ["v[0:1], MASK, v[2:3], v[2:3], v[4:5]", "v[0:1], MASK, v[4:5], v[2:3], v[4:5]"];
        scale("v_div_scale_f64", texts, which, &DOUBLE)
    }))
    .collect()
}

/// What differs between the formats in v_div_scale.
struct Format {
    bits: u32,
    values: &'static [u64],
    read: fn(u64) -> f64,
    write: fn(f64) -> u64,
    exponent: fn(u64) -> i32,
    /// Differences of exponents from here on are near an overflow.
    far: i32,
    /// Numerators with exponents up to here lose digits.
    low: i32,
    by: i32,
    smallest: f64,
}

const SINGLE: Format = Format {
    bits: 32,
    values: SINGLES,
    read: from_f32,
    write: to_f32,
    exponent: exponent32,
    far: 96,
    low: 23,
    by: 64,
    smallest: f32::MIN_POSITIVE as f64,
};

const DOUBLE: Format = Format {
    bits: 64,
    values: DOUBLES,
    read: f64::from_bits,
    write: f64::to_bits,
    exponent: exponent64,
    far: 768,
    low: 53,
    by: 128,
    smallest: f64::MIN_POSITIVE,
};

/// The documents' list of cases with one correction, for the denominator (0) or the numerator (1).
fn scale(names: &'static str, operands: [&str; 2], which: usize, format: &'static Format) -> Case {
    let want = Box::new(move |[d, n, _]: [u64; 3], _| {
        let scaled = |by: i32| (format.write)((format.read)([d, n][which]) * 2f64.powi(by));
        let (plain, tiny) = ([d, n][which], |value: f64| value.abs() < format.smallest);
        let (e_d, e_n) = ((format.exponent)(d), (format.exponent)(n));
        let (d, n) = ((format.read)(d), (format.read)(n));
        let (value, flag) = if d == 0.0 || n == 0.0 {
            ((format.write)(f64::NAN), false)
        } else if e_n - e_d >= format.far {
            (if which == 0 { scaled(format.by) } else { plain }, true)
        } else if e_d == 0 {
            (scaled(format.by), false)
        } else if tiny(1.0 / d) {
            // Both the reciprocal and the quotient, or the reciprocal alone. In the first case the documents scale the
            // denominator up, where it overflows; the division is right only if it is scaled down.
            match (tiny(n / d), which) {
                (true, 0) => (scaled(-format.by), true),
                (true, _) => (plain, true),
                (false, _) => (scaled(-format.by), false),
            }
        } else if tiny(n / d) {
            (if which == 1 { scaled(format.by) } else { plain }, true)
        } else if e_n <= format.low {
            (scaled(format.by), false)
        } else {
            (plain, false)
        };
        (value, Some(flag))
    });
    let text = format!("{{}} {}", operands[which]);
    Case { names, text, values: format.values, bits: format.bits, same: Same::Float, adds: false, want }
}

/// Numbers whose scaled sums have no second rounding.
const ORDINARY: &[u64] = &[
    0x3ff0_0000_0000_0000,
    0xbff8_0000_0000_0000,
    0x4009_21fb_5444_2d18,
    0x4340_0000_0000_0001,
    0x3c00_0000_0000_0000,
];

fn scaled(
    names: &'static str,
    operands: &str,
    (values, bits): (&'static [u64], u32),
    want: fn([u64; 3], bool) -> u64,
) -> Case {
    // Sums that are scaled are chosen by VCC, which the row's masks set.
    let want = Box::new(move |sources, taken| (want(sources, taken), None));
    Case { names, text: format!("{{}} {operands}"), values, bits, same: Same::Float, adds: false, want }
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    cases().iter().flat_map(|case| case.names.split(' ')).collect()
}

#[test]
fn steps_of_a_division_follow_the_documents_cases() {
    check(&cases());
}
