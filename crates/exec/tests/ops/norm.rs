//! Compares normalisations over the last axes with loops in double precision.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::common::{Case, assert_close, numbers, random, tensor};

/// Mean (zero if not centred) and inverse deviation of a row.
fn statistics(row: &[f64], epsilon: f64, centre: bool) -> (f64, f64) {
    let count = row.len() as f64;
    let mean = if centre { row.iter().sum::<f64>() / count } else { 0.0 };
    let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
    (mean, (variance + epsilon).sqrt().recip())
}

/// Normalises every row of `count` elements, then scales and shifts it.
fn layers(x: &[f64], count: usize, scale: &[f64], bias: &[f64], epsilon: f64, centre: bool) -> Vec<f64> {
    let rows = x.chunks(count).flat_map(|row| {
        let (mean, inverse) = statistics(row, epsilon, centre);
        (0..count).map(move |at| (row[at] - mean) * inverse * scale[at] + bias.get(at).unwrap_or(&0.0))
    });
    rows.collect()
}

#[test]
fn layers_from_any_axis_on() {
    let shape = [2usize, 3, 4, 5];
    for (op_type, centre) in
        [("LayerNormalization", true), ("RMSNormalization", false), ("SimplifiedLayerNormalization", false)]
    {
        for (dtype, relative) in [(DType::F32, 1e-5), (DType::F64, 1e-7), (DType::F16, 4e-3)] {
            for axis in -4i64..4 {
                let layer = &shape[axis.rem_euclid(4) as usize..];
                let count: usize = layer.iter().product();
                let x = tensor(dtype, &shape, &random(120, 1));
                let scale = tensor(dtype, layer, &random(count, 2));
                let bias = tensor(dtype, layer, &random(count, 3));
                let mut inputs = vec![x.clone(), scale.clone()];
                let has_bias = centre && axis % 2 == 0;
                if has_bias {
                    inputs.push(bias.clone());
                }
                let bias = if has_bias { numbers(&bias) } else { Vec::new() };
                let wanted = layers(&numbers(&x), count, &numbers(&scale), &bias, 1e-2, centre);
                let case = Case::new(op_type, 17, inputs, &[dtype])
                    .attribute("axis", Attribute::Int(axis))
                    .attribute("epsilon", Attribute::Float(1e-2));
                let found = case.run().unwrap();
                assert_eq!(found[0].shape(), shape);
                assert_close(&numbers(&found[0]), &wanted, relative);
            }
        }
    }
}

#[test]
fn statistics_have_single_precision_and_extent_one() {
    for dtype in [DType::F32, DType::F16] {
        let x = tensor(dtype, &[2, 3, 4], &random(24, 9));
        let ones = tensor(dtype, &[3, 4], &[1.0; 12]);
        let outputs = [dtype, DType::F32, DType::F32];
        let case = Case::new("LayerNormalization", 17, vec![x.clone(), ones.clone(), ones.clone()], &outputs);
        let found = case.attribute("axis", Attribute::Int(1)).run().unwrap();
        let wanted: Vec<_> = numbers(&x).chunks(12).map(|row| statistics(row, 1e-5, true)).collect();
        assert_eq!((found[1].shape(), found[2].shape()), (&[2, 1, 1][..], &[2, 1, 1][..]));
        assert_close(&numbers(&found[1]), &wanted.iter().map(|pair| pair.0).collect::<Vec<_>>(), 1e-5);
        assert_close(&numbers(&found[2]), &wanted.iter().map(|pair| pair.1).collect::<Vec<_>>(), 1e-5);

        let case = Case::new("SimplifiedLayerNormalization", 1, vec![x.clone(), ones], &outputs[..2]);
        let found = case.attribute("axis", Attribute::Int(1)).run().unwrap();
        let wanted: Vec<f64> = numbers(&x).chunks(12).map(|row| statistics(row, 1e-5, false).1).collect();
        assert_close(&numbers(&found[1]), &wanted, 1e-5);
    }
}

#[test]
fn a_scale_is_broadcast_within_layers_and_across_them() {
    let x = tensor(DType::F32, &[2, 3, 4], &random(24, 5));
    let plain = layers(&numbers(&x), 4, &[1.0; 4], &[], 1e-5, true);
    for (shape, values) in [
        (&[][..], &[3.0][..]),
        (&[1], &[3.0]),
        (&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]),
        (&[3, 1], &[1.0, 2.0, 3.0]),
        (&[2, 1, 1], &[5.0, 7.0]),
    ] {
        let scale = tensor(DType::F32, shape, values);
        let wanted: Vec<f64> = (0..24)
            .map(|flat| {
                let factor = match shape.len() {
                    0 | 1 => values[0],
                    2 => values[flat / 4 % 3],
                    _ if shape[0] == 2 => values[flat / 12],
                    _ => values[flat % 4],
                };
                plain[flat] * factor
            })
            .collect();
        let found = Case::new("LayerNormalization", 17, vec![x.clone(), scale], &[DType::F32]).run().unwrap();
        assert_close(&numbers(&found[0]), &wanted, 1e-5);
    }
}

#[test]
fn other_stash_types_and_mixed_types_are_declined() {
    let x = || tensor(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let scale = |dtype| tensor(dtype, &[2], &[1.0, 1.0]);
    let stash = Case::new("LayerNormalization", 17, vec![x(), scale(DType::F32)], &[DType::F32]);
    assert_eq!(stash.attribute("stash_type", Attribute::Int(16)).run().unwrap_err(), "stash_type 16");
    let mixed = Case::new("RMSNormalization", 23, vec![x(), scale(DType::F16)], &[DType::F16]);
    assert_eq!(mixed.run().unwrap_err(), "inputs have different types f32 and f16");
}

/// A case in ONNX Runtime's contrib domain.
fn contrib(op_type: &'static str, inputs: Vec<Option<Tensor>>, outputs: &[DType]) -> Case {
    let mut case = Case::new(op_type, 1, Vec::new(), outputs);
    case.domain = "com.microsoft";
    case.inputs = inputs;
    case
}

#[test]
fn a_skip_connection_is_added_before_the_layer() {
    let (x, gamma) = (tensor(DType::F32, &[2, 3, 4], &random(24, 1)), tensor(DType::F32, &[4], &random(4, 2)));
    let (beta, bias) = (tensor(DType::F32, &[4], &random(4, 3)), tensor(DType::F32, &[4], &random(4, 4)));
    for (skip_shape, centre) in [(&[2, 3, 4][..], true), (&[3, 4], true), (&[1, 3, 4], false), (&[2, 3, 4], false)] {
        let skip = tensor(DType::F32, skip_shape, &random(skip_shape.iter().product(), 6));
        let (xs, skips, biases) = (numbers(&x), numbers(&skip), numbers(&bias));
        let sum: Vec<f64> = (0..24).map(|at| xs[at] + skips[at % skips.len()] + biases[at % 4]).collect();
        let moved = if centre { numbers(&beta) } else { Vec::new() };
        let wanted = layers(&sum, 4, &numbers(&gamma), &moved, 1e-3, centre);
        let mut inputs = vec![Some(x.clone()), Some(skip), Some(gamma.clone()), Some(bias.clone())];
        if centre {
            inputs.insert(3, Some(beta.clone()));
        }
        let op_type = if centre { "SkipLayerNormalization" } else { "SkipSimplifiedLayerNormalization" };
        let case = contrib(op_type, inputs, &[DType::F32]).attribute("epsilon", Attribute::Float(1e-3));
        let found = case.run().unwrap();
        assert_close(&numbers(&found[0]), &wanted, 1e-5);
    }
    let wants_mean =
        contrib("SkipLayerNormalization", vec![Some(x.clone()), Some(x), Some(gamma)], &[DType::F32, DType::F32]);
    assert!(wants_mean.run().unwrap_err().contains("training"));
}

#[test]
fn word_position_and_segment_embeddings_are_summed() {
    let integers = |shape: &[usize], values: &[f64]| tensor(DType::I32, shape, values);
    let words = random(5 * 4, 1);
    let places = random(6 * 4, 2);
    let segments = random(2 * 4, 3);
    let (ids, kinds) = ([1.0, 4.0, 0.0, 2.0, 2.0, 3.0], [0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
    let (gamma, beta) = (random(4, 4), random(4, 5));
    for given_places in [None, Some([5.0, 0.0, 1.0, 2.0, 2.0, 4.0])] {
        let row = |table: &[f64], at: f64| table[at as usize * 4..][..4].to_vec();
        let sum: Vec<f64> = (0..6)
            .flat_map(|at| {
                let place = given_places.map_or((at % 3) as f64, |list| list[at]);
                let terms = [row(&words, ids[at]), row(&places, place), row(&segments, kinds[at])];
                (0..4).map(move |h| terms.iter().map(|term| term[h]).sum::<f64>()).collect::<Vec<_>>()
            })
            .collect();
        let wanted = layers(&sum, 4, &gamma, &beta, 1e-12, true);
        let case = contrib(
            "EmbedLayerNormalization",
            vec![
                Some(integers(&[2, 3], &ids)),
                Some(integers(&[2, 3], &kinds)),
                Some(tensor(DType::F32, &[5, 4], &words)),
                Some(tensor(DType::F32, &[6, 4], &places)),
                Some(tensor(DType::F32, &[2, 4], &segments)),
                Some(tensor(DType::F32, &[4], &gamma)),
                Some(tensor(DType::F32, &[4], &beta)),
                Some(integers(&[2, 3], &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0])),
                given_places.map(|list| integers(&[2, 3], &list)),
            ],
            &[DType::F32, DType::I32, DType::F32],
        );
        let found = case.run().unwrap();
        assert_eq!(found[0].shape(), [2, 3, 4]);
        assert_close(&numbers(&found[0]), &wanted, 1e-5);
        assert_eq!(numbers(&found[1]), [2.0, 3.0]);
        assert_close(&numbers(&found[2]), &sum, 1e-6);
    }
}
