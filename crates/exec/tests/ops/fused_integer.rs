//! Compares FusedConv, MatMulIntegerToFloat and DynamicQuantizeMatMul with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, tensor};

fn contrib(op_type: &'static str, inputs: Vec<Option<graph::Tensor>>) -> Case {
    let mut case = Case::new(op_type, 1, Vec::new(), &[DType::F32]);
    case.domain = "com.microsoft";
    case.inputs = inputs;
    case
}

#[test]
fn a_fused_convolution_adds_and_activates() {
    let random = |shape: &[usize], seed: u64| Array::random(DType::F32, shape, seed);
    let (x, w, bias, other) =
        (random(&[1, 2, 5, 5], 1), random(&[3, 2, 3, 3], 2), random(&[3], 3), random(&[1, 3, 3, 3], 4));
    type Finish = fn(f64) -> f64;
    let finishes: [(&str, &[f32], Finish); 7] = [
        ("", &[], |x| x),
        ("Relu", &[], |x| x.max(0.0)),
        ("Tanh", &[], f64::tanh),
        ("Sigmoid", &[], |x| 1.0 / (1.0 + (-x).exp())),
        ("LeakyRelu", &[0.25], |x| x.max(0.25 * x)),
        ("Clip", &[-0.5, 1.5], |x| x.clamp(-0.5, 1.5)),
        ("HardSigmoid", &[0.25, 0.5], |x| (0.25 * x + 0.5).clamp(0.0, 1.0)),
    ];
    for (name, parameters, finish) in finishes {
        for with_other in [false, true] {
            let wanted = Array::of(&[1, 3, 3, 3], |at| {
                let term = |k: usize| {
                    let (c, i, j) = (k / 9, k / 3 % 3, k % 3);
                    x.at(&[0, c, at[2] + i, at[3] + j]) * w.at(&[at[1], c, i, j])
                };
                let sum = bias.at(&[at[1]]) + (0..18).map(term).sum::<f64>();
                finish(sum + if with_other { other.at(at) } else { 0.0 })
            });
            let inputs = [&x, &w, &bias, &other].into_iter().take(if with_other { 4 } else { 3 });
            let case = contrib("FusedConv", inputs.map(|input| Some(input.tensor(DType::F32))).collect())
                .attribute("activation", Attribute::Text(name.to_owned()))
                .attribute("activation_params", Attribute::Floats(parameters.to_vec()));
            assert_close(&numbers(&case.run().unwrap()[0]), &wanted.values, 2e-5);
        }
    }
    let inputs = vec![Some(x.tensor(DType::F32)), Some(w.tensor(DType::F32))];
    let declined = contrib("FusedConv", inputs).attribute("activation", Attribute::Text("Clip".to_owned()));
    assert!(declined.run().unwrap_err().contains("activation Clip with 0 parameters"));
}

/// Integers of a type.
fn integers(dtype: DType, shape: &[usize], seed: u64) -> Array {
    let low = if dtype == DType::I8 { -128.0 } else { 0.0 };
    let numbers = Array::random(DType::F32, shape, seed);
    Array::of(shape, |at| (numbers.at(at) * 1e4).rem_euclid(256.0).floor() + low)
}

#[test]
fn products_of_integers_are_scaled_to_floats() {
    let (rows, depth, columns) = (3, 8, 5);
    for (left, right) in [(DType::U8, DType::I8), (DType::U8, DType::U8), (DType::I8, DType::I8)] {
        for by_column in [false, true] {
            let (a, b) = (integers(left, &[rows, depth], 1), integers(right, &[depth, columns], 2));
            let shape = if by_column { vec![columns] } else { vec![] };
            let b_scale = Array::of(&shape, |at| 0.0625 * (1.0 + at.first().copied().unwrap_or(0) as f64));
            let b_zero = Array::of(&shape, |at| 3.0 + at.first().copied().unwrap_or(0) as f64);
            let bias = Array::random(DType::F32, &[columns], 5);
            let of = |array: &Array, column: usize| array.values[if by_column { column } else { 0 }];
            let wanted = Array::of(&[rows, columns], |at| {
                let term = |k: usize| (a.at(&[at[0], k]) - 7.0) * (b.at(&[k, at[1]]) - of(&b_zero, at[1]));
                (0..depth).map(term).sum::<f64>() * 0.125 * of(&b_scale, at[1]) + bias.at(&[at[1]])
            });
            let inputs = vec![
                Some(a.tensor(left)),
                Some(b.tensor(right)),
                Some(tensor(DType::F32, &[], &[0.125])),
                Some(b_scale.tensor(DType::F32)),
                Some(tensor(left, &[], &[7.0])),
                Some(b_zero.tensor(right)),
                Some(bias.tensor(DType::F32)),
            ];
            let found = contrib("MatMulIntegerToFloat", inputs).run().unwrap();
            assert_close(&numbers(&found[0]), &wanted.values, 1e-5);
        }
    }
}

#[test]
fn the_left_operand_is_quantised_by_its_range() {
    let (rows, depth, columns) = (3, 8, 5);
    let a = Array::random(DType::F32, &[rows, depth], 1);
    let b = integers(DType::I8, &[depth, columns], 2);
    let (low, high) = a.values.iter().fold((0f64, 0f64), |(low, high), &x| (low.min(x), high.max(x)));
    let scale = f64::from((high - low) as f32 / 255.0);
    let zero = (-low / scale).round_ties_even().clamp(0.0, 255.0);
    let wanted = Array::of(&[rows, columns], |at| {
        let term = |k: usize| {
            let q = ((a.at(&[at[0], k]) / scale).round_ties_even() + zero).clamp(0.0, 255.0);
            (q - zero) * b.at(&[k, at[1]])
        };
        (0..depth).map(term).sum::<f64>() * scale * 0.25
    });
    let inputs =
        vec![Some(a.tensor(DType::F32)), Some(b.tensor(DType::I8)), Some(tensor(DType::F32, &[], &[0.25])), None, None];
    let found = contrib("DynamicQuantizeMatMul", inputs).run().unwrap();
    assert_close(&numbers(&found[0]), &wanted.values, 1e-4);
}
