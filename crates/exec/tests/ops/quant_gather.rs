//! Compares rows of quantised tables with loops.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::common::{Case, assert_close, numbers, random, tensor};

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    random(count, seed).iter().map(|number| ((number + 2.0) * 64.0) as u8).collect()
}

fn field(bytes: &[u8], bits: usize, at: usize) -> f64 {
    f64::from(bytes[at * bits / 8] >> (at * bits % 8) & (u8::MAX >> (8 - bits)))
}

fn case(inputs: Vec<Tensor>, to: DType, bits: usize, block: usize) -> Case {
    let mut case = Case::new("GatherBlockQuantized", 1, inputs, &[to])
        .attribute("bits", Attribute::Int(bits as i64))
        .attribute("block_size", Attribute::Int(block as i64));
    case.domain = "com.microsoft";
    case.constants = vec![0, 2, 3];
    case
}

fn indices() -> Tensor {
    tensor(DType::I64, &[2, 3], &[4.0, 0.0, 10.0, 10.0, 1.0, -1.0])
}

const ROWS: [usize; 6] = [4, 0, 10, 10, 1, 10];

#[test]
fn bytes_hold_several_numbers_around_the_middle() {
    for (bits, block, width) in [(4, 32, 64), (4, 16, 80), (8, 32, 64), (2, 16, 64), (4, 16, 48)] {
        for with_zeros in [false, true] {
            for dtype in [DType::F32, DType::F16] {
                let (row_bytes, blocks): (usize, usize) = (width * bits / 8, width / block);
                let zero_bytes = (blocks * bits).div_ceil(8);
                let (data, zeros) = (bytes(11 * row_bytes, 1), bytes(11 * zero_bytes, 2));
                let scales = tensor(dtype, &[11, blocks], &random(11 * blocks, 3));
                let mut inputs =
                    vec![Tensor::from_bytes(DType::U8, &[11, row_bytes], &data).unwrap(), indices(), scales.clone()];
                if with_zeros {
                    inputs.push(Tensor::from_bytes(DType::U8, &[11, zero_bytes], &zeros).unwrap());
                }
                let found = case(inputs, dtype, bits, block).run().unwrap();
                assert_eq!(found[0].shape(), [2, 3, width]);
                let scales = numbers(&scales);
                let value = |row: usize, k: usize| {
                    let zero = f64::from(1 << (bits - 1));
                    let zero = if with_zeros { field(&zeros[row * zero_bytes..], bits, k / block) } else { zero };
                    (field(&data[row * row_bytes..], bits, k) - zero) * scales[row * blocks + k / block]
                };
                let wanted: Vec<f64> = ROWS
                    .iter()
                    .flat_map(|&row| (0..width).map(move |k| (row, k)))
                    .map(|(row, k)| value(row, k))
                    .collect();
                assert_close(&numbers(&found[0]), &wanted, if dtype == DType::F16 { 1e-3 } else { 1e-6 });
            }
        }
    }
}

#[test]
fn four_bit_types_have_their_zero_at_zero() {
    // As imported: one byte per number.
    for dtype in [DType::I8, DType::U8] {
        for with_zeros in [false, true] {
            let lowest = if dtype == DType::I8 { -8.0 } else { 0.0 };
            let numbers_of = |count: usize, seed: u64| -> Vec<f64> {
                random(count, seed).iter().map(|number| ((number + 2.0) * 3.9).floor() + lowest).collect()
            };
            let (data, zeros) = (numbers_of(11 * 48, 1), numbers_of(11 * 3, 2));
            let scales = random(11 * 3, 3);
            let mut inputs = vec![tensor(dtype, &[11, 48], &data), indices(), tensor(DType::F32, &[11, 3], &scales)];
            if with_zeros {
                inputs.push(tensor(dtype, &[11, 3], &zeros));
            }
            let found = case(inputs, DType::F32, 4, 16).run().unwrap();
            let value = |row: usize, k: usize| {
                let zero = if with_zeros { zeros[row * 3 + k / 16] } else { 0.0 };
                (data[row * 48 + k] - zero) * scales[row * 3 + k / 16]
            };
            let wanted: Vec<f64> =
                ROWS.iter().flat_map(|&row| (0..48).map(move |k| (row, k))).map(|(row, k)| value(row, k)).collect();
            assert_eq!(found[0].shape(), [2, 3, 48]);
            assert_close(&numbers(&found[0]), &wanted, 1e-6);
        }
    }
}

#[test]
fn ambiguous_rows_of_one_block_are_declined() {
    let inputs = vec![tensor(DType::U8, &[11, 16], &[1.0; 176]), indices(), tensor(DType::F32, &[11, 1], &[1.0; 11])];
    let reason = case(inputs, DType::F32, 4, 32).run().unwrap_err();
    assert!(reason.contains("cannot tell whether"), "{reason}");
}

#[test]
fn an_index_out_of_range_is_an_error() {
    let inputs = vec![
        tensor(DType::U8, &[11, 32], &[1.0; 352]),
        tensor(DType::I64, &[1], &[11.0]),
        tensor(DType::F32, &[11, 2], &[1.0; 22]),
    ];
    let error = case(inputs, DType::F32, 4, 32).run().unwrap_err();
    assert!(error.contains("is out of range"), "{error}");
}
