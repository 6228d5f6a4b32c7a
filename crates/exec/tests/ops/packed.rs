//! Compares conversions of integers of 4 and 2 bits, which callers pack, with plain loops.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::common::{Case, assert_close, numbers, tensor};

/// A packed type with ONNX's number of it, its bits, and whether it has a sign.
const TYPES: [(DType, i64, u32, bool); 4] =
    [(DType::U4, 21, 4, false), (DType::I4, 22, 4, true), (DType::U2, 25, 2, false), (DType::I2, 26, 2, true)];

/// The lowest bits of an integer, as a number of the type.
fn wrapped(integer: i64, bits: u32, signed: bool) -> i64 {
    let low = integer.rem_euclid(1 << bits);
    if signed && low >= 1 << (bits - 1) { low - (1 << bits) } else { low }
}

/// Integers as callers hold them: the first of a byte in its lowest bits.
fn packed(integers: &[i64], bits: u32) -> Vec<u8> {
    let each = 8 / bits as usize;
    let byte = |group: &[i64]| {
        group.iter().enumerate().fold(0, |byte, (at, &it)| byte | it.rem_euclid(1 << bits) << (at as u32 * bits))
    };
    integers.chunks(each).map(|group| byte(group) as u8).collect()
}

/// A packed input. A tensor has a byte for each element; the first bytes are the packed ones, and the rest is not read.
fn input(dtype: DType, shape: &[usize], integers: &[i64], bits: u32) -> Tensor {
    let mut bytes = packed(integers, bits);
    bytes.resize(integers.len(), 0xEE);
    Tensor::from_bytes(dtype, shape, &bytes).unwrap()
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    numbers(tensor).iter().map(|&byte| byte as u8).collect()
}

#[test]
fn numbers_become_packed_integers() {
    let floats =
        [-9.6, -8.5, -8.0, -2.5, -1.5, -0.5, -0.4, 0.0, 0.49, 0.5, 1.5, 2.5, 3.4, 6.5, 7.0, 8.0, 15.0, 16.0, 30.0];
    for (to, number, bits, signed) in TYPES {
        let cast =
            |x: Tensor| Case::new("Cast", 25, vec![x], &[to]).attribute("to", Attribute::Int(number)).run().unwrap();
        for dtype in [DType::F32, DType::F64] {
            // Halves are rounded away from zero, as `f64::round` does.
            let wanted: Vec<i64> = floats.iter().map(|x: &f64| wrapped(x.round() as i64, bits, signed)).collect();
            assert_eq!(bytes(&cast(tensor(dtype, &[19], &floats))[0]), packed(&wanted, bits), "{dtype} to {to}");
        }
        let integers: Vec<i64> = (-20..21).collect();
        let given: Vec<f64> = integers.iter().map(|&it| it as f64).collect();
        for dtype in [DType::I8, DType::I32, DType::I64, DType::F16] {
            let wanted: Vec<i64> = integers.iter().map(|&it| wrapped(it, bits, signed)).collect();
            assert_eq!(bytes(&cast(tensor(dtype, &[41], &given))[0]), packed(&wanted, bits), "{dtype} to {to}");
        }
    }
}

#[test]
fn packed_integers_become_numbers() {
    for (from, _, bits, signed) in TYPES {
        let integers: Vec<i64> = (0..35).map(|it| wrapped(it * 7, bits, signed)).collect();
        let wanted: Vec<f64> = integers.iter().map(|&it| it as f64).collect();
        for (dtype, number) in [(DType::F32, 1), (DType::F16, 10), (DType::I32, 6)] {
            let case = Case::new("Cast", 25, vec![input(from, &[5, 7], &integers, bits)], &[dtype]);
            let found = case.attribute("to", Attribute::Int(number)).run().unwrap();
            assert_eq!(found[0].shape(), [5, 7]);
            assert_eq!(numbers(&found[0]), wanted, "{from} to {dtype}");
        }
    }
}

#[test]
fn packed_integers_move_and_change_their_width() {
    let integers: Vec<i64> = (0..15).map(|it| wrapped(it * 5, 4, true)).collect();
    let x = || input(DType::I4, &[3, 5], &integers, 4);
    let turned: Vec<i64> = (0..15).map(|at| integers[at % 3 * 5 + at / 3]).collect();
    let found = Case::new("Transpose", 25, vec![x()], &[DType::I4]).run().unwrap();
    assert_eq!(bytes(&found[0]), packed(&turned, 4));
    let narrow: Vec<i64> = integers.iter().map(|&it| wrapped(it, 2, false)).collect();
    let found = Case::new("Cast", 25, vec![x()], &[DType::U2]).attribute("to", Attribute::Int(25)).run().unwrap();
    assert_eq!(bytes(&found[0]), packed(&narrow, 2));
    let reason = Case::new("Add", 14, vec![x(), x()], &[DType::I4]).run().unwrap_err();
    assert!(reason.contains("i4 can be converted and moved"), "{reason}");
}

#[test]
fn quantised_numbers_are_packed() {
    for (to, _, bits, signed) in TYPES {
        let (low, high) = if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
        let x: Vec<f64> = (0..21).map(|at| f64::from(at) * 0.75 - 6.0).collect();
        let scales = [0.5, 0.75, 2.0];
        let zeros: Vec<i64> = vec![1, 0, i64::from(signed) * -2 + 1];
        let code = |at: usize| {
            let ratio: f64 = x[at] / scales[at / 7];
            (ratio.round_ties_even() as i64 + zeros[at / 7]).clamp(low, high)
        };
        let codes: Vec<i64> = (0..21).map(code).collect();
        let parameters = || (tensor(DType::F32, &[3], &scales), input(to, &[3], &zeros, bits));
        let axis = || Attribute::Int(0);
        let (scale, zero) = parameters();
        let case = Case::new("QuantizeLinear", 25, vec![tensor(DType::F32, &[3, 7], &x), scale, zero], &[to]);
        assert_eq!(bytes(&case.attribute("axis", axis()).run().unwrap()[0]), packed(&codes, bits), "{to}");
        let (scale, zero) = parameters();
        let case =
            Case::new("DequantizeLinear", 25, vec![input(to, &[3, 7], &codes, bits), scale, zero], &[DType::F32]);
        let found = case.attribute("axis", axis()).run().unwrap();
        let wanted: Vec<f64> = (0..21).map(|at| (codes[at] - zeros[at / 7]) as f64 * scales[at / 7]).collect();
        assert_close(&numbers(&found[0]), &wanted, 1e-6);
    }
}
