//! Convolutions: forward with bias and activation, backward data, backward filter.

use hipdnn::sys::{ConvolutionMode, DataType, PointwiseMode as M};
use hipdnn::{Convolution, Graph};

use super::graph;
use crate::bench::{Answer, Bench, ExpectedOutput};
use crate::data::{Data, assert_close, flat, indices};
use crate::draw::Draw;
use crate::element::Element;

#[derive(Debug)]
struct Case {
    x: Vec<i64>,
    w: Vec<i64>,
    y: Vec<i64>,
    parameters: Convolution,
    element: Element,
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
        Data::random(self.element, dims, draw).arranged(draw)
    }
}

pub fn forward(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let (x, w) = (case.data(&case.x, draw), case.data(&case.w, draw));
    let mut bias = vec![1; case.y.len()];
    bias[1] = case.y[1];
    let b = Data::random(case.element, &bias, draw);
    let mut graph = graph(case.element);
    let [xi, wi, bi] = [&x, &w, &b].map(|data| graph.tensor(data.tensor()));
    let y = graph.convolution(xi, wi, case.parameters.clone());
    let sum = graph.pointwise(M::ADD, &[y, bi]);
    let relu = graph.pointwise(M::RELU_FWD, &[sum]);
    let want = ExpectedOutput::arranged(relu, case.element, draw);
    let found = bench.run_for(&mut graph, &[(xi, &x), (wi, &w), (bi, &b)], &[want])?;
    let mut wanted: Vec<f64> = indices(&case.y).iter().map(|index| b.values[index[1] as usize]).collect();
    case.each_product(|out, from, tap| wanted[flat(&case.y, out)] += x.at(from) * w.at(tap));
    let wanted: Vec<f64> = wanted.into_iter().map(|value| value.max(0.0)).collect();
    assert_close(&found[0], &wanted, case.element).map_err(|failure| failure.of(&case))
}

pub fn to_data(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let (dy, w) = (case.data(&case.y, draw), case.data(&case.w, draw));
    let mut graph = graph(case.element);
    let [dyi, wi] = [&dy, &w].map(|data| graph.tensor(data.tensor()));
    let dx = graph.convolution_to_data(dyi, wi, &case.x, case.parameters.clone());
    let want = ExpectedOutput::arranged(dx, case.element, draw);
    let found = bench.run_for(&mut graph, &[(dyi, &dy), (wi, &w)], &[want])?;
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
    let want = ExpectedOutput::arranged(dw, case.element, draw);
    let found = bench.run_for(&mut graph, &[(xi, &x), (dyi, &dy)], &[want])?;
    let mut wanted = vec![0.0; case.w.iter().product::<i64>() as usize];
    case.each_product(|out, from, tap| wanted[flat(&case.w, tap)] += dy.at(out) * x.at(from));
    assert_close(&found[0], &wanted, case.element)
}

/// A block of a network in four operations: convolution, bias, shortcut and activation.
pub fn with_bias_and_residual(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let (x, w, shortcut) = (case.data(&case.x, draw), case.data(&case.w, draw), case.data(&case.y, draw));
    let mut bias = vec![1; case.y.len()];
    bias[1] = case.y[1];
    let b = Data::random(case.element, &bias, draw);
    let mut graph = graph(case.element);
    let [xi, wi, bi, si] = [&x, &w, &b, &shortcut].map(|data| graph.tensor(data.tensor()));
    let y = graph.convolution(xi, wi, case.parameters.clone());
    let biased = graph.pointwise(M::ADD, &[y, bi]);
    let sum = graph.pointwise(M::ADD, &[biased, si]);
    let relu = graph.pointwise(M::RELU_FWD, &[sum]);
    let want = ExpectedOutput::arranged(relu, case.element, draw);
    let found = bench.run_for(&mut graph, &[(xi, &x), (wi, &w), (bi, &b), (si, &shortcut)], &[want])?;
    let shifted = indices(&case.y).into_iter().zip(&shortcut.values);
    let mut wanted: Vec<f64> = shifted.map(|(index, value)| value + b.values[index[1] as usize]).collect();
    case.each_product(|out, from, tap| wanted[flat(&case.y, out)] += x.at(from) * w.at(tap));
    let wanted: Vec<f64> = wanted.into_iter().map(|value| value.max(0.0)).collect();
    assert_close(&found[0], &wanted, case.element).map_err(|failure| failure.of(&case))
}

/// With a shortcut and an activation.
pub fn with_residual(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let (x, w, shortcut) = (case.data(&case.x, draw), case.data(&case.w, draw), case.data(&case.y, draw));
    let mut graph = graph(case.element);
    let [xi, wi, si] = [&x, &w, &shortcut].map(|data| graph.tensor(data.tensor()));
    let y = graph.convolution(xi, wi, case.parameters.clone());
    let sum = graph.pointwise(M::ADD, &[y, si]);
    let swish = graph.pointwise(M::SWISH_FWD, &[sum]);
    let want = ExpectedOutput::arranged(swish, case.element, draw);
    let found = bench.run_for(&mut graph, &[(xi, &x), (wi, &w), (si, &shortcut)], &[want])?;
    let mut wanted = shortcut.values.clone();
    case.each_product(|out, from, tap| wanted[flat(&case.y, out)] += x.at(from) * w.at(tap));
    let wanted: Vec<f64> = wanted.into_iter().map(|value| value / (1.0 + (-value).exp())).collect();
    assert_close(&found[0], &wanted, case.element)
}

/// 8-bit integers with integer sums.
pub fn of_bytes(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let of = |dims: &[i64], draw: &mut Draw| Data::whole(Element::I8, dims, -128..128, draw).arranged(draw);
    let (x, w) = (of(&case.x, draw), of(&case.w, draw));
    let mut graph = Graph::new(DataType::INT8, DataType::INT32);
    let [xi, wi] = [&x, &w].map(|data| graph.tensor(data.tensor()));
    let y = graph.convolution(xi, wi, case.parameters.clone());
    let want = ExpectedOutput::arranged(y, Element::I32, draw);
    let found = bench.run_for(&mut graph, &[(xi, &x), (wi, &w)], &[want])?;
    let mut wanted = vec![0.0; case.y.iter().product::<i64>() as usize];
    case.each_product(|out, from, tap| wanted[flat(&case.y, out)] += x.at(from) * w.at(tap));
    assert_close(&found[0], &wanted, Element::I32)
}

/// Sizes for which libraries have fast paths.
pub fn wide(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = draw.choose(&[Element::F32, Element::F16]);
    let (channels, filters) = (draw.choose(&[16, 24, 32]), draw.choose(&[8, 16, 40]));
    let (taps, extent) = (draw.choose(&[1, 3, 5]), draw.int(6..13));
    let stride = draw.int(1..3);
    let mut parameters = Convolution::new(2);
    parameters.strides = vec![stride; 2];
    (parameters.pre_padding, parameters.post_padding) = (vec![taps / 2; 2], vec![taps / 2; 2]);
    let out = (extent + taps / 2 * 2 - taps) / stride + 1;
    let case = Case {
        x: vec![2, channels, extent, extent],
        w: vec![filters, channels, taps, taps],
        y: vec![2, filters, out, out],
        parameters,
        element,
    };
    let small = |value: f64| value * 0.25;
    let is_last = draw.flag();
    let of = |dims: &[i64], draw: &mut Draw| Data::random(element, dims, draw).map(small).channels_last(is_last);
    let (x, w) = (of(&case.x, draw), of(&case.w, draw));
    let mut graph = graph(element);
    let [xi, wi] = [&x, &w].map(|data| graph.tensor(data.tensor()));
    let y = graph.convolution(xi, wi, case.parameters.clone());
    let relu = graph.pointwise(M::RELU_FWD, &[y]);
    let found = bench.run(&mut graph, &[(xi, &x), (wi, &w)], &[relu], element)?;
    let mut wanted = vec![0.0; case.y.iter().product::<i64>() as usize];
    case.each_product(|out, from, tap| wanted[flat(&case.y, out)] += x.at(from) * w.at(tap));
    let wanted: Vec<f64> = wanted.into_iter().map(|value| value.max(0.0)).collect();
    assert_close(&found[0], &wanted, element)
}
