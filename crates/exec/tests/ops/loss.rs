//! Compares losses with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::common::{Case, assert_close, numbers, random, tensor};

const BATCH: usize = 3;
const CLASSES: usize = 4;

/// The log-softmax along the middle axis of `[batch, classes, positions]`.
fn log_softmax(values: &[f64], positions: usize) -> Vec<f64> {
    let place = |flat: usize, class: usize| {
        flat / (CLASSES * positions) * CLASSES * positions + class * positions + flat % positions
    };
    (0..values.len())
        .map(|flat| values[flat] - (0..CLASSES).map(|class| values[place(flat, class)].exp()).sum::<f64>().ln())
        .collect()
}

#[test]
fn every_reduction_with_and_without_weights_and_ignored_labels() {
    for positions in [&[][..], &[2, 3]] {
        let inner: usize = positions.iter().product();
        let shape: Vec<usize> = [BATCH, CLASSES].iter().chain(positions).copied().collect();
        let samples: Vec<usize> = [BATCH].iter().chain(positions).copied().collect();
        let labels: Vec<f64> = (0..BATCH * inner).map(|at| (at * 7 % CLASSES) as f64).collect();
        for (weighted, ignored, from_scores, index, dtype, relative) in [
            (false, None, false, DType::I64, DType::F32, 1e-5),
            (true, None, false, DType::I32, DType::F32, 1e-5),
            (true, Some(3), false, DType::I64, DType::F32, 1e-5),
            (false, Some(-5), true, DType::I64, DType::F32, 1e-5),
            (true, Some(1), true, DType::I32, DType::F64, 1e-10),
            (false, None, true, DType::I64, DType::F16, 3e-3),
        ] {
            let input = tensor(dtype, &shape, &random(BATCH * CLASSES * inner, 1));
            let weights = tensor(dtype, &[CLASSES], &[0.5, 2.0, 1.5, 0.25]);
            let mut labels = labels.clone();
            if let Some(ignored) = ignored.filter(|&label: &i64| label < 0) {
                labels[1] = ignored as f64;
            }
            let values = numbers(&input);
            let logarithms = if from_scores { log_softmax(&values, inner) } else { values };
            let counts = |label: f64| ignored != Some(label as i64);
            let weight = |label: f64| match (counts(label), weighted) {
                (false, _) => 0.0,
                (true, false) => 1.0,
                (true, true) => numbers(&weights)[label as usize],
            };
            let losses: Vec<f64> = labels
                .iter()
                .enumerate()
                .map(|(at, &label)| {
                    let class = if counts(label) { label as usize } else { 0 };
                    let place = at / inner * CLASSES * inner + class * inner + at % inner;
                    -logarithms[place] * weight(label)
                })
                .collect();
            let sum: f64 = losses.iter().sum();
            let divisor: f64 = labels.iter().map(|&label| weight(label)).sum();
            for (reduction, wanted, wanted_shape) in [
                ("none", losses.clone(), samples.clone()),
                ("sum", vec![sum], vec![]),
                ("mean", vec![sum / divisor], vec![]),
            ] {
                let mut inputs = vec![input.clone(), tensor(index, &samples, &labels)];
                if weighted {
                    inputs.push(weights.clone());
                }
                let op_type = if from_scores { "SoftmaxCrossEntropyLoss" } else { "NegativeLogLikelihoodLoss" };
                let outputs = if from_scores { vec![dtype, dtype] } else { vec![dtype] };
                let mut case = Case::new(op_type, 13, inputs, &outputs);
                case = case.attribute("reduction", Attribute::Text(reduction.into()));
                if let Some(ignored) = ignored {
                    case = case.attribute("ignore_index", Attribute::Int(ignored));
                }
                let found = case.run().unwrap();
                assert_eq!(found[0].shape(), wanted_shape);
                assert_close(&numbers(&found[0]), &wanted, relative);
                if from_scores {
                    assert_close(&numbers(&found[1]), &logarithms, relative);
                }
            }
        }
    }
}

#[test]
fn mismatched_labels_and_weights_are_rejected() {
    let input = || tensor(DType::F32, &[2, 3], &[0.0; 6]);
    let case = |inputs| Case::new("NegativeLogLikelihoodLoss", 13, inputs, &[DType::F32]).run().unwrap_err();
    let labels = |shape: &[usize], values: &[f64]| tensor(DType::I64, shape, values);
    assert!(case(vec![input(), labels(&[3], &[0.0; 3])]).contains("labels of shape [3]"));
    let weights = tensor(DType::F32, &[2], &[1.0; 2]);
    assert!(
        case(vec![input(), labels(&[2], &[0.0; 2]), weights]).contains("weights of shape [2] do not match 3 classes")
    );
}
