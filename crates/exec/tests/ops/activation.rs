//! Compares activations on the host device with their definitions in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::common::{Case, assert_close, numbers, random, tensor};

/// The tolerance for one rounding of each type, with a margin for functions computed in single precision.
const TYPES: [(DType, f64); 4] = [(DType::F32, 2e-6), (DType::F64, 1e-13), (DType::F16, 1.1e-3), (DType::Bf16, 8.5e-3)];

fn erf(x: f64) -> f64 {
    // Simpson's rule on the integral: slow, simple, and unrelated to the code under test.
    let (steps, end) = (4000u32, x.abs().min(7.0));
    let width = end / f64::from(steps);
    let sum: f64 = (0..=steps)
        .map(|at| {
            let weight = if at == 0 || at == steps { 1.0 } else { f64::from(2 + 2 * (at % 2)) };
            let t = f64::from(at) * width;
            weight * (-t * t).exp()
        })
        .sum();
    x.signum() * sum * width / 3.0 * std::f64::consts::FRAC_2_SQRT_PI
}

fn tanh_gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

type Function = fn(f64) -> f64;

/// Domain, operator, attributes and definition.
type Row = (&'static str, &'static str, &'static [(&'static str, f32)], Function);

#[rustfmt::skip]
const FUNCTIONS: &[Row] = &[
    ("", "Relu", &[], |x| x.max(0.0)),
    ("", "LeakyRelu", &[("alpha", 0.25)], |x| if x < 0.0 { 0.25 * x } else { x }),
    ("", "Elu", &[("alpha", 2.0)], |x| if x < 0.0 { 2.0 * x.exp_m1() } else { x }),
    ("", "Selu", &[("alpha", 1.5), ("gamma", 2.0)], |x| 2.0 * if x > 0.0 { x } else { 1.5 * x.exp_m1() }),
    ("", "Celu", &[("alpha", 0.5)], |x| x.max(0.0) + (0.5 * (x / 0.5).exp_m1()).min(0.0)),
    ("", "ThresholdedRelu", &[("alpha", 0.5)], |x| if x > 0.5 { x } else { 0.0 }),
    ("", "HardSigmoid", &[("alpha", 0.25), ("beta", 0.5)], |x| (0.25 * x + 0.5).clamp(0.0, 1.0)),
    ("", "HardSwish", &[], |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
    ("", "Mish", &[], |x| x * x.exp().ln_1p().tanh()),
    ("", "Softplus", &[], |x| x.exp().ln_1p()),
    ("", "Softsign", &[], |x| x / (1.0 + x.abs())),
    ("", "ScaledTanh", &[("alpha", 1.5), ("beta", 0.5)], |x| 1.5 * (0.5 * x).tanh()),
    ("", "Shrink", &[("bias", 0.25), ("lambd", 0.5)],
        |x| if x < -0.5 { x + 0.25 } else if x > 0.5 { x - 0.25 } else { 0.0 }),
    ("", "Swish", &[("alpha", 0.5)], |x| x / (1.0 + (-0.5 * x).exp())),
    ("", "Gelu", &[], gelu),
    ("", "Affine", &[("alpha", 0.5), ("beta", 0.25)], |x| 0.5 * x + 0.25),
    ("com.microsoft", "Gelu", &[], gelu),
    ("com.microsoft", "FastGelu", &[], tanh_gelu),
    ("com.microsoft", "QuickGelu", &[("alpha", 1.5)], |x| x / (1.0 + (-1.5 * x).exp())),
];

fn case(domain: &'static str, op_type: &'static str, inputs: Vec<graph::Tensor>, dtype: DType) -> Case {
    Case { domain, ..Case::new(op_type, 20, inputs, &[dtype]) }
}

#[test]
fn every_activation_follows_its_definition_in_every_type() {
    for &(domain, op_type, attributes, function) in FUNCTIONS {
        for (dtype, relative) in TYPES {
            // Odd extents leave a remainder after every block and lane.
            let mut values = random(3 * 7 * 13, 11);
            values.iter_mut().step_by(3).for_each(|value| *value *= 10.0);
            let x = tensor(dtype, &[3, 7, 13], &values);
            let wanted: Vec<f64> = numbers(&x).into_iter().map(function).collect();
            let node = case(domain, op_type, vec![x], dtype);
            let node =
                attributes.iter().fold(node, |node, &(name, value)| node.attribute(name, Attribute::Float(value)));
            let found = node.run().unwrap_or_else(|error| panic!("{op_type} of {dtype}: {error}"));
            println!("{domain} {op_type} {dtype}");
            assert_eq!(found[0].shape(), [3, 7, 13]);
            assert_close(&numbers(&found[0]), &wanted, relative);
        }
    }
}

#[test]
fn far_from_zero_nothing_overflows() {
    for (op_type, wanted) in [
        ("Softplus", [0.0, 1000.0]),
        ("Mish", [0.0, 1000.0]),
        ("Swish", [0.0, 1000.0]),
        ("Elu", [-1.0, 1000.0]),
        ("Gelu", [0.0, 1000.0]),
    ] {
        let found = case("", op_type, vec![tensor(DType::F32, &[2], &[-1000.0, 1000.0])], DType::F32).run().unwrap();
        assert_close(&numbers(&found[0]), &wanted, 1e-6);
    }
}

#[test]
fn a_bias_is_added_along_the_last_axis() {
    for (op_type, function) in [("BiasGelu", gelu as Function), ("FastGelu", tanh_gelu)] {
        let (x, bias) = (tensor(DType::F32, &[4, 5], &random(20, 1)), tensor(DType::F32, &[5], &random(5, 2)));
        let sums = numbers(&x).into_iter().enumerate().map(|(at, x)| x + numbers(&bias)[at % 5]);
        let wanted: Vec<f64> = sums.map(function).collect();
        let found = case("com.microsoft", op_type, vec![x, bias], DType::F32).run().unwrap();
        assert_close(&numbers(&found[0]), &wanted, 2e-6);
    }
}

#[test]
fn a_slope_can_be_a_tensor_of_any_type_of_number() {
    for dtype in [DType::F32, DType::F16, DType::I32, DType::I64] {
        let x = tensor(dtype, &[2, 3, 2], &[-3.0, 2.0, -1.0, 4.0, 5.0, -6.0, 7.0, -8.0, 9.0, -10.0, -11.0, 12.0]);
        let slope = tensor(dtype, &[3, 1], &[2.0, 3.0, -1.0]);
        let wanted: Vec<f64> = (numbers(&x).into_iter().enumerate())
            .map(|(at, x)| if x < 0.0 { x * [2.0, 3.0, -1.0][at / 2 % 3] } else { x })
            .collect();
        let found = Case::new("PRelu", 16, vec![x, slope], &[dtype]).run().unwrap();
        assert_eq!(numbers(&found[0]), wanted, "{dtype}");
    }
}

#[test]
fn tanh_gelu_is_chosen_by_an_attribute() {
    let x = tensor(DType::F32, &[9], &random(9, 5));
    let wanted: Vec<f64> = numbers(&x).into_iter().map(tanh_gelu).collect();
    let node = Case::new("Gelu", 20, vec![x], &[DType::F32]).attribute("approximate", Attribute::Text("tanh".into()));
    assert_close(&numbers(&node.run().unwrap()[0]), &wanted, 2e-6);
}
