//! Tests matrix products in the simulator.

use graph::expr::{Binary, Expr};
use graph::prim::{self, Gate, MatMul, Norm, ProductKind};
use graph::{DType, Prim, Step, Tensor, View};
use testkit::ops::matmul::Product;
use testkit::ops::{Sample, ints};

use crate::common::{check_numbers, check_on, dense, list, random, random_ints, step, strided};

/// Every kind of wave and matrix instruction.
const TARGETS: [&str; 6] = ["gfx1030", "gfx906", "gfx1100", "gfx942", "gfx1201", "sm_90"];

fn matmul(a: View, b: View, y: View, alpha: f32) -> Step {
    step(Prim::matmul(alpha), vec![a, b], vec![y])
}

fn values(dtype: DType, count: usize, seed: u64) -> Tensor {
    if dtype.is_float() { random(dtype, count, seed) } else { random_ints(dtype, count, 100, seed) }
}

/// A product of dense matrices.
fn product(dtype: DType, sum: DType, extents: [usize; 4], relative: f64) {
    let case = Product { alpha: if dtype.is_float() { 0.5 } else { 1.0 }, ..Product::new(extents) };
    let operand = |(at, shape): (u32, [usize; 3])| {
        (dense(at, dtype, &shape), values(dtype, shape.iter().product(), [3, 5][at as usize]))
    };
    let inputs = (0..).zip(case.inputs()).map(operand).collect();
    let sample = Sample::new(case.prim(), inputs, vec![dense(2, sum, &case.output())]);
    let expected = case.expected(&sample.values());
    // Sums of integers wrap.
    let expected = if sum.is_float() { expected } else { list(&ints(sum, expected.iter().map(|&sum| sum as i64))) };
    check_numbers(&TARGETS, &sample, &[expected], relative);
}

#[test]
fn tiles_of_all_types() {
    let floats = [(DType::F32, 2e-5), (DType::F64, 1e-13), (DType::F16, 2e-3), (DType::Bf16, 1.6e-2)];
    for (dtype, relative) in floats {
        for extents in [[1, 65, 33, 70], [3, 20, 17, 48], [2, 40, 64, 64]] {
            product(dtype, dtype, extents, relative);
        }
    }
    product(DType::F16, DType::F32, [1, 40, 48, 40], 2e-5);
    let integers = [DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64, DType::I8, DType::U8];
    for dtype in integers {
        product(dtype, dtype, [1, 17, 35, 20], 0.0);
    }
}

#[test]
fn large_tiles() {
    for (dtype, relative) in [(DType::F32, 2e-5), (DType::F16, 2e-3), (DType::I8, 0.0)] {
        let sum = if dtype == DType::I8 { DType::I32 } else { dtype };
        product(dtype, sum, [1, 200, 72, 300], relative);
    }
}

#[test]
fn a_deep_product_is_split() {
    for (dtype, relative) in [(DType::F32, 2e-5), (DType::F16, 2e-3), (DType::I32, 0.0)] {
        product(dtype, dtype, [1, 20, 600, 24], relative);
    }
}

#[test]
fn operands_and_results_may_be_transposed() {
    for (dtype, relative) in [(DType::F32, 2e-5), (DType::F16, 2e-3), (DType::U8, 0.0)] {
        let sum = if dtype == DType::U8 { DType::I32 } else { dtype };
        let (m, k, n) = (20usize, 48usize, 36usize);
        let matrix = |buffer, dtype, rows: usize, columns: usize, turned: bool| {
            let strides = if turned { [1, rows as isize] } else { [columns as isize, 1] };
            let all = (rows * columns) as isize;
            strided(buffer, dtype, &[2, rows, columns], &[all, strides[0], strides[1]], 0)
        };
        for turned in 0..8 {
            let step = matmul(
                matrix(0, dtype, m, k, turned & 1 != 0),
                matrix(1, dtype, k, n, turned & 2 != 0),
                matrix(2, sum, m, n, turned & 4 != 0),
                1.0,
            );
            let inputs = [values(dtype, 2 * m * k, 3), values(dtype, 2 * k * n, 5)];
            check_on(&TARGETS, &step, &inputs, &[2 * m * n], relative);
        }
    }
}

#[test]
fn strides_may_be_arbitrary() {
    for dtype in [DType::F32, DType::F16] {
        // Offsets and strides that are not a multiple of a pack, a shared batch, and repeated rows.
        let a = strided(0, dtype, &[3, 13, 34], &[0, 70, 2], 1);
        let b = strided(1, dtype, &[3, 34, 21], &[720, 21, 1], 3);
        let y = strided(2, dtype, &[3, 13, 21], &[600, 1, 26], 5);
        let step = matmul(a, b, y, 1.0);
        let inputs = [values(dtype, 1000, 3), values(dtype, 2200, 5)];
        check_on(&TARGETS, &step, &inputs, &[1800], 3e-3);
    }
}

#[test]
fn few_rows_in_every_layout() {
    for (dtype, relative) in [(DType::F32, 2e-5), (DType::F16, 3e-3), (DType::Bf16, 2e-2), (DType::I64, 0.0)] {
        for m in [1, 3, 8] {
            for n in [40, 41] {
                product(dtype, dtype, [1, m, 700, n], relative);
            }
        }
        for k in [64, 600, 601] {
            let (m, n) = (2, 19);
            let b = strided(1, dtype, &[1, k, n], &[0, 1, k as isize], 0);
            let step = matmul(dense(0, dtype, &[1, m, k]), b, dense(2, dtype, &[1, m, n]), 2.0);
            let inputs = [values(dtype, m * k, 3), values(dtype, n * k, 5)];
            check_on(&TARGETS, &step, &inputs, &[m * n], relative);
        }
        product(dtype, dtype, [1, 70, 64, 3], relative);
    }
}

fn plain(alpha: f32) -> prim::Product {
    ProductKind::MatMul(MatMul { alpha }).into()
}

#[test]
fn few_rows_are_normalised_by_the_product() {
    let norm = Norm { axes: 1, epsilon: 1e-3, centre: false, scale: true, bias: false, round_before_scale: false };
    let prim = Prim::from(plain(0.125).with_prologue(norm));
    for (dtype, relative) in [(DType::F32, 2e-5), (DType::F16, 1e-3), (DType::Bf16, 8e-3)] {
        // Some are read in packs, and the long ones by several blocks.
        for (m, k, n, turned) in
            [(1, 64, 40, 0), (1, 2048, 40, 0), (2, 2100, 41, 0), (1, 2304, 64, 0), (5, 601, 48, 1), (1, 3008, 33, 1)]
        {
            let (row, column) = if turned == 1 { (1, k) } else { (n, 1) };
            let (a, y) = (dense(0, dtype, &[1, m, k]), dense(3, dtype, &[1, m, n]));
            let b = strided(1, dtype, &[1, k, n], &[0, row as isize, column as isize], 0);
            let inputs = [values(dtype, m * k, 3), values(dtype, n * k, 5), values(dtype, k, 7)];
            let [x, weights, scale] = inputs.each_ref().map(list);
            let views = [a, b, dense(2, dtype, &[k])];
            let sample = Sample::new(prim.clone(), views.into_iter().zip(inputs).collect(), vec![y]);
            let wanted = (0..m * n).map(|at| {
                let (x, column) = (&x[at / n * k..][..k], at % n * column);
                let square = x.iter().map(|x| x * x).sum::<f64>() / k as f64;
                let sum: f64 = (0..k).map(|at| x[at] * scale[at] * weights[at * row + column]).sum();
                sum / (square + 1e-3).sqrt() / 8.0
            });
            check_numbers(&TARGETS, &sample, &[wanted.collect()], relative);
        }
    }
}

#[test]
fn norms_of_other_products_are_declined() {
    let norm = Norm { axes: 1, epsilon: 1e-3, centre: false, scale: true, bias: false, round_before_scale: false };
    let prim = Prim::from(plain(1.0).with_prologue(norm));
    // Small products that do not share weights, and many rows.
    for [batch, m, k, n] in [[2, 1, 32, 40], [2, 1, 2100, 40], [1, 20, 64, 40]] {
        let b = dense(1, DType::F32, &[batch, k, n]);
        let inputs = vec![dense(0, DType::F32, &[batch, m, k]), b, dense(2, DType::F32, &[k])];
        let made = step(prim.clone(), inputs, vec![dense(3, DType::F32, &[batch, m, n])]);
        let declined = kernels::work(&made, &kernels::Arch::new("gfx942", 4)).unwrap_err();
        assert_eq!(declined.0, "a norm or a gate of many rows, or of several products", "{batch} {m} {k} {n}");
    }
}

/// With this many columns, a block reads two lines of memory at a time.
#[test]
fn few_rows_of_many_columns() {
    for (dtype, n, relative) in [(DType::F32, 1032, 2e-5), (DType::F16, 2064, 3e-3), (DType::I8, 4128, 0.0)] {
        let sum = if dtype == DType::I8 { DType::I32 } else { dtype };
        for m in [1, 2] {
            product(dtype, sum, [1, m, 71, n], relative);
        }
    }
}

#[test]
fn columns_of_both_halves_are_combined() {
    let norm = Norm { axes: 1, epsilon: 1e-3, centre: false, scale: true, bias: false, round_before_scale: false };
    let product = plain(0.0625);
    let normed = product.clone().with_prologue(norm);
    for (dtype, relative) in [(DType::F32, 2e-5), (DType::F16, 1e-3), (DType::Bf16, 8e-3)] {
        let mut epilogue = Expr::new();
        let parts = [0, 1].map(|number| epilogue.input(number, dtype));
        let sum = epilogue.binary(Binary::Add, parts[0], parts[0]);
        let made = epilogue.binary(Binary::Sub, sum, parts[1]);
        let made = epilogue.cast(made, dtype);
        epilogue.finish(made);
        let shapes = [(1, 64, 40, true), (2, 600, 41, true), (1, 1100, 136, false), (2, 96, 64, false)];
        // For these, a block reads two lines of memory at a time.
        let wide = [(1, 96, 264, true), (2, 97, 200, true)];
        for (m, k, n, is_normed) in shapes.into_iter().chain(wide) {
            let inner = if is_normed { &normed } else { &product };
            let prim = inner.clone().with_gate(Gate { dtype, expr: epilogue.clone() }).into();
            let (a, b) = (dense(0, dtype, &[1, m, k]), dense(1, dtype, &[1, k, 2 * n]));
            let mut views = vec![a, b];
            let mut inputs = vec![values(dtype, m * k, 3), values(dtype, 2 * n * k, 5)];
            if is_normed {
                views.push(dense(2, dtype, &[k]));
                inputs.push(values(dtype, k, 7));
            }
            let numbers: Vec<Vec<f64>> = inputs.iter().map(list).collect();
            let inputs = views.into_iter().zip(inputs).collect();
            let sample = Sample::new(prim, inputs, vec![dense(3, dtype, &[1, m, n])]);
            let wanted = (0..m * n).map(|at| {
                let x = &numbers[0][at / n * k..][..k];
                let square = x.iter().map(|x| x * x).sum::<f64>() / k as f64;
                let scale = |at: usize| if is_normed { numbers[2][at] / (square + 1e-3).sqrt() } else { 1.0 };
                let sum = |half: usize| {
                    let column = half * n + at % n;
                    (0..k).map(|at| x[at] * scale(at) * numbers[1][at * 2 * n + column]).sum::<f64>() / 16.0
                };
                2.0 * sum(0) - sum(1)
            });
            check_numbers(&TARGETS, &sample, &[wanted.collect()], relative);
        }
    }
}

#[test]
fn batches_with_a_shared_operand_and_tiny_products() {
    let dtype = DType::F32;
    for rows in [1, 5] {
        let a = dense(0, dtype, &[30, rows, 40]);
        let b = strided(1, dtype, &[30, 40, 24], &[0, 24, 1], 0);
        let step = matmul(a, b, dense(2, dtype, &[30, rows, 24]), 1.0);
        let inputs = [values(dtype, 1200 * rows, 3), values(dtype, 960, 5)];
        check_on(&TARGETS, &step, &inputs, &[720 * rows], 2e-5);
    }
    product(dtype, dtype, [300, 4, 3, 5], 2e-5);
    product(dtype, dtype, [2, 3, 0, 5], 0.0);
    product(dtype, dtype, [1, 30, 0, 50], 0.0);
    product(dtype, dtype, [2, 0, 4, 5], 0.0);
}

#[test]
fn mixed_signs_of_bytes() {
    for (left, right) in [(DType::U8, DType::I8), (DType::I8, DType::U8)] {
        let a = dense(0, left, &[1, 20, 50]);
        let step = matmul(a, dense(1, right, &[1, 50, 30]), dense(2, DType::I32, &[1, 20, 30]), 1.0);
        let inputs = [values(left, 1000, 3), values(right, 1500, 5)];
        check_on(&TARGETS, &step, &inputs, &[600], 0.0);
    }
}
