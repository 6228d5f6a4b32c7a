//! Compares products with packed weights of one normalised input with loops in double precision.
use graph::ops::Attribute;
use graph::prim::Zeros;
use graph::{DType, Tensor};
use testkit::ops::quant::Packed;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, random, tensor};

const ROWS: usize = 3;
const DEPTH: usize = 64;
const BLOCK: usize = 32;
const EPSILON: f64 = 1e-5;

/// Weights and scales of `columns` columns, and the products with the rows of `x`.
fn product(x: &Array, columns: usize, seed: u64) -> ([Tensor; 2], Vec<f64>) {
    let bytes: Vec<u8> = random(columns * DEPTH / 2, seed).iter().map(|number| ((number + 2.0) * 64.0) as u8).collect();
    let weights = Tensor::from_bytes(DType::U8, &[columns, DEPTH / BLOCK, BLOCK / 2], &bytes).unwrap();
    let scales: Vec<f64> = random(columns * DEPTH / BLOCK, seed + 1).iter().map(|scale| scale * 0.02).collect();
    let scales = tensor(DType::F32, &[columns, DEPTH / BLOCK], &scales);
    let packed = Packed { rows: ROWS, depth: DEPTH, columns, bits: 4, block: BLOCK, zeros: Zeros::Middle };
    let sums = packed.expected(&[x.values.clone(), numbers(&weights), numbers(&scales)]);
    ([weights, scales], sums.into_iter().map(|(sum, _)| sum).collect())
}

fn case(op_type: &'static str, columns: &[(&'static str, usize)], outputs: usize) -> Case {
    let case = Case::new(op_type, 1, Vec::new(), &vec![DType::F32; outputs])
        .attribute("K", Attribute::Int(DEPTH as i64))
        .attribute("block_size", Attribute::Int(BLOCK as i64))
        .attribute("epsilon", Attribute::Float(EPSILON as f32));
    let mut case = columns.iter().fold(case, |case, &(name, count)| case.attribute(name, Attribute::Int(count as i64)));
    case.domain = "com.microsoft";
    case
}

/// The input, the residual, the scale of the norm, the sum, and the normalised sum.
fn normed(with_skip: bool) -> [Array; 5] {
    let random = |shape: &[usize], seed: u64| Array::random(DType::F32, shape, seed);
    let (x, skip, scale) = (random(&[ROWS, DEPTH], 1), random(&[ROWS, DEPTH], 2), random(&[DEPTH], 3));
    let sum = Array::of(&x.shape, |at| x.at(at) + if with_skip { skip.at(at) } else { 0.0 });
    let result = Array::of(&x.shape, |at| {
        let square = (0..DEPTH).map(|k| sum.at(&[at[0], k]).powi(2)).sum::<f64>() / DEPTH as f64;
        sum.at(at) / (square + EPSILON).sqrt() * scale.at(&at[1..])
    });
    [x, skip, scale, sum, result]
}

#[test]
fn a_gate_and_its_partner_read_one_normalised_sum() {
    let columns = 24;
    for (with_norm, with_skip, with_bias) in [(false, false, false), (true, false, true), (true, true, false)] {
        let [x, skip, scale, sum, result] = normed(with_skip);
        let given = if with_norm { &result } else { &x };
        let ([gate_w, gate_s], gate) = product(given, columns, 4);
        let ([up_w, up_s], up) = product(given, columns, 6);
        let bias = Array::random(DType::F32, &[columns], 8);
        let add = |at: usize| if with_bias { bias.values[at % columns] } else { 0.0 };
        let wanted: Vec<f64> = (0..ROWS * columns)
            .map(|at| {
                let gate = gate[at] + add(at);
                gate / (1.0 + (-gate).exp()) * up[at]
            })
            .collect();
        let mut case = case("MatMulNBitsMlp", &[("N", columns)], if with_skip { 2 } else { 1 });
        case = case.attribute("activation", Attribute::Text("silu".to_owned()));
        case.inputs = vec![
            Some(x.tensor(DType::F32)),
            with_skip.then(|| skip.tensor(DType::F32)),
            with_norm.then(|| scale.tensor(DType::F32)),
            Some(gate_w),
            Some(gate_s),
            with_bias.then(|| bias.tensor(DType::F32)),
            Some(up_w),
            Some(up_s),
        ];
        let found = case.run().unwrap();
        assert_close(&numbers(&found[0]), &wanted, 1e-4);
        if with_skip {
            assert_close(&numbers(&found[1]), &sum.values, 1e-6);
        }
    }
}

#[test]
fn queries_keys_and_values_read_one_normalised_sum() {
    for with_skip in [false, true] {
        let [x, skip, scale, sum, result] = normed(with_skip);
        let mut case = case("MatMulNBitsQkv", &[("Nq", 24), ("Nkv", 8)], if with_skip { 4 } else { 3 });
        case.inputs = vec![
            Some(x.tensor(DType::F32)),
            with_skip.then(|| skip.tensor(DType::F32)),
            Some(scale.tensor(DType::F32)),
        ];
        let mut wanted = Vec::new();
        for (at, columns) in [24, 8, 8].into_iter().enumerate() {
            let ([weights, scales], sums) = product(&result, columns, 4 + 2 * at as u64);
            let bias = Array::random(DType::F32, &[columns], 20 + at as u64);
            case.inputs.extend([Some(weights), Some(scales), Some(bias.tensor(DType::F32))]);
            wanted.push(sums.iter().enumerate().map(|(at, sum)| sum + bias.values[at % columns]).collect::<Vec<_>>());
        }
        let found = case.run().unwrap();
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_close(&numbers(found), wanted, 1e-4);
        }
        if with_skip {
            assert_close(&numbers(&found[3]), &sum.values, 1e-6);
        }
    }
}
