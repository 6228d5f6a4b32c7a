//! Tests products with packed weights in the simulator, against loops in double precision and the host's primitives.

use graph::expr::{Binary, Expr, Unary};
use graph::prim::{Epilogue, Gate, Norm, Product, ProductKind, QuantMatMul, WeightLayout, Zeros};
use graph::{DType, Scalar, Tensor, View};
use kernels::Arch;

use crate::common::{dense, due, on_host, random, random_ints, simulate, step, strided};

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

/// The number at an index in a row of packed numbers.
fn field(bytes: &[u8], bits: usize, at: usize) -> f64 {
    let bit = at * bits;
    f64::from(bytes[bit / 8] >> (bit % 8) & (((1u32 << bits) - 1) as u8))
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.scalars().map(Scalar::as_f64).collect()
}

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
        let Problem { rows, depth, columns, bits, block, zeros, dtype, .. } = *self;
        let blocks = depth.div_ceil(block);
        let made = columns;
        let columns = if self.gated { 2 * columns } else { columns };
        let prim = QuantMatMul { bits, block, zeros, rounds_activations: false, layout: WeightLayout::Onnx };
        let (row_bytes, zero_bytes) = (blocks * prim.block_bytes(), prim.zero_bytes(depth));
        let pitch = depth + if self.loose { 3 } else { 0 };
        let a = random(dtype, rows * pitch + 1, 3);
        let weights = random_ints(DType::U8, columns * row_bytes, 256, 5);
        let scales = random(self.scales, columns * blocks, 7);
        let packed = random_ints(DType::U8, columns * zero_bytes, 256, 9);
        let floats = random(self.scales, columns * blocks, 11);
        let residual = random(dtype, rows * columns, 13);
        let row_stride = pitch as isize;
        let mut inputs: Vec<View> = vec![
            strided(0, dtype, &[1, rows, depth], &[0, row_stride, 1], isize::from(self.loose)),
            dense(1, DType::U8, &[columns, blocks, prim.block_bytes()]),
            dense(2, self.scales, &[columns, blocks]),
        ];
        let mut data = vec![a.clone(), weights.clone(), scales.clone()];
        match zeros {
            Zeros::Middle => {}
            Zeros::Packed => {
                inputs.push(dense(3, DType::U8, &[columns, zero_bytes]));
                data.push(packed.clone());
            }
            Zeros::Floats => {
                inputs.push(dense(3, self.scales, &[columns, blocks]));
                data.push(floats.clone());
            }
        }
        let mut made_by = Product::from(ProductKind::QuantMatMul(prim.clone()));
        let gains = random(dtype, depth, 15);
        if self.normed {
            inputs.push(dense(inputs.len() as u32, dtype, &[depth]));
            data.push(gains.clone());
            let epsilon = 0.25;
            let norm =
                Norm { axes: 1, epsilon, centre: false, scale: true, bias: false, round_before_scale: self.fused };
            made_by = made_by.with_prologue(norm);
        }
        if self.gated {
            made_by = made_by.with_gate(Gate { dtype, expr: gate(dtype) });
        }
        let operands = inputs.len();
        if self.fused {
            inputs.push(dense(operands as u32, dtype, &[1, rows, columns]));
            data.push(residual.clone());
            made_by = made_by.with_epilogue(Epilogue { operands, dtype, expr: added(dtype) });
        }
        let y = dense(inputs.len() as u32, dtype, &[1, rows, made]);
        let step = step(made_by.into(), inputs, vec![y]);
        let (mut left, factors, bases, addends) = (numbers(&a), numbers(&scales), numbers(&floats), numbers(&residual));
        if self.normed {
            for m in 0..rows {
                let row = &mut left[usize::from(self.loose) + m * pitch..][..depth];
                let squares: f64 = row.iter().map(|x| x * x).sum();
                let root = (squares / depth as f64 + 0.25).sqrt();
                row.iter_mut().zip(numbers(&gains)).for_each(|(x, gain)| *x *= gain / root);
            }
        }
        let (weights, packed) = (weights.bytes(), packed.bytes());
        let weight = |n: usize, k: usize| {
            let zero = match zeros {
                Zeros::Middle => prim.middle() as f64,
                Zeros::Packed => field(&packed[n * zero_bytes..], bits, k / block),
                Zeros::Floats => bases[n * blocks + k / block],
            };
            (field(&weights[n * row_bytes..], bits, k) - zero) * factors[n * blocks + k / block]
        };
        let mut wanted = Vec::new();
        for m in 0..rows {
            for n in 0..columns {
                let term = |k: usize| left[usize::from(self.loose) + m * pitch + k] * weight(n, k);
                let sum: f64 = (0..depth).map(term).sum();
                let size: f64 = (0..depth).map(|k| term(k).abs()).sum();
                wanted.push((sum + if self.fused { addends[m * columns + n] } else { 0.0 }, size.max(1.0)));
            }
        }
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
            for (at, (found, (wanted, size))) in numbers(found).into_iter().zip(&wanted).enumerate() {
                let error = (found - wanted).abs();
                assert!(error <= relative * size, "{by}: {self:?}: element {at} is {found} instead of {wanted}");
            }
        };
        compare(&on_host(&step, &data, &[rows * made]).unwrap()[0], "host");
        for target in due(targets) {
            if let Some(kernel) = self.kernel {
                let work = kernels::work(&step, &Arch::new(target, 4)).unwrap();
                assert_eq!(work.launches[0].kernel.name, kernel, "{self:?}");
            }
            for order in orders.clone() {
                let (found, fault) = simulate(&step, &data, &[rows * made], target, order).unwrap();
                assert_eq!(fault, 0);
                compare(&found[0], target);
            }
        }
    }
}

#[test]
fn every_width_block_and_kind_of_zero() {
    for bits in [2, 4, 8] {
        for block in [16, 32, 64, 128, 256] {
            for zeros in [Zeros::Middle, Zeros::Packed, Zeros::Floats] {
                for depth in [2 * block, 2 * block + 24, 3 * block - 1] {
                    Problem { bits, block, zeros, depth, columns: 19, ..PLAIN }
                        .check_on(&["gfx1100", "gfx942", "sm_90"], 0..1);
                }
            }
        }
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
fn weights_of_one_row_come_through_lds() {
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
fn waves_and_blocks_share_deep_products() {
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
fn rows_may_lie_anywhere_and_results_go_through_an_epilogue() {
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
fn columns_are_put_together_in_pairs() {
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
