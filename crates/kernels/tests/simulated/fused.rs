//! Tests products with epilogues in the simulator.

use graph::expr::{Binary, Expr, Unary};
use graph::prim::{Conv, Epilogue, MatMul, Product, ProductKind};
use graph::{DType, Prim, Scalar, View};

use crate::common::{check_on, dense, random, random_ints, step, strided};

const TARGETS: [&str; 5] = ["gfx1030", "gfx906", "gfx1100", "gfx942", "sm_90"];

/// `max(sum · in1 + in2, 0)`, with the product rounded as if it had been stored.
fn scaled_relu(sum: DType, out: DType) -> Expr {
    let mut expr = Expr::new();
    let mut value = expr.input(0, sum);
    if sum != sum.compute() {
        value = expr.cast(value, sum);
    }
    value = expr.cast(value, DType::F32);
    let (scale, bias) = (expr.input(1, DType::F32), expr.input(2, out));
    let bias = expr.cast(bias, DType::F32);
    let product = expr.binary(Binary::Mul, value, scale);
    let shifted = expr.binary(Binary::Add, product, bias);
    let zero = expr.constant(Scalar::Float(0.0), DType::F32);
    let result = expr.binary(Binary::Max, shifted, zero);
    let result = expr.cast(result, out);
    expr.finish(result);
    expr
}

fn fused(kind: ProductKind, operands: usize, dtype: DType, expr: Expr) -> Prim {
    Product::from(kind).with_epilogue(Epilogue { operands, dtype, expr }).into()
}

#[test]
fn a_matrix_product_with_operands_of_any_strides() {
    for dtype in [DType::F32, DType::F16] {
        for (batch, m, k, n) in [(2, 20, 40, 36), (1, 30, 600, 20), (1, 2, 300, 40), (30, 3, 4, 5), (3, 12, 40, 24)] {
            let prim = fused(ProductKind::MatMul(MatMul { alpha: 0.5 }), 2, dtype, scaled_relu(dtype, dtype));
            let inputs = vec![
                dense(0, dtype, &[batch, m, k]),
                dense(1, dtype, &[batch, k, n]),
                strided(2, DType::F32, &[batch, m, n], &[0, 0, 1], 0),
                strided(3, dtype, &[batch, m, n], &[(m * n) as isize, 1, m as isize], 0),
            ];
            let y = dense(4, dtype, &[batch, m, n]);
            let data = [
                random(dtype, batch * m * k, 3),
                random(dtype, batch * k * n, 4),
                random(DType::F32, n, 5),
                random(dtype, batch * m * n, 6),
            ];
            // A sum rounded to half precision may be off by one step, which is then scaled.
            let relative = if dtype == DType::F32 { 5e-5 } else { 2e-2 };
            check_on(&TARGETS, &step(prim, inputs, vec![y]), &data, &[batch * m * n], relative);
        }
    }
}

#[test]
fn convolutions_of_all_kinds() {
    let conv = |groups, bias| Conv {
        strides: [1usize, 1].into_iter().collect(),
        pads: [1isize, 0].into_iter().collect(),
        dilations: [1usize, 1].into_iter().collect(),
        groups,
        bias,
    };
    let (images, h, w) = (2usize, 6usize, 7usize);
    // Kernels and the resulting output sizes; the last one is transposed.
    for (groups, kernel, out, transposed) in [
        (1usize, [3usize, 3usize], [6usize, 5usize], false),
        (12, [3, 3], [6, 5], false),
        (2, [3, 1], [6, 7], false),
        (1, [3, 3], [6, 9], true),
    ] {
        let (from, to) = (12usize, 24usize);
        let weights = if transposed { [from, to / groups] } else { [to, from / groups] };
        let kind = if transposed { ProductKind::ConvTranspose } else { ProductKind::Conv };
        let prim = fused(kind(conv(groups, true)), 3, DType::F32, scaled_relu(DType::F32, DType::F32));
        let shape = [images, to, out[0], out[1]];
        let plane = (out[0] * out[1]) as isize;
        let inputs: Vec<View> = vec![
            dense(0, DType::F32, &[images, from, h, w]),
            dense(1, DType::F32, &[weights[0], weights[1], kernel[0], kernel[1]]),
            dense(2, DType::F32, &[to]),
            strided(3, DType::F32, &shape, &[0, 1, 0, 0], 0),
            // Channels are innermost.
            strided(4, DType::F32, &shape, &[plane * to as isize, 1, (out[1] * to) as isize, to as isize], 0),
        ];
        let elems = shape.iter().product();
        let data: Vec<_> = [images * from * h * w, weights[0] * weights[1] * kernel[0] * kernel[1], to, to, elems]
            .into_iter()
            .zip(3..)
            .map(|(count, seed)| random(DType::F32, count, seed))
            .collect();
        check_on(&TARGETS, &step(prim, inputs, vec![dense(5, DType::F32, &shape)]), &data, &[elems], 1e-4);
    }
}

#[test]
fn one_tap_with_an_epilogue_is_a_matrix_product() {
    let conv = Conv {
        strides: [1usize, 1].into_iter().collect(),
        pads: [0isize, 0].into_iter().collect(),
        dilations: [1usize, 1].into_iter().collect(),
        groups: 1,
        bias: true,
    };
    let prim = fused(ProductKind::Conv(conv), 3, DType::F16, scaled_relu(DType::F16, DType::F16));
    let shape = [2usize, 20, 6, 8];
    let inputs = vec![
        dense(0, DType::F16, &[2, 32, 6, 8]),
        dense(1, DType::F16, &[20, 32, 1, 1]),
        dense(2, DType::F16, &[20]),
        strided(3, DType::F32, &shape, &[0, 1, 0, 0], 0),
        dense(4, DType::F16, &shape),
    ];
    let counts = [(DType::F16, 3072), (DType::F16, 640), (DType::F16, 20), (DType::F32, 20), (DType::F16, 1920)];
    let data: Vec<_> = counts.into_iter().zip(3..).map(|((dtype, count), seed)| random(dtype, count, seed)).collect();
    check_on(&TARGETS, &step(prim, inputs, vec![dense(5, DType::F16, &shape)]), &data, &[1920], 2e-2);
}

#[test]
fn bytes_are_scaled_and_stored_as_bytes() {
    let mut epilogue = Expr::new();
    let sum = epilogue.input(0, DType::I32);
    let value = epilogue.cast(sum, DType::F32);
    let scale = epilogue.constant(Scalar::Float(1.0 / 1024.0), DType::F32);
    let scaled = epilogue.binary(Binary::Mul, value, scale);
    let rounded = epilogue.unary(Unary::Round, scaled);
    let (low, high) =
        (epilogue.constant(Scalar::Float(0.0), DType::F32), epilogue.constant(Scalar::Float(255.0), DType::F32));
    let bounded = epilogue.binary(Binary::Max, rounded, low);
    let bounded = epilogue.binary(Binary::Min, bounded, high);
    epilogue.cast(bounded, DType::U8);
    for rows in [1, 20] {
        let integer = ProductKind::IntegerMatMul { zeros: [128, 3] };
        let prim = fused(integer, 2, DType::I32, epilogue.clone());
        let inputs = vec![dense(0, DType::U8, &[1, rows, 80]), dense(1, DType::I8, &[1, 80, 48])];
        let data = [random_ints(DType::U8, rows * 80, 256, 3), random_ints(DType::I8, 80 * 48, 128, 4)];
        check_on(&TARGETS, &step(prim, inputs, vec![dense(2, DType::U8, &[1, rows, 48])]), &data, &[rows * 48], 0.0);
    }
}
