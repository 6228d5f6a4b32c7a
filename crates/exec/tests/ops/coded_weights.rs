//! Compares products with weights of 4-bit and 8-bit floats with loops in double precision.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, random, tensor};

const ROWS: usize = 3;

/// Deterministic bytes.
fn bytes(count: usize, seed: u64) -> Vec<u8> {
    random(count, seed).iter().map(|number| ((number + 2.0) * 64.0) as u8).collect()
}

/// `a · w` for weights `[columns, depth]`, plus a bias; and the result of the case must be close to it.
fn check(case: &Case, a: &Array, w: &Array, bias: Option<&Array>, tolerance: f64) {
    let [columns, depth] = w.shape[..] else { panic!("weights have two axes") };
    let wanted = Array::of(&[ROWS, columns], |at| {
        let sum: f64 = (0..depth).map(|k| a.at(&[at[0], k]) * w.at(&[at[1], k])).sum();
        sum + bias.map_or(0.0, |bias| bias.at(&at[1..]))
    });
    let size = wanted.values.iter().fold(1.0f64, |size, value| size.max(value.abs()));
    let scaled = |values: &[f64]| values.iter().map(|value| value / size).collect::<Vec<_>>();
    let found = case.run().unwrap();
    assert_eq!(found[0].shape(), wanted.shape);
    assert_close(&scaled(&numbers(&found[0])), &scaled(&wanted.values), tolerance);
}

/// The codebooks, as bitsandbytes documents them: multiples of 1/12 for FP4, quantiles of a normal distribution for NF4.
fn of_bitsandbytes(kind: i64, code: u8) -> f64 {
    let fp4 = [0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0];
    let nf4 = [
        -1.0,
        -0.696_192_800_998_687_7,
        -0.525_073_051_452_636_7,
        -0.394_917_488_098_144_53,
        -0.284_441_381_692_886_35,
        -0.184_773_430_228_233_34,
        -0.091_050_036_251_544_95,
        0.0,
        0.079_580_299_556_255_34,
        0.160_930_201_411_247_25,
        0.246_112_301_945_686_34,
        0.337_915_241_718_292_24,
        0.440_709_829_330_444_34,
        0.562_617_003_917_694_1,
        0.722_956_836_223_602_3,
        1.0,
    ];
    match (kind, code) {
        (0, 0..8) => fp4[usize::from(code)] / 12.0,
        (0, _) => -fp4[usize::from(code - 8)] / 12.0,
        _ => nf4[usize::from(code)],
    }
}

#[test]
fn codes_of_bitsandbytes_are_multiplied() {
    let (depth, columns) = (32, 6);
    for (kind, block, dtype) in [(0, 16, DType::F32), (1, 64, DType::F32), (1, 32, DType::F16), (0, 64, DType::Bf16)] {
        let packed = bytes(depth * columns / 2, 1);
        let largest = Array::random(dtype, &[depth * columns / block], 2);
        let w = Array::of(&[columns, depth], |at| {
            let place = at[0] * depth + at[1];
            let byte = packed[place / 2];
            of_bitsandbytes(kind, if place.is_multiple_of(2) { byte >> 4 } else { byte & 15 })
                * largest.values[place / block]
        });
        let tolerance = match dtype {
            DType::F32 => 2e-6,
            DType::F16 => 2e-3,
            _ => 1e-2,
        };
        for transposed in [true, false] {
            let a = Array::random(dtype, &[ROWS, if transposed { depth } else { columns }], 3);
            let weights = Tensor::from_bytes(DType::U8, &[packed.len()], &packed).unwrap();
            let inputs = vec![a.tensor(dtype), weights, largest.tensor(dtype)];
            let mut case = Case::new("MatMulBnb4", 1, inputs, &[dtype])
                .attribute("K", Attribute::Int(depth as i64))
                .attribute("N", Attribute::Int(columns as i64))
                .attribute("block_size", Attribute::Int(block as i64))
                .attribute("quant_type", Attribute::Int(kind))
                .attribute("transB", Attribute::Int(i64::from(transposed)));
            case.domain = "com.microsoft";
            case.constants = vec![1, 2];
            let turned = Array::of(&[depth, columns], |at| w.at(&[at[1], at[0]]));
            check(&case, &a, if transposed { &w } else { &turned }, None, tolerance);
        }
    }
}

/// The number of a byte of E4M3.
fn e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let size =
        if exponent == 0 { mantissa / 8.0 * 2f64.powi(-6) } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
    if code & 0x80 == 0 { size } else { -size }
}

/// The nearest number of E4M3, with ties to the even code; the largest is 448.
fn to_e4m3(x: f64) -> f64 {
    let codes = (0..=0x7Eu8).map(|code| (code, (e4m3(code) - x.abs()).abs()));
    let best = codes.fold((0u8, f64::INFINITY), |best, next| {
        let is_better = next.1 < best.1 || next.1 == best.1 && next.0.is_multiple_of(2);
        if is_better { next } else { best }
    });
    e4m3(best.0).copysign(x)
}

#[test]
fn eight_bit_floats_have_a_scale_for_each_block() {
    let (depth, columns) = (40usize, 5);
    for (dtype, block, scale) in [
        (DType::F16, 8, None),
        // The last block is not whole.
        (DType::F16, 16, Some(0.25)),
        (DType::Bf16, 128, None),
    ] {
        let blocks = depth.div_ceil(block);
        let codes: Vec<u8> = bytes(depth * columns, 1).iter().map(|&code| code & 0xBF).collect();
        let scales = Array::random(DType::F32, &[columns, blocks], 2);
        let w =
            Array::of(&[columns, depth], |at| e4m3(codes[at[0] * depth + at[1]]) * scales.at(&[at[0], at[1] / block]));
        let (a, bias) = (Array::random(dtype, &[ROWS, depth], 3), Array::random(dtype, &[columns], 4));
        let weights = Tensor::from_bytes(DType::F8E4M3Fn, &[columns, depth], &codes).unwrap();
        let inputs = vec![a.tensor(dtype), weights, scales.tensor(DType::F32)];
        let mut case = Case::new("MatMulBlockQuantizedFp8Weight", 1, inputs, &[dtype])
            .attribute("block_size", Attribute::Int(block as i64));
        case.domain = "com.microsoft";
        case.constants = vec![1, 2];
        case.inputs.extend([scale.map(|scale| tensor(DType::F32, &[], &[scale])), Some(bias.tensor(dtype))]);
        let given = Array::of(&a.shape, |at| scale.map_or(a.at(at), |scale| to_e4m3(a.at(at) / scale) * scale));
        check(&case, &given, &w, Some(&bias), if dtype == DType::F16 { 2e-3 } else { 1e-2 });
    }
}

#[test]
fn four_bit_floats_have_scales_of_eight_bits() {
    let (depth, columns, of_all) = (48usize, 5, 0.75);
    let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    for (dtype, block) in [(DType::F16, 16), (DType::Bf16, 32)] {
        let blocks = depth.div_ceil(block);
        let packed = bytes(columns * depth / 2, 1);
        let scales: Vec<u8> = bytes(columns * blocks, 2).iter().map(|&code| code & 0x3F).collect();
        let w = Array::of(&[columns, depth], |at| {
            let byte = packed[(at[0] * depth + at[1]) / 2];
            let code = if at[1].is_multiple_of(2) { byte & 15 } else { byte >> 4 };
            let size = e2m1[usize::from(code & 7)] * of_all * e4m3(scales[at[0] * blocks + at[1] / block]);
            if code < 8 { size } else { -size }
        });
        let a = Array::random(dtype, &[ROWS, depth], 3);
        let raw = |shape: &[usize], bytes: &[u8]| Tensor::from_bytes(DType::U8, shape, bytes).unwrap();
        let inputs = vec![
            a.tensor(dtype),
            raw(&[columns, depth / 2], &packed),
            raw(&[columns, blocks], &scales),
            tensor(DType::F32, &[], &[of_all]),
        ];
        let mut case = Case::new("MatMulBlockQuantizedFp4Weight", 1, inputs, &[dtype])
            .attribute("block_size", Attribute::Int(block as i64));
        case.domain = "com.microsoft";
        case.constants = vec![1, 2, 3];
        check(&case, &a, &w, None, if dtype == DType::F16 { 2e-3 } else { 1e-2 });
    }
}
