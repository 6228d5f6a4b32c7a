//! Tests local response normalisation in the simulator.

use graph::prim::Lrn;
use graph::{DType, Prim, View};

use crate::common::{check, dense, random, step, strided};

fn lrn(size: usize, x: View) {
    let (dtype, elems) = (x.dtype, x.elems());
    let relative = match dtype {
        // The factor is in single precision.
        DType::F64 => 1e-6,
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        _ => 2e-6,
    };
    let y = dense(1, dtype, &x.shape);
    let step = step(Prim::Lrn(Lrn { alpha: 0.3, beta: 0.75, bias: 1.5, size }), vec![x], vec![y]);
    check(&step, &[random(dtype, elems, 3)], &[elems], relative);
}

#[test]
fn windows_of_all_sizes_and_types() {
    for size in [1, 2, 3, 5, 20] {
        lrn(size, dense(0, DType::F32, &[2, 7, 4, 5]));
    }
    for dtype in [DType::F64, DType::F16, DType::Bf16] {
        lrn(5, dense(0, dtype, &[2, 7, 4, 5]));
    }
}

#[test]
fn other_layouts_and_ranks() {
    lrn(3, strided(0, DType::F32, &[2, 7, 4, 5], &[140, 1, 35, 7], 0));
    lrn(3, dense(0, DType::F32, &[3, 6]));
    lrn(3, dense(0, DType::F32, &[1, 6, 2, 3, 4]));
}
