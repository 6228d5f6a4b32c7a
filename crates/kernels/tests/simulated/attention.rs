//! Tests attention in the simulator, against loops in double precision.

use graph::expr::{Binary, Expr, Unary};
use graph::prim::Attention;
use graph::{DType, Prim, Scalar, Tensor, View};
use testkit::ops::attention::{Heads, causal_products, extents, masked, plain};
use testkit::ops::tensor;

use crate::common::{check_numbers, check_on, dense, kernel_of, random, random_ints, step, strided};

const TARGETS: [&str; 6] = ["gfx1030", "gfx906", "gfx1100", "gfx942", "gfx1201", "sm_90"];
/// The targets with matrix instructions.
const MATRIX: [&str; 4] = ["gfx1100", "gfx942", "gfx1201", "sm_90"];

fn check(case: &Heads, dtype: DType, scores: Expr, operands: Vec<(View, Tensor)>, zero_if_hidden: bool, relative: f64) {
    let sample = case.sample(dtype, scores, operands, zero_if_hidden);
    check_numbers(&TARGETS, &sample, &[case.expected(&sample)], relative);
}

const TYPES: [(DType, f64); 3] = [(DType::F32, 2e-5), (DType::F16, 4e-3), (DType::Bf16, 3e-2)];

#[test]
fn many_rows_and_keys() {
    for (dtype, relative) in TYPES {
        for case in extents() {
            check(&case, dtype, plain(dtype), Vec::new(), false, relative);
        }
    }
    let case = Heads { batch: 1, heads: 1, rows: 17, total: 65, size: 128, width: 128 };
    check(&case, DType::F16, plain(DType::F16), Vec::new(), false, 4e-3);
}

/// On AMD, two waves share such rows.
#[test]
fn heads_that_do_not_fit_in_one_wave() {
    for (dtype, relative) in TYPES {
        let case = Heads { batch: 1, heads: 2, rows: 35, total: 70, size: 160, width: 192 };
        check(&case, dtype, plain(dtype), Vec::new(), false, relative);
        let case = Heads { batch: 2, heads: 1, rows: 20, total: 45, size: 251, width: 97 };
        let mask = strided(3, DType::F32, &case.shape(), &[45, 0, 0, 1], 0);
        check(&case, dtype, masked(dtype), vec![(mask, random(DType::F32, 90, 8))], false, relative);
    }
}

#[test]
fn waves_have_two_fragments_of_rows_for_large_work() {
    for (dtype, relative) in &TYPES[1..] {
        let case = Heads { batch: 4, heads: 1, rows: 104, total: 70, size: 32, width: 48 };
        check(&case, *dtype, plain(*dtype), Vec::new(), false, *relative);
    }
}

/// On CUDA, scores are then computed ahead of values. Covers keys that end within a tile, at its end and in the next
/// one, read in packs and one by one.
#[test]
fn many_keys_for_many_rows() {
    let case = Heads { batch: 4, heads: 1, rows: 104, total: 300, size: 64, width: 64 };
    for (total, width) in [(300, 64), (320, 40), (257, 37)] {
        let case = Heads { total, width, ..case };
        for scores in [plain(DType::F16), causal_products(DType::F16, total as i64 - 150)] {
            let kernel = kernel_of(&case.sample(DType::F16, scores.clone(), Vec::new(), false).step, "sm_90");
            assert!(kernel.settings.contains(&("AHEAD", "1".to_owned())), "{:?}", kernel.settings);
            check(&case, DType::F16, scores, Vec::new(), false, 4e-3);
        }
    }
}

/// The running sums are scaled down with every tile.
#[test]
fn scores_that_grow_from_key_to_key() {
    let (rows, total, size) = (20, 200, 16);
    let case = Heads { batch: 1, heads: 1, rows, total, size, width: 16 };
    for step in [0.5, 0.06] {
        let mut sample = case.sample(DType::F16, plain(DType::F16), Vec::new(), false);
        sample.inputs[0] = tensor(DType::F16, (0..rows * size).map(|at| 1.0 + (at / size % 3) as f64 * 0.25));
        sample.inputs[1] = tensor(DType::F16, (0..total * size).map(|at| (at / size) as f64 * step * 0.25));
        check_numbers(&MATRIX, &sample, &[case.expected(&sample)], 4e-3);
    }
}

#[test]
fn few_rows_split_the_keys() {
    for (dtype, relative) in TYPES {
        let case = Heads { batch: 1, heads: 1, rows: 1, total: 1100, size: 64, width: 64 };
        check(&case, dtype, plain(dtype), Vec::new(), false, relative);
    }
}

/// A mask for each key.
#[test]
fn masks_of_keys_are_the_same_for_all_rows() {
    let mut expr = Expr::new();
    let (product, mask) = (expr.input(0, DType::F16), expr.input(1, DType::F16));
    let sum = expr.binary(Binary::Add, product, mask);
    expr.finish(sum);
    let heads_apart = Heads { batch: 6, heads: 1, rows: 40, total: 70, size: 16, width: 16 };
    let shape = [3, 2, 40, 70];
    let mask = (strided(3, DType::F16, &shape, &[70, 0, 0, 1], 0), random(DType::F16, 210, 8));
    let mut sample = heads_apart.sample(DType::F16, expr, vec![mask], false);
    let Prim::Attention(attention) = &mut sample.step.prim else { panic!("{:?}", sample.step) };
    attention.shape = shape.into_iter().collect();
    sample.step.outputs = vec![dense(9, DType::F16, &[3, 2, 40, 16])];
    check_numbers(&MATRIX, &sample, &[heads_apart.expected(&sample)], 4e-3);
}

/// Several blocks of rows and tiles of keys, none of them complete; heads that share keys start within a block.
#[test]
fn causal_rows_see_keys_up_to_their_own() {
    for (dtype, relative) in &TYPES[1..] {
        for (heads, rows, total, past) in [(1, 150, 150, 0), (3, 50, 137, 87), (2, 70, 90, -9)] {
            let case = Heads { batch: 2, heads, rows, total, size: 32, width: 32 };
            check(&case, *dtype, causal_products(*dtype, past), Vec::new(), past < 0, *relative);
        }
        let case = Heads { batch: 3, heads: 1, rows: 150, total: 150, size: 16, width: 16 };
        let mask = strided(3, DType::F32, &case.shape(), &[150, 0, 0, 1], 0);
        check(&case, *dtype, masked(*dtype), vec![(mask, random(DType::F32, 450, 8))], false, *relative);
    }
    // On AMD, two waves share such rows.
    let case = Heads { batch: 1, heads: 1, rows: 70, total: 100, size: 160, width: 160 };
    check(&case, DType::F16, causal_products(DType::F16, 30), Vec::new(), false, 4e-3);
}

/// Rows before the first key see none.
#[test]
fn blocks_that_see_no_key_at_all() {
    for dtype in [DType::F32, DType::F16] {
        for (rows, total, past) in [(5, 40, -9), (150, 70, -140)] {
            for zero_if_hidden in [false, true] {
                let case = Heads { batch: 1, heads: 2, rows, total, size: 24, width: 24 };
                check(&case, dtype, causal_products(dtype, past), Vec::new(), zero_if_hidden, 4e-3);
            }
        }
    }
}

/// Complete parts of the keys lie ahead of the rows.
#[test]
fn few_rows_see_few_of_the_parts() {
    for (dtype, relative) in TYPES {
        for past in [0, 700] {
            let case = Heads { batch: 1, heads: 2, rows: 3, total: 1100, size: 16, width: 16 };
            check(&case, dtype, causal_products(dtype, past), Vec::new(), false, relative);
        }
    }
}

#[test]
fn masks_are_read_with_their_strides() {
    for (dtype, relative) in TYPES {
        for rows in [2, 18] {
            let case = Heads { batch: 2, heads: 3, rows, total: 70, size: 16, width: 16 };
            let mask = strided(3, DType::F32, &case.shape(), &[70, 0, 0, 1], 0);
            check(&case, dtype, masked(dtype), vec![(mask, random(DType::F32, 140, 8))], false, relative);
        }
    }
}

#[test]
fn fully_masked_rows_give_zeros_on_request() {
    for dtype in [DType::F32, DType::F16] {
        let mut expr = Expr::new();
        let (product, mask) = (expr.input(0, dtype), expr.input(1, DType::Bool));
        let bounded = expr.unary(Unary::Tanh, product);
        let never = expr.constant(Scalar::Float(f64::NEG_INFINITY), dtype);
        let value = expr.select(mask, bounded, never);
        expr.finish(value);
        for rows in [2, 40] {
            let case = Heads { batch: 1, heads: 2, rows, total: 30, size: 24, width: 24 };
            let mask = strided(3, DType::Bool, &case.shape(), &[0, 0, 1, 0], 0);
            for zero_if_hidden in [false, true] {
                let operands = vec![(mask.clone(), random_ints(DType::Bool, rows, 2, 5))];
                check(&case, dtype, expr.clone(), operands, zero_if_hidden, 4e-3);
            }
        }
    }
}

/// Queries, keys and values of several sequences as one product stores them: one token per row, heads side by side.
#[test]
fn interleaved_heads_are_read_in_place() {
    let (batch, heads, total, size) = (2, 3, 21, 16);
    let hidden = heads * size;
    for (dtype, relative) in TYPES {
        for rows in [2, total] {
            let (of_batch, row) = ((total * 3 * hidden) as isize, 3 * hidden as isize);
            let (tokens, turned) = ([of_batch, size as isize, row, 1], [of_batch, size as isize, 1, row]);
            let part = |shape: [usize; 2], strides: &[isize; 4], at: usize| {
                let shape = [batch, heads, shape[0], shape[1]];
                strided(0, dtype, &shape, strides, (at * hidden) as isize)
            };
            let inputs =
                vec![part([rows, size], &tokens, 0), part([size, total], &turned, 1), part([total, size], &tokens, 2)];
            let strides = [(rows * hidden) as isize, size as isize, hidden as isize, 1];
            let out = strided(9, dtype, &[batch, heads, rows, size], &strides, 0);
            let (shape, scores) = ([batch, heads, rows, total].into_iter().collect(), plain(dtype));
            let prim = Prim::Attention(Attention { alpha: 0.25, shape, scores, zero_if_hidden: false });
            let data: Vec<Tensor> = (0..3).map(|_| random(dtype, batch * total * 3 * hidden, 3)).collect();
            check_on(&TARGETS, &step(prim, inputs, vec![out]), &data, &[batch * rows * hidden], relative);
        }
    }
}
