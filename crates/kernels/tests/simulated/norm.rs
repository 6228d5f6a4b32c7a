//! Tests norms in the simulator.

use graph::prim::Norm;
use graph::{DType, Prim, Scalar, Tensor, View};

use crate::common::{check, dense, random, step, strided};

const LAYER: Norm = Norm { axes: 1, epsilon: 1e-5, centre: true, scale: true, bias: true, round_before_scale: false };

fn relative(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-11,
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        _ => 4e-6,
    }
}

/// Normalises a view of a buffer of `count` elements with the operands that `norm` requires.
fn normalise(norm: Norm, x: View, count: usize) {
    let (dtype, elems) = (x.dtype, x.elems());
    let normalised = x.shape[x.shape.len() - norm.axes..].to_vec();
    let columns = normalised.iter().product();
    let y = dense(3, dtype, &x.shape);
    let (mut views, mut buffers) = (vec![x], vec![random(dtype, count, 11)]);
    for buffer in 1..=usize::from(norm.scale) + usize::from(norm.bias) {
        views.push(dense(buffer as u32, dtype, &normalised));
        buffers.push(random(dtype, columns, 12 + buffer as u64));
    }
    check(&step(Prim::Norm(norm), views, vec![y]), &buffers, &[elems], relative(dtype));
}

#[test]
fn rows_of_all_lengths_and_types() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        for (rows, columns) in [(1, 1), (3, 31), (70, 8), (2, 64), (2, 257), (3, 1024)] {
            normalise(LAYER, dense(0, dtype, &[rows, columns]), rows * columns);
        }
    }
    for dtype in [DType::F32, DType::F16] {
        // The last case has enough rows for blocks that process several rows.
        for (rows, columns) in [(2, 4096), (1, 3001), (2, 9000), (300, 2048)] {
            normalise(LAYER, dense(0, dtype, &[rows, columns]), rows * columns);
        }
    }
}

#[test]
fn every_combination_of_flags() {
    for flags in 0..16 {
        let on = |bit: u32| flags >> bit & 1 == 1;
        let norm = Norm { centre: on(0), scale: on(1), bias: on(2), round_before_scale: on(3), ..LAYER };
        for dtype in [DType::F32, DType::F16] {
            normalise(norm.clone(), dense(0, dtype, &[5, 40]), 200);
        }
    }
}

#[test]
fn several_axes_in_any_order() {
    normalise(Norm { axes: 2, ..LAYER }, dense(0, DType::F32, &[3, 5, 12]), 180);
    // Channels are innermost: elements of a row are next to those of other rows.
    normalise(Norm { axes: 2, ..LAYER }, strided(0, DType::F32, &[2, 6, 5, 4], &[120, 1, 24, 6], 0), 240);
    let strides = [9_000, 4_000, 1_900, 900, 400, 150, 60, 1];
    normalise(Norm { axes: 3, ..LAYER }, strided(0, DType::F32, &[2, 2, 2, 2, 2, 2, 2, 9], &strides, 2), 20_000);
}

#[test]
fn scale_of_another_type_and_a_part_of_a_buffer() {
    let views = vec![
        strided(0, DType::F16, &[4, 24], &[32, 1], 3),
        strided(1, DType::F32, &[24], &[2], 1),
        dense(2, DType::F32, &[24]),
    ];
    let buffers = [random(DType::F16, 140, 1), random(DType::F32, 60, 2), random(DType::F32, 24, 3)];
    let step = step(Prim::Norm(LAYER), views, vec![dense(3, DType::F16, &[4, 24])]);
    check(&step, &buffers, &[96], 2e-3);
}

#[test]
fn numbers_far_from_zero_keep_their_digits() {
    let values = (0..2048).map(|at| Scalar::Float(30_000.0 + f64::from(at % 7) * 0.25));
    let x = Tensor::from_scalars(DType::F32, &[2048], values).unwrap();
    let norm = Norm { scale: false, bias: false, ..LAYER };
    let step = step(Prim::Norm(norm), vec![dense(0, DType::F32, &[2, 1024])], vec![dense(1, DType::F32, &[2, 1024])]);
    // The mean is rounded to single precision: by up to 0.001, and the deviation is 0.5.
    check(&step, &[x], &[2048], 2.5e-3);
}
