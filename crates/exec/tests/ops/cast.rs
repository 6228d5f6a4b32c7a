//! Tests casts between all types on the host device.
use graph::ops::Attribute;
use graph::{DType, Scalar, Tensor};

use crate::build::Build;
use crate::common::{Case, numbers, tensor};

/// ONNX's numbers for the element types.
const ONNX: [(DType, i64); 13] = [
    (DType::F32, 1),
    (DType::U8, 2),
    (DType::I8, 3),
    (DType::U16, 4),
    (DType::I16, 5),
    (DType::I32, 6),
    (DType::I64, 7),
    (DType::Bool, 9),
    (DType::F16, 10),
    (DType::F64, 11),
    (DType::U32, 12),
    (DType::U64, 13),
    (DType::Bf16, 16),
];

/// The result of Rust's own conversions, for numbers that every pair of types can hold or that wrap by two's
/// complement.
fn converted(value: Scalar, to: DType) -> f64 {
    let whole = value.as_i64();
    match to {
        DType::F64 => value.as_f64(),
        DType::F32 => f64::from(value.as_f64() as f32),
        DType::F16 => half_of(value.as_f64(), 10, -14, 65536.0),
        DType::Bf16 => half_of(value.as_f64(), 7, -126, 2f64.powi(128)),
        DType::Bool => f64::from(u8::from(value.as_f64() != 0.0)),
        DType::I8 => f64::from(whole as i8),
        DType::U8 => f64::from(whole as u8),
        DType::I16 => f64::from(whole as i16),
        DType::U16 => f64::from(whole as u16),
        DType::I32 => f64::from(whole as i32),
        DType::U32 => f64::from(whole as u32),
        DType::I64 => whole as f64,
        _ => whole as u64 as f64,
    }
}

/// A number rounded to this many bits after the leading one, ties to even; infinite from `largest` on.
fn half_of(value: f64, bits: i32, smallest: i32, largest: f64) -> f64 {
    if value == 0.0 {
        return value;
    }
    let exponent = (value.abs().log2().floor() as i32).max(smallest);
    let unit = 2f64.powi(exponent - bits);
    let rounded = (value / unit).round_ties_even() * unit;
    if rounded.abs() < largest { rounded } else { f64::INFINITY.copysign(value) }
}

#[test]
fn every_type_casts_to_every_other() {
    let values = [0.0, 1.0, 2.75, 77.0, 127.0, 200.5, 1023.0, -1.0, -2.75, -100.0, 0.3];
    for (from, _) in ONNX {
        for (to, number) in ONNX {
            // Negative fractions wrap in unsigned types when the input is created; the reference starts from the stored
            // value.
            let x = tensor(from, &[values.len()], &values);
            let wanted: Vec<f64> = x.scalars().map(|value| converted(value, to)).collect();
            let node = Case::new("Cast", 13, vec![x], &[to]).attribute("to", Attribute::Int(number));
            assert_eq!(numbers(&node.run().unwrap()[0]), wanted, "{from} to {to}");
        }
    }
}

#[test]
fn bit_casts_reinterpret_every_type() {
    let values = [1.5f32, -0.0, f32::INFINITY, 1e-40];
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let x = Tensor::from_bytes(DType::F32, &[2, 2], &bytes).unwrap();
    let node = Case::new("BitCast", 26, vec![x.clone()], &[DType::I32]).attribute("to", Attribute::Int(6));
    let found = node.run().unwrap().remove(0);
    assert_eq!(found.dtype(), DType::I32);
    assert_eq!(found.bytes(), x.bytes());
    let back = Case::new("BitCast", 26, vec![found], &[DType::F32]).attribute("to", Attribute::Int(1));
    assert_eq!(back.run().unwrap(), [x]);
}

#[test]
fn a_result_may_be_bit_cast() {
    let mut build = Build::default();
    let x = build.input();
    let negative = build.node("Neg", &[x]);
    let bits = build.typed("BitCast", &[negative], &[("to", Attribute::Int(6))], DType::I32);
    let found =
        crate::common::run::run_on_host(build.outputs(&[bits]), &[tensor(DType::F32, &[2], &[1.5, -2.0])]).unwrap();
    let wanted = [-1.5f32, 2.0].map(|value| f64::from(value.to_bits() as i32));
    assert_eq!(numbers(&found[0]), wanted);
}

/// The number of a code: bits of the mantissa, bias, and the first positive code that is not a finite number.
fn number_of(code: usize, mantissa: u32, bias: i32, end: usize, is_unsigned_zero: bool) -> f64 {
    let (magnitude, sign) = (code % 128, if code < 128 { 1.0 } else { -1.0 });
    if is_unsigned_zero && code == 128 {
        return f64::NAN;
    }
    if magnitude >= end {
        return if mantissa == 2 && magnitude == 124 { sign * f64::INFINITY } else { f64::NAN };
    }
    let steps = 1 << mantissa;
    let (exponent, rest) = ((magnitude / steps) as i32, (magnitude % steps) as f64 / steps as f64);
    let (leading, exponent) = if exponent == 0 { (0.0, 1) } else { (1.0, exponent) };
    sign * (leading + rest) * 2f64.powi(exponent - bias)
}

#[test]
fn eight_bit_floats_are_read_rounded_and_quantised() {
    let codes: Vec<f64> = (0..256).map(f64::from).collect();
    for (dtype, onnx, mantissa, bias, end, is_unsigned_zero) in [
        (DType::F8E4M3Fn, 17, 3, 7, 127, false),
        (DType::F8E4M3Fnuz, 18, 3, 8, 128, true),
        (DType::F8E5M2, 19, 2, 15, 124, false),
        (DType::F8E5M2Fnuz, 20, 2, 16, 128, true),
    ] {
        let defined: Vec<f64> = (0..256).map(|code| number_of(code, mantissa, bias, end, is_unsigned_zero)).collect();
        for (to, number) in [(DType::F32, 1), (DType::F16, 10)] {
            let node = Case::new("Cast", 19, vec![tensor(dtype, &[256], &codes)], &[to]);
            let found = numbers(&node.attribute("to", Attribute::Int(number)).run().unwrap()[0]);
            let is_same = |(found, wanted): (&f64, &f64)| found == wanted || found.is_nan() && wanted.is_nan();
            assert!(found.iter().zip(&defined).all(is_same), "{dtype}: {found:?}");
        }
        // Halfway between two codes the even one wins.
        for code in 0..end - 1 {
            let x = [0.5, 0.25, 0.75].map(|part| defined[code] + part * (defined[code + 1] - defined[code]));
            let wanted = [code + code % 2, code, code + 1].map(|code| code as f64);
            let values = tensor(DType::F32, &[3], &x);
            let cast = Case::new("Cast", 19, vec![values.clone()], &[dtype]).attribute("to", Attribute::Int(onnx));
            assert_eq!(numbers(&cast.run().unwrap()[0]), wanted, "{dtype} {x:?}");
        }
        let scale = tensor(DType::F32, &[], &[0.5]);
        let zero = tensor(dtype, &[], &[0.0]);
        let x = tensor(DType::F32, &[4], &[0.5, -0.75, 1e9, -1e9]);
        let quantize = Case::new("QuantizeLinear", 19, vec![x, scale.clone(), zero.clone()], &[dtype]);
        // Devices know the codes as bytes.
        let found = tensor(dtype, &[4], &numbers(&quantize.run().unwrap()[0]));
        let largest = defined[end - 1];
        let decoded: Vec<f64> = numbers(&found).iter().map(|&code| defined[code as usize]).collect();
        assert_eq!(decoded, [1.0, -1.5, largest, -largest], "{dtype}");
        let dequantize = Case::new("DequantizeLinear", 19, vec![found, scale, zero], &[DType::F32]);
        assert_eq!(numbers(&dequantize.run().unwrap()[0]), [0.5, -0.75, largest / 2.0, -largest / 2.0], "{dtype}");
    }
}
