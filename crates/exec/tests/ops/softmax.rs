//! Compares softmax and related operators with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::common::{Case, assert_close, numbers, random, tensor};

fn softmax(row: &[f64]) -> Vec<f64> {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|v| (v - top).exp()).sum();
    row.iter().map(|v| (v - top).exp() / sum).collect()
}

fn log_softmax(row: &[f64]) -> Vec<f64> {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|v| (v - top).exp()).sum();
    row.iter().map(|v| v - top - sum.ln()).collect()
}

fn hardmax(row: &[f64]) -> Vec<f64> {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let first = row.iter().position(|&v| v == top);
    (0..row.len()).map(|at| f64::from(u8::from(Some(at) == first))).collect()
}

type Rows = fn(&[f64]) -> Vec<f64>;
const KINDS: [(&str, Rows); 3] = [("Softmax", softmax), ("LogSoftmax", log_softmax), ("Hardmax", hardmax)];

/// Applies `rows` to the elements along the middle axis of `[outer, count, inner]`.
fn along(values: &[f64], outer: usize, count: usize, inner: usize, rows: Rows) -> Vec<f64> {
    let mut result = vec![0.0; values.len()];
    for o in 0..outer {
        for i in 0..inner {
            let place = |at: usize| (o * count + at) * inner + i;
            let row: Vec<f64> = (0..count).map(|at| values[place(at)]).collect();
            for (at, value) in rows(&row).into_iter().enumerate() {
                result[place(at)] = value;
            }
        }
    }
    result
}

#[test]
fn since_opset_13_softmax_is_over_one_axis() {
    let shape = [3usize, 4, 5];
    for (op_type, rows) in KINDS {
        for (dtype, relative) in [(DType::F32, 2e-6), (DType::F64, 1e-12), (DType::F16, 2e-3), (DType::Bf16, 1.6e-2)] {
            for axis in -3i64..3 {
                let input = tensor(dtype, &shape, &random(60, 3));
                let at = axis.rem_euclid(3) as usize;
                let (outer, inner) = (shape[..at].iter().product(), shape[at + 1..].iter().product());
                let wanted = along(&numbers(&input), outer, shape[at], inner, rows);
                let case = Case::new(op_type, 13, vec![input], &[dtype]).attribute("axis", Attribute::Int(axis));
                let found = case.run().unwrap();
                assert_eq!(found[0].shape(), shape);
                assert_close(&numbers(&found[0]), &wanted, relative);
            }
        }
    }
}

#[test]
fn before_opset_13_softmax_is_over_all_later_axes() {
    for (op_type, rows) in KINDS {
        for axis in 0..3usize {
            let input = tensor(DType::F32, &[3, 4, 5], &random(60, 4));
            let outer: usize = [3, 4, 5][..axis].iter().product();
            let wanted = along(&numbers(&input), outer, 60 / outer, 1, rows);
            let case = Case::new(op_type, 11, vec![input.clone()], &[DType::F32]);
            // The default is 1.
            let case = if axis == 1 { case } else { case.attribute("axis", Attribute::Int(axis as i64)) };
            assert_close(&numbers(&case.run().unwrap()[0]), &wanted, 2e-6);
        }
    }
}

#[test]
fn large_scores_do_not_overflow() {
    let input = tensor(DType::F32, &[1, 3], &[1000.0, 1001.0, 1002.0]);
    let wanted = softmax(&[0.0, 1.0, 2.0]);
    let found = Case::new("Softmax", 13, vec![input], &[DType::F32]).run().unwrap();
    assert_close(&numbers(&found[0]), &wanted, 1e-6);
}

#[test]
fn hardmax_picks_the_first_of_equal_scores() {
    let input = tensor(DType::F32, &[2, 3], &[1.0, 3.0, 3.0, 2.0, 2.0, 1.0]);
    let found = Case::new("Hardmax", 13, vec![input], &[DType::F32]).run().unwrap();
    assert_eq!(numbers(&found[0]), [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn empty_tensors_stay_empty_and_invalid_axes_are_rejected() {
    let empty = Case::new("Softmax", 13, vec![tensor(DType::F32, &[0, 3], &[])], &[DType::F32]).run().unwrap();
    assert_eq!(empty[0].shape(), [0, 3]);
    let wrong = Case::new("Softmax", 13, vec![tensor(DType::F32, &[1], &[1.0])], &[DType::F32]);
    let error = wrong.attribute("axis", Attribute::Int(2)).run().unwrap_err();
    assert!(error.contains("axis 2 is out of range for rank 1"), "{error}");
}
