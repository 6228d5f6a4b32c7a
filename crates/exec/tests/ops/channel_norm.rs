//! Compares normalisations by channel or over chosen axes with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::common::{Case, assert_close, numbers, random, tensor};

/// Mean and variance.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (mean, values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count)
}

#[test]
fn batch_norm_uses_given_statistics() {
    for (shape, dtype, statistics, relative) in [
        (&[2usize, 3, 4, 5][..], DType::F32, DType::F32, 1e-5),
        (&[2, 3], DType::F32, DType::F32, 1e-5),
        (&[2, 3, 7], DType::F64, DType::F64, 1e-12),
        (&[2, 3, 7], DType::F16, DType::F32, 4e-3),
    ] {
        let inner: usize = shape[2..].iter().product();
        let x = tensor(dtype, shape, &random(6 * inner, 1));
        let vector = |seed, dtype| {
            let values: Vec<f64> = random(3, seed).iter().map(|v| v.abs() + 0.5).collect();
            tensor(dtype, &[3], &values)
        };
        let vectors = [vector(2, dtype), vector(3, dtype), vector(4, statistics), vector(5, statistics)];
        let [scale, bias, mean, variance] = vectors.clone().map(|vector| numbers(&vector));
        let wanted: Vec<f64> = numbers(&x)
            .iter()
            .enumerate()
            .map(|(flat, value)| {
                let c = flat / inner % 3;
                (value - mean[c]) / (variance[c] + f64::from(1e-3f32)).sqrt() * scale[c] + bias[c]
            })
            .collect();
        for constants in [vec![], vec![1, 2, 3, 4]] {
            let inputs = [x.clone()].into_iter().chain(vectors.clone()).collect();
            let mut case = Case::new("BatchNormalization", 15, inputs, &[dtype]);
            case.constants = constants;
            let found = case.attribute("epsilon", Attribute::Float(1e-3)).run().unwrap();
            assert_close(&numbers(&found[0]), &wanted, relative);
        }
    }
}

#[test]
fn other_batch_norms_are_declined() {
    let inputs = || {
        let vectors = (0..4).map(|_| tensor(DType::F32, &[2], &[1.0, 1.0]));
        [tensor(DType::F32, &[1, 2], &[1.0, 2.0])].into_iter().chain(vectors).collect::<Vec<_>>()
    };
    let old = Case::new("BatchNormalization", 9, inputs(), &[DType::F32, DType::F32]);
    assert_eq!(old.run().unwrap_err(), "training mode before opset 14 is not supported");
    let positions = Case::new("BatchNormalization", 7, inputs(), &[DType::F32]);
    assert!(positions.attribute("spatial", Attribute::Int(0)).run().unwrap_err().contains("spatial 0"));
}

#[test]
fn groups_of_channels_are_normalised_together() {
    // Version, number of groups (0 for InstanceNormalization) and whether there is one scale per group.
    for (op_type, version, groups, by_group) in [
        ("InstanceNormalization", 6, 0, false),
        ("GroupNormalization", 18, 2, true),
        ("GroupNormalization", 21, 2, false),
        ("GroupNormalization", 21, 1, false),
        ("GroupNormalization", 21, 4, false),
    ] {
        for (dtype, relative) in [(DType::F32, 1e-5), (DType::F16, 6e-3)] {
            let x = tensor(dtype, &[2, 4, 3, 5], &random(120, 1));
            let length = if by_group { groups } else { 4 };
            let (scale, bias) =
                (tensor(dtype, &[length], &random(length, 2)), tensor(dtype, &[length], &random(length, 3)));
            let (scales, biases) = (numbers(&scale), numbers(&bias));
            let rows = if groups == 0 { 4 } else { groups };
            let count = 60 / rows;
            let wanted: Vec<f64> = numbers(&x)
                .chunks(count)
                .enumerate()
                .flat_map(|(number, row)| {
                    let (mean, variance) = moments(row);
                    let (scales, biases) = (&scales, &biases);
                    row.iter()
                        .enumerate()
                        .map(move |(at, value)| {
                            let group = number % rows;
                            let channel = group * (4 / rows) + at / 15;
                            let vector = if by_group { group } else { channel };
                            (value - mean) / (variance + 1e-5).sqrt() * scales[vector] + biases[vector]
                        })
                        .collect::<Vec<_>>()
                })
                .collect();
            let case = Case::new(op_type, version, vec![x, scale, bias], &[dtype]);
            let case = if groups == 0 { case } else { case.attribute("num_groups", Attribute::Int(groups as i64)) };
            let found = case.run().unwrap();
            assert_eq!(found[0].shape(), [2, 4, 3, 5]);
            assert_close(&numbers(&found[0]), &wanted, relative);
        }
    }
}

#[test]
fn channels_that_do_not_divide_into_groups_are_rejected() {
    let vector = || tensor(DType::F32, &[3], &[1.0; 3]);
    let case = Case::new(
        "GroupNormalization",
        21,
        vec![tensor(DType::F32, &[1, 3, 2], &[0.0; 6]), vector(), vector()],
        &[DType::F32],
    );
    let error = case.attribute("num_groups", Attribute::Int(2)).run().unwrap_err();
    assert!(error.contains("3 channels cannot be split into 2 groups"), "{error}");
}

#[test]
fn lrn_divides_by_the_squares_around_a_channel() {
    for size in [1usize, 2, 3, 4, 7] {
        let x = tensor(DType::F32, &[2, 5, 2, 3], &random(60, 1));
        let values = numbers(&x);
        let wanted: Vec<f64> = (0..60usize)
            .map(|flat| {
                let (image, c, at) = (flat / 30, flat / 6 % 5, flat % 6);
                let (first, last) = (c.saturating_sub((size - 1) / 2), (c + size / 2).min(4));
                let square: f64 = (first..=last).map(|c| values[image * 30 + c * 6 + at].powi(2)).sum();
                values[flat] / (2.0 + 0.5 / size as f64 * square).powf(0.75)
            })
            .collect();
        let case = Case::new("LRN", 13, vec![x], &[DType::F32])
            .attribute("size", Attribute::Int(size as i64))
            .attribute("alpha", Attribute::Float(0.5))
            .attribute("bias", Attribute::Float(2.0));
        assert_close(&numbers(&case.run().unwrap()[0]), &wanted, 1e-5);
    }
}

#[test]
fn mean_and_variance_over_chosen_axes() {
    let x = tensor(DType::F32, &[2, 3, 4, 5], &random(120, 1));
    let values = numbers(&x);
    // By default, only channels are kept separate.
    let channel = |flat: usize| flat / 20 % 3;
    let wanted: Vec<f64> = (0..120)
        .map(|flat| {
            let mates: Vec<f64> =
                (0..120).filter(|&other| channel(other) == channel(flat)).map(|other| values[other]).collect();
            let (mean, variance) = moments(&mates);
            (values[flat] - mean) / (variance.sqrt() + 1e-9)
        })
        .collect();
    let found = Case::new("MeanVarianceNormalization", 13, vec![x.clone()], &[DType::F32]).run().unwrap();
    assert_close(&numbers(&found[0]), &wanted, 1e-5);
    let case = Case::new("MeanVarianceNormalization", 9, vec![x], &[DType::F32]);
    let found = case.attribute("axes", Attribute::Ints(vec![-1])).run().unwrap();
    let wanted: Vec<f64> = values
        .chunks(5)
        .flat_map(|row| {
            let (mean, variance) = moments(row);
            row.iter().map(move |value| (value - mean) / (variance.sqrt() + 1e-9))
        })
        .collect();
    assert_close(&numbers(&found[0]), &wanted, 1e-5);
}

#[test]
fn lp_norm_divides_by_the_norm_and_leaves_zeros() {
    for (p, norm) in [
        (1, (|row| row.iter().map(|v| v.abs()).sum()) as fn(&[f64]) -> f64),
        (2, |row| row.iter().map(|v| v * v).sum::<f64>().sqrt()),
    ] {
        let mut values = random(12, 8);
        values[4..8].fill(0.0);
        let x = tensor(DType::F32, &[3, 4], &values);
        let wanted: Vec<f64> = numbers(&x)
            .chunks(4)
            .flat_map(|row| {
                let norm = norm(row);
                row.iter().map(move |value| if norm == 0.0 { 0.0 } else { value / norm })
            })
            .collect();
        let case = Case::new("LpNormalization", 1, vec![x], &[DType::F32]);
        let found = case.attribute("p", Attribute::Int(p)).run().unwrap();
        assert_close(&numbers(&found[0]), &wanted, 1e-6);
    }
}
