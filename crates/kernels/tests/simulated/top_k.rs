//! Tests searches for the best elements in the simulator.

use graph::prim::TopK;
use graph::{DType, Prim, Scalar, Tensor, View};

use crate::common::{check, dense, random, random_ints, step, strided};

fn search(k: usize, x: View, buffer: &Tensor) {
    let mut shape = x.shape.to_vec();
    let last = shape.len() - 1;
    shape[last] = k;
    for largest in [false, true] {
        let outputs = vec![dense(1, x.dtype, &shape), dense(2, DType::I64, &shape)];
        let elems = outputs[0].elems();
        let step = step(Prim::TopK(TopK { k, largest, sorted: true }), vec![x.clone()], outputs);
        check(&step, std::slice::from_ref(buffer), &[elems, elems], 0.0);
    }
}

#[test]
fn every_type_with_many_equal_elements() {
    for dtype in DType::ALL {
        let below = if dtype == DType::Bool { 2 } else { 9 };
        search(6, dense(0, dtype, &[5, 40]), &random_ints(dtype, 200, below, 3));
        if dtype.is_signed() {
            search(6, dense(0, dtype, &[5, 40]), &random(dtype, 200, 3));
        }
    }
}

#[test]
fn rows_of_all_lengths() {
    for (rows, columns, k) in [(1, 1, 1), (70, 3, 2), (130, 5, 5), (3, 300, 300), (2, 2048, 7), (1, 1500, 1)] {
        search(k, dense(0, DType::F32, &[rows, columns]), &random(DType::F32, rows * columns, 4));
    }
}

#[test]
fn rows_of_several_runs() {
    for (rows, columns, k) in [(2, 2049, 3), (1, 7000, 50), (2, 5000, 5000), (1, 9000, 4100)] {
        let x = random_ints(DType::F32, rows * columns, 1000, 4);
        search(k, dense(0, DType::F32, &[rows, columns]), &x);
    }
    search(2500, dense(0, DType::I64, &[1, 6500]), &random_ints(DType::I64, 6500, 100_000, 4));
}

#[test]
fn strided_rows_and_values_without_indices() {
    search(3, strided(0, DType::F16, &[2, 3, 9], &[1, 20, 2], 1), &random(DType::F16, 80, 5));
    let (x, y) = (dense(0, DType::F32, &[4, 9]), strided(1, DType::F32, &[4, 3], &[1, 4], 0));
    let step = step(Prim::TopK(TopK { k: 3, largest: true, sorted: false }), vec![x], vec![y]);
    check(&step, &[random(DType::F32, 36, 5)], &[12], 0.0);
}

#[test]
fn nan_infinities_and_zeros() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let rows = [[1.0, nan, 2.0, -nan, 0.0], [inf, -inf, inf, 1.0, nan], [-0.0, 0.0, 0.0, -0.0, -1e-40]];
    for dtype in [DType::F32, DType::F64] {
        let scalars = rows.iter().flatten().map(|&value| Scalar::Float(value));
        search(5, dense(0, dtype, &[3, 5]), &Tensor::from_scalars(dtype, &[15], scalars).unwrap());
    }
}
