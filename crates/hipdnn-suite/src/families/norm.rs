//! Norms over trailing axes, and their gradients checked against finite differences of the loss.

use super::slopes::{near, nudged};
use super::{EPSILON, epsilon, graph};
use crate::bench::{Answer, Bench};
use crate::data::{Data, assert_close};
use crate::draw::Draw;
use crate::element::Element;

struct Case {
    is_layer: bool,
    leading: Vec<i64>,
    trailing: Vec<i64>,
    x: Data,
    scale: Data,
    bias: Data,
}

/// A norm by its definition.
struct Normed {
    y: Vec<f64>,
    means: Vec<f64>,
    inverses: Vec<f64>,
}

impl Case {
    fn draw(is_layer: bool, element: Element, draw: &mut Draw) -> Self {
        let (leading, trailing) = (draw.list(1..3, |draw| draw.int(1..4)), draw.list(1..3, |draw| draw.int(2..5)));
        let dims = [&leading[..], &trailing].concat();
        let scales: Vec<i64> = leading.iter().map(|_| 1).chain(trailing.iter().copied()).collect();
        let [x, scale, bias] = [&dims, &scales, &scales].map(|dims| Data::random(element, dims, draw).arranged(draw));
        Self { is_layer, leading, trailing, x, scale, bias }
    }

    fn norm(&self, x: &[f64], scale: &[f64], bias: &[f64]) -> Normed {
        let width = scale.len();
        let mut normed = Normed { y: Vec::new(), means: Vec::new(), inverses: Vec::new() };
        for row in x.chunks(width) {
            let mean = if self.is_layer { row.iter().sum::<f64>() / width as f64 } else { 0.0 };
            let spread = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / width as f64;
            let inverse = 1.0 / (spread + EPSILON).sqrt();
            normed.means.push(mean);
            normed.inverses.push(inverse);
            let y = row.iter().enumerate().map(|(at, value)| (value - mean) * inverse * scale[at] + bias[at]);
            normed.y.extend(y);
        }
        normed
    }

    fn forward(&self, bench: &Bench) -> Answer {
        let (element, axes) = (self.x.element, self.trailing.len());
        let mut graph = graph(element);
        let [xi, si, bi] = [&self.x, &self.scale, &self.bias].map(|data| graph.tensor(data.tensor()));
        let eps = epsilon(&mut graph, element);
        let outputs = if self.is_layer {
            let (y, [mean, inverse]) = graph.layer_norm_training(xi, [si, bi], eps, axes);
            vec![y, mean, inverse]
        } else {
            let (y, inverse) = graph.rms_norm_training(xi, si, Some(bi), eps, axes);
            vec![y, inverse]
        };
        let inputs = [(xi, &self.x), (si, &self.scale), (bi, &self.bias)];
        let found = bench.run(&mut graph, &inputs, &outputs, element)?;
        let wanted = self.norm(&self.x.values, &self.scale.values, &self.bias.values);
        assert_close(&found[0], &wanted.y, element)?;
        if self.is_layer {
            assert_close(&found[1], &wanted.means, element)?;
        }
        assert_close(&found[outputs.len() - 1], &wanted.inverses, element)
    }

    fn backward(&self, bench: &Bench, draw: &mut Draw) -> Answer {
        let (element, axes) = (self.x.element, self.trailing.len());
        let dy = Data::random(element, &self.x.dims, draw).arranged(draw);
        let normed = self.norm(&self.x.values, &self.scale.values, &self.bias.values);
        let statistic: Vec<i64> = self.leading.iter().copied().chain(self.trailing.iter().map(|_| 1)).collect();
        // Statistics are in the compute type, whatever the data's type.
        let kept = if element == Element::F64 { element } else { Element::F32 };
        let mean = Data::new(kept, &statistic, normed.means);
        let inverse = Data::new(kept, &statistic, normed.inverses);
        let mut graph = graph(element);
        let [dyi, xi, si, ii] = [&dy, &self.x, &self.scale, &inverse].map(|data| graph.tensor(data.tensor()));
        let mut inputs = vec![(dyi, &dy), (xi, &self.x), (si, &self.scale), (ii, &inverse)];
        let made = if self.is_layer {
            let mi = graph.tensor(mean.tensor());
            inputs.push((mi, &mean));
            graph.layer_norm_backward([dyi, xi, si], [mi, ii], axes).to_vec()
        } else {
            graph.rms_norm_backward([dyi, xi, si], ii, axes).to_vec()
        };
        let found = bench.run(&mut graph, &inputs, &made, element)?;
        // The loss for the gradient: the sum of dy times the result.
        let loss = |x: &[f64], scale: &[f64], bias: &[f64]| -> f64 {
            self.norm(x, scale, bias).y.iter().zip(&dy.values).map(|(y, dy)| y * dy).sum()
        };
        let (x, scale, bias) = (&self.x.values, &self.scale.values, &self.bias.values);
        near("dx", &found[0], element, |at, by| loss(&nudged(x, at, by), scale, bias))?;
        near("dscale", &found[1], element, |at, by| loss(x, &nudged(scale, at, by), bias))?;
        match found.get(2) {
            Some(dbias) => near("dbias", dbias, element, |at, by| loss(x, scale, &nudged(bias, at, by))),
            None => Ok(()),
        }
    }
}

pub fn layer(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    Case::draw(true, element, draw).forward(bench)
}

pub fn rms(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    Case::draw(false, element, draw).forward(bench)
}

pub fn layer_backward(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    Case::draw(true, element, draw).backward(bench, draw)
}

pub fn rms_backward(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    Case::draw(false, element, draw).backward(bench, draw)
}
