//! Compares searches and running sums along an axis with plain loops.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::common::{Case, assert_close, numbers, random, tensor};

/// The offset of every lane along an axis, and the step between elements of a lane.
fn lanes(shape: &[usize], axis: usize) -> (Vec<usize>, usize) {
    let inner: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    let starts = (0..outer).flat_map(|o| (0..inner).map(move |i| o * shape[axis] * inner + i));
    (starts.collect(), inner)
}

/// Few distinct numbers, so that there are ties; none is negative zero.
fn coarse(count: usize, seed: u64) -> Vec<f64> {
    random(count, seed).into_iter().map(|value| (value * 2.0).round() + 0.0).collect()
}

#[test]
fn arg_max_and_arg_min_find_the_first_or_last_along_every_axis() {
    let shape = [3usize, 4, 5];
    for (op_type, sign) in [("ArgMax", 1.0), ("ArgMin", -1.0)] {
        for (axis, last, dtype) in (0..3).flat_map(|axis| {
            [false, true].into_iter().flat_map(move |last| {
                [DType::F32, DType::F16, DType::I32, DType::I64, DType::F64].map(move |dtype| (axis, last, dtype))
            })
        }) {
            let values = coarse(60, 7 + axis as u64);
            let (starts, step) = lanes(&shape, axis);
            let wanted: Vec<f64> = starts
                .iter()
                .map(|&start| {
                    let row: Vec<f64> = (0..shape[axis]).map(|at| sign * values[start + at * step]).collect();
                    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let places: Vec<usize> = (0..row.len()).filter(|&at| row[at] == top).collect();
                    places[if last { places.len() - 1 } else { 0 }] as f64
                })
                .collect();
            for keepdims in [0, 1] {
                let case = Case::new(op_type, 13, vec![tensor(dtype, &shape, &values)], &[DType::I64])
                    .attribute("axis", Attribute::Int(axis as i64 - 3))
                    .attribute("keepdims", Attribute::Int(keepdims))
                    .attribute("select_last_index", Attribute::Int(last.into()));
                let found = case.run().unwrap();
                let mut wanted_shape = shape.to_vec();
                wanted_shape.splice(axis..=axis, (keepdims == 1).then_some(1));
                assert_eq!(found[0].shape(), wanted_shape);
                assert_eq!(numbers(&found[0]), wanted, "{op_type} axis {axis} last {last} {dtype}");
            }
        }
    }
    let nothing = Case::new("ArgMax", 13, vec![tensor(DType::F32, &[0, 2], &[])], &[DType::I64]);
    assert!(nothing.run().unwrap_err().contains("has no elements to search"));
}

#[test]
fn top_k_sorts_values_and_indices_along_every_axis() {
    let shape = [3usize, 6, 4];
    for (axis, k, largest, dtype) in [
        (2, 2, true, DType::F32),
        (1, 3, true, DType::F32),
        (0, 3, false, DType::F32),
        (1, 6, false, DType::I64),
        (2, 1, true, DType::F16),
        (1, 4, true, DType::I32),
        (1, 4, false, DType::F64),
    ] {
        let values = coarse(72, 11);
        let (starts, step) = lanes(&shape, axis);
        let mut to = shape;
        to[axis] = k;
        let (places, to_step) = lanes(&to, axis);
        let count = to.iter().product();
        let (mut best, mut indices) = (vec![0.0; count], vec![0.0; count]);
        for (&start, &place) in starts.iter().zip(&places) {
            let mut order: Vec<usize> = (0..shape[axis]).collect();
            let key = |at: usize| values[start + at * step] * if largest { -1.0 } else { 1.0 };
            // A stable sort leaves the lower index first.
            order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
            for (rank, &at) in order[..k].iter().enumerate() {
                best[place + rank * to_step] = values[start + at * step];
                indices[place + rank * to_step] = at as f64;
            }
        }
        let inputs = vec![tensor(dtype, &shape, &values), Tensor::from_i64s(&[k as i64])];
        let mut case = Case::new("TopK", 11, inputs, &[dtype, DType::I64])
            .attribute("axis", Attribute::Int(axis as i64))
            .attribute("largest", Attribute::Int(largest.into()));
        case.constants.push(1);
        let found = case.run().unwrap();
        assert_eq!(found[0].shape(), to);
        assert_eq!(numbers(&found[0]), best, "axis {axis} k {k} {dtype}");
        assert_eq!(numbers(&found[1]), indices, "axis {axis} k {k} {dtype}");
    }
}

#[test]
fn top_k_reads_k_from_the_attribute_of_older_opsets_and_rejects_large_ones() {
    let input = tensor(DType::F32, &[3], &[1.0, 3.0, 2.0]);
    let old = Case::new("TopK", 1, vec![input.clone()], &[DType::F32, DType::I64]);
    let found = old.attribute("k", Attribute::Int(2)).run().unwrap();
    assert_eq!((numbers(&found[0]), numbers(&found[1])), (vec![3.0, 2.0], vec![1.0, 2.0]));
    let mut case = Case::new("TopK", 11, vec![input, Tensor::from_i64s(&[4])], &[DType::F32, DType::I64]);
    case.constants.push(1);
    assert!(case.run().unwrap_err().contains("k is 4, but axis 0 has 3 elements"));
}

#[test]
fn running_sums_and_products_along_every_axis() {
    let shape = [3usize, 4, 5];
    for (op_type, product) in [("CumSum", false), ("CumProd", true)] {
        for dtype in [DType::F32, DType::F64, DType::I32, DType::I64] {
            for (axis, exclusive, reverse) in
                (0..3).flat_map(|axis| (0..4).map(move |bits| (axis, bits & 1 == 1, bits & 2 == 2)))
            {
                let values = if dtype.is_float() { random(60, 2) } else { coarse(60, 2) };
                let (starts, step) = lanes(&shape, axis);
                let mut wanted = vec![0.0; 60];
                let input = tensor(dtype, &shape, &values);
                let values = numbers(&input);
                for start in starts {
                    let mut running = if product { 1.0 } else { 0.0 };
                    for at in 0..shape[axis] {
                        let at = if reverse { shape[axis] - 1 - at } else { at };
                        let value = values[start + at * step];
                        let next = if product { running * value } else { running + value };
                        wanted[start + at * step] = if exclusive { running } else { next };
                        running = next;
                    }
                }
                let mut case = Case::new(op_type, 14, vec![input, Tensor::from_i64s(&[axis as i64 - 3])], &[dtype])
                    .attribute("exclusive", Attribute::Int(exclusive.into()))
                    .attribute("reverse", Attribute::Int(reverse.into()));
                case.constants.push(1);
                assert_close(&numbers(&case.run().unwrap()[0]), &wanted, 1e-5);
            }
        }
    }
}
