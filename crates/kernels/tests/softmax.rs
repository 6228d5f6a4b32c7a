//! Softmax kernels under the simulator.
mod common;

use common::{check, dense, random, step, strided};
use graph::{DType, Prim, prim::Softmax};

#[test]
fn rows_of_all_lengths_and_types() {
    for (dtype, relative) in [(DType::F32, 2e-6), (DType::F64, 1e-12), (DType::F16, 2e-3), (DType::Bf16, 1.6e-2)] {
        for (rows, columns) in [(1, 1), (3, 31), (2, 64), (2, 257), (1, 1000)] {
            for log in [false, true] {
                let shape = [rows, columns];
                let (x, y) = (dense(0, dtype, &shape), dense(1, dtype, &shape));
                let step = step(Prim::Softmax(Softmax { log }), vec![x], vec![y]);
                check(&step, &[random(dtype, rows * columns, 7)], &[rows * columns], relative);
            }
        }
    }
}

#[test]
fn rows_that_are_columns_of_another_tensor() {
    let x = strided(0, DType::F32, &[2, 3, 5], &[15, 1, 3], 0);
    let y = dense(1, DType::F32, &[2, 3, 5]);
    let step = step(Prim::Softmax(Softmax { log: false }), vec![x], vec![y]);
    check(&step, &[random(DType::F32, 30, 9)], &[30], 2e-6);
}
