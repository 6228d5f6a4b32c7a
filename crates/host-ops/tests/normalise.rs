//! Softmax, norms and local response normalisation against naive loops in double precision.
#![allow(clippy::unwrap_used)]
mod common;

use graph::prim::{Norm, Softmax};
use graph::{DType, Prim, Scalar};
use proptest::prelude::*;

use common::{Case, Layout, assert_close, layout, tolerance, values};

fn softmax(log: bool, row: &[Scalar], dtype: DType) -> Vec<Scalar> {
    let largest = row.iter().map(|x| x.as_f64()).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = row.iter().map(|x| (x.as_f64() - largest).exp()).sum();
    row.iter()
        .map(|x| {
            let shifted = x.as_f64() - largest;
            Scalar::Float(if log { shifted - total.ln() } else { shifted.exp() / total }).cast(dtype)
        })
        .collect()
}

fn norm(norm: &Norm, dtype: DType, row: &[Scalar], scale: &[Scalar], bias: &[Scalar]) -> Vec<Scalar> {
    let x: Vec<f64> = row.iter().map(|x| x.as_f64()).collect();
    let count = x.len() as f64;
    let mean = if norm.centre { x.iter().sum::<f64>() / count } else { 0.0 };
    let square = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    x.iter()
        .enumerate()
        .map(|(at, x)| {
            let mut y = Scalar::Float((x - mean) / (square + f64::from(norm.epsilon)).sqrt());
            if norm.round_before_scale {
                y = y.cast(dtype);
            }
            let scaled = y.as_f64() * scale.get(at).map_or(1.0, |scale| scale.as_f64());
            Scalar::Float(scaled + bias.get(at).map_or(0.0, |bias| bias.as_f64())).cast(dtype)
        })
        .collect()
}

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
fn the_logarithm_keeps_digits_where_the_numbers_are_large() {
    let row = [10_000.25, 10_000.5, 9_999.0].map(Scalar::Float);
    let case = Case::new(Prim::Softmax(Softmax { log: true })).dense(DType::F32, &[3], &row);
    let got = case.output(DType::F32, &Layout::dense(&[3])).run().unwrap().remove(0);
    assert_close(&got, &softmax(true, &row, DType::F32), 1e-6, "log softmax");
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
        let list = values(dtype, from.offsets().len(), seed);
        let mut case = Case::new(Prim::Softmax(Softmax { log })).threads(threads).input(dtype, &from, &list);
        let seen = case.read(0);
        let got = case.output(dtype, &to).run().unwrap().remove(0);
        let length = from.shape[from.shape.len() - 1];
        let want: Vec<Scalar> = seen.chunks(length).flat_map(|row| softmax(log, row, dtype)).collect();
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
        let list = values(dtype, from.offsets().len(), seed);
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
        let (scales, biases) = (if scale { &factors[0][..] } else { &[] }, if bias { &factors[1][..] } else { &[] });
        let want: Vec<Scalar> = seen.chunks(length).flat_map(|row| norm(&prim, dtype, row, scales, biases)).collect();
        // A variance close to zero magnifies the mean's rounding error.
        assert_close(&got, &want, tolerance(dtype) * 8.0, &format!("{prim:?} of {dtype} {from:?}"));
    }
}
