//! Compares products and sums with what follows them, and products of 8-bit matrices, with loops in double precision.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, tensor};

fn case(op_type: &'static str, inputs: Vec<Option<Tensor>>, dtype: DType) -> Case {
    let mut case = Case::new(op_type, 1, Vec::new(), &[dtype]);
    case.domain = "com.microsoft";
    case.inputs = inputs;
    case
}

fn product(a: &Array, b: &Array) -> Array {
    let [rows, depth] = a.shape[..] else { panic!("a is a matrix") };
    Array::of(&[rows, b.shape[1]], |at| (0..depth).map(|k| a.at(&[at[0], k]) * b.at(&[k, at[1]])).sum())
}

#[test]
fn products_are_followed_by_activations() {
    for dtype in [DType::F32, DType::F16] {
        let random = |shape: &[usize], seed: u64| Array::random(dtype, shape, seed);
        let (a, b, bias) = (random(&[3, 5], 1), random(&[5, 4], 2), random(&[4], 3));
        let tolerance = if dtype == DType::F32 { 2e-5 } else { 6e-3 };
        let sums = product(&a, &b);
        type Finish = fn(f64) -> f64;
        let finishes: [(&str, &[f32], Finish); 6] = [
            ("Relu", &[], |x| x.max(0.0)),
            ("Tanh", &[], f64::tanh),
            ("Sigmoid", &[], |x| 1.0 / (1.0 + (-x).exp())),
            ("LeakyRelu", &[0.25], |x| x.max(0.25 * x)),
            ("Elu", &[0.5], |x| if x < 0.0 { 0.5 * (x.exp() - 1.0) } else { x }),
            ("HardSigmoid", &[0.25, 0.5], |x| (0.25 * x + 0.5).clamp(0.0, 1.0)),
        ];
        for (name, parameters, finish) in finishes {
            let inputs = vec![Some(a.tensor(dtype)), Some(b.tensor(dtype))];
            let mut case = case("FusedMatMulActivation", inputs, dtype)
                .attribute("alpha", Attribute::Float(0.5))
                .attribute("activation", Attribute::Text(name.to_owned()));
            for (key, &value) in ["activation_alpha", "activation_beta"].into_iter().zip(parameters) {
                case = case.attribute(key, Attribute::Float(value));
            }
            let wanted: Vec<f64> = sums.values.iter().map(|&sum| finish(0.5 * sum)).collect();
            assert_close(&numbers(&case.run().unwrap()[0]), &wanted, tolerance);
        }
        let inputs = [&a, &b, &bias].map(|array| Some(array.tensor(dtype))).to_vec();
        let found = case("GemmFastGelu", inputs, dtype).run().unwrap();
        let wanted = Array::of(&[3, 4], |at| {
            let x = sums.at(at) + bias.at(&at[1..]);
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        });
        assert_close(&numbers(&found[0]), &wanted.values, tolerance);
    }
    let inputs = vec![Some(tensor(DType::F32, &[1, 1], &[1.0])); 2];
    let declined = case("FusedMatMulActivation", inputs, DType::F32);
    let declined = declined.attribute("activation", Attribute::Text("Elu".to_owned()));
    assert!(declined.run().unwrap_err().contains("activation Elu without activation_alpha"));
}

#[test]
fn biases_are_added_before_softmax_and_instead_of_dropout() {
    for dtype in [DType::F32, DType::F16] {
        let random = |shape: &[usize], seed: u64| Array::random(dtype, shape, seed);
        let tolerance = if dtype == DType::F32 { 1e-5 } else { 3e-3 };
        let x = random(&[2, 3, 4, 5], 1);
        for (inner, bias) in [(1, random(&[2, 1, 1, 5], 2)), (0, random(&[1, 1, 4, 5], 3)), (0, random(&[4, 5], 3))] {
            let sum = Array::of(&x.shape, |at| x.at(at) + bias.at(at));
            let wanted = Array::of(&x.shape, |at| {
                let all: f64 = (0..5).map(|k| sum.at(&[at[0], at[1], at[2], k]).exp()).sum();
                sum.at(at).exp() / all
            });
            let found = case("BiasSoftmax", vec![Some(x.tensor(dtype)), Some(bias.tensor(dtype))], dtype)
                .attribute("axis", Attribute::Int(3))
                .attribute("is_inner_broadcast", Attribute::Int(inner))
                .run()
                .unwrap();
            assert_close(&numbers(&found[0]), &wanted.values, tolerance);
        }
        let (bias, residual) = (random(&[5], 4), random(&[2, 3, 4, 5], 5));
        let inputs = vec![Some(x.tensor(dtype)), Some(bias.tensor(dtype)), Some(residual.tensor(dtype))];
        let found = case("BiasDropout", inputs, dtype).run().unwrap();
        let wanted = Array::of(&x.shape, |at| x.at(at) + bias.at(&at[3..]) + residual.at(at));
        assert_close(&numbers(&found[0]), &wanted.values, tolerance);
    }
}

#[test]
fn products_of_bytes_take_a_sum_of_integers() {
    let (rows, depth, columns, alpha) = (3, 6, 4, 0.5);
    let bytes = |dtype: DType, shape: &[usize], seed: u64| {
        let low = if dtype == DType::I8 { -128.0 } else { 0.0 };
        let numbers = Array::random(DType::F32, shape, seed);
        Array::of(shape, |at| (numbers.at(at) * 1e4).rem_euclid(256.0).floor() + low)
    };
    let number = |dtype, value| Some(tensor(dtype, &[], &[value]));
    for (left, right) in [(DType::U8, DType::I8), (DType::U8, DType::U8), (DType::I8, DType::I8)] {
        for by_column in [false, true] {
            let (a, b) = (bytes(left, &[depth, rows], 1), bytes(right, &[columns, depth], 2));
            let shape = if by_column { vec![columns] } else { vec![] };
            let of = |at: &[usize]| at.first().copied().unwrap_or(0) as f64;
            let b_scale = Array::of(&shape, |at| 0.0625 * (1.0 + of(at)));
            let b_zero = Array::of(&shape, |at| 3.0 + of(at));
            let c = Array::of(&[columns], |at| at[0] as f64 * 500.0 - 900.0);
            let exact = Array::of(&[rows, columns], |at| {
                let column = if by_column { at[1] } else { 0 };
                let term = |k: usize| (a.at(&[k, at[0]]) - 7.0) * (b.at(&[at[1], k]) - b_zero.values[column]);
                let sum = (0..depth).map(term).sum::<f64>() + c.at(&at[1..]);
                sum * alpha * 0.125 * b_scale.values[column]
            });
            let mut inputs = vec![
                Some(a.tensor(left)),
                number(DType::F32, 0.125),
                number(left, 7.0),
                Some(b.tensor(right)),
                Some(b_scale.tensor(DType::F32)),
                Some(b_zero.tensor(right)),
                Some(c.tensor(DType::I32)),
            ];
            let product = |inputs: &[Option<Tensor>], dtype| {
                let mut case = case("QGemm", inputs.to_vec(), dtype).attribute("alpha", Attribute::Float(alpha as f32));
                for name in ["transA", "transB"] {
                    case = case.attribute(name, Attribute::Int(1));
                }
                case.run().unwrap().remove(0)
            };
            assert_close(&numbers(&product(&inputs, DType::F32)), &exact.values, 1e-5);
            inputs.extend([number(DType::F32, 4.0), number(left, 10.0)]);
            let (low, high) = if left == DType::I8 { (-128.0, 127.0) } else { (0.0, 255.0) };
            for (found, exact) in numbers(&product(&inputs, left)).iter().zip(&exact.values) {
                let exact = (exact / 4.0 + 10.0).clamp(low, high);
                assert!((found - exact).abs() <= 0.501, "{found} instead of {exact}");
            }
        }
    }
}
