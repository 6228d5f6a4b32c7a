//! Tests searches for the best element in the simulator.

use graph::prim::ArgReduce;
use graph::{DType, Prim, Scalar, Tensor, View};

use crate::common::{check, dense, random, random_ints, step, strided};

fn search(x: View, buffer: &Tensor) {
    for (largest, last) in [(false, false), (false, true), (true, false), (true, true)] {
        let kept = x.shape.len() - 1;
        let y = dense(1, DType::I64, &x.shape[..kept]);
        let rows = y.elems();
        let step = step(Prim::ArgReduce(ArgReduce { largest, last }), vec![x.clone()], vec![y]);
        check(&step, std::slice::from_ref(buffer), &[rows], 0.0);
    }
}

#[test]
fn every_type_with_many_equal_elements() {
    for dtype in DType::ALL {
        if dtype != DType::Bool {
            search(dense(0, dtype, &[5, 40]), &random_ints(dtype, 200, 7, 3));
        }
    }
}

#[test]
fn rows_and_columns_of_all_lengths() {
    for (rows, columns) in [(1, 1), (70, 3), (3, 300), (1, 5000), (2, 30_000)] {
        search(dense(0, DType::F32, &[rows, columns]), &random(DType::F32, rows * columns, 4));
    }
    for (rows, columns) in [(64, 21), (3, 700), (600, 2)] {
        let x = strided(0, DType::F16, &[rows, columns], &[1, rows as isize], 0);
        search(x, &random(DType::F16, rows * columns, 4));
    }
    search(strided(0, DType::F32, &[2, 3, 9], &[40, 12, 1], 3), &random(DType::F32, 90, 5));
}

#[test]
fn nan_beats_any_number() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let rows = [[1.0, nan, 2.0, nan], [inf, -inf, inf, -inf], [-0.0, 0.0, 0.0, -0.0], [nan; 4]];
    let scalars = rows.iter().flatten().map(|&value| Scalar::Float(value));
    search(dense(0, DType::F32, &[4, 4]), &Tensor::from_scalars(DType::F32, &[16], scalars).unwrap());
}
