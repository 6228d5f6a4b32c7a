//! Tests reductions in the simulator.

use graph::prim::{Reduce, ReduceKind};
use graph::{DType, Prim, Tensor, View};
use testkit::ops::reduce::KINDS;

use crate::common::{check, dense, kernel_of, random, random_ints, step, strided};

fn relative(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 4e-6,
        DType::F64 => 1e-12,
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        _ => 0.0,
    }
}

/// Numbers whose sums stay in range.
fn numbers(dtype: DType, count: usize) -> Tensor {
    if dtype.is_float() { random(dtype, count, 5) } else { random_ints(dtype, count, 5, 5) }
}

/// Reduces the last `axes` axes of a view of a buffer of `count` elements.
fn reduce(kind: ReduceKind, axes: usize, x: View, count: usize) {
    let kept = x.shape.len() - axes;
    let (dtype, shape) = (x.dtype, x.shape[..kept].to_vec());
    let results = shape.iter().product();
    let step = step(Prim::Reduce(Reduce { kind, axes }), vec![x], vec![dense(1, dtype, &shape)]);
    check(&step, &[numbers(dtype, count)], &[results], relative(dtype));
}

#[test]
fn every_kind_of_every_type() {
    for dtype in DType::ALL {
        for kind in KINDS {
            // Each kernel source has to be compiled, so all kinds run only for representative types.
            let stands = matches!(dtype, DType::F32 | DType::F16 | DType::I32 | DType::U8);
            let is_common = matches!(kind, ReduceKind::Mean | ReduceKind::Max);
            // ONNX has no mean of booleans.
            if dtype == DType::Bool && kind == ReduceKind::Mean {
                continue;
            }
            if kind == ReduceKind::LogSumExp && !dtype.is_float() || !stands && !is_common {
                continue;
            }
            reduce(kind, 1, dense(0, dtype, &[3, 21]), 63);
        }
    }
}

#[test]
fn rows_of_all_lengths() {
    for dtype in [DType::F32, DType::F16] {
        for (rows, length) in [(1, 1), (5, 2), (70, 49), (3, 64), (2, 1000), (1, 5000), (1, 40_000), (3, 9_001)] {
            reduce(ReduceKind::Mean, 1, dense(0, dtype, &[rows, length]), rows * length);
        }
    }
}

#[test]
fn many_short_contiguous_rows() {
    for dtype in [DType::F32, DType::F16, DType::F64] {
        for (rows, length) in [(1200, 49), (300, 197), (5001, 3), (150, 511), (130, 1001)] {
            reduce(ReduceKind::Mean, 1, dense(0, dtype, &[rows, length]), rows * length);
        }
    }
    let reduce_rows = Prim::Reduce(Reduce { kind: ReduceKind::Mean, axes: 1 });
    let short = step(reduce_rows, vec![dense(0, DType::F16, &[1200, 49])], vec![dense(1, DType::F16, &[1200])]);
    assert_eq!(kernel_of(&short, "gfx1100").name, "reduce_spans");
    reduce(ReduceKind::Max, 1, strided(0, DType::F16, &[1200, 49], &[49, 1], 8), 1200 * 49 + 8);
    for kind in [ReduceKind::Prod, ReduceKind::Min, ReduceKind::L1, ReduceKind::L2] {
        reduce(kind, 1, dense(0, DType::Bf16, &[2100, 21]), 2100 * 21);
    }
}

#[test]
fn columns_of_all_lengths() {
    for dtype in [DType::F32, DType::F16] {
        for (columns, length) in [(1, 9), (7, 2), (64, 49), (520, 3), (24, 3000), (64, 5000), (4_104, 33), (4_104, 99)]
        {
            let x = strided(0, dtype, &[columns, length], &[1, columns as isize], 0);
            reduce(ReduceKind::Mean, 1, x, columns * length);
        }
    }
}

#[test]
fn axes_in_any_order() {
    // Axes of [2, 3, 4, 5, 6], in memory order: channel statistics, the first and the last axis, a middle one.
    let strides = [360isize, 120, 30, 6, 1];
    let extents = [2usize, 3, 4, 5, 6];
    for (order, axes) in [([1, 0, 2, 3, 4], 4), ([1, 2, 3, 0, 4], 2), ([0, 1, 3, 4, 2], 1), ([4, 2, 0, 1, 3], 2)] {
        let shape = order.map(|axis| extents[axis]);
        let steps = order.map(|axis| strides[axis]);
        for kind in [ReduceKind::Sum, ReduceKind::LogSumExp] {
            reduce(kind, axes, strided(0, DType::F32, &shape, &steps, 0), 720);
        }
    }
}

#[test]
fn parts_of_buffers_and_repeated_elements() {
    reduce(ReduceKind::Max, 1, strided(0, DType::F16, &[4, 8], &[24, 1], 3), 100);
    reduce(ReduceKind::Sum, 1, strided(0, DType::F32, &[4, 8], &[-8, -1], 31), 32);
    reduce(ReduceKind::Sum, 1, strided(0, DType::F32, &[4, 8, 5], &[8, 1, 0], 0), 32);
    reduce(ReduceKind::Sum, 1, strided(0, DType::F32, &[4, 3, 8], &[8, 0, 1], 0), 32);
}

#[test]
fn six_axes_that_cannot_be_merged() {
    let shape = [2; 12];
    let strides = [10_000, 20, 5_000, 10, 2_500, 5, 1_200, 600, 300, 150, 70, 1];
    reduce(ReduceKind::Sum, 6, strided(0, DType::F32, &shape, &strides, 0), 20_000);
}

#[test]
fn empty_reductions_give_the_initial_value() {
    for kind in KINDS {
        reduce(kind, 1, dense(0, DType::F32, &[3, 0]), 0);
        if kind != ReduceKind::LogSumExp {
            reduce(kind, 1, dense(0, DType::I32, &[3, 0]), 0);
        }
    }
    reduce(ReduceKind::Sum, 1, dense(0, DType::F32, &[0, 3]), 0);
}

#[test]
fn nan_and_infinities() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let rows = [[1.0, nan, 2.0], [inf, 1.0, 2.0], [-inf, -inf, -inf], [-inf, 3.0, inf]];
    let scalars = rows.iter().flatten().map(|&value| graph::Scalar::Float(value));
    let x = Tensor::from_scalars(DType::F32, &[12], scalars).unwrap();
    for kind in KINDS {
        let prim = Prim::Reduce(Reduce { kind, axes: 1 });
        let step = step(prim, vec![dense(0, DType::F32, &[4, 3])], vec![dense(1, DType::F32, &[4])]);
        check(&step, std::slice::from_ref(&x), &[4], 1e-6);
    }
}
