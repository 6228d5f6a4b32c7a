//! Batch norms with their own statistics and with given ones.

use hipdnn::{BatchNormStatistics, RunningStatistics};

use super::slopes::{near, nudged};
use super::{EPSILON, epsilon, graph, scalar};
use crate::bench::{Answer, Bench, ExpectedOutput};
use crate::data::{Data, assert_close, indices};
use crate::draw::Draw;
use crate::element::Element;

const MOMENTUM: f64 = 0.25;

#[derive(Clone)]
struct Case {
    x: Data,
    /// Per channel: scale, bias, mean, variance.
    scale: Data,
    bias: Data,
    mean: Data,
    variance: Data,
}

impl Case {
    fn draw(draw: &mut Draw) -> Self {
        let element = Element::draw(draw);
        let (batch, channels) = (draw.int(1..4), draw.int(1..4));
        let spatial = draw.list(1..3, |draw| draw.int(2..4));
        let dims = [&[batch, channels], &spatial[..]].concat();
        let per_channel: Vec<i64> = (0..dims.len()).map(|axis| if axis == 1 { channels } else { 1 }).collect();
        let x = Data::random(element, &dims, draw).arranged(draw);
        // Parameters below single precision are unusual, and no library has to support them.
        let kept = if element == Element::F64 { element } else { Element::F32 };
        let [scale, bias, mean, variance] =
            [(); 4].map(|()| Data::random(kept, &per_channel, draw).map(|value| value.abs() + 0.125));
        Self { x, scale, bias, mean, variance }
    }

    fn normed(&self, mean: &[f64], variance: &[f64]) -> Vec<f64> {
        let one = |index: &Vec<i64>| {
            let c = index[1] as usize;
            let unit = (self.x.at(index) - mean[c]) / (variance[c] + EPSILON).sqrt();
            unit * self.scale.values[c] + self.bias.values[c]
        };
        indices(&self.x.dims).iter().map(one).collect()
    }

    /// Mean and variance of each channel, from other data of the same shape.
    fn statistics_of(&self, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
        Self { x: Data { values: x.to_vec(), ..self.x.clone() }, ..self.clone() }.statistics()
    }

    /// Mean and variance of each channel.
    fn statistics(&self) -> (Vec<f64>, Vec<f64>) {
        let channels = self.x.dims[1];
        (0..channels)
            .map(|channel| {
                let of_channel = indices(&self.x.dims).into_iter().filter(|index| index[1] == channel);
                let values: Vec<f64> = of_channel.map(|index| self.x.at(&index)).collect();
                let count = values.len() as f64;
                let mean = values.iter().sum::<f64>() / count;
                (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count)
            })
            .unzip()
    }
}

pub fn training(bench: &Bench, draw: &mut Draw) -> Answer {
    // Statistics are results too, and all results of a case have one type.
    let mut case = Case::draw(draw);
    let element = case.scale.element;
    case.x = Data { element, ..case.x };
    let mut graph = graph(element);
    let data = [&case.x, &case.scale, &case.bias, &case.mean, &case.variance];
    let [xi, si, bi, mi, vi] = data.map(|data| graph.tensor(data.tensor()));
    let eps = epsilon(&mut graph, element);
    let momentum = scalar(&mut graph, element, MOMENTUM);
    let running = RunningStatistics { mean: mi, variance: vi, momentum };
    let (y, [mean, inverse], next) = graph.batch_norm_training(xi, [si, bi], eps, Some(running));
    let outputs: Vec<_> = [y, mean, inverse].into_iter().chain(next.into_iter().flatten()).collect();
    let inputs: Vec<_> = [xi, si, bi, mi, vi].into_iter().zip(data).collect();
    let found = bench.run(&mut graph, &inputs, &outputs, element)?;
    let (means, variances) = case.statistics();
    assert_close(&found[0], &case.normed(&means, &variances), element)?;
    assert_close(&found[1], &means, element)?;
    let inverses: Vec<f64> = variances.iter().map(|variance| 1.0 / (variance + EPSILON).sqrt()).collect();
    assert_close(&found[2], &inverses, element)?;
    let mix = |before: &Data, new: &[f64]| -> Vec<f64> {
        before.values.iter().zip(new).map(|(before, new)| (1.0 - MOMENTUM) * before + MOMENTUM * new).collect()
    };
    assert_close(&found[3], &mix(&case.mean, &means), element)?;
    let count = (case.x.values.len() as i64 / case.x.dims[1]) as f64;
    let unbiased: Vec<f64> = variances.iter().map(|variance| variance * count / (count - 1.0)).collect();
    assert_close(&found[4], &mix(&case.variance, &unbiased), element)
}

pub fn inference(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let (element, kept) = (case.x.element, case.scale.element);
    let is_inverse = draw.flag();
    let deviation = case.variance.clone().map(|variance| 1.0 / (variance + EPSILON).sqrt());
    let given = if is_inverse { &deviation } else { &case.variance };
    let mut graph = graph(element);
    let data = [&case.x, &case.scale, &case.bias, &case.mean, given];
    let [xi, si, bi, mi, vi] = data.map(|data| graph.tensor(data.tensor()));
    let how = if is_inverse {
        BatchNormStatistics::InverseDeviation(vi)
    } else {
        BatchNormStatistics::Variance { variance: vi, epsilon: epsilon(&mut graph, kept) }
    };
    let y = graph.batch_norm_inference(xi, mi, how, [si, bi]);
    let inputs: Vec<_> = [xi, si, bi, mi, vi].into_iter().zip(data).collect();
    let found = bench.run(&mut graph, &inputs, &[y], element)?;
    assert_close(&found[0], &case.normed(&case.mean.values, &case.variance.values), element)
}

pub fn backward(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let (element, kept) = (case.x.element, case.scale.element);
    let (means, variances) = case.statistics();
    let inverses = variances.iter().map(|variance| 1.0 / (variance + EPSILON).sqrt()).collect();
    let (mean, inverse) = (Data::new(kept, &case.mean.dims, means), Data::new(kept, &case.mean.dims, inverses));
    let dy = Data::random(element, &case.x.dims, draw).arranged(draw);
    let mut graph = graph(element);
    let data = [&dy, &case.x, &case.scale, &mean, &inverse];
    let [dyi, xi, si, mi, ii] = data.map(|data| graph.tensor(data.tensor()));
    let [dx, dscale, dbias] = graph.batch_norm_backward([dyi, xi, si], Some([mi, ii]));
    let inputs: Vec<_> = [dyi, xi, si, mi, ii].into_iter().zip(data).collect();
    let wants = [
        ExpectedOutput::arranged(dx, element, draw),
        ExpectedOutput::new(dscale, kept),
        ExpectedOutput::new(dbias, kept),
    ];
    let found = bench.run_for(&mut graph, &inputs, &wants)?;
    let loss = |x: &[f64], scale: &[f64], bias: &[f64]| -> f64 {
        let (means, variances) = case.statistics_of(x);
        let one = |(at, index): (usize, &Vec<i64>)| {
            let c = index[1] as usize;
            let unit = (x[at] - means[c]) / (variances[c] + EPSILON).sqrt();
            (unit * scale[c] + bias[c]) * dy.values[at]
        };
        indices(&case.x.dims).iter().enumerate().map(one).sum()
    };
    let (x, scale, bias) = (&case.x.values, &case.scale.values, &case.bias.values);
    near("dx", &found[0], element, |at, by| loss(&nudged(x, at, by), scale, bias))?;
    near("dscale", &found[1], element, |at, by| loss(x, &nudged(scale, at, by), bias))?;
    near("dbias", &found[2], element, |at, by| loss(x, scale, &nudged(bias, at, by)))
}
