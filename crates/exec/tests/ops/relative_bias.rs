//! Compares biases that depend on distances with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, tensor};

/// The bucket of T5 for a distance, with borders from integers: `exact · ratio^(i / (half - exact))`, rounded up.
fn bucket(bidirectional: bool, buckets: usize, largest: f64, ahead: i64) -> usize {
    let (half, first) =
        if bidirectional { (buckets / 2, if ahead > 0 { buckets / 2 } else { 0 }) } else { (buckets, 0) };
    let distance = if bidirectional { ahead.unsigned_abs() } else { (-ahead).max(0).unsigned_abs() } as f64;
    let exact = half / 2;
    if distance < exact as f64 {
        return first + distance as usize;
    }
    let wide = half - exact;
    // A hair below the border, since borders that are integers belong to the upper bucket.
    let border = |step: usize| exact as f64 * (largest / exact as f64).powf(step as f64 / wide as f64) - 1e-6;
    first + exact + (1..wide).filter(|&step| distance >= border(step)).count()
}

#[test]
fn distances_fall_into_buckets() {
    // The largest distance is no power of two times the exact ones, so that no border but the first is an integer.
    for (bidirectional, buckets, largest, length) in [(true, 16, 37, 50), (false, 8, 21, 30), (true, 32, 100, 1)] {
        for dtype in [DType::F32, DType::F16] {
            let heads = 3;
            let table = Array::random(dtype, &[buckets, heads], 1);
            let wanted = Array::of(&[1, heads, length, length], |at| {
                let ahead = at[3] as i64 - at[2] as i64;
                // The table is stored by column.
                table.values[at[1] * buckets + bucket(bidirectional, buckets, f64::from(largest), ahead)]
            });
            let number = || tensor(DType::I64, &[1], &[length as f64]);
            let inputs = vec![table.tensor(dtype), number(), number()];
            let mut case = Case::new("RelativePositionBias", 1, inputs, &[dtype])
                .attribute("is_bidirectional", Attribute::Int(i64::from(bidirectional)))
                .attribute("max_distance", Attribute::Int(i64::from(largest)));
            case.domain = "com.microsoft";
            case.constants = vec![1, 2];
            let found = case.run().unwrap();
            assert_eq!(found[0].shape(), wanted.shape);
            assert_eq!(numbers(&found[0]), wanted.values);
        }
    }
}

#[test]
fn lengths_that_no_memory_holds_are_errors() {
    for length in [2f64.powi(40), 2f64.powi(62), -1.0] {
        let number = || tensor(DType::I64, &[1], &[length]);
        let inputs = vec![Array::random(DType::F32, &[8, 2], 1).tensor(DType::F32), number(), number()];
        let mut case =
            Case::new("RelativePositionBias", 1, inputs, &[DType::F32]).attribute("max_distance", Attribute::Int(20));
        case.domain = "com.microsoft";
        case.constants = vec![1, 2];
        let error = case.run().unwrap_err();
        assert!(error.contains("expected one length up to"), "{error}");
    }
}

#[test]
fn gates_scale_the_bias_of_positions() {
    let (batch, length, heads, size, gates) = (2, 3, 2, 4, 6);
    for dtype in [DType::F32, DType::F16] {
        let random = |shape: &[usize], seed: u64| Array::random(dtype, shape, seed);
        let (query, bias) = (random(&[batch, length, heads * size], 1), random(&[heads * size], 2));
        let positions = random(&[1, heads, length, length], 3);
        let (w, gate_bias, of_head) = (random(&[size, gates], 4), random(&[gates], 5), random(&[1, heads, 1, 1], 6));
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let wanted = Array::of(&[batch, heads, length, length], |at| {
            let gate = |gate: usize| {
                let term = |k: usize| {
                    let column = at[1] * size + k;
                    (query.at(&[at[0], at[2], column]) + bias.at(&[column])) * w.at(&[k, gate])
                };
                (0..size).map(term).sum::<f64>() + gate_bias.at(&[gate])
            };
            let half = |first: usize| sigmoid((first..first + gates / 2).map(gate).sum());
            let (update, reset) = (half(0), half(gates / 2));
            (update * (reset * of_head.at(&[0, at[1], 0, 0]) - 1.0) + 2.0) * positions.at(&[0, at[1], at[2], at[3]])
        });
        let inputs = [&query, &bias, &positions, &w, &gate_bias, &of_head].map(|array| array.tensor(dtype)).to_vec();
        let mut case = Case::new("GatedRelativePositionBias", 1, inputs, &[dtype])
            .attribute("num_heads", Attribute::Int(heads as i64));
        case.domain = "com.microsoft";
        let found = case.run().unwrap();
        assert_close(&numbers(&found[0]), &wanted.values, if dtype == DType::F32 { 2e-5 } else { 2e-2 });
    }
}
