//! Compares reductions with loops in double precision, on the device and in the planner.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::common::{Case, assert_close, numbers, random, tensor};

type Fold = fn(&[f64]) -> f64;

const KINDS: [(&str, Fold); 10] = [
    ("ReduceSum", |row| row.iter().sum()),
    ("ReduceMean", |row| row.iter().sum::<f64>() / row.len() as f64),
    ("ReduceProd", |row| row.iter().product()),
    ("ReduceMax", |row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
    ("ReduceMin", |row| row.iter().copied().fold(f64::INFINITY, f64::min)),
    ("ReduceSumSquare", |row| row.iter().map(|v| v * v).sum()),
    ("ReduceL1", |row| row.iter().map(|v| v.abs()).sum()),
    ("ReduceL2", |row| row.iter().map(|v| v * v).sum::<f64>().sqrt()),
    ("ReduceLogSum", |row| row.iter().sum::<f64>().ln()),
    ("ReduceLogSumExp", |row| row.iter().map(|v| v.exp()).sum::<f64>().ln()),
];

/// The elements that are reduced to each output element, in the output's order.
fn rows(values: &[f64], shape: &[usize], axes: &[usize]) -> (Vec<usize>, Vec<Vec<f64>>) {
    let kept: Vec<usize> = (0..shape.len()).map(|at| if axes.contains(&at) { 1 } else { shape[at] }).collect();
    let mut rows = vec![Vec::new(); kept.iter().product()];
    for (flat, &value) in values.iter().enumerate() {
        let (mut rest, mut place, mut step) = (flat, 0, 1);
        for at in (0..shape.len()).rev() {
            let index = rest % shape[at];
            rest /= shape[at];
            place += if kept[at] == 1 { 0 } else { index * step };
            step *= kept[at];
        }
        rows[place].push(value);
    }
    (kept, rows)
}

fn case(op_type: &'static str, version: i32, input: Tensor, axes: &[i64]) -> Case {
    let dtype = input.dtype();
    let by_input = version >= if op_type == "ReduceSum" { 13 } else { 18 };
    if by_input {
        let mut case = Case::new(op_type, version, vec![input, Tensor::from_i64s(axes)], &[dtype]);
        case.constants.push(1);
        case
    } else {
        let case = Case::new(op_type, version, vec![input], &[dtype]);
        if axes.is_empty() { case } else { case.attribute("axes", Attribute::Ints(axes.to_vec())) }
    }
}

#[test]
fn every_kind_over_every_set_of_axes() {
    let shape = [2, 3, 4, 3];
    for (op_type, fold) in KINDS {
        for bits in 1..16usize {
            for dtype in [DType::F32, DType::F64, DType::F16] {
                let positive = op_type == "ReduceLogSum";
                let values: Vec<f64> =
                    random(72, bits as u64).into_iter().map(|v| if positive { v + 3.0 } else { v }).collect();
                let input = tensor(dtype, &shape, &values);
                let axes: Vec<usize> = (0..4).filter(|at| bits >> at & 1 == 1).collect();
                let (kept, rows) = rows(&numbers(&input), &shape, &axes);
                let wanted: Vec<f64> = rows.iter().map(|row| fold(row)).collect();
                let relative = if dtype == DType::F16 { 2e-3 } else { 1e-5 };
                for (version, keepdims, known) in [(1, 1, false), (18, 0, false), (18, 1, true)] {
                    // Some axes are counted from the end.
                    let list: Vec<i64> = axes.iter().map(|&at| at as i64 - 4 * (at as i64 % 2)).collect();
                    let mut case =
                        case(op_type, version, input.clone(), &list).attribute("keepdims", Attribute::Int(keepdims));
                    if known {
                        case.constants.push(0);
                    }
                    let found = case.run().unwrap();
                    let wanted_shape: Vec<usize> =
                        (0..4).filter(|at| keepdims == 1 || !axes.contains(at)).map(|at| kept[at]).collect();
                    assert_eq!(found[0].shape(), wanted_shape, "{op_type} {axes:?}");
                    assert_close(&numbers(&found[0]), &wanted, relative);
                }
            }
        }
    }
}

#[test]
fn no_axes_means_all_or_none() {
    let input = tensor(DType::F32, &[2, 2], &[1.0, -2.0, 3.0, -4.0]);
    let all = Case::new("ReduceL1", 18, vec![input.clone()], &[DType::F32]).run().unwrap();
    assert_eq!((all[0].shape(), numbers(&all[0])), (&[1, 1][..], vec![10.0]));
    for (op_type, wanted) in [
        ("ReduceSum", [1.0, -2.0, 3.0, -4.0]),
        ("ReduceL1", [1.0, 2.0, 3.0, 4.0]),
        ("ReduceL2", [1.0, 2.0, 3.0, 4.0]),
        ("ReduceSumSquare", [1.0, 4.0, 9.0, 16.0]),
        ("ReduceLogSumExp", [1.0, -2.0, 3.0, -4.0]),
    ] {
        let none = case(op_type, 18, input.clone(), &[]).attribute("noop_with_empty_axes", Attribute::Int(1));
        let found = none.run().unwrap();
        assert_eq!((found[0].shape(), numbers(&found[0])), (&[2, 2][..], wanted.to_vec()), "{op_type}");
    }
}

#[test]
fn empty_reductions_give_the_values_that_onnx_defines() {
    let infinity = f64::INFINITY;
    for (op_type, dtype, wanted) in [
        ("ReduceSum", DType::F32, 0.0),
        ("ReduceProd", DType::F32, 1.0),
        ("ReduceMax", DType::F32, -infinity),
        ("ReduceMin", DType::F16, infinity),
        ("ReduceMax", DType::I32, f64::from(i32::MIN)),
        ("ReduceMin", DType::U8, 255.0),
        ("ReduceMin", DType::Bool, 1.0),
        ("ReduceMax", DType::Bool, 0.0),
        ("ReduceLogSum", DType::F32, -infinity),
        ("ReduceLogSumExp", DType::F32, -infinity),
        ("ReduceMean", DType::F32, f64::NAN),
        ("ReduceL2", DType::F32, 0.0),
    ] {
        let found = case(op_type, 20, tensor(dtype, &[2, 0, 3], &[]), &[1]).run().unwrap();
        assert_eq!(found[0].shape(), [2, 1, 3]);
        assert_close(&numbers(&found[0]), &[wanted; 6], 0.0);
    }
}

#[test]
fn integers_wrap_and_their_mean_is_truncated() {
    for known in [false, true] {
        let run = |op_type, dtype, values: &[f64]| {
            let mut case = case(op_type, 18, tensor(dtype, &[values.len()], values), &[0]);
            if known {
                case.constants.push(0);
            }
            numbers(&case.run().unwrap()[0])
        };
        assert_eq!(run("ReduceMean", DType::I32, &[-3.0, -4.0]), [-3.0]);
        assert_eq!(run("ReduceSum", DType::I32, &[f64::from(i32::MAX), 1.0]), [f64::from(i32::MIN)]);
        assert_eq!(run("ReduceProd", DType::I64, &[-3.0, 4.0, 5.0]), [-60.0]);
        assert_eq!(run("ReduceMax", DType::U8, &[3.0, 200.0, 5.0]), [200.0]);
        assert_eq!(run("ReduceMin", DType::I8, &[3.0, -100.0, 5.0]), [-100.0]);
        assert_eq!(run("ReduceL1", DType::I32, &[3.0, -100.0, 5.0]), [108.0]);
        assert_eq!(run("ReduceMax", DType::Bool, &[0.0, 1.0]), [1.0]);
        assert_eq!(run("ReduceMin", DType::Bool, &[0.0, 1.0]), [0.0]);
    }
}

#[test]
fn a_large_sum_stays_exact_enough() {
    let values = random(300_000, 5);
    let input = tensor(DType::F32, &[3, 100_000], &values);
    let wanted: Vec<f64> = numbers(&input).chunks(100_000).map(|row| row.iter().sum()).collect();
    let found = case("ReduceSum", 13, input, &[-1]).run().unwrap();
    let found = numbers(&found[0]);
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!((found - wanted).abs() < 0.05, "{found} instead of {wanted}");
    }
}

#[test]
fn roots_and_logarithms_of_integers_are_declined() {
    for op_type in ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"] {
        let error = case(op_type, 18, tensor(DType::I32, &[2], &[1.0, 2.0]), &[0]).run().unwrap_err();
        assert_eq!(error, "input 0 has unsupported type i32");
    }
    assert!(case("ReduceSum", 13, tensor(DType::F32, &[2], &[1.0, 2.0]), &[1]).run().is_err());
    assert!(case("ReduceSum", 13, tensor(DType::Bool, &[2], &[1.0, 0.0]), &[0]).run().is_err());
}
