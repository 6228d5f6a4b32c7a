//! How far two results of one output are apart.

use serde::Serialize;

use crate::ort::{Array, Element};

/// The difference between a result and the CPU provider's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The largest difference.
    pub max_abs: f64,
    /// The largest difference relative to the CPU provider's element, where that is not 0.
    pub max_rel: f64,
    /// The cosine of the angle between the two as vectors; absent when one is all zeroes or not finite.
    pub cosine: Option<f64>,
    /// The largest difference that is allowed.
    pub allowed: f64,
    /// Whether it is within what is allowed.
    pub good: bool,
    /// What else is wrong.
    pub problem: Option<String>,
}

/// The difference that an element type allows, as a share of the largest magnitude in the output; for 8-bit integers,
/// which come from rounding, an absolute one.
pub fn tolerance(element: Element) -> f64 {
    match element {
        Element::F64 => 1e-9,
        Element::F32 => 1e-4,
        Element::F16 => 1e-2,
        Element::Bf16 => 5e-2,
        Element::I8 | Element::U8 => 1.0,
        _ => 0.0,
    }
}

/// Compares a result with the CPU provider's. `asked` takes the place of the type's tolerance.
pub fn compare(found: &Array, cpu: &Array, asked: Option<f64>) -> Difference {
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
            // Equal infinities have no difference to speak of.
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
    let share = asked.unwrap_or_else(|| tolerance(cpu.element()));
    difference.allowed = match cpu.element() {
        element if element.is_float() && largest > 0.0 => share * largest,
        _ => share,
    };
    if odd > 0 {
        difference.problem = Some(format!("{odd} elements are infinite or not a number on one side only"));
    }
    // 64-bit integers may differ where their numbers as floats do not.
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

    #[test]
    fn differences_are_measured() {
        let difference = compare(&floats(&[1.0, 2.5]), &floats(&[1.0, 2.0]), None);
        assert_eq!((difference.max_abs, difference.max_rel, difference.good), (0.5, 0.25, false));
        // (1·1 + 2.5·2) / (√7.25 · √5)
        assert!((difference.cosine.unwrap() - 6.0 / (7.25f64.sqrt() * 5f64.sqrt())).abs() < 1e-12);
        assert!(compare(&floats(&[1.0, 2.5]), &floats(&[1.0, 2.0]), Some(0.25)).good);
    }

    #[test]
    fn tolerance_grows_with_the_output() {
        assert!(compare(&floats(&[1000.05, 0.0]), &floats(&[1000.0, 0.0]), None).good);
        assert!(!compare(&floats(&[0.10005, 0.0]), &floats(&[0.1, 0.0]), None).good);
        assert!(compare(&floats(&[0.0]), &floats(&[0.0]), None).good);
    }

    #[test]
    fn infinities_and_nans_must_be_in_the_same_places() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert!(compare(&floats(&[inf, nan, 1.0]), &floats(&[inf, nan, 1.0]), None).good);
        for wrong in [[-inf, 1.0], [nan, 1.0], [3.0, 1.0]] {
            let difference = compare(&floats(&wrong), &floats(&[inf, 1.0]), None);
            assert!(!difference.good && difference.problem.is_some(), "{difference:?}");
        }
    }

    #[test]
    fn integers_are_exact() {
        let ints = |values: &[i64]| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            Array::new(Element::I64, vec![values.len()], bytes).unwrap()
        };
        assert!(compare(&ints(&[1 << 60]), &ints(&[1 << 60]), None).good);
        assert!(!compare(&ints(&[(1 << 60) + 1]), &ints(&[1 << 60]), None).good);
        let bytes = |value| Array::new(Element::U8, vec![1], vec![value]).unwrap();
        assert!(compare(&bytes(7), &bytes(8), None).good);
        assert!(!compare(&bytes(7), &bytes(9), None).good);
    }

    #[test]
    fn other_shapes_are_a_problem() {
        let difference = compare(&floats(&[1.0]), &floats(&[1.0, 2.0]), None);
        assert_eq!(difference.problem.as_deref(), Some("the device gives float32 [1], the CPU provider float32 [2]"));
    }
}
