//! Convolutions: forward with bias and activation, to data, to filter.

use hipdnn::Convolution;
use hipdnn::sys::{ConvolutionMode, PointwiseMode as M};

use super::graph;
use crate::bench::{Answer, Bench};
use crate::data::{Data, Element, assert_close, flat, indices};
use crate::draw::Draw;

struct Case {
    x: Vec<i64>,
    w: Vec<i64>,
    y: Vec<i64>,
    parameters: Convolution,
    element: Element,
    channels_last: bool,
}

impl Case {
    fn draw(draw: &mut Draw) -> Self {
        let (batch, groups, inputs, outputs) = (draw.int(1..3), draw.int(1..3), draw.int(1..4), draw.int(1..3));
        let axes = draw.int(1..4) as usize;
        let mut case = Self {
            x: vec![batch, groups * inputs],
            w: vec![groups * outputs, inputs],
            y: vec![batch, groups * outputs],
            parameters: Convolution::new(axes),
            element: Element::draw(draw),
            channels_last: draw.flag(),
        };
        let p = &mut case.parameters;
        p.mode = draw.choose(&[ConvolutionMode::CONVOLUTION, ConvolutionMode::CROSS_CORRELATION]);
        for axis in 0..axes {
            let (taps, stride, dilation) = (draw.int(1..4), draw.int(1..3), draw.int(1..3));
            let (pre, post) = (draw.int(0..3), draw.int(0..3));
            let reach = dilation * (taps - 1) + 1;
            let extent = (reach - pre - post).max(1) + draw.int(0..5);
            (p.strides[axis], p.dilations[axis], p.pre_padding[axis], p.post_padding[axis]) =
                (stride, dilation, pre, post);
            case.x.push(extent);
            case.w.push(taps);
            case.y.push((extent + pre + post - reach) / stride + 1);
        }
        case
    }

    /// Calls with the (result, data, filter) indices of each product, by the definition.
    fn each_product(&self, mut visit: impl FnMut(&[i64], &[i64], &[i64])) {
        let Self { x, w, y, parameters: p, .. } = self;
        let groups = x[1] / w[1];
        for out in indices(y) {
            let group = out[1] / (w[0] / groups);
            for tap in indices(&w[1..]) {
                let mut from = vec![out[0], group * w[1] + tap[0]];
                for axis in 0..x.len() - 2 {
                    let is_flipped = p.mode == ConvolutionMode::CONVOLUTION;
                    let reach = if is_flipped { w[axis + 2] - 1 - tap[axis + 1] } else { tap[axis + 1] };
                    from.push(out[axis + 2] * p.strides[axis] + reach * p.dilations[axis] - p.pre_padding[axis]);
                }
                if from.iter().zip(x).all(|(at, extent)| (0..*extent).contains(at)) {
                    visit(&out, &from, &[&[out[1]], &tap[..]].concat());
                }
            }
        }
    }

    fn data(&self, dims: &[i64], draw: &mut Draw) -> Data {
        Data::random(self.element, dims, draw).channels_last(self.channels_last)
    }
}

pub fn forward(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let (x, w) = (case.data(&case.x, draw), Data::random(case.element, &case.w, draw));
    let mut bias = vec![1; case.y.len()];
    bias[1] = case.y[1];
    let b = Data::random(case.element, &bias, draw);
    let mut graph = graph(case.element);
    let [xi, wi, bi] = [&x, &w, &b].map(|data| graph.tensor(data.tensor()));
    let y = graph.convolution(xi, wi, case.parameters.clone());
    let sum = graph.pointwise(M::ADD, &[y, bi]);
    let relu = graph.pointwise(M::RELU_FWD, &[sum]);
    let found = bench.run(&mut graph, &[(xi, &x), (wi, &w), (bi, &b)], &[relu], case.element)?;
    let mut wanted: Vec<f64> = indices(&case.y).iter().map(|index| b.values[index[1] as usize]).collect();
    case.each_product(|out, from, tap| wanted[flat(&case.y, out)] += x.at(from) * w.at(tap));
    let wanted: Vec<f64> = wanted.into_iter().map(|value| value.max(0.0)).collect();
    assert_close(&found[0], &wanted, case.element)
}

pub fn to_data(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let (dy, w) = (case.data(&case.y, draw), Data::random(case.element, &case.w, draw));
    let mut graph = graph(case.element);
    let [dyi, wi] = [&dy, &w].map(|data| graph.tensor(data.tensor()));
    let dx = graph.convolution_to_data(dyi, wi, &case.x, case.parameters.clone());
    let found = bench.run(&mut graph, &[(dyi, &dy), (wi, &w)], &[dx], case.element)?;
    let mut wanted = vec![0.0; case.x.iter().product::<i64>() as usize];
    case.each_product(|out, from, tap| wanted[flat(&case.x, from)] += dy.at(out) * w.at(tap));
    assert_close(&found[0], &wanted, case.element)
}

pub fn to_filter(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let (dy, x) = (case.data(&case.y, draw), case.data(&case.x, draw));
    let mut graph = graph(case.element);
    let [xi, dyi] = [&x, &dy].map(|data| graph.tensor(data.tensor()));
    let dw = graph.convolution_to_filter(xi, dyi, &case.w, case.parameters.clone());
    let found = bench.run(&mut graph, &[(xi, &x), (dyi, &dy)], &[dw], case.element)?;
    let mut wanted = vec![0.0; case.w.iter().product::<i64>() as usize];
    case.each_product(|out, from, tap| wanted[flat(&case.w, tap)] += dy.at(out) * x.at(from));
    assert_close(&found[0], &wanted, case.element)
}
