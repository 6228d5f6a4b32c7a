//! Compares products with quantised weights with loops in double precision.
use graph::ops::Attribute;
use graph::prim::Zeros;
use graph::{DType, Tensor};
use proptest::prelude::*;
use testkit::ops::quant::Packed;

use crate::common::{Case, assert_close, numbers, random, tensor};

/// A `MatMulNBits`.
#[derive(Clone, Copy, Debug)]
struct Problem {
    rows: usize,
    depth: usize,
    columns: usize,
    bits: usize,
    block: usize,
    zeros: Zeros,
    dtype: DType,
    bias: bool,
    flat_scales: bool,
    level: i64,
    constant: bool,
    seed: u64,
}

const PLAIN: Problem = Problem {
    rows: 3,
    depth: 64,
    columns: 24,
    bits: 4,
    block: 32,
    zeros: Zeros::Middle,
    dtype: DType::F32,
    bias: false,
    flat_scales: false,
    level: 0,
    constant: true,
    seed: 1,
};

/// Deterministic bytes.
fn bytes(count: usize, seed: u64) -> Vec<u8> {
    random(count, seed).iter().map(|number| ((number + 2.0) * 64.0) as u8).collect()
}

impl Problem {
    fn blocks(&self) -> usize {
        self.depth.div_ceil(self.block)
    }

    /// The node, its expected result, and the largest sum of magnitudes of any element.
    fn case(&self) -> (Case, Vec<f64>, f64) {
        let Problem { rows, depth, columns, bits, block, dtype, seed, .. } = *self;
        let blocks = self.blocks();
        let a = tensor(dtype, &[rows, depth], &random(rows * depth, seed));
        let row_bytes = blocks * block * bits / 8;
        let weights = bytes(columns * row_bytes, seed ^ 2);
        let scales: Vec<f64> = random(columns * blocks, seed ^ 3).iter().map(|scale| scale * 0.1).collect();
        let scale_shape = if self.flat_scales { vec![columns * blocks] } else { vec![columns, blocks] };
        let scales = tensor(dtype, &scale_shape, &scales);
        let zero_bytes = (blocks * bits).div_ceil(8);
        let packed = bytes(columns * zero_bytes, seed ^ 4);
        let floats = tensor(dtype, &[columns, blocks], &random(columns * blocks, seed ^ 5));
        let bias = tensor(dtype, &[columns], &random(columns, seed ^ 6));
        let zeros = match self.zeros {
            Zeros::Middle => None,
            Zeros::Packed => Tensor::from_bytes(DType::U8, &[columns, zero_bytes], &packed),
            Zeros::Floats => Some(floats),
        };
        let shape = [columns, blocks, block * bits / 8];
        let quantised = Tensor::from_bytes(DType::U8, &shape, &weights).unwrap();
        let mut values = vec![numbers(&a), numbers(&quantised), numbers(&scales)];
        values.extend(zeros.as_ref().map(numbers));
        let addends = numbers(&bias);
        let mut case = Case::new("MatMulNBits", 1, vec![a, quantised, scales], &[dtype])
            .attribute("K", Attribute::Int(depth as i64))
            .attribute("N", Attribute::Int(columns as i64))
            .attribute("bits", Attribute::Int(bits as i64))
            .attribute("block_size", Attribute::Int(block as i64))
            .attribute("accuracy_level", Attribute::Int(self.level));
        case.domain = "com.microsoft";
        case.inputs.extend([zeros, None]);
        case.inputs.push(self.bias.then_some(bias));
        case.constants = if self.constant { vec![1, 2, 3, 5] } else { vec![] };
        let sums = Packed { rows, depth, columns, bits, block, zeros: self.zeros }.expected(&values);
        let largest = sums.iter().map(|(_, size)| *size).fold(0.0, f64::max);
        let addend = |at: usize| if self.bias { addends[at % columns] } else { 0.0 };
        let wanted = sums.iter().enumerate().map(|(at, (sum, _))| sum + addend(at)).collect();
        (case, wanted, largest)
    }

    fn check(&self) {
        let (case, wanted, largest) = self.case();
        let found = case.run().unwrap_or_else(|error| panic!("{self:?}: {error}"));
        assert_eq!(found[0].shape(), [self.rows, self.columns], "{self:?}");
        // Relative to the sum of magnitudes. Activations rounded to bytes are off by at most half a step of 1/127,
        // usually by less.
        let relative = match (self.dtype, self.level) {
            (_, 4) => 5e-3,
            (DType::F16, _) => 2e-3,
            (DType::Bf16, _) => 1e-2,
            _ => 2e-6,
        };
        for (at, (found, wanted)) in numbers(&found[0]).iter().zip(&wanted).enumerate() {
            let error = (found - wanted).abs();
            assert!(error <= relative * largest.max(1.0), "{self:?}: element {at} is {found} instead of {wanted}");
        }
    }
}

#[test]
fn every_width_block_and_kind_of_zero() {
    for bits in [2, 4, 8] {
        for block in [16, 32, 64, 128, 256] {
            for zeros in [Zeros::Middle, Zeros::Packed, Zeros::Floats] {
                for depth in [block, 2 * block + 24, 3 * block - 1] {
                    Problem { bits, block, zeros, depth, ..PLAIN }.check();
                }
            }
        }
    }
}

#[test]
fn every_type_with_and_without_a_bias() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for bias in [false, true] {
            for zeros in [Zeros::Middle, Zeros::Packed, Zeros::Floats] {
                Problem { dtype, bias, zeros, ..PLAIN }.check();
            }
        }
    }
}

#[test]
fn any_number_of_rows_and_columns() {
    for rows in [1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 50] {
        for columns in [1, 15, 16, 17, 32, 33, 48, 300] {
            for level in [0, 4] {
                Problem { rows, columns, level, ..PLAIN }.check();
            }
        }
    }
}

#[test]
fn many_rows_of_a_large_product() {
    // Large enough for a vendor library, if there is one.
    for (dtype, bias) in [(DType::F16, false), (DType::F32, true)] {
        Problem { rows: 80, depth: 512, columns: 512, dtype, bias, zeros: Zeros::Packed, ..PLAIN }.check();
    }
}

#[test]
fn activations_may_be_rounded_if_the_model_allows_it() {
    for bits in [2, 4, 8] {
        for zeros in [Zeros::Middle, Zeros::Packed, Zeros::Floats] {
            for block in [16, 32, 128] {
                Problem { bits, zeros, block, level: 4, depth: 2 * block + 7, ..PLAIN }.check();
            }
        }
    }
}

#[test]
fn weights_may_be_run_time_inputs_and_scales_one_row() {
    for flat_scales in [false, true] {
        for zeros in [Zeros::Middle, Zeros::Packed, Zeros::Floats] {
            for rows in [1, 13] {
                Problem { rows, constant: false, flat_scales, zeros, ..PLAIN }.check();
            }
        }
    }
}

#[test]
fn many_rows_of_every_width_and_kind_of_zero() {
    for bits in [2, 4, 8] {
        for zeros in [Zeros::Middle, Zeros::Packed, Zeros::Floats] {
            for (constant, dtype) in [(true, DType::F32), (false, DType::F32), (true, DType::F16)] {
                Problem { rows: 53, depth: 50, columns: 70, bits, zeros, constant, dtype, ..PLAIN }.check();
            }
        }
    }
}

#[test]
fn leading_axes_stay() {
    let (mut case, wanted, _) = Problem { rows: 6, ..PLAIN }.case();
    let a = case.inputs[0].take().unwrap();
    case.inputs[0] = a.reshaped(&[2, 1, 3, 64]);
    let found = case.run().unwrap();
    assert_eq!(found[0].shape(), [2, 1, 3, 24]);
    assert_close(&numbers(&found[0]), &wanted, 1e-5);
    let (mut case, ..) = PLAIN.case();
    case.inputs[0] = Some(tensor(DType::F32, &[0, 64], &[]));
    assert_eq!(case.run().unwrap()[0].shape(), [0, 24]);
}

#[test]
fn nan_affects_only_its_own_row() {
    for level in [0, 4] {
        let (mut case, ..) = Problem { level, ..PLAIN }.case();
        let mut values = random(3 * 64, 1);
        values[70] = f64::NAN;
        case.inputs[0] = Some(tensor(DType::F32, &[3, 64], &values));
        let found = numbers(&case.run().unwrap()[0]);
        for (at, value) in found.iter().enumerate() {
            assert_eq!(value.is_nan(), at / 24 == 1, "level {level}, element {at}");
        }
    }
}

#[test]
fn ordered_groups_are_supported_and_others_declined() {
    let groups = |f: fn(usize) -> i64| {
        let values: Vec<f64> = (0..64).map(|k| f(k) as f64).collect();
        tensor(DType::I32, &[64], &values)
    };
    let (mut case, wanted, _) = PLAIN.case();
    case.constants.push(4);
    case.inputs[4] = Some(groups(|k| (k / 32) as i64));
    assert_close(&numbers(&case.run().unwrap()[0]), &wanted, 1e-5);
    case.inputs[4] = Some(groups(|k| (k % 2) as i64));
    let reason = case.run().unwrap_err();
    assert!(reason.contains("g_idx reorders the input channels (act-order)"), "{reason}");
}

#[test]
fn mismatched_shapes_give_readable_errors() {
    let refused = |change: fn(&mut Case)| {
        let (mut case, ..) = PLAIN.case();
        change(&mut case);
        case.run().unwrap_err()
    };
    let attribute = |case: &mut Case, name: &'static str, value: i64| {
        case.attributes.retain(|(known, _)| *known != name);
        case.attributes.push((name, Attribute::Int(value)));
    };
    let with = |name: &'static str, value: i64| {
        let (mut case, ..) = PLAIN.case();
        attribute(&mut case, name, value);
        case.run().unwrap_err()
    };
    assert!(with("bits", 3).contains("weights of 3 bits"));
    assert!(with("block_size", 24).contains("blocks of 24"));
    assert!(with("K", 0).contains("its K is 0"));
    assert!(with("weight_prepacked", 3).contains("weight_prepacked 3 with 4 bits"));
    assert!(with("K", 96).contains("A has shape [3, 64], expected 96 columns"));
    let short = refused(|case| case.inputs[2] = Some(tensor(DType::F32, &[3], &[1.0; 3])));
    assert!(short.contains("input 2 has shape [3], expected [24, 2]"), "{short}");
}

/// The weights as the model builder packs them for CUDA, step by step as its packer does.
fn packed_for_cuda(plain: &[u8], bits: usize, depth: usize, is_tiled: bool) -> Vec<u8> {
    const ROWS_OF_8_BITS: [usize; 16] = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15];
    const ROWS_OF_4_BITS: [usize; 32] = [
        0, 1, 8, 9, 16, 17, 24, 25, 2, 3, 10, 11, 18, 19, 26, 27, 4, 5, 12, 13, 20, 21, 28, 29, 6, 7, 14, 15, 22, 23,
        30, 31,
    ];
    let (rows, each): (&[usize], usize) = if bits == 8 { (&ROWS_OF_8_BITS, 1) } else { (&ROWS_OF_4_BITS, 2) };
    let numbers: Vec<u8> =
        plain.iter().flat_map(|byte| (0..each).map(move |at| byte >> (bits * at) & (255 >> (8 - bits)))).collect();
    let columns = numbers.len() / depth;
    // The rows of a matrix product's fragment.
    let row = |at: usize| at / rows.len() * rows.len() + rows[at % rows.len()];
    let mut placed: Vec<u8> = (0..columns)
        .flat_map(|column| (0..depth).map(move |at| (column, at)))
        .map(|(c, at)| numbers[c * depth + row(at)])
        .collect();
    if is_tiled {
        let (flat, group) = (placed.clone(), 16 / bits);
        placed.clear();
        for first in (0..columns).step_by(group) {
            for tile in (0..depth).step_by(64) {
                for column in first..first + group {
                    placed.extend_from_slice(&flat[column * depth + tile..][..64]);
                }
            }
        }
    }
    // In every 32 bits, numbers at even places come first.
    let words = placed.chunks_exact(32 / bits);
    let words = words.flat_map(|word| word.iter().step_by(2).chain(word.iter().skip(1).step_by(2)).copied());
    let placed: Vec<u8> = words.collect();
    placed
        .chunks_exact(each)
        .map(|byte| byte.iter().rev().fold(0, |byte, number| byte << (bits % 8) | number))
        .collect()
}

#[test]
fn weights_that_were_packed_for_cuda() {
    for (bits, block, depth, columns) in [(4, 32, 64, 64), (4, 128, 256, 8), (8, 64, 128, 34), (8, 32, 192, 2)] {
        for (packed, is_tiled) in [(1, true), (2, false)] {
            for (dtype, bias) in [(DType::F16, false), (DType::F32, true)] {
                let problem = Problem { bits, block, depth, columns, dtype, bias, rows: 5, ..PLAIN };
                let (mut case, wanted, largest) = problem.case();
                let plain = case.inputs[1].take().unwrap();
                let moved = packed_for_cuda(plain.bytes(), bits, depth, is_tiled);
                assert_ne!(moved, plain.bytes());
                case.inputs[1] = Tensor::from_bytes(DType::U8, plain.shape(), &moved);
                let case = case.attribute("weight_prepacked", Attribute::Int(packed));
                let tolerance = if dtype == DType::F16 { 2e-3 } else { 2e-6 } * largest.max(1.0);
                assert_close(&numbers(&case.run().unwrap()[0]), &wanted, tolerance);
            }
        }
    }
}

#[test]
fn other_weights_packed_for_cuda_are_refused() {
    let refused = |problem: Problem| {
        let (case, ..) = problem.case();
        case.attribute("weight_prepacked", Attribute::Int(1)).run().unwrap_err()
    };
    assert!(refused(Problem { depth: 96, ..PLAIN }).contains("packed for CUDA with K 96 and N 24"));
    assert!(refused(Problem { columns: 30, ..PLAIN }).contains("packed for CUDA with K 64 and N 30"));
    assert!(refused(Problem { zeros: Zeros::Packed, ..PLAIN }).contains("packed for CUDA with zero points"));
    assert!(refused(Problem { bits: 2, ..PLAIN }).contains("weight_prepacked 1 with 2 bits"));
    assert!(refused(Problem { constant: false, ..PLAIN }).contains("packed for CUDA must be constants"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn random_problems_agree_with_the_loops(
        rows in 1usize..20, depth in 1usize..200, columns in 1usize..70, bits in 0usize..3, block in 0usize..4,
        zeros in 0usize..3, dtype in 0usize..3, bias in any::<bool>(), level in 0i64..5, constant in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let zeros = [Zeros::Middle, Zeros::Packed, Zeros::Floats][zeros];
        let dtype = [DType::F32, DType::F16, DType::Bf16][dtype];
        let (bits, block) = ([2, 4, 8][bits], [16, 32, 64, 128][block]);
        let problem = Problem { rows, depth, columns, bits, block, zeros, dtype, bias, level, constant, seed, ..PLAIN };
        // Both roundings together exceed either tolerance.
        let problem = if dtype == DType::F32 { problem } else { Problem { level: 0, ..problem } };
        problem.check();
    }
}
