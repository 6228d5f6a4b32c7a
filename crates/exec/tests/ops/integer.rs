//! Checks that products between dequantisation and quantisation are computed on the bytes, against sums of 64-bit
//! integers.
use graph::ops::Attribute;
use graph::{DType, Tensor, ValueId};
use proptest::prelude::*;

use crate::chain::{Chain, prims};
use crate::common::{numbers, tensor};

/// Bytes over their whole range.
fn bytes(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let values: Vec<f64> = (0..shape.iter().product::<usize>())
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 56) as f64 - if dtype == DType::I8 { 128.0 } else { 0.0 }
        })
        .collect();
    tensor(dtype, shape, &values)
}

fn scalar(chain: &mut Chain, dtype: DType, value: f64) -> ValueId {
    chain.constant(tensor(dtype, &[], &[value]))
}

/// How an operand is quantised.
#[derive(Clone, Debug)]
struct Quantised {
    values: Tensor,
    scales: Vec<f64>,
    zero: f64,
    axis: i64,
}

impl Quantised {
    /// The real values, computed by a node of the graph.
    fn dequantised(&self, chain: &mut Chain, is_constant: bool) -> ValueId {
        let dtype = self.values.dtype();
        let x = if is_constant { chain.constant(self.values.clone()) } else { chain.input(self.values.clone()) };
        let (scale, zero) = if let [scale] = self.scales[..] {
            (scalar(chain, DType::F32, scale), scalar(chain, dtype, self.zero))
        } else {
            let count = self.scales.len();
            let zero = tensor(dtype, &[count], &vec![self.zero; count]);
            (chain.constant(tensor(DType::F32, &[count], &self.scales)), chain.constant(zero))
        };
        chain.node_with("DequantizeLinear", &[("axis", Attribute::Int(self.axis))], &[x, scale, zero], DType::F32)
    }

    /// The values minus their zero point.
    fn centred(&self) -> Vec<i64> {
        numbers(&self.values).iter().map(|value| (value - self.zero) as i64).collect()
    }
}

/// Compares the output's bytes with the quantised `real` values; ties may round either way.
fn assert_quantised(found: &[f64], real: &[f64], scale: f64, zero: f64) {
    assert_eq!(found.len(), real.len());
    for (found, real) in found.iter().zip(real) {
        let steps = real.max(0.0) / scale;
        let low = (steps - 0.501).ceil().max(-zero) + zero;
        let high = (steps + 0.501).floor() + zero;
        let (low, high) = (low.clamp(0.0, 255.0), high.clamp(0.0, 255.0));
        assert!((low..=high).contains(found), "{found} for {real}, {low} to {high}");
    }
}

struct ConvCase {
    x: Quantised,
    w: Quantised,
    bias: Vec<f64>,
    stride: usize,
    groups: usize,
}

/// Runs `DQ, DQ → Conv → Relu → Q`, checks every byte, and returns the primitives.
fn check_conv(case: &ConvCase) -> Vec<&'static str> {
    let ConvCase { x, w, bias, stride, groups } = case;
    let (step, zero) = (f64::from(0.37f32), 3.0);
    let mut chain = Chain::default();
    let data = x.dequantised(&mut chain, false);
    let weights = w.dequantised(&mut chain, true);
    let bias_id = chain.constant(tensor(DType::F32, &[bias.len()], bias));
    let attributes = [
        ("strides", Attribute::Ints(vec![*stride as i64; 2])),
        ("pads", Attribute::Ints(vec![1; 4])),
        ("group", Attribute::Int(*groups as i64)),
    ];
    let made = chain.node_with("Conv", &attributes, &[data, weights, bias_id], DType::F32);
    let active = chain.node("Relu", &[made], DType::F32);
    let (scale_id, zero_id) = (scalar(&mut chain, DType::F32, step), scalar(&mut chain, DType::U8, zero));
    let out = chain.node("QuantizeLinear", &[active, scale_id, zero_id], DType::U8);
    let (plan, results) = chain.run(&[out]);
    let (xs, ws) = (x.centred(), w.centred());
    let (&[n, c, h, wd], &[m, cg, kh, kw]) = (x.values.shape(), w.values.shape()) else { unreachable!() };
    let (oh, ow) = ((h + 2 - kh) / stride + 1, (wd + 2 - kw) / stride + 1);
    let mut real = Vec::new();
    for image in 0..n {
        for map in 0..m {
            for oy in 0..oh {
                for ox in 0..ow {
                    let mut sum = 0i64;
                    for channel in 0..cg {
                        let from = map / (m / groups) * cg + channel;
                        for (ky, kx) in (0..kh).flat_map(|ky| (0..kw).map(move |kx| (ky, kx))) {
                            let (Some(y), Some(x)) =
                                ((oy * stride + ky).checked_sub(1), (ox * stride + kx).checked_sub(1))
                            else {
                                continue;
                            };
                            if y < h && x < wd {
                                sum += xs[((image * c + from) * h + y) * wd + x]
                                    * ws[((map * cg + channel) * kh + ky) * kw + kx];
                            }
                        }
                    }
                    let scale = f64::from(w.scales[map % w.scales.len()] as f32) * f64::from(x.scales[0] as f32);
                    real.push(sum as f64 * scale + f64::from(bias[map] as f32));
                }
            }
        }
    }
    assert_quantised(&numbers(&results[0]), &real, step, zero);
    prims(&plan)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn convolutions_of_bytes_are_exact(
        (n, c, m) in (1usize..3, 1usize..40, 1usize..40),
        (h, w, k) in (2usize..12, 2usize..12, 1usize..4),
        signed in any::<[bool; 2]>(),
        zeros in (0i32..=255, 0i32..=255),
        each in any::<bool>(),
        depthwise in any::<bool>(),
        stride in 1usize..3,
    ) {
        prop_assume!(h + 2 >= k && w + 2 >= k);
        let dtype = |signed: bool| if signed { DType::I8 } else { DType::U8 };
        let zero = |signed: bool, zero: i32| f64::from(if signed { zero - 128 } else { zero });
        let (groups, maps) = if depthwise { (c, c * (1 + m % 2)) } else { (1, m) };
        let x = Quantised {
            values: bytes(dtype(signed[0]), &[n, c, h, w], 1),
            scales: vec![0.02],
            zero: zero(signed[0], zeros.0),
            axis: 1,
        };
        let scales = if each { (0..maps).map(|at| 0.001 * (at + 1) as f64).collect() } else { vec![0.004] };
        let w = Quantised {
            values: bytes(dtype(signed[1]), &[maps, c / groups, k, k], 2),
            scales,
            zero: zero(signed[1], zeros.1),
            axis: 0,
        };
        let bias = (0..maps).map(|at| at as f64 * 0.5 - 3.0).collect();
        let few = w.values.elems() <= 256;
        let found = check_conv(&ConvCase { x, w, bias, stride, groups });
        // The planner dequantises small weights itself.
        prop_assert!(few || found == ["fused_integer_conv"], "{:?}", found);
    }

    #[test]
    fn matrix_products_of_bytes_are_exact(
        (batch, m, k, n) in (1usize..3, 1usize..30, 1usize..80, 1usize..70),
        signed in any::<[bool; 2]>(),
        zeros in (0i32..=255, 0i32..=255),
        each in any::<bool>(),
    ) {
        let dtype = |signed: bool| if signed { DType::I8 } else { DType::U8 };
        let zero = |signed: bool, zero: i32| f64::from(if signed { zero - 128 } else { zero });
        let x = Quantised {
            values: bytes(dtype(signed[0]), &[batch, m, k], 3),
            scales: vec![0.02],
            zero: zero(signed[0], zeros.0),
            axis: 1,
        };
        let scales = if each && n > 1 { (0..n).map(|at| 0.001 * (at + 1) as f64).collect() } else { vec![0.004] };
        let w = Quantised { values: bytes(dtype(signed[1]), &[k, n], 4), scales, zero: zero(signed[1], zeros.1), axis: 1 };
        let mut chain = Chain::default();
        let (a, b) = (x.dequantised(&mut chain, false), w.dequantised(&mut chain, true));
        let out = chain.node("MatMul", &[a, b], DType::F32);
        let (plan, results) = chain.run(&[out]);
        prop_assert!(k * n <= 256 || prims(&plan) == ["fused_integer_matmul"], "{:?}", plan.steps);
        let (xs, ws) = (x.centred(), w.centred());
        for (at, found) in numbers(&results[0]).iter().enumerate() {
            let (row, column) = (at / n, at % n);
            let sum: i64 = (0..k).map(|p| xs[row * k + p] * ws[p * n + column]).sum();
            let want = sum as f64 * f64::from(w.scales[column % w.scales.len()] as f32) * f64::from(0.02f32);
            // The planner dequantises small weights, which are then multiplied in single precision.
            let rounding = if k * n <= 256 { 1e-4 } else { 0.0 };
            prop_assert!((found - want).abs() <= want.abs() * 1e-6 + rounding, "{} for {}", found, want);
        }
    }
}

#[test]
fn a_scale_known_only_at_run_time_leaves_a_float_product() {
    let mut chain = Chain::default();
    let x = chain.input(bytes(DType::U8, &[4, 6], 5));
    let scale = chain.input(tensor(DType::F32, &[], &[0.5]));
    let zero = scalar(&mut chain, DType::U8, 7.0);
    let a = chain.node("DequantizeLinear", &[x, scale, zero], DType::F32);
    let w = Quantised { values: bytes(DType::I8, &[6, 5], 6), scales: vec![0.25], zero: 0.0, axis: 1 };
    let b = w.dequantised(&mut chain, true);
    let out = chain.node("MatMul", &[a, b], DType::F32);
    let (plan, _) = chain.run(&[out]);
    assert_eq!(prims(&plan), ["map", "matmul"]);
}

#[test]
fn a_value_with_other_readers_is_still_dequantised_for_them() {
    let mut chain = Chain::default();
    let x = Quantised { values: bytes(DType::U8, &[4, 60], 7), scales: vec![0.5], zero: 9.0, axis: 1 };
    let w = Quantised { values: bytes(DType::I8, &[60, 6], 8), scales: vec![0.25], zero: 0.0, axis: 1 };
    let (a, b) = (x.dequantised(&mut chain, false), w.dequantised(&mut chain, true));
    let made = chain.node("MatMul", &[a, b], DType::F32);
    let (plan, results) = chain.run(&[made, a]);
    assert_eq!(prims(&plan), ["map", "fused_integer_matmul"]);
    let (xs, ws) = (x.centred(), w.centred());
    for (at, found) in numbers(&results[0]).iter().enumerate() {
        let sum: i64 = (0..60).map(|p| xs[at / 6 * 60 + p] * ws[p * 6 + at % 6]).sum();
        assert_eq!(*found, sum as f64 * 0.125);
    }
    let dequantised: Vec<f64> = xs.iter().map(|&x| x as f64 * 0.5).collect();
    assert_eq!(numbers(&results[1]), dequantised);
}
