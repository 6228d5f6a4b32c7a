//! Compares quantisation on the host device with loops.
use graph::ops::Attribute;
use graph::{DType, Tensor};
use proptest::prelude::*;

use crate::common::{Case, assert_close, numbers, random, tensor};

const RANGES: [(DType, f64, f64); 4] =
    [(DType::I8, -128.0, 127.0), (DType::U8, 0.0, 255.0), (DType::I16, -32768.0, 32767.0), (DType::U16, 0.0, 65535.0)];

/// How the parameters of a tensor `[2, 6, 5]` are shared: their shape, the attributes, and the parameter of each
/// element.
struct Sharing {
    shape: &'static [usize],
    attributes: &'static [(&'static str, i64)],
    at: fn([usize; 3]) -> usize,
}

const SHARINGS: [Sharing; 6] = [
    Sharing { shape: &[], attributes: &[], at: |_| 0 },
    Sharing { shape: &[1], attributes: &[], at: |_| 0 },
    Sharing { shape: &[6], attributes: &[], at: |[_, j, _]| j },
    Sharing { shape: &[5], attributes: &[("axis", -1)], at: |[_, _, k]| k },
    Sharing {
        shape: &[2, 3, 5],
        attributes: &[("axis", 1), ("block_size", 2)],
        at: |[i, j, k]| (i * 3 + j / 2) * 5 + k,
    },
    // The last block is shorter.
    Sharing {
        shape: &[2, 6, 2],
        attributes: &[("axis", 2), ("block_size", 3)],
        at: |[i, j, k]| (i * 6 + j) * 2 + k / 3,
    },
];

impl Sharing {
    fn parameters(&self) -> usize {
        self.shape.iter().product()
    }

    fn node(&self, op_type: &'static str, inputs: Vec<Tensor>, to: DType) -> Case {
        let node = Case::new(op_type, 21, inputs, &[to]);
        self.attributes.iter().fold(node, |node, &(name, value)| node.attribute(name, Attribute::Int(value)))
    }

    /// Applies a function to each element and the index of its parameters.
    fn each(&self, x: &[f64], function: impl Fn(f64, usize) -> f64) -> Vec<f64> {
        x.iter().enumerate().map(|(at, &x)| function(x, (self.at)([at / 30, at / 5 % 6, at % 5]))).collect()
    }
}

#[test]
fn quantises_with_every_sharing_and_type() {
    for sharing in &SHARINGS {
        for (dtype, low, high) in RANGES {
            for x_dtype in [DType::F32, DType::F16] {
                let x = tensor(x_dtype, &[2, 6, 5], &random(60, 3).iter().map(|x| x * 40.0).collect::<Vec<_>>());
                let scales: Vec<f64> = (0..sharing.parameters()).map(|at| [0.125, 0.25, 0.5][at % 3]).collect();
                let zeros: Vec<f64> = (0..sharing.parameters()).map(|at| [0.0, 3.0, 100.0][at % 3]).collect();
                let wanted = sharing
                    .each(&numbers(&x), |x, at| ((x / scales[at]).round_ties_even() + zeros[at]).clamp(low, high));
                let inputs = vec![x, tensor(x_dtype, sharing.shape, &scales), tensor(dtype, sharing.shape, &zeros)];
                let found = sharing.node("QuantizeLinear", inputs, dtype).run().unwrap();
                assert_eq!(found[0].shape(), [2, 6, 5]);
                assert_eq!(numbers(&found[0]), wanted, "{dtype} {:?}", sharing.shape);
            }
        }
    }
}

#[test]
fn dequantises_with_every_sharing_and_type() {
    for sharing in &SHARINGS {
        for (dtype, low, high) in RANGES.into_iter().chain([(DType::I32, -1e6, 1e6)]) {
            let span = high - low;
            let values: Vec<f64> = random(60, 4).iter().map(|x| (low + (x + 2.0) / 4.0 * span).round()).collect();
            let scales: Vec<f64> =
                random(sharing.parameters(), 5).iter().map(|s| f64::from((s + 2.1) as f32)).collect();
            let zeros: Vec<f64> = (0..sharing.parameters()).map(|at| [0.0, 3.0, 100.0][at % 3]).collect();
            let wanted = sharing.each(&values, |x, at| (x - zeros[at]) * scales[at]);
            let scale = tensor(DType::F32, sharing.shape, &scales);
            let inputs = vec![tensor(dtype, &[2, 6, 5], &values), scale, tensor(dtype, sharing.shape, &zeros)];
            let found = sharing.node("DequantizeLinear", inputs, DType::F32).run().unwrap();
            assert_close(&numbers(&found[0]), &wanted, 3e-7);
        }
    }
}

#[test]
fn mismatched_parameters_are_an_error() {
    let x = tensor(DType::I8, &[2, 6, 5], &[0.0; 60]);
    let scale = tensor(DType::F32, &[4], &[1.0; 4]);
    let error = Case::new("DequantizeLinear", 13, vec![x, scale], &[DType::F32]).run().unwrap_err();
    assert!(error.contains("a scale of shape [4] does not match [2, 6, 5] along axis 1"), "{error}");
}

proptest! {
    #[test]
    fn dynamic_quantisation_is_within_one_step(count in 1usize..300, seed in 1u64..1000, shift in -3.0f64..3.0) {
        let values: Vec<f64> = random(count, seed).iter().map(|x| x + shift).collect();
        let x = tensor(DType::F32, &[count], &values);
        let node = Case::new("DynamicQuantizeLinear", 11, vec![x.clone()], &[DType::U8, DType::F32, DType::U8]);
        let found = node.run().unwrap();
        let (scale, zero) = (numbers(&found[1])[0], numbers(&found[2])[0]);
        prop_assert!(found[1].shape().is_empty() && found[2].shape().is_empty());
        let (low, high) = numbers(&x).iter().fold((0.0f64, 0.0f64), |(low, high), &x| (low.min(x), high.max(x)));
        prop_assert!((scale - (high - low) / 255.0).abs() <= 1e-6 * scale);
        for (x, y) in numbers(&x).into_iter().zip(numbers(&found[0])) {
            prop_assert!((x - (y - zero) * scale).abs() <= scale * 1.001, "{} {} {} {}", x, y, scale, zero);
        }
    }
}
