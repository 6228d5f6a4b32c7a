//! Softmax and norms against naive loops in double precision.

use graph::prim::{Norm, Softmax};
use graph::{DType, Prim, Scalar};
use proptest::prelude::*;
use testkit::ops::normalise;

use crate::common::{Case, Layout, assert_close, layout, numbers, stored, tolerance, values};

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::Bf16];

#[test]
fn softmax_of_large_and_infinite_numbers_stays_a_distribution() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for (row, want) in [
        ([1000.0, 1000.0, -inf], [0.5, 0.5, 0.0]),
        ([-1000.0, -1000.0, -1000.0], [1.0 / 3.0; 3]),
        ([-inf, -inf, -inf], [nan; 3]),
        ([nan, 0.0, 0.0], [nan; 3]),
    ] {
        let case = Case::new(Prim::Softmax(Softmax { log: false })).dense(DType::F32, &[3], &row.map(Scalar::Float));
        let got = case.output(DType::F32, &Layout::dense(&[3])).run().unwrap().remove(0);
        assert_close(&got, &want.map(Scalar::Float), 1e-6, &format!("{row:?}"));
    }
}

#[test]
fn the_logarithm_keeps_precision_for_large_numbers() {
    let row = [10_000.25, 10_000.5, 9_999.0].map(Scalar::Float);
    let case = Case::new(Prim::Softmax(Softmax { log: true })).dense(DType::F32, &[3], &row);
    let got = case.output(DType::F32, &Layout::dense(&[3])).run().unwrap().remove(0);
    assert_close(&got, &stored(DType::F32, normalise::softmax(true, &numbers(&row))), 1e-6, "log softmax");
}

fn row_cases() -> impl Strategy<Value = (Layout, Layout)> {
    let shape = prop_oneof![
        3 => prop::collection::vec(1usize..6, 1..5),
        1 => (1usize..5, 200usize..2500).prop_map(|(a, b)| vec![a, b]),
        1 => (50usize..200, 1usize..40).prop_map(|(a, b)| vec![a, b]),
    ];
    shape.prop_flat_map(|shape| (layout(shape.clone(), true), layout(shape, false)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 2000 }))]

    #[test]
    fn softmax_agrees_with_naive_loops(
        (from, to) in row_cases(),
        log in any::<bool>(),
        dtype in 0usize..4,
        seed in any::<u64>(),
        threads in 1usize..4,
    ) {
        let dtype = FLOATS[dtype];
        let list = values(dtype, from.elems(), seed);
        let case = Case::new(Prim::Softmax(Softmax { log })).threads(threads).input(dtype, &from, &list);
        let seen = case.read(0);
        let got = case.output(dtype, &to).run().unwrap().remove(0);
        let length = from.shape[from.shape.len() - 1];
        let want = stored(dtype, numbers(&seen).chunks(length).flat_map(|row| normalise::softmax(log, row)));
        assert_close(&got, &want, tolerance(dtype), &format!("log {log}, {from:?}"));
    }

    #[test]
    fn norms_agree_with_naive_loops(
        (from, to) in row_cases(),
        picked in 1usize..5,
        (centre, scale, bias, round_before_scale) in any::<(bool, bool, bool, bool)>(),
        dtype in 0usize..4,
        seed in any::<u64>(),
        threads in 1usize..4,
    ) {
        let (dtype, axes) = (FLOATS[dtype], picked.min(from.shape.len()));
        let normalised = &from.shape[from.shape.len() - axes..];
        let length: usize = normalised.iter().product();
        let prim = Norm { axes, epsilon: 1e-3, centre, scale, bias, round_before_scale };
        let list = values(dtype, from.elems(), seed);
        let factors = [values(dtype, length, seed ^ 1), values(dtype, length, seed ^ 2)];
        let mut case = Case::new(Prim::Norm(prim.clone())).threads(threads).input(dtype, &from, &list);
        if scale {
            case = case.dense(dtype, normalised, &factors[0]);
        }
        if bias {
            // Backwards in memory.
            let order: Vec<usize> = (0..axes).collect();
            let backwards = Layout::arranged(normalised, &order, &vec![2; axes], &vec![true; axes], &vec![false; axes]);
            case = case.input(dtype, &backwards, &factors[1]);
        }
        let seen = case.read(0);
        let got = case.output(dtype, &to).run().unwrap().remove(0);
        let [scales, biases] = [(scale, &factors[0]), (bias, &factors[1])]
            .map(|(is_there, factors)| if is_there { numbers(factors) } else { Vec::new() });
        let rows = numbers(&seen);
        let want = rows.chunks(length).flat_map(|row| normalise::norm(&prim, dtype, row, &scales, &biases));
        let want = stored(dtype, want);
        // A variance close to zero magnifies the mean's rounding error.
        assert_close(&got, &want, tolerance(dtype) * 8.0, &format!("{prim:?} of {dtype} {from:?}"));
    }
}
