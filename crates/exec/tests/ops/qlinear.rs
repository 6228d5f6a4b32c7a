//! Compares com.microsoft's operators on 8-bit integers with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::array::Array;
use crate::common::{Case, numbers, tensor};

/// A quantised tensor.
#[derive(Clone)]
struct Quantized {
    integers: Array,
    scale: f64,
    zero: f64,
}

impl Quantized {
    fn random(dtype: DType, shape: &[usize], seed: u64) -> Self {
        let numbers = Array::random(DType::F32, shape, seed);
        let low = if dtype == DType::I8 { -128.0 } else { 0.0 };
        let integers = Array::of(shape, |at| (numbers.at(at) * 1e4).rem_euclid(256.0).floor() + low);
        Self { integers, scale: 0.015_625 * (1.0 + seed as f64), zero: low + 100.0 + seed as f64 }
    }

    fn at(&self, index: &[usize]) -> f64 {
        (self.integers.at(index) - self.zero) * self.scale
    }

    fn numbers(&self) -> Array {
        Array::of(&self.integers.shape, |at| self.at(at))
    }
}

const TO: (f64, f64) = (0.0625, 7.0);

fn check(
    op_type: &'static str,
    dtype: DType,
    inputs: Vec<Input<'_>>,
    attributes: &[(&'static str, i64)],
    wanted: &Array,
) {
    let mut case = Case::new(op_type, 1, Vec::new(), &[dtype]);
    case.domain = "com.microsoft";
    for input in inputs {
        match input {
            Input::Quantized(value) => {
                case.inputs.push(Some(value.integers.tensor(dtype)));
                case.inputs.push(Some(tensor(DType::F32, &[], &[value.scale])));
                case.inputs.push(Some(tensor(dtype, &[], &[value.zero])));
            }
            Input::Result => {
                case.inputs.push(Some(tensor(DType::F32, &[], &[TO.0])));
                case.inputs.push(Some(tensor(dtype, &[], &[TO.1])));
            }
            Input::Condition(value) => case.inputs.push(Some(value.tensor(DType::Bool))),
        }
    }
    for &(name, value) in attributes {
        case = case.attribute(name, Attribute::Int(value));
    }
    check_case(&case, wanted);
}

/// Fails unless the result of a case stands for the wanted numbers.
fn check_case(case: &Case, wanted: &Array) {
    let (op_type, dtype) = (case.op_type, case.outputs[0]);
    let found = case.run().unwrap();
    assert_eq!(found[0].shape(), wanted.shape);
    let (low, high) = if dtype == DType::I8 { (-128.0, 127.0) } else { (0.0, 255.0) };
    for (at, (found, wanted)) in numbers(&found[0]).into_iter().zip(&wanted.values).enumerate() {
        let exact = wanted / TO.0 + TO.1;
        // Numbers that are a tie in double precision may not be one in single precision.
        let is_close = (found - exact.clamp(low, high)).abs() <= 0.501;
        assert!(is_close, "{op_type} of {dtype}: element {at} is {found} instead of {exact}");
    }
}

enum Input<'a> {
    /// Integers, their scale and their zero point.
    Quantized(&'a Quantized),
    /// The scale and the zero point of the result.
    Result,
    Condition(&'a Array),
}

#[test]
fn integers_stand_for_multiples_of_their_scale() {
    for dtype in [DType::U8, DType::I8] {
        let (a, b) = (Quantized::random(dtype, &[2, 3, 4], 1), Quantized::random(dtype, &[3, 1], 2));
        let (x, y) = (Input::Quantized(&a), Input::Quantized(&b));
        let sum = Array::of(&[2, 3, 4], |at| a.at(at) + b.at(&at[1..]));
        check("QLinearAdd", dtype, vec![x, y, Input::Result], &[], &sum);
        let (x, y) = (Input::Quantized(&a), Input::Quantized(&b));
        let product = Array::of(&[2, 3, 4], |at| a.at(at) * b.at(&at[1..]));
        check("QLinearMul", dtype, vec![x, y, Input::Result], &[], &product);
        let one = || vec![Input::Quantized(&a), Input::Result];
        let numbers = a.numbers();
        let sigmoid = Array::of(&numbers.shape, |at| 1.0 / (1.0 + (-numbers.at(at)).exp()));
        check("QLinearSigmoid", dtype, one(), &[], &sigmoid);
        let leaky = Array::of(&numbers.shape, |at| numbers.at(at).max(0.01 * numbers.at(at)));
        check("QLinearLeakyRelu", dtype, one(), &[], &leaky);
        let softmax = Array::of(&numbers.shape, |at| {
            let sum: f64 = (0..4).map(|k| numbers.at(&[at[0], at[1], k]).exp()).sum();
            numbers.at(at).exp() / sum
        });
        check("QLinearSoftmax", dtype, one(), &[("axis", -1), ("opset", 13)], &softmax);
        let flat = Array::of(&numbers.shape, |at| {
            let sum: f64 = (0..12).map(|k| numbers.at(&[at[0], k / 4, k % 4]).exp()).sum();
            numbers.at(at).exp() / sum
        });
        check("QLinearSoftmax", dtype, one(), &[("axis", 1), ("opset", 12)], &flat);
        let mean = Array::of(&[2, 3, 1], |at| (0..4).map(|k| numbers.at(&[at[0], at[1], k])).sum::<f64>() / 4.0);
        check("QLinearGlobalAveragePool", dtype, one(), &[], &mean);
        let mean = Array::of(&[2, 1, 4], |at| (0..3).map(|k| numbers.at(&[at[0], k, at[2]])).sum::<f64>() / 3.0);
        check("QLinearGlobalAveragePool", dtype, one(), &[("channels_last", 1)], &mean);
        let mean = Array::of(&[3], |at| (0..8).map(|k| numbers.at(&[k / 4, at[0], k % 4])).sum::<f64>() / 8.0);
        let given = [a.integers.tensor(dtype), tensor(DType::F32, &[], &[a.scale]), tensor(dtype, &[], &[a.zero])];
        let to = [tensor(DType::F32, &[], &[TO.0]), tensor(dtype, &[], &[TO.1])];
        let mut case = Case::new("QLinearReduceMean", 1, given.into_iter().chain(to).collect(), &[dtype])
            .attribute("axes", Attribute::Ints(vec![-1, 0]))
            .attribute("keepdims", Attribute::Int(0));
        case.domain = "com.microsoft";
        check_case(&case, &mean);
        let condition = Array::of(&[2, 3, 4], |at| ((at[0] + at[2]) % 2) as f64);
        let chosen = Array::of(&[2, 3, 4], |at| if condition.at(at) == 1.0 { a.at(at) } else { b.at(&at[1..]) });
        let inputs = vec![Input::Condition(&condition), Input::Quantized(&a), Input::Quantized(&b), Input::Result];
        check("QLinearWhere", dtype, inputs, &[], &chosen);
        let c = Quantized::random(dtype, &[2, 1, 4], 3);
        let joined = Array::of(&[2, 4, 4], |at| if at[1] < 3 { a.at(at) } else { c.at(&[at[0], 0, at[2]]) });
        let inputs = vec![Input::Result, Input::Quantized(&a), Input::Quantized(&c)];
        check("QLinearConcat", dtype, inputs, &[("axis", 1)], &joined);
    }
}
