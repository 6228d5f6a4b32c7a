//! Compares fusions of diffusion models with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers};

fn check(op_type: &'static str, dtype: DType, inputs: &[&Array], attributes: &[(&'static str, i64)], wanted: &[Array]) {
    let mut case = Case::new(op_type, 1, Vec::new(), &vec![dtype; wanted.len()]);
    case.domain = "com.microsoft";
    case.inputs = inputs.iter().map(|input| Some(input.tensor(dtype))).collect();
    for &(name, value) in attributes {
        case = case.attribute(name, Attribute::Int(value));
    }
    let found = case.run().unwrap();
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(found.shape(), wanted.shape);
        assert_close(&numbers(found), &wanted.values, if dtype == DType::F32 { 2e-5 } else { 6e-3 });
    }
}

#[test]
fn biases_are_added_before_the_rest() {
    for dtype in [DType::F32, DType::F16] {
        let random = |shape: &[usize], seed: u64| Array::random(dtype, shape, seed);
        let (x, bias, skip) = (random(&[2, 3, 8], 1), random(&[8], 2), random(&[2, 3, 8], 3));
        let sum = Array::of(&x.shape, |at| x.at(at) + bias.at(&at[2..]) + skip.at(at));
        check("BiasAdd", dtype, &[&x, &bias, &skip], &[], &[sum]);
        let gelu = |x: f64| x * 0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2));
        let gated = Array::of(&[2, 3, 4], |at| {
            let side = |first: usize| x.at(&[at[0], at[1], first + at[2]]) + bias.at(&[first + at[2]]);
            side(0) * gelu(side(4))
        });
        check("BiasSplitGelu", dtype, &[&x, &bias], &[], &[gated]);
    }
}

/// The error function, by its series.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn groups_of_channels_are_normalised_in_both_layouts() {
    let (batch, channels, height, width, groups) = (2, 6, 3, 4, 2);
    for dtype in [DType::F32, DType::F16] {
        for (last, silu) in [(1, 1), (0, 0)] {
            let layout = |shape: [usize; 4]| {
                let [n, c, h, w] = shape;
                if last == 1 { [n, h, w, c] } else { [n, c, h, w] }
            };
            let shape = layout([batch, channels, height, width]);
            let x = Array::random(dtype, &shape, 1);
            let (gamma, beta) = (Array::random(dtype, &[channels], 2), Array::random(dtype, &[channels], 3));
            let place =
                |at: &[usize]| if last == 1 { [at[0], at[3], at[1], at[2]] } else { [at[0], at[1], at[2], at[3]] };
            let normed = |x: &Array| {
                Array::of(&shape, |at| {
                    let [n, c, _, _] = place(at);
                    let size = channels / groups;
                    let of = |k: usize| {
                        let (c, rest) = (c / size * size + k % size, k / size);
                        x.at(&layout([n, c, rest / width, rest % width]))
                    };
                    let count = size * height * width;
                    let mean = (0..count).map(of).sum::<f64>() / count as f64;
                    let variance = (0..count).map(|k| (of(k) - mean).powi(2)).sum::<f64>() / count as f64;
                    let y = (x.at(at) - mean) / (variance + 1e-5).sqrt() * gamma.at(&[c]) + beta.at(&[c]);
                    if silu == 1 { y / (1.0 + (-y).exp()) } else { y }
                })
            };
            let attributes = [("groups", groups as i64), ("activation", silu), ("channels_last", last)];
            check("GroupNorm", dtype, &[&x, &gamma, &beta], &attributes, &[normed(&x)]);
            let (skip, bias) = (Array::random(dtype, &[batch, channels], 4), Array::random(dtype, &[channels], 5));
            let sum = Array::of(&shape, |at| {
                let [n, c, _, _] = place(at);
                x.at(at) + skip.at(&[n, c]) + bias.at(&[c])
            });
            let sum = Array::from(&sum.tensor(dtype));
            let inputs = [&x, &gamma, &beta, &skip, &bias];
            check("SkipGroupNorm", dtype, &inputs, &attributes, &[normed(&sum), sum.clone()]);
        }
    }
}
