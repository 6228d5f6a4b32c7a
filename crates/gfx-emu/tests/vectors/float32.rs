//! 32-bit floats.

use super::lanes::{Case, Same, check};
use super::soft::{INTS, SINGLES, from_f32, larger, maximum, middle, minimum, power, smaller, to_f32};

type Row = (&'static str, &'static str, fn([f64; 3]) -> f64);

/// 64 bits hold twice as many digits as 32, so rounding these to 32 bits is the same as rounding once.
const ROWS: &[Row] = &[
    ("v_add_f32", "v0, v2, v4", |[a, b, _]| a + b),
    ("v_add_f32", "v0, -|v2|, v4", |[a, b, _]| b - a.abs()),
    ("v_sub_f32", "v0, v2, v4", |[a, b, _]| a - b),
    ("v_subrev_f32", "v0, v2, v4", |[a, b, _]| b - a),
    ("v_mul_f32", "v0, v2, v4", |[a, b, _]| a * b),
    ("v_mul_f32", "v0, v2, v4 clamp", |[a, b, _]| {
        let product = a * b;
        if product > 0.0 {
            product.min(1.0)
        } else if product.is_nan() {
            product
        } else {
            0.0
        }
    }),
    ("v_mul_legacy_f32 v_mul_dx9_zero_f32", "v0, v2, v4", |[a, b, _]| if a == 0.0 || b == 0.0 { 0.0 } else { a * b }),
    ("v_min_f32 v_min_num_f32", "v0, v2, v4", |[a, b, _]| smaller(a, b)),
    ("v_max_f32 v_max_num_f32", "v0, v2, v4", |[a, b, _]| larger(a, b)),
    ("v_minimum_f32", "v0, v2, v4", |[a, b, _]| minimum(a, b)),
    ("v_maximum_f32", "v0, v2, v4", |[a, b, _]| maximum(a, b)),
    ("v_min3_f32 v_min3_num_f32", "v0, v2, v4, v6", |[a, b, c]| smaller(smaller(a, b), c)),
    ("v_max3_f32 v_max3_num_f32", "v0, v2, v4, v6", |[a, b, c]| larger(larger(a, b), c)),
    ("v_minimum3_f32", "v0, v2, v4, v6", |[a, b, c]| minimum(minimum(a, b), c)),
    ("v_maximum3_f32", "v0, v2, v4, v6", |[a, b, c]| maximum(maximum(a, b), c)),
    ("v_med3_f32 v_med3_num_f32", "v0, v2, v4, v6", |v| middle(v)),
    ("v_minmax_f32 v_minmax_num_f32", "v0, v2, v4, v6", |[a, b, c]| larger(smaller(a, b), c)),
    ("v_maxmin_f32 v_maxmin_num_f32", "v0, v2, v4, v6", |[a, b, c]| smaller(larger(a, b), c)),
    ("v_minimummaximum_f32", "v0, v2, v4, v6", |[a, b, c]| maximum(minimum(a, b), c)),
    ("v_maximumminimum_f32", "v0, v2, v4, v6", |[a, b, c]| minimum(maximum(a, b), c)),
    ("v_trunc_f32", "v0, v2", |[a, ..]| a.trunc()),
    ("v_ceil_f32", "v0, v2", |[a, ..]| a.ceil()),
    ("v_floor_f32", "v0, v2", |[a, ..]| a.floor()),
    ("v_rndne_f32", "v0, v2", |[a, ..]| a.round_ties_even()),
    ("v_fract_f32", "v0, v2", |[a, ..]| {
        (a - a.floor()).min(1.0 - power(-24)) + if a.is_finite() { 0.0 } else { f64::NAN }
    }),
    ("v_cubeid_f32", "v0, v2, v4, v6", |[x, y, z]| {
        // Faces 0 to 5: +x, -x, +y, -y, +z, -z; ties go to z, then to y.
        let (axis, value) = if z.abs() >= x.abs() && z.abs() >= y.abs() {
            (4.0, z)
        } else if y.abs() >= x.abs() {
            (2.0, y)
        } else {
            (0.0, x)
        };
        axis + if value < 0.0 { 1.0 } else { 0.0 }
    }),
];

/// One rounding of an exact product and a sum: the C library's function of the host.
fn fused(a: u64, b: u64, c: u64) -> u64 {
    let float = |bits: u64| f32::from_bits(bits as u32);
    u64::from(float(a).mul_add(float(b), float(c)).to_bits())
}

/// Zero times anything is zero.
fn fused_zero(a: u64, b: u64, c: u64) -> u64 {
    if from_f32(a) == 0.0 || from_f32(b) == 0.0 { to_f32(0.0 + from_f32(c)) } else { fused(a, b, c) }
}

fn cases() -> Vec<Case> {
    let kind = (SINGLES, 32, Same::Float);
    let mut cases: Vec<Case> = ROWS
        .iter()
        .map(|&(names, operands, want)| Case::new(names, operands, kind, move |v| to_f32(want(v.map(from_f32)))))
        .collect();
    cases.push(Case::new("v_fma_f32", "v0, v2, v4, v6", kind, |[a, b, c]| fused(a, b, c)));
    cases.push(Case::new("v_fma_f32", "v0, -v2, |v4|, -v6", kind, |[a, b, c]| {
        fused(a ^ 0x8000_0000, b & 0x7fff_ffff, c ^ 0x8000_0000)
    }));
    cases.push(Case::new("v_fma_legacy_f32 v_fma_dx9_zero_f32", "v0, v2, v4, v6", kind, |[a, b, c]| {
        fused_zero(a, b, c)
    }));
    let adds = |case: Case| Case { adds: true, ..case };
    cases.push(adds(Case::new("v_fmac_f32", "v0, v2, v4", kind, |[a, b, c]| fused(a, b, c))));
    cases.push(adds(Case::new("v_fmac_dx9_zero_f32", "v0, v2, v4", kind, |[a, b, c]| fused_zero(a, b, c))));
    // 1.5 is 0x3fc00000.
    cases.push(Case::new("v_fmamk_f32", "v0, v2, 0x3fc00000, v4", kind, |[a, b, _]| fused(a, 0x3fc0_0000, b)));
    cases.push(Case::new("v_fmaak_f32", "v0, v2, v4, 0x3fc00000", kind, |[a, b, _]| fused(a, b, 0x3fc0_0000)));
    // The product is rounded first.
    let steps = |[a, b, c]: [u64; 3]| to_f32(from_f32(to_f32(from_f32(a) * from_f32(b))) + from_f32(c));
    cases.push(Case::new("v_mad_f32", "v0, v2, v4, v6", kind, steps));
    cases.push(Case::new("v_madmk_f32", "v0, v2, 0x3fc00000, v4", kind, move |[a, b, _]| steps([a, 0x3fc0_0000, b])));
    cases.push(Case::new("v_madak_f32", "v0, v2, v4, 0x3fc00000", kind, move |[a, b, _]| steps([a, b, 0x3fc0_0000])));
    cases.push(adds(Case::new("v_mac_f32", "v0, v2, v4", kind, steps)));
    cases.push(Case::new("v_ldexp_f32", "v0, v2, 5", kind, |[a, ..]| to_f32(from_f32(a) * 32.0)));
    cases.push(Case::new("v_ldexp_f32", "v0, v2, -140", kind, |[a, ..]| to_f32(from_f32(a) * power(-140))));
    cases.push(Case::new("v_ldexp_f32", "v0, v2, 0x7fffffff", kind, |[a, ..]| {
        to_f32(if from_f32(a) == 0.0 { from_f32(a) } else { from_f32(a) * f64::INFINITY })
    }));
    cases.push(Case::new("v_frexp_mant_f32", "v0, v2", kind, |[a, ..]| {
        let (value, exponent) = (from_f32(a), exponent(from_f32(a)));
        to_f32(if value == 0.0 || !value.is_finite() { value } else { value * power(-exponent) })
    }));
    cases.push(Case::new("v_frexp_exp_i32_f32", "v0, v2", (SINGLES, 32, Same::Bits), |[a, ..]| {
        exponent(from_f32(a)) as u64
    }));
    let pair = |name, operands: &str, of: fn([u64; 3]) -> u64| {
        Case::new(name, operands, (SINGLES, 64, Same::Bits), move |v| {
            // Sources have 0 in their second registers.
            let (low, high) = (of(v), of([0; 3]));
            low | high << 32
        })
    };
    cases.push(Case {
        values: FINITE,
        ..pair("v_pk_add_f32", "v[0:1], v[2:3], v[4:5]", |[a, b, _]| to_f32(from_f32(a) + from_f32(b)))
    });
    cases.push(Case {
        values: FINITE,
        ..pair("v_pk_mul_f32", "v[0:1], v[2:3], v[4:5]", |[a, b, _]| to_f32(from_f32(a) * from_f32(b)))
    });
    cases.push(Case {
        values: FINITE,
        ..pair("v_pk_fma_f32", "v[0:1], v[2:3], v[4:5], v[6:7]", |[a, b, c]| fused(a, b, c))
    });
    // The high result takes the low register of the first source.
    cases.push(Case {
        values: FINITE,
        ..Case::new(
            "v_pk_add_f32",
            "v[0:1], v[2:3], v[4:5] op_sel_hi:[0,1] neg_lo:[0,1]",
            (FINITE, 64, Same::Bits),
            |[a, b, _]| to_f32(from_f32(a) - from_f32(b)) | to_f32(from_f32(a) + 0.0) << 32,
        )
    });
    cases.push(Case::new("v_pk_mov_b32", "v[0:1], v[2:3], v[4:5] op_sel:[0,1]", (INTS, 64, Same::Bits), |[a, ..]| a));
    cases.push(Case::new(
        "v_pk_mov_b32",
        "v[0:1], v[2:3], v[4:5] op_sel:[1,0]",
        (INTS, 64, Same::Bits),
        |[_, b, _]| b << 32,
    ));
    cases.push(Case {
        text: "v_mov_b32 v0, v4\nv_swap_b32 v0, v2".to_owned(),
        ..Case::new("v_swap_b32", "", (INTS, 32, Same::Bits), |[a, ..]| a)
    });
    cases.push(Case::new("v_pack_b32_f16", "v0, v2, v4", (INTS, 32, Same::Bits), |[a, b, _]| {
        a & 0xffff | (b & 0xffff) << 16
    }));
    cases.push(Case::new("v_pack_b32_f16", "v0, -v2, v4 op_sel:[1,1,0]", (INTS, 32, Same::Bits), |[a, b, _]| {
        a >> 16 ^ 0x8000 | b >> 16 << 16
    }));
    cases
}

/// Finite numbers, whose results have one pattern of bits only.
const FINITE: &[u64] =
    &[0, 0x8000_0000, 0x3f80_0000, 0xbfc0_0000, 0x4049_0fdb, 0x0001_16c2, 0x8000_0001, 0x0080_0000, 0x4b7f_ffff];

/// The exponent of a number as a fraction of at least 0.5; 0 for zero, infinities and NaN.
fn exponent(value: f64) -> i32 {
    if value == 0.0 || !value.is_finite() { 0 } else { value.abs().log2().floor() as i32 + 1 }
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    cases().iter().flat_map(|case| case.names.split(' ')).collect()
}

#[test]
fn single_precision_matches_double_precision_rounded_once() {
    check(&cases());
}
