//! Tests products with packed weights in the simulator, against loops in double precision and the host's primitives.

use graph::expr::{Binary, Expr, Unary};
use graph::prim::{Epilogue, Gate, Norm, Product, ProductKind, Zeros};
use graph::{DType, Tensor, View};
use kernels::Arch;
use testkit::ops::Sample;
use testkit::ops::quant::{self, Packed};

use crate::common::{dense, due_orders, list, on_host, random, simulate, strided};

/// Every kind of wave and matrix instruction.
const TARGETS: [&str; 6] = ["gfx1030", "gfx906", "gfx1100", "gfx942", "gfx1201", "sm_90"];

#[derive(Clone, Copy, Debug)]
struct Problem {
    rows: usize,
    depth: usize,
    columns: usize,
    bits: usize,
    block: usize,
    zeros: Zeros,
    dtype: DType,
    scales: DType,
    /// Whether the stride between rows of a is not a multiple of a pack.
    loose: bool,
    fused: bool,
    /// Whether rows of a are normalised first.
    normed: bool,
    /// Whether there are twice as many weight columns, combined as `sigmoid(first) * second`.
    gated: bool,
    /// The kernel that must be used, if that matters.
    kernel: Option<&'static str>,
}

const PLAIN: Problem = Problem {
    rows: 1,
    depth: 192,
    columns: 37,
    bits: 4,
    block: 32,
    zeros: Zeros::Middle,
    dtype: DType::F16,
    scales: DType::F16,
    loose: false,
    fused: false,
    normed: false,
    gated: false,
    kernel: None,
};

/// `sum + in1`, in the type of the output.
fn added(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let (sum, other) = (expr.input(0, dtype), expr.input(1, dtype));
    let value = expr.binary(Binary::Add, sum, other);
    let value = expr.cast(value, dtype);
    expr.finish(value);
    expr
}

/// `sigmoid(in0) * in1`, for numbers that were rounded to the type of the output.
fn gate(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let parts = [0, 1].map(|number| {
        let part = expr.input(number, dtype);
        expr.cast(part, dtype)
    });
    let sigmoid = expr.unary(Unary::Sigmoid, parts[0]);
    let value = expr.binary(Binary::Mul, sigmoid, parts[1]);
    let value = expr.cast(value, dtype);
    expr.finish(value);
    expr
}

impl Problem {
    fn check_on(&self, targets: &[&str], orders: std::ops::Range<i32>) {
        let Problem { rows, depth, bits, block, zeros, dtype, .. } = *self;
        let (made, columns) = (self.columns, self.columns * if self.gated { 2 } else { 1 });
        let packed = Packed { rows, depth, columns, bits, block, zeros };
        let pitch = depth + if self.loose { 3 } else { 0 };
        let strides = [0, pitch as isize, 1];
        let a = strided(0, dtype, &[1, rows, depth], &strides, isize::from(self.loose));
        let mut inputs = vec![(a, random(dtype, rows * pitch + 1, 3))];
        inputs.extend(packed.weights(self.scales));
        let add = |inputs: &mut Vec<(View, Tensor)>, shape: &[usize], seed: u64| {
            inputs.push((dense(inputs.len() as u32, dtype, shape), random(dtype, shape.iter().product(), seed)));
            inputs.len() - 1
        };
        let mut product = Product::from(ProductKind::QuantMatMul(packed.prim()));
        let gains = self.normed.then(|| add(&mut inputs, &[depth], 15));
        if self.normed {
            let norm = Norm {
                axes: 1,
                epsilon: 0.25,
                centre: false,
                scale: true,
                bias: false,
                round_before_scale: self.fused,
            };
            product = product.with_prologue(norm);
        }
        if self.gated {
            product = product.with_gate(Gate { dtype, expr: gate(dtype) });
        }
        let operands = inputs.len();
        let residual = self.fused.then(|| add(&mut inputs, &[1, rows, columns], 13));
        if self.fused {
            product = product.with_epilogue(Epilogue { operands, dtype, expr: added(dtype) });
        }
        let y = dense(inputs.len() as u32, dtype, &[1, rows, made]);
        let sample = Sample::new(product.into(), inputs, vec![y]);
        let mut values = sample.values();
        if let Some(gains) = gains.map(|at| values[at].clone()) {
            for row in values[0].chunks_mut(depth) {
                let squares: f64 = row.iter().map(|x| x * x).sum();
                let root = (squares / depth as f64 + 0.25).sqrt();
                row.iter_mut().zip(&gains).for_each(|(x, gain)| *x *= gain / root);
            }
        }
        let sums = packed.expected(&values).into_iter().enumerate();
        let mut wanted: Vec<(f64, f64)> =
            sums.map(|(at, (sum, size))| (sum + residual.map_or(0.0, |of| values[of][at]), size.max(1.0))).collect();
        if self.gated {
            wanted = (0..rows * made)
                .map(|at| {
                    let first = at / made * columns + at % made;
                    let ((a, a_size), (b, b_size)) = (wanted[first], wanted[first + made]);
                    (b / (1.0 + (-a).exp()), (a_size * b.abs() / 4.0 + b_size).max(1.0))
                })
                .collect();
        }
        let relative = match dtype {
            DType::F16 => 1e-3,
            DType::Bf16 => 8e-3,
            _ => 1e-6,
        };
        let compare = |found: &Tensor, by: &str| {
            for (at, (found, (wanted, size))) in list(found).into_iter().zip(&wanted).enumerate() {
                let error = (found - wanted).abs();
                assert!(error <= relative * size, "{by}: {self:?}: element {at} is {found} instead of {wanted}");
            }
        };
        compare(&on_host(&sample.step, &sample.inputs, &[rows * made]).unwrap()[0], "host");
        for (target, order) in due_orders(targets, orders) {
            if let Some(kernel) = self.kernel {
                let work = kernels::work(&sample.step, &Arch::new(target, 4)).unwrap();
                assert_eq!(work.launches[0].kernel.name, kernel, "{self:?}");
            }
            let (found, fault) = simulate(&sample.step, &sample.inputs, &[rows * made], target, order).unwrap();
            assert_eq!(fault, 0);
            compare(&found[0], target);
        }
    }
}

#[test]
fn every_width_block_and_kind_of_zero() {
    for Packed { rows, depth, columns, bits, block, zeros } in quant::forms(1, 19) {
        let problem = Problem { rows, depth, columns, bits, block, zeros, ..PLAIN };
        problem.check_on(&["gfx1100", "gfx942", "sm_90"], 0..1);
    }
}

#[test]
fn every_type_and_number_of_rows() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for scales in [dtype, DType::F32] {
            for rows in [1, 3, 8, 16] {
                for bits in [4, 8] {
                    let problem = Problem { dtype, scales, rows, bits, zeros: Zeros::Packed, ..PLAIN };
                    problem.check_on(&TARGETS, 1..2);
                }
            }
        }
    }
}

#[test]
fn weights_of_many_rows_are_unpacked_first() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for (bits, block, zeros) in [(4, 32, Zeros::Packed), (8, 16, Zeros::Middle), (2, 64, Zeros::Floats)] {
            for (depth, fused) in [(96, false), (93, true)] {
                let problem = Problem { dtype, scales: dtype, bits, block, zeros, depth, fused, rows: 70, ..PLAIN };
                problem.check_on(&["gfx1030", "gfx942"], 2..3);
            }
        }
    }
    // The product keeps separate sums in scratch memory.
    Problem { rows: 66, depth: 2048, columns: 20, ..PLAIN }.check_on(&["gfx906", "gfx1100"], 0..1);
}

#[test]
fn weights_of_one_row_pass_through_lds() {
    for dtype in [DType::F16, DType::Bf16] {
        let plain = Problem { dtype, scales: dtype, kernel: Some("quant_row"), ..PLAIN };
        // One round, unequal numbers of rounds per wave, one each, and four each, all in flight at once.
        for (depth, columns) in [(256, 37), (768, 16), (1280, 200), (2048, 3), (8192, 100)] {
            for (normed, fused) in [(false, true), (true, false), (true, true)] {
                Problem { depth, columns, normed, fused, ..plain }.check_on(&["sm_90"], 0..2);
            }
            Problem { depth, columns, gated: true, normed: depth < 1000, ..plain }.check_on(&["sm_90"], 1..3);
        }
        // More rounds per wave than can be in flight.
        Problem { depth: 1280, columns: 780, ..plain }.check_on(&["sm_90"], 0..1);
        for other in [Problem { depth: 320, ..plain }, Problem { rows: 2, depth: 256, ..plain }] {
            Problem { kernel: Some("quant_mma"), ..other }.check_on(&["sm_90"], 0..1);
        }
    }
}

#[test]
fn deep_products_are_split_among_waves_and_blocks() {
    for rows in [1, 5] {
        for dtype in [DType::F32, DType::F16] {
            for (depth, columns) in [(4096, 3), (3000, 200), (8192, 16)] {
                let problem = Problem { rows, depth, columns, dtype, scales: dtype, ..PLAIN };
                problem.check_on(&["gfx906", "gfx1100", "gfx942", "gfx1201", "sm_90"], 0..2);
            }
        }
    }
}

#[test]
fn rows_may_be_strided_and_results_have_an_epilogue() {
    for rows in [1, 4, 11] {
        for dtype in [DType::F32, DType::F16] {
            for loose in [false, true] {
                Problem { rows, dtype, loose, fused: true, ..PLAIN }.check_on(&TARGETS, 0..3);
            }
        }
    }
}

#[test]
fn rows_are_normalised_before_they_are_multiplied() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for (rows, fused) in [(1, false), (3, true), (8, false)] {
            let plain = Problem { dtype, scales: dtype, rows, fused, normed: true, ..PLAIN };
            plain.check_on(&TARGETS, 0..3);
            Problem { depth: 93, loose: true, bits: 8, ..plain }.check_on(&["gfx906", "gfx1100", "sm_90"], 1..2);
        }
    }
    // Blocks share k, and rows fill the memory available for them.
    for (rows, depth) in [(1, 8192), (4, 4096)] {
        let problem = Problem { rows, depth, columns: 20, normed: true, ..PLAIN };
        problem.check_on(&["gfx906", "gfx1100", "gfx942", "gfx1201", "sm_90"], 0..2);
    }
}

#[test]
fn rows_that_do_not_fit_are_declined() {
    let problem = Problem { rows: 8, depth: 4096, columns: 4, normed: true, ..PLAIN };
    let panic = std::panic::catch_unwind(|| problem.check_on(&["gfx942"], 0..1)).unwrap_err();
    let sentence = panic.downcast_ref::<String>().unwrap();
    assert!(sentence.contains("65664 bytes of rows to normalise, more than 36864"), "{sentence}");
}

#[test]
fn columns_are_combined_in_pairs() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for (rows, normed) in [(1, false), (1, true), (5, false), (8, true), (18, false)] {
            let plain = Problem { dtype, scales: dtype, rows, normed, gated: true, ..PLAIN };
            plain.check_on(&TARGETS, 0..1);
            // Few columns: all waves of a block share k as far as pairs allow.
            if !normed || rows == 1 {
                Problem { depth: 2048, columns: 3, ..plain }.check_on(&["gfx906", "gfx1100", "gfx942", "sm_90"], 1..2);
            }
        }
    }
}
