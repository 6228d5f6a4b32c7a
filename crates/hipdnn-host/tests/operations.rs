//! Every operation of the frontend on the CPU, against loops in double precision.
#![allow(clippy::unwrap_used)]
mod common;

use common::{Data, Element, assert_close, indices, run};
use hipdnn::sys::{ConvolutionMode, DataType, PointwiseMode as M, ReduceOp, ResampleMode};
use hipdnn::{
    Attention, BatchNormStatistics, Convolution, Graph, Pointwise, Resample, RunningStatistics, Scalar, Tensor,
};
use proptest::prelude::*;

fn element() -> impl Strategy<Value = Element> {
    prop::sample::select(vec![Element::F32, Element::F32, Element::F64, Element::F16, Element::Bf16])
}

fn graph(element: Element) -> Graph {
    let compute = if element == Element::F64 { DataType::DOUBLE } else { DataType::FLOAT };
    Graph::new(element.code(), compute)
}

fn epsilon(graph: &mut Graph, element: Element) -> hipdnn::TensorId {
    let value = if element == Element::F64 { Scalar::F64(1e-3) } else { Scalar::F32(1e-3) };
    graph.tensor(Tensor::scalar(value))
}

/// A convolution's result by its definition; `visit` gets (result, data, filter) indices of each product.
fn each_product(x: &[i64], w: &[i64], y: &[i64], p: &Convolution, mut visit: impl FnMut(&[i64], &[i64], &[i64])) {
    let groups = x[1] / w[1];
    for out in indices(y) {
        let group = out[1] / (w[0] / groups);
        for tap in indices(&w[1..]) {
            let mut from = vec![out[0], group * w[1] + tap[0]];
            for axis in 0..x.len() - 2 {
                let reach = if p.mode == ConvolutionMode::CONVOLUTION {
                    w[axis + 2] - 1 - tap[axis + 1]
                } else {
                    tap[axis + 1]
                };
                from.push(out[axis + 2] * p.strides[axis] + reach * p.dilations[axis] - p.pre_padding[axis]);
            }
            if from.iter().zip(x).all(|(at, extent)| (0..*extent).contains(at)) {
                visit(&out, &from, &[&[out[1]], &tap[..]].concat());
            }
        }
    }
}

#[derive(Clone, Debug)]
struct ConvCase {
    x: Vec<i64>,
    w: Vec<i64>,
    y: Vec<i64>,
    parameters: Convolution,
}

fn convolution_case() -> impl Strategy<Value = ConvCase> {
    let axis = (1i64..4, 1i64..3, 1i64..3, 0i64..3, 0i64..3, 0i64..5);
    (1i64..3, 1i64..3, 1i64..4, 1i64..3, any::<bool>(), prop::collection::vec(axis, 1..4)).prop_map(
        |(batch, groups, inputs, outputs, flips, axes)| {
            let mut case = ConvCase {
                x: vec![batch, groups * inputs],
                w: vec![groups * outputs, inputs],
                y: vec![batch, groups * outputs],
                parameters: Convolution::new(axes.len()),
            };
            let p = &mut case.parameters;
            p.mode = if flips { ConvolutionMode::CONVOLUTION } else { ConvolutionMode::CROSS_CORRELATION };
            for (axis, (taps, stride, dilation, pre, post, further)) in axes.into_iter().enumerate() {
                let reach = dilation * (taps - 1) + 1;
                let extent = (reach - pre - post).max(1) + further;
                (p.strides[axis], p.dilations[axis], p.pre_padding[axis], p.post_padding[axis]) =
                    (stride, dilation, pre, post);
                case.x.push(extent);
                case.w.push(taps);
                case.y.push((extent + pre + post - reach) / stride + 1);
            }
            case
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn convolutions_forward_with_bias_and_relu(
        case in convolution_case(), element in element(), nhwc in any::<bool>(), seed in 1u64..1000,
    ) {
        let (x, w) = (Data::random(element, &case.x, seed).channels_last(nhwc), Data::random(element, &case.w, seed + 1));
        let mut bias = vec![1; case.y.len()];
        bias[1] = case.y[1];
        let b = Data::random(element, &bias, seed + 2);
        let mut graph = graph(element);
        let [xi, wi, bi] = [&x, &w, &b].map(|data| graph.tensor(data.tensor()));
        let y = graph.convolution(xi, wi, case.parameters.clone());
        let sum = graph.pointwise(M::ADD, &[y, bi]);
        let relu = graph.pointwise(M::RELU_FWD, &[sum]);
        let found = run(&mut graph, &[(xi, &x), (wi, &w), (bi, &b)], &[relu], element).unwrap();
        let mut wanted: Vec<f64> = indices(&case.y).iter().map(|index| b.values[index[1] as usize]).collect();
        each_product(&case.x, &case.w, &case.y, &case.parameters, |out, from, tap| {
            wanted[common::flat(&case.y, out)] += x.at(from) * w.at(tap);
        });
        let wanted: Vec<f64> = wanted.into_iter().map(|value| value.max(0.0)).collect();
        assert_close(&found[0], &wanted, element);
    }

    #[test]
    fn convolutions_backward(case in convolution_case(), element in element(), nhwc in any::<bool>(), seed in 1u64..1000) {
        let dy = Data::random(element, &case.y, seed).channels_last(nhwc);
        let w = Data::random(element, &case.w, seed + 1);
        let mut first = graph(element);
        let [dyi, wi] = [&dy, &w].map(|data| first.tensor(data.tensor()));
        let dx = first.convolution_to_data(dyi, wi, &case.x, case.parameters.clone());
        let found = run(&mut first, &[(dyi, &dy), (wi, &w)], &[dx], element).unwrap();
        let mut wanted = vec![0.0; case.x.iter().product::<i64>() as usize];
        each_product(&case.x, &case.w, &case.y, &case.parameters, |out, from, tap| {
            wanted[common::flat(&case.x, from)] += dy.at(out) * w.at(tap);
        });
        assert_close(&found[0], &wanted, element);

        let x = Data::random(element, &case.x, seed + 2).channels_last(nhwc);
        let mut second = graph(element);
        let [xi, dyi] = [&x, &dy].map(|data| second.tensor(data.tensor()));
        let dw = second.convolution_to_filter(xi, dyi, &case.w, case.parameters.clone());
        let found = run(&mut second, &[(xi, &x), (dyi, &dy)], &[dw], element).unwrap();
        let mut wanted = vec![0.0; case.w.iter().product::<i64>() as usize];
        each_product(&case.x, &case.w, &case.y, &case.parameters, |out, from, tap| {
            wanted[common::flat(&case.w, tap)] += dy.at(out) * x.at(from);
        });
        assert_close(&found[0], &wanted, element);
    }

    #[test]
    fn products_of_batches(
        batch in prop::collection::vec((1i64..4, 0usize..3), 0..3), (m, k, n) in (1i64..9, 1i64..9, 1i64..9),
        turned in any::<bool>(), element in element(), seed in 1u64..1000,
    ) {
        let side = |which: usize| batch.iter().map(move |&(extent, one)| if one == which { 1 } else { extent });
        let a = Data::random(element, &side(1).chain([m, k]).collect::<Vec<_>>(), seed);
        let mut b = Data::random(element, &side(2).chain([k, n]).collect::<Vec<_>>(), seed + 1);
        if turned {
            let rank = b.dims.len();
            (b.strides[rank - 2], b.strides[rank - 1]) = (1, k);
        }
        let mut graph = graph(element);
        let [ai, bi] = [&a, &b].map(|data| graph.tensor(data.tensor()));
        let c = graph.matmul(ai, bi);
        let found = run(&mut graph, &[(ai, &a), (bi, &b)], &[c], element).unwrap();
        let dims: Vec<i64> = a.dims.iter().zip(&b.dims).take(batch.len()).map(|(a, b)| *a.max(b)).chain([m, n]).collect();
        let wanted: Vec<f64> = indices(&dims).iter().map(|index| {
            let (batches, place) = index.split_at(batch.len());
            let of = |data: &Data, row: i64, column: i64| {
                let at: Vec<i64> = batches.iter().zip(&data.dims).map(|(at, extent)| at.min(&(extent - 1)).to_owned()).collect();
                data.at(&[&at[..], &[row, column]].concat())
            };
            (0..k).map(|inner| of(&a, place[0], inner) * of(&b, inner, place[1])).sum()
        }).collect();
        assert_close(&found[0], &wanted, element);
    }

    #[test]
    fn reductions(
        axes in prop::collection::vec((1i64..5, any::<bool>()), 1..4), element in element(), seed in 1u64..1000,
        what in prop::sample::select(ReduceOp::ALL.to_vec()),
    ) {
        let dims: Vec<i64> = axes.iter().map(|axis| axis.0).collect();
        let to: Vec<i64> = axes.iter().map(|&(extent, reduced)| if reduced { 1 } else { extent }).collect();
        prop_assume!(dims != to);
        let x = Data::random(element, &dims, seed).map(|value| if value.abs() < 0.1 { 0.0 } else { value });
        let mut graph = graph(element);
        let xi = graph.tensor(x.tensor());
        let y = graph.reduction(what, xi, &to);
        let found = run(&mut graph, &[(xi, &x)], &[y], element).unwrap();
        let wanted: Vec<f64> = indices(&to).iter().map(|place| {
            let belongs = |index: &&Vec<i64>| index.iter().zip(place).zip(&to).all(|((at, place), extent)| *extent == 1 || at == place);
            let all: Vec<f64> = indices(&dims).iter().filter(belongs).map(|index| x.at(index)).collect();
            let count = all.len() as f64;
            match what {
                ReduceOp::ADD => all.iter().sum(),
                ReduceOp::MUL => all.iter().product(),
                ReduceOp::MIN => all.iter().copied().fold(f64::INFINITY, f64::min),
                ReduceOp::MAX => all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                ReduceOp::AMAX => all.iter().map(|value| value.abs()).fold(0.0, f64::max),
                ReduceOp::AVG => all.iter().sum::<f64>() / count,
                ReduceOp::NORM1 => all.iter().map(|value| value.abs()).sum(),
                ReduceOp::NORM2 => all.iter().map(|value| value * value).sum::<f64>().sqrt(),
                _ => all.iter().filter(|value| **value != 0.0).product(),
            }
        }).collect();
        assert_close(&found[0], &wanted, element);
    }

    #[test]
    fn pooling_forward_and_backward(
        (batch, channels) in (1i64..3, 1i64..4), nhwc in any::<bool>(), element in element(), seed in 1u64..1000,
        axes in prop::collection::vec((1i64..4, 1i64..3, 0i64..2, 0i64..2, 0i64..5), 1..3),
        mode in prop::sample::select(ResampleMode::ALL.to_vec()),
    ) {
        let mut what = Resample::new(mode, &vec![1; axes.len()]);
        let (mut dims, mut pooled) = (vec![batch, channels], vec![batch, channels]);
        for (axis, (window, stride, pre, post, further)) in axes.into_iter().enumerate() {
            let (pre, post) = (pre.min(window - 1), post.min(window - 1));
            let extent = window + further;
            (what.window[axis], what.strides[axis], what.pre_padding[axis], what.post_padding[axis]) = (window, stride, pre, post);
            dims.push(extent);
            pooled.push((extent + pre + post - window) / stride + 1);
        }
        let window_of = |index: &[i64]| -> Vec<Vec<i64>> {
            let place = |tap: &Vec<i64>| -> Vec<i64> {
                let spatial = tap.iter().enumerate().map(|(axis, at)| index[axis + 2] * what.strides[axis] + at - what.pre_padding[axis]);
                index[..2].iter().copied().chain(spatial).collect()
            };
            let inside = |place: &Vec<i64>| place.iter().zip(&dims).all(|(at, extent)| (0..*extent).contains(at));
            indices(&what.window).iter().map(place).filter(inside).collect()
        };
        let divisor = |inside: usize| match mode {
            ResampleMode::AVGPOOL_INCLUDE_PADDING => what.window.iter().product::<i64>() as f64,
            _ => inside as f64,
        };
        let x = Data::random(element, &dims, seed).channels_last(nhwc);
        let mut forward = graph(element);
        let xi = forward.tensor(x.tensor());
        let y = forward.resample(what.clone(), xi);
        let found = run(&mut forward, &[(xi, &x)], &[y], element).unwrap();
        let wanted: Vec<f64> = indices(&pooled).iter().map(|index| {
            let values: Vec<f64> = window_of(index).iter().map(|place| x.at(place)).collect();
            match mode {
                ResampleMode::MAXPOOL => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                _ => values.iter().sum::<f64>() / divisor(values.len()),
            }
        }).collect();
        assert_close(&found[0], &wanted, element);

        let dy = Data::random(element, &pooled, seed + 1).channels_last(nhwc);
        let mut backward = graph(element);
        let dyi = backward.tensor(dy.tensor());
        let dx = backward.resample_backward(what.clone(), dyi, None, &dims);
        let outcome = run(&mut backward, &[(dyi, &dy)], &[dx], element);
        if mode == ResampleMode::MAXPOOL {
            let refused = matches!(outcome, Err(hipdnn::Error::NotSupported { .. }));
            prop_assert!(refused);
        } else {
            let mut wanted = vec![0.0; x.values.len()];
            for index in indices(&pooled) {
                let places = window_of(&index);
                let share = dy.at(&index) / divisor(places.len());
                places.iter().for_each(|place| wanted[common::flat(&dims, place)] += share);
            }
            assert_close(&outcome.unwrap()[0], &wanted, element);
        }
    }

    #[test]
    fn attention_with_shared_heads_masks_and_statistics(
        (batch, key_heads, shared) in (1i64..3, 1i64..3, 1i64..3), (rows, columns, depth, width) in (1i64..6, 1i64..6, 1i64..6, 1i64..6),
        (is_causal, aligns_ends, masked) in any::<(bool, bool, bool)>(), element in element(), seed in 1u64..1000,
    ) {
        // A row that sees nothing has no softmax.
        prop_assume!(!(is_causal && aligns_ends && columns < rows));
        let heads = key_heads * shared;
        let q = Data::random(element, &[batch, heads, rows, depth], seed);
        let k = Data::random(element, &[batch, key_heads, columns, depth], seed + 1);
        let v = Data::random(element, &[batch, key_heads, columns, width], seed + 2);
        let mask = Data::random(element, &[1, heads, 1, columns], seed + 3);
        let mut graph = graph(element);
        let [qi, ki, vi] = [&q, &k, &v].map(|data| graph.tensor(data.tensor()));
        let mi = masked.then(|| graph.tensor(mask.tensor()));
        let what = Attention { scale: Some(0.5), is_causal, aligns_ends, mask: mi, ..Attention::default() };
        let (o, statistics) = graph.attention_training(what, [qi, ki, vi]);
        let mut inputs = vec![(qi, &q), (ki, &k), (vi, &v)];
        inputs.extend(mi.map(|mi| (mi, &mask)));
        let found = run(&mut graph, &inputs, &[o, statistics], element).unwrap();
        let (mut wanted, mut sums) = (Vec::new(), Vec::new());
        for index in indices(&[batch, heads, rows]) {
            let (b, h, row) = (index[0], index[1], index[2]);
            let diagonal = row + if aligns_ends { columns - rows } else { 0 };
            let scores: Vec<f64> = (0..columns).map(|column| {
                if is_causal && column > diagonal {
                    return f64::NEG_INFINITY;
                }
                let dot: f64 = (0..depth).map(|at| q.at(&[b, h, row, at]) * k.at(&[b, h / shared, column, at])).sum();
                0.5 * dot + if masked { mask.at(&[0, h, 0, column]) } else { 0.0 }
            }).collect();
            let total: f64 = scores.iter().map(|score| score.exp()).sum();
            sums.push(total.ln());
            wanted.extend((0..width).map(|at| (0..columns).map(|column| {
                scores[column as usize].exp() / total * v.at(&[b, h / shared, column, at])
            }).sum::<f64>()));
        }
        assert_close(&found[0], &wanted, element);
        assert_close(&found[1], &sums, element);
    }

    #[test]
    fn norms_over_trailing_axes_and_their_gradients(
        leading in prop::collection::vec(1i64..4, 1..3), trailing in prop::collection::vec(2i64..5, 1..3),
        layer in any::<bool>(), seed in 1u64..1000,
    ) {
        let element = Element::F64;
        let dims = [&leading[..], &trailing].concat();
        let scales: Vec<i64> = leading.iter().map(|_| 1).chain(trailing.iter().copied()).collect();
        let (x, scale) = (Data::random(element, &dims, seed), Data::random(element, &scales, seed + 1));
        let (bias, dy) = (Data::random(element, &scales, seed + 2), Data::random(element, &dims, seed + 3));
        let mut forward = graph(element);
        let [xi, si, bi] = [&x, &scale, &bias].map(|data| forward.tensor(data.tensor()));
        let eps = epsilon(&mut forward, element);
        let (y, statistics) = if layer {
            let (y, [mean, inverse]) = forward.layer_norm_training(xi, [si, bi], eps, trailing.len());
            (y, vec![mean, inverse])
        } else {
            let (y, inverse) = forward.rms_norm_training(xi, si, Some(bi), eps, trailing.len());
            (y, vec![inverse])
        };
        let outputs: Vec<_> = [y].into_iter().chain(statistics.iter().copied()).collect();
        let found = run(&mut forward, &[(xi, &x), (si, &scale), (bi, &bias)], &outputs, element).unwrap();
        let width = trailing.iter().product::<i64>() as usize;
        // The loss whose gradient is asked for: the sum of dy times the result.
        let result = |x: &[f64], scale: &[f64], bias: &[f64]| -> (Vec<f64>, Vec<f64>, Vec<f64>) {
            let (mut y, mut means, mut inverses) = (Vec::new(), Vec::new(), Vec::new());
            for row in x.chunks(width) {
                let mean = if layer { row.iter().sum::<f64>() / width as f64 } else { 0.0 };
                let spread = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / width as f64;
                let inverse = 1.0 / (spread + 1e-3).sqrt();
                means.push(mean);
                inverses.push(inverse);
                y.extend(row.iter().enumerate().map(|(at, value)| (value - mean) * inverse * scale[at] + bias[at]));
            }
            (y, means, inverses)
        };
        let (wanted, means, inverses) = result(&x.values, &scale.values, &bias.values);
        assert_close(&found[0], &wanted, element);
        if layer {
            assert_close(&found[1], &means, element);
        }
        assert_close(found.last().unwrap(), &inverses, element);

        let statistic: Vec<i64> = leading.iter().copied().chain(trailing.iter().map(|_| 1)).collect();
        let given = |values: &[f64]| Data { values: values.to_vec(), ..Data::random(element, &statistic, 1) };
        let (mean, inverse) = (given(&means), given(&inverses));
        let mut backward = graph(element);
        let [dyi, xi, si, mi, ii] = [&dy, &x, &scale, &mean, &inverse].map(|data| backward.tensor(data.tensor()));
        let (made, mut inputs) = if layer {
            (backward.layer_norm_backward([dyi, xi, si], [mi, ii], trailing.len()).to_vec(), vec![(mi, &mean)])
        } else {
            (backward.rms_norm_backward([dyi, xi, si], ii, trailing.len()).to_vec(), Vec::new())
        };
        inputs.extend([(dyi, &dy), (xi, &x), (si, &scale), (ii, &inverse)]);
        let found = run(&mut backward, &inputs, &made, element).unwrap();
        let loss = |x: &[f64], scale: &[f64], bias: &[f64]| -> f64 {
            result(x, scale, bias).0.iter().zip(&dy.values).map(|(y, dy)| y * dy).sum()
        };
        let slope = |of: &dyn Fn(f64) -> f64| (of(1e-5) - of(-1e-5)) / 2e-5;
        let nudged = |values: &[f64], at: usize, by: f64| {
            let mut values = values.to_vec();
            values[at] += by;
            values
        };
        for (at, &found) in found[0].iter().enumerate() {
            let wanted = slope(&|by| loss(&nudged(&x.values, at, by), &scale.values, &bias.values));
            prop_assert!((found - wanted).abs() < 1e-5 * (1.0 + wanted.abs()), "dx {}: {} {}", at, found, wanted);
        }
        for (at, &found) in found[1].iter().enumerate() {
            let wanted = slope(&|by| loss(&x.values, &nudged(&scale.values, at, by), &bias.values));
            prop_assert!((found - wanted).abs() < 1e-5 * (1.0 + wanted.abs()), "dscale {}: {} {}", at, found, wanted);
        }
    }

    #[test]
    fn batch_norms(
        (batch, channels) in (1i64..4, 1i64..4), spatial in prop::collection::vec(2i64..4, 1..3),
        nhwc in any::<bool>(), seed in 1u64..1000,
    ) {
        let element = Element::F64;
        let dims = [&[batch, channels], &spatial[..]].concat();
        let per_channel: Vec<i64> = (0..dims.len()).map(|axis| if axis == 1 { channels } else { 1 }).collect();
        let x = Data::random(element, &dims, seed).channels_last(nhwc);
        let [scale, bias, before_mean, before_variance] =
            [1, 2, 3, 4].map(|more| Data::random(element, &per_channel, seed + more).map(f64::abs));
        let mut training = graph(element);
        let [xi, si, bi, mi, vi] =
            [&x, &scale, &bias, &before_mean, &before_variance].map(|data| training.tensor(data.tensor()));
        let eps = epsilon(&mut training, element);
        let momentum = training.tensor(Tensor::scalar(Scalar::F64(0.25)));
        let running = RunningStatistics { mean: mi, variance: vi, momentum };
        let (y, [mean, inverse], next) = training.batch_norm_training(xi, [si, bi], eps, Some(running));
        let [next_mean, next_variance] = next.unwrap();
        let inputs = [(xi, &x), (si, &scale), (bi, &bias), (mi, &before_mean), (vi, &before_variance)];
        let found = run(&mut training, &inputs, &[y, mean, inverse, next_mean, next_variance], element).unwrap();
        let of_channel = |channel: i64| -> Vec<f64> {
            indices(&dims).iter().filter(|index| index[1] == channel).map(|index| x.at(index)).collect()
        };
        let statistics: Vec<(f64, f64)> = (0..channels).map(|channel| {
            let values = of_channel(channel);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64)
        }).collect();
        let normed = |mean: &dyn Fn(usize) -> f64, variance: &dyn Fn(usize) -> f64| -> Vec<f64> {
            indices(&dims).iter().map(|index| {
                let c = index[1] as usize;
                (x.at(index) - mean(c)) / (variance(c) + 1e-3).sqrt() * scale.values[c] + bias.values[c]
            }).collect()
        };
        assert_close(&found[0], &normed(&|c| statistics[c].0, &|c| statistics[c].1), element);
        let count = (x.values.len() as i64 / channels) as f64;
        for channel in 0..channels as usize {
            let (mean, variance) = statistics[channel];
            let mix = |before: f64, new: f64| 0.75 * before + 0.25 * new;
            assert_close(&[found[1][channel]], &[mean], element);
            assert_close(&[found[2][channel]], &[1.0 / (variance + 1e-3).sqrt()], element);
            assert_close(&[found[3][channel]], &[mix(before_mean.values[channel], mean)], element);
            let unbiased = variance * count / (count - 1.0);
            assert_close(&[found[4][channel]], &[mix(before_variance.values[channel], unbiased)], element);
        }

        let mut inference = graph(element);
        let [xi, si, bi, mi, vi] =
            [&x, &scale, &bias, &before_mean, &before_variance].map(|data| inference.tensor(data.tensor()));
        let eps = epsilon(&mut inference, element);
        let how = BatchNormStatistics::Variance { variance: vi, epsilon: eps };
        let y = inference.batch_norm_inference(xi, mi, how, [si, bi]);
        let inputs = [(xi, &x), (si, &scale), (bi, &bias), (mi, &before_mean), (vi, &before_variance)];
        let found = run(&mut inference, &inputs, &[y], element).unwrap();
        assert_close(&found[0], &normed(&|c| before_mean.values[c], &|c| before_variance.values[c]), element);
    }
}

fn erf(x: f64) -> f64 {
    // Series and continued fraction, good to double precision for the range of these tests.
    let (mut sum, mut term) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn unary(mode: M, x: f64) -> Option<f64> {
    Some(match mode {
        M::ABS => x.abs(),
        M::CEIL => x.ceil(),
        M::ELU_FWD => {
            if x > 0.0 {
                x
            } else {
                0.5 * x.exp_m1()
            }
        }
        M::ERF => erf(x),
        M::EXP => x.exp(),
        M::FLOOR => x.floor(),
        M::GELU_APPROX_TANH_FWD => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        M::GELU_FWD => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        M::IDENTITY => x,
        M::LOG => x.ln(),
        M::LOGICAL_NOT => f64::from(u8::from(x == 0.0)),
        M::NEG => -x,
        M::RECIPROCAL => 1.0 / x,
        M::RELU_FWD => {
            if x < -0.25 {
                -0.25 + 0.125 * (x + 0.25)
            } else {
                x.min(0.5)
            }
        }
        M::RSQRT => 1.0 / x.sqrt(),
        M::SIGMOID_FWD => sigmoid(x),
        M::SIN => x.sin(),
        M::SOFTPLUS_FWD => (2.0 * x).exp().ln_1p() / 2.0,
        M::SQRT => x.sqrt(),
        M::SWISH_FWD => x * sigmoid(1.5 * x),
        M::TAN => x.tan(),
        M::TANH_FWD => x.tanh(),
        _ => return None,
    })
}

/// The forward mode whose slope a backward mode multiplies by.
fn forward_of(mode: M) -> Option<M> {
    Some(match mode {
        M::ELU_BWD => M::ELU_FWD,
        M::GELU_APPROX_TANH_BWD => M::GELU_APPROX_TANH_FWD,
        M::GELU_BWD => M::GELU_FWD,
        M::RELU_BWD => M::RELU_FWD,
        M::SIGMOID_BWD => M::SIGMOID_FWD,
        M::SOFTPLUS_BWD => M::SOFTPLUS_FWD,
        M::SWISH_BWD => M::SWISH_FWD,
        M::TANH_BWD => M::TANH_FWD,
        _ => return None,
    })
}

fn binary(mode: M, x: f64, y: f64) -> f64 {
    let truth = |value: bool| f64::from(u8::from(value));
    if let Some(forward) = forward_of(mode) {
        let slope = |at: f64| unary(forward, at).unwrap();
        return x * (slope(y + 1e-6) - slope(y - 1e-6)) / 2e-6;
    }
    match mode {
        M::ADD => x + y,
        M::ADD_SQUARE => x + y * y,
        M::CMP_EQ => truth(x == y),
        M::CMP_GE => truth(x >= y),
        M::CMP_GT => truth(x > y),
        M::CMP_LE => truth(x <= y),
        M::CMP_LT => truth(x < y),
        M::CMP_NEQ => truth(x != y),
        M::DIV => x / y,
        M::LOGICAL_AND => truth(x != 0.0 && y != 0.0),
        M::LOGICAL_OR => truth(x != 0.0 || y != 0.0),
        M::MAX => x.max(y),
        M::MIN => x.min(y),
        M::MUL => x * y,
        _ => x - y,
    }
}

#[test]
fn every_pointwise_mode() {
    for &mode in M::ALL {
        for element in [Element::F32, Element::F64, Element::F16, Element::Bf16] {
            let dims = [2, 3, 4];
            let mut graph = graph(element);
            let what = Pointwise {
                relu_lower_clip: Some(-0.25),
                relu_upper_clip: Some(0.5),
                relu_lower_clip_slope: Some(0.125),
                elu_alpha: Some(0.5),
                softplus_beta: Some(2.0),
                swish_beta: Some(1.5),
                axis: Some(1),
                ..Pointwise::from(mode)
            };
            let positive = [M::LOG, M::SQRT, M::RSQRT].contains(&mode);
            let x = Data::random(element, &dims, 7).map(|value| if positive { value.abs() + 0.25 } else { value });
            let y = Data::random(element, &[2, 1, 4], 8).map(|value| if value.abs() < 0.1 { 0.5 } else { value });
            let z = Data::random(element, &dims, 9).map(|value| if value > 0.0 { 1.0 } else { 0.0 });
            let data = [&x, &y, &z];
            let ids: Vec<_> = data[..mode.inputs().unwrap()].iter().map(|data| graph.tensor(data.tensor())).collect();
            let made = graph.pointwise(what, &ids);
            let inputs: Vec<_> = ids.iter().copied().zip(data).collect();
            let found = run(&mut graph, &inputs, &[made], element).unwrap();
            let wanted: Vec<f64> = indices(&dims)
                .iter()
                .map(|index| {
                    let (x, z) = (x.at(index), z.at(index));
                    let y = y.at(&[index[0], 0, index[2]]);
                    match mode {
                        M::GEN_INDEX => index[1] as f64,
                        M::BINARY_SELECT => {
                            if z != 0.0 {
                                x
                            } else {
                                y
                            }
                        }
                        _ => unary(mode, x).unwrap_or_else(|| binary(mode, x, y)),
                    }
                })
                .collect();
            assert_close(
                &found[0],
                &wanted,
                if element == Element::F64 && forward_of(mode).is_some() { Element::F32 } else { element },
            );
        }
    }
}
