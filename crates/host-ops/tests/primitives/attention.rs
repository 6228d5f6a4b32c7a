//! Attention with expressions for its scores, against loops in double precision.
use graph::DType;
use graph::expr::{Expr, Unary};
use graph::{Scalar, Tensor, View};
use testkit::ops::attention::{Heads, causal_products, extents, masked, plain};
use testkit::ops::{random, random_ints, strided};

use crate::common;

const TYPES: [(DType, f64); 3] = [(DType::F32, 2e-5), (DType::F16, 4e-3), (DType::Bf16, 3e-2)];

fn check(case: &Heads, types: (DType, f64), scores: Expr, operands: Vec<(View, Tensor)>, zero_if_hidden: bool) {
    let sample = case.sample(types.0, scores, operands, zero_if_hidden);
    common::check(&sample, &[case.expected(&sample)], types.1, case);
}

#[test]
fn rows_weigh_the_values_of_all_keys() {
    for types in TYPES {
        extents().iter().for_each(|case| check(case, types, plain(types.0), Vec::new(), false));
    }
}

#[test]
fn masks_are_read_with_their_strides() {
    for types in TYPES {
        let case = Heads { batch: 2, heads: 3, rows: 18, total: 70, size: 16, width: 16 };
        let mask = strided(3, DType::F32, &case.shape(), &[70, 0, 0, 1], 0);
        check(&case, types, masked(types.0), vec![(mask, random(DType::F32, 140, 8))], false);
    }
}

#[test]
fn causal_rows_see_keys_up_to_their_own() {
    for types in TYPES {
        for (heads, rows, total, past) in [(1, 150, 150, 0), (3, 50, 137, 87), (2, 70, 90, -9)] {
            let case = Heads { batch: 2, heads, rows, total, size: 32, width: 32 };
            check(&case, types, causal_products(types.0, past), Vec::new(), past < 0);
        }
    }
}

#[test]
fn fully_masked_rows_give_zeros_on_request() {
    for types in &TYPES[..2] {
        let mut expr = Expr::new();
        let (product, mask) = (expr.input(0, types.0), expr.input(1, DType::Bool));
        let bounded = expr.unary(Unary::Tanh, product);
        let never = expr.constant(Scalar::Float(f64::NEG_INFINITY), types.0);
        let value = expr.select(mask, bounded, never);
        expr.finish(value);
        for rows in [2, 40] {
            let case = Heads { batch: 1, heads: 2, rows, total: 30, size: 24, width: 24 };
            let mask = strided(3, DType::Bool, &case.shape(), &[0, 0, 1, 0], 0);
            for zero_if_hidden in [false, true] {
                let operands = vec![(mask.clone(), random_ints(DType::Bool, rows, 2, 5))];
                check(&case, *types, expr.clone(), operands, zero_if_hidden);
            }
        }
    }
}
