//! Tests softmax kernels in the simulator.

use graph::prim::Softmax;
use graph::{DType, Prim, Scalar, Tensor, View};

use crate::common::{check, dense, random, step, strided};

fn softmax(log: bool, x: View, count: usize, relative: f64) {
    let y = dense(1, x.dtype, &x.shape);
    let (dtype, elems) = (x.dtype, x.elems());
    let step = step(Prim::Softmax(Softmax { log }), vec![x], vec![y]);
    check(&step, &[random(dtype, count, 7)], &[elems], relative);
}

#[test]
fn rows_of_all_lengths_and_types() {
    for (dtype, relative) in [(DType::F32, 2e-6), (DType::F64, 1e-12), (DType::F16, 2e-3), (DType::Bf16, 1.6e-2)] {
        for (rows, columns) in [(1, 1), (3, 31), (70, 8), (2, 64), (2, 257), (3, 1000)] {
            softmax(false, dense(0, dtype, &[rows, columns]), rows * columns, relative);
        }
        softmax(true, dense(0, dtype, &[3, 96]), 3 * 96, relative);
    }
}

#[test]
fn rows_that_do_not_start_at_a_multiple_of_a_pack() {
    for (dtype, relative) in [(DType::F32, 2e-6), (DType::F64, 1e-12), (DType::F16, 2e-3)] {
        for (rows, columns) in [(300, 197), (1100, 49), (4200, 3), (150, 511)] {
            softmax(rows == 300, dense(0, dtype, &[rows, columns]), rows * columns, relative);
        }
        // Teams that wait at barriers, and rows with and without complete packs.
        for (rows, columns) in [(3, 4001), (9, 1001), (7, 2), (5, 9), (2, 15)] {
            softmax(false, dense(0, dtype, &[rows, columns]), rows * columns, relative);
        }
        softmax(false, strided(0, dtype, &[21, 37], &[37, 1], 16), 21 * 37 + 16, relative);
    }
}

#[test]
fn rows_that_need_more_registers_or_do_not_fit_in_them() {
    for (dtype, relative) in [(DType::F32, 2e-6), (DType::F16, 2e-3)] {
        for (rows, columns) in [(2, 4096), (1, 3001), (1, 9000), (1, 8200)] {
            softmax(false, dense(0, dtype, &[rows, columns]), rows * columns, relative);
        }
        softmax(true, dense(0, dtype, &[1, 9000]), 9000, relative);
        // Blocks that process several rows.
        softmax(false, dense(0, dtype, &[300, 2048]), 300 * 2048, relative);
    }
}

#[test]
fn rows_that_are_columns_of_another_tensor() {
    softmax(false, strided(0, DType::F32, &[2, 3, 5], &[15, 1, 3], 0), 30, 2e-6);
    softmax(true, strided(0, DType::F16, &[2, 700, 40], &[28_000, 1, 700], 0), 56_000, 2e-3);
    // The result has a different layout than the input.
    let (x, y) = (dense(0, DType::F32, &[6, 64]), strided(1, DType::F32, &[6, 64], &[1, 6], 0));
    let step = step(Prim::Softmax(Softmax { log: false }), vec![x], vec![y]);
    check(&step, &[random(DType::F32, 384, 3)], &[384], 2e-6);
}

#[test]
fn rows_on_six_axes_that_cannot_be_merged() {
    let strides = [30_000, 12_000, 5_000, 2_000, 900, 400, 1];
    softmax(false, strided(0, DType::F32, &[2, 2, 2, 2, 2, 2, 24], &strides, 4), 60_000, 2e-6);
}

#[test]
fn infinities_and_nan() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let rows = [[1.0, -inf, 2.0], [-inf; 3], [inf, 1.0, 2.0], [nan, 1.0, 2.0], [1000.0, 1000.0, -1000.0]];
    let scalars = rows.iter().flatten().map(|&value| Scalar::Float(value));
    let x = Tensor::from_scalars(DType::F32, &[15], scalars).unwrap();
    for (shape, x_strides) in [([5usize, 3], [3isize, 1]), ([3, 5], [1, 3])] {
        for log in [false, true] {
            let view = strided(0, DType::F32, &shape, &x_strides, 0);
            let step = step(Prim::Softmax(Softmax { log }), vec![view], vec![dense(1, DType::F32, &shape)]);
            check(&step, std::slice::from_ref(&x), &[15], 1e-6);
        }
    }
}
