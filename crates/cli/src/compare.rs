//! Compares two results of one output.

use ort_client::Element;
use serde::Serialize;

use crate::ort::{Array, Numeric};

/// The difference between a result and the CPU provider's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The largest difference.
    pub max_abs: f64,
    /// The largest difference relative to the CPU provider's element, for elements other than 0.
    pub max_rel: f64,
    /// The cosine of the angle between both as vectors; absent if one is all zeros or not finite.
    pub cosine: Option<f64>,
    /// The largest allowed difference.
    pub allowed: f64,
    /// Whether the difference is within the allowed one.
    pub good: bool,
    /// Any other problem.
    pub problem: Option<String>,
}

/// The kind of arithmetic, which determines the default tolerance; later ones are coarser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arithmetic {
    /// Only the last bits are rounded.
    Plain,
    /// The CPU provider may round activations to 8 bits before products with quantised weights: `accuracy_level` 4, which
    /// a session does not report. The device does not round them.
    RoundedActivations,
    /// The model rounds to a few levels, so that a difference in the last bit can become a whole level, and levels add
    /// up.
    Quantised,
}

impl Arithmetic {
    /// The arithmetic of a session's operators.
    pub fn of<'a>(ops: impl IntoIterator<Item = &'a str>) -> Arithmetic {
        let of_one = |op: &str| {
            let quantises = op.contains("Quantize") || op.starts_with("QLinear") || op.ends_with("Integer");
            match op {
                // This operator only reads quantised weights, and does not quantise anything.
                "GatherBlockQuantized" => Arithmetic::Plain,
                "MatMulNBits" | "QMoE" => Arithmetic::RoundedActivations,
                "MatMulIntegerToFloat" | "QAttention" | "QGemm" => Arithmetic::Quantised,
                _ if quantises => Arithmetic::Quantised,
                _ => Arithmetic::Plain,
            }
        };
        ops.into_iter().map(of_one).max().unwrap_or(Arithmetic::Plain)
    }
}

/// The tolerance for an element type, as a fraction of the largest magnitude in the output. For 8-bit integers, which
/// come from rounding, it is absolute.
pub fn tolerance(element: Element, arithmetic: Arithmetic) -> f64 {
    match element {
        element if element.is_float() && arithmetic == Arithmetic::Quantised => 1e-1,
        element if element.is_float() && arithmetic == Arithmetic::RoundedActivations => 5e-2,
        Element::F64 => 1e-9,
        Element::F32 => 1e-4,
        Element::F16 => 1e-2,
        Element::Bf16 => 5e-2,
        // Neighbours differ by an eighth.
        Element::F8E4M3Fn => 1.25e-1,
        Element::I8 | Element::U8 => 1.0,
        _ => 0.0,
    }
}

/// Compares a result with the CPU provider's, with a tolerance as from [`tolerance`].
pub fn compare(found: &Array, cpu: &Array, share: f64) -> Difference {
    let mut difference =
        Difference { max_abs: 0.0, max_rel: 0.0, cosine: None, allowed: 0.0, good: false, problem: None };
    if (found.element(), found.shape()) != (cpu.element(), cpu.shape()) {
        difference.problem = Some(format!(
            "the device gives {} {:?}, the CPU provider {} {:?}",
            found.element().name(),
            found.shape(),
            cpu.element().name(),
            cpu.shape()
        ));
        return difference;
    }
    let (mut dot, mut found_square, mut cpu_square, mut largest, mut odd) = (0.0, 0.0, 0.0, 0.0f64, 0usize);
    for (a, b) in found.numbers().zip(cpu.numbers()) {
        if a == b || (a.is_nan() && b.is_nan()) {
            // Equal values, including infinities and NaN, have no difference.
        } else if a.is_finite() && b.is_finite() {
            difference.max_abs = difference.max_abs.max((a - b).abs());
            if b != 0.0 {
                difference.max_rel = difference.max_rel.max(((a - b) / b).abs());
            }
        } else {
            odd += 1;
        }
        if b.is_finite() {
            largest = largest.max(b.abs());
        }
        dot += a * b;
        found_square += a * a;
        cpu_square += b * b;
    }
    let cosine = dot / (f64::sqrt(found_square) * f64::sqrt(cpu_square));
    difference.cosine = cosine.is_finite().then_some(cosine);
    difference.allowed = match cpu.element() {
        element if element.is_float() && largest > 0.0 => share * largest,
        _ => share,
    };
    if odd > 0 {
        difference.problem = Some(format!("{odd} elements are infinite or not a number on one side only"));
    }
    // 64-bit integers may differ although they are equal as floats.
    let exact = difference.allowed > 0.0 || found.bytes() == cpu.bytes();
    difference.good = odd == 0 && difference.max_abs <= difference.allowed && exact;
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Array {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Array::new(Element::F32, vec![values.len()], bytes).unwrap()
    }

    fn plain(found: &Array, cpu: &Array) -> Difference {
        compare(found, cpu, tolerance(cpu.element(), Arithmetic::Plain))
    }

    #[test]
    fn quantising_operators_are_known() {
        assert_eq!(Arithmetic::of(["Conv", "DequantizeLinear", "MatMul"]), Arithmetic::Plain);
        assert_eq!(Arithmetic::of(["Add", "MatMulNBits", "GatherBlockQuantized"]), Arithmetic::RoundedActivations);
        assert_eq!(Arithmetic::of([]), Arithmetic::Plain);
        for op in ["QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "MatMulInteger", "DynamicQuantizeMatMul"] {
            assert_eq!(Arithmetic::of(["Conv", op]), Arithmetic::Quantised, "{op}");
        }
        assert_eq!(Arithmetic::of(["MatMulNBits", "QuantizeLinear"]), Arithmetic::Quantised, "the coarsest counts");
        assert_eq!(tolerance(Element::F32, Arithmetic::Quantised), 0.1);
        assert_eq!(tolerance(Element::F16, Arithmetic::RoundedActivations), 0.05);
        assert_eq!(tolerance(Element::I64, Arithmetic::Quantised), 0.0);
    }

    #[test]
    fn differences_are_measured() {
        let difference = plain(&floats(&[1.0, 2.5]), &floats(&[1.0, 2.0]));
        assert_eq!((difference.max_abs, difference.max_rel, difference.good), (0.5, 0.25, false));
        // (1·1 + 2.5·2) / (√7.25 · √5)
        assert!((difference.cosine.unwrap() - 6.0 / (7.25f64.sqrt() * 5f64.sqrt())).abs() < 1e-12);
        assert!(compare(&floats(&[1.0, 2.5]), &floats(&[1.0, 2.0]), 0.25).good);
    }

    #[test]
    fn tolerance_grows_with_the_output() {
        assert!(plain(&floats(&[1000.05, 0.0]), &floats(&[1000.0, 0.0])).good);
        assert!(!plain(&floats(&[0.10005, 0.0]), &floats(&[0.1, 0.0])).good);
        assert!(plain(&floats(&[0.0]), &floats(&[0.0])).good);
    }

    #[test]
    fn infinities_and_nans_must_be_in_the_same_places() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert!(plain(&floats(&[inf, nan, 1.0]), &floats(&[inf, nan, 1.0])).good);
        for wrong in [[-inf, 1.0], [nan, 1.0], [3.0, 1.0]] {
            let difference = plain(&floats(&wrong), &floats(&[inf, 1.0]));
            assert!(!difference.good && difference.problem.is_some(), "{difference:?}");
        }
    }

    #[test]
    fn integers_are_exact() {
        let ints = |values: &[i64]| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            Array::new(Element::I64, vec![values.len()], bytes).unwrap()
        };
        assert!(plain(&ints(&[1 << 60]), &ints(&[1 << 60])).good);
        assert!(!plain(&ints(&[(1 << 60) + 1]), &ints(&[1 << 60])).good);
        let bytes = |value| Array::new(Element::U8, vec![1], vec![value]).unwrap();
        assert!(plain(&bytes(7), &bytes(8)).good);
        assert!(!plain(&bytes(7), &bytes(9)).good);
    }

    #[test]
    fn other_shapes_are_a_problem() {
        let difference = plain(&floats(&[1.0]), &floats(&[1.0, 2.0]));
        assert_eq!(difference.problem.as_deref(), Some("the device gives float32 [1], the CPU provider float32 [2]"));
    }
}
