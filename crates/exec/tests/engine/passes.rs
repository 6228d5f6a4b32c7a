//! Checks that graphs give the same results with and without passes, and that fused patterns give the expected ones.

use std::sync::{Arc, Mutex};

use exec::host::HostDevice;
use exec::{CompiledPartition, Settings, Watcher};
use graph::ops::Attribute;
use graph::pass::Selection;
use graph::{DType, Graph, Tensor, ValueId};
use proptest::prelude::*;

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, numbers, random, tensor};

fn floats(shape: &[usize], seed: u64) -> Tensor {
    tensor(DType::F32, shape, &random(shape.iter().product(), seed))
}

fn without_passes(graph: Graph) -> CompiledPartition {
    let settings = Settings { passes: Selection::none(), ..Settings::default() };
    CompiledPartition::with(graph, &HostDevice::new(), settings).unwrap()
}

/// How often a pass fired, and the first output with all passes and with none.
fn both(graph: &Graph, pass: &str, inputs: &[Tensor]) -> (usize, Tensor, Tensor) {
    let with = CompiledPartition::new(graph.clone(), &HostDevice::new()).unwrap();
    let without = without_passes(graph.clone());
    assert!(without.fired().is_empty());
    let fired = with.fired().iter().find(|fired| fired.pass == pass).map_or(0, |fired| fired.count);
    let [with, without] = [with, without].map(|program| run_partition(&program, inputs).unwrap().swap_remove(0));
    assert_eq!(with.shape(), without.shape());
    (fired, with, without)
}

/// Fails unless the pass fired once, its result is the expected one, and the unfused graph gives nearly the same.
fn fires(graph: &Graph, pass: &str, inputs: &[Tensor], wanted: &[f64]) {
    let (fired, with, without) = both(graph, pass, inputs);
    assert_eq!(fired, 1, "{pass}");
    assert_close(&numbers(&with), wanted, 2e-5);
    assert_close(&numbers(&without), wanted, 2e-5);
}

/// Fails unless the pass fired once and changed nothing, because the shapes do not match the pattern's operator.
fn falls_back(graph: &Graph, pass: &str, inputs: &[Tensor]) {
    let (fired, with, without) = both(graph, pass, inputs);
    assert_eq!(fired, 1, "{pass}");
    assert_eq!(numbers(&with), numbers(&without));
}

fn layer_norm(build: &mut Build, x: ValueId, axes: &[i64], scale: Tensor, bias: Tensor) -> ValueId {
    let centre = build.mean(x, axes);
    let (two, epsilon) = (build.number(2.0), build.number(1e-3));
    // Some exporters write the difference twice.
    let (one, other) = (build.node("Sub", &[x, centre]), build.node("Sub", &[x, centre]));
    let square = build.node("Pow", &[one, two]);
    let variance = build.mean(square, axes);
    let sum = build.node("Add", &[variance, epsilon]);
    let root = build.node("Sqrt", &[sum]);
    let part = build.node("Div", &[other, root]);
    let (scale, bias) = (build.constant(scale), build.constant(bias));
    let scaled = build.node("Mul", &[part, scale]);
    build.node("Add", &[scaled, bias])
}

fn normalised(x: &Tensor, count: usize, scale: &[f64], bias: &[f64], centre: bool) -> Vec<f64> {
    let rows = numbers(x);
    let rows = rows.chunks(count).flat_map(|row| {
        let mean = if centre { row.iter().sum::<f64>() / count as f64 } else { 0.0 };
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count as f64;
        let root = (variance + 1e-3).sqrt();
        row.iter().enumerate().map(move |(at, v)| (v - mean) / root * scale[at] + bias[at])
    });
    rows.collect()
}

#[test]
fn a_layer_norm_over_the_last_axes() {
    for (axes, count) in [(&[-1i64][..], 4usize), (&[2], 4), (&[-2, -1], 12), (&[2, 1], 12)] {
        let layer = if count == 4 { &[4][..] } else { &[3, 4] };
        let (scale, bias) = (floats(layer, 2), floats(layer, 3));
        let mut build = Build::default();
        let x = build.input();
        let out = layer_norm(&mut build, x, axes, scale.clone(), bias.clone());
        let given = floats(&[2, 3, 4], 1);
        let wanted = normalised(&given, count, &numbers(&scale), &numbers(&bias), true);
        fires(&build.outputs(&[out]), "layer-norm", &[given], &wanted);
    }
}

#[test]
fn a_layer_norm_over_other_axes_or_with_a_broadcasting_scale_is_not_fused() {
    for (axes, given, scale) in
        [(&[0i64][..], &[2usize, 3][..], &[3usize][..]), (&[1, 0], &[2, 3, 4], &[4]), (&[-1], &[3, 1], &[5])]
    {
        let mut build = Build::default();
        let x = build.input();
        let out = layer_norm(&mut build, x, axes, floats(scale, 2), floats(scale, 3));
        falls_back(&build.outputs(&[out]), "layer-norm", &[floats(given, 1)]);
    }
}

#[test]
fn the_layer_norm_of_tensorflow() {
    let mut build = Build::default();
    let x = build.input();
    let centre = build.mean(x, &[-1]);
    let centred = build.node("Sub", &[x, centre]);
    let square = build.node("Mul", &[centred, centred]);
    let variance = build.mean(square, &[-1]);
    let epsilon = build.number(1e-3);
    let sum = build.node("Add", &[variance, epsilon]);
    let root = build.node("Sqrt", &[sum]);
    let inverse = build.node("Reciprocal", &[root]);
    let (given, scale, bias) = (floats(&[2, 5], 1), floats(&[5], 2), floats(&[5], 3));
    let (scales, biases) = (build.constant(scale.clone()), build.constant(bias.clone()));
    let factor = build.node("Mul", &[inverse, scales]);
    let outer = build.node("Mul", &[x, factor]);
    let inner = build.node("Mul", &[centre, factor]);
    let shift = build.node("Sub", &[biases, inner]);
    let out = build.node("Add", &[outer, shift]);
    let wanted = normalised(&given, 5, &numbers(&scale), &numbers(&bias), true);
    fires(&build.outputs(&[out]), "layer-norm", &[given], &wanted);
}

#[test]
fn a_root_mean_square_norm() {
    let mut build = Build::default();
    let x = build.input();
    let (epsilon, exponent) = (build.number(1e-3), build.number(-0.5));
    let square = build.node("Mul", &[x, x]);
    let mean = build.mean(square, &[-1]);
    let sum = build.node("Add", &[epsilon, mean]);
    let inverse = build.node("Pow", &[sum, exponent]);
    let part = build.node("Mul", &[inverse, x]);
    let (given, scale) = (floats(&[3, 6], 1), floats(&[6], 2));
    let scales = build.constant(scale.clone());
    let out = build.node("Mul", &[scales, part]);
    let wanted = normalised(&given, 6, &numbers(&scale), &[0.0; 6], false);
    fires(&build.outputs(&[out]), "rms-norm", &[given], &wanted);
}

/// The error function as an integral, by Simpson's rule, accurate to ten digits.
fn erf(x: f64) -> f64 {
    let steps = 2000;
    let width = x / f64::from(steps);
    let at = |step: i32| (-(width * f64::from(step)).powi(2)).exp();
    let inner: f64 = (1..steps).map(|step| at(step) * if step % 2 == 1 { 4.0 } else { 2.0 }).sum();
    2.0 / std::f64::consts::PI.sqrt() * width / 3.0 * (at(0) + inner + at(steps))
}

#[test]
fn a_gelu_by_the_error_function() {
    let mut build = Build::default();
    let x = build.input();
    let (root, one, half) = (build.number(std::f64::consts::SQRT_2), build.number(1.0), build.number(0.5));
    let inner = build.node("Div", &[x, root]);
    let curve = build.node("Erf", &[inner]);
    let weight = build.node("Add", &[curve, one]);
    let part = build.node("Mul", &[x, weight]);
    let out = build.node("Mul", &[part, half]);
    let given = floats(&[4, 5], 1);
    let wanted: Vec<f64> = numbers(&given).iter().map(|x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt()))).collect();
    fires(&build.outputs(&[out]), "gelu", &[given], &wanted);
}

#[test]
fn a_gelu_by_tanh() {
    let mut build = Build::default();
    let x = build.input();
    let [slope, share, one, half, three] = [0.797_884_56, 0.044_715, 1.0, 0.5, 3.0].map(|number| build.number(number));
    let cube = build.node("Pow", &[x, three]);
    let part = build.node("Mul", &[cube, share]);
    let sum = build.node("Add", &[x, part]);
    let inner = build.node("Mul", &[slope, sum]);
    let curve = build.node("Tanh", &[inner]);
    let weight = build.node("Add", &[one, curve]);
    let part = build.node("Mul", &[half, x]);
    let out = build.node("Mul", &[part, weight]);
    let given = floats(&[4, 5], 1);
    let slope = (2.0 / std::f64::consts::PI).sqrt();
    let wanted = numbers(&given)
        .iter()
        .map(|x| 0.5 * x * (1.0 + (slope * (x + 0.044_715 * x.powi(3))).tanh()))
        .collect::<Vec<_>>();
    fires(&build.outputs(&[out]), "gelu", &[given], &wanted);
}

#[test]
fn a_silu_with_and_without_an_extra_axis() {
    for alpha in [None, Some(tensor(DType::F32, &[], &[1.702])), Some(tensor(DType::F32, &[1], &[1.702]))] {
        let mut build = Build::default();
        let x = build.input();
        let factor = alpha.as_ref().map_or(1.0, |alpha| numbers(alpha)[0]);
        let inner = alpha.map_or(x, |alpha| {
            let alpha = build.constant(alpha);
            build.node("Mul", &[x, alpha])
        });
        let gate = build.node("Sigmoid", &[inner]);
        let out = build.node("Mul", &[gate, x]);
        let graph = build.outputs(&[out]);
        for given in [floats(&[2, 3], 1), floats(&[], 2)] {
            let wanted: Vec<f64> = numbers(&given).iter().map(|x| x / (1.0 + (-factor * x).exp())).collect();
            fires(&graph, "silu", &[given], &wanted);
        }
    }
}

fn attention(build: &mut Build, axis: i64, mask: bool) -> ValueId {
    let (q, k, v) = (build.input(), build.input(), build.input());
    let scale = build.number(0.25);
    let mut scores = build.node("MatMul", &[q, k]);
    scores = build.node("Mul", &[scores, scale]);
    if mask {
        let mask = build.input();
        scores = build.node("Add", &[scores, mask]);
    }
    let weights = build.with("Softmax", &[scores], &[("axis", Attribute::Int(axis))]);
    build.node("MatMul", &[weights, v])
}

#[test]
fn attention_of_heads_with_and_without_a_mask() {
    let (batch, heads, rows, size, total, width) = (2, 3, 4, 5, 6, 7);
    let (q, k) = (floats(&[batch, heads, rows, size], 1), floats(&[batch, heads, size, total], 2));
    let (v, mask) = (floats(&[batch, heads, total, width], 3), floats(&[batch, 1, 1, total], 4));
    for with_mask in [false, true] {
        let mut wanted = Vec::new();
        for (head, row) in (0..batch * heads).flat_map(|head| (0..rows).map(move |row| (head, row))) {
            let query = &numbers(&q)[(head * rows + row) * size..][..size];
            let scores: Vec<f64> = (0..total)
                .map(|at| {
                    let keys = (0..size).map(|inner| query[inner] * numbers(&k)[(head * size + inner) * total + at]);
                    let hidden = if with_mask { numbers(&mask)[head / heads * total + at] } else { 0.0 };
                    (keys.sum::<f64>() * 0.25 + hidden).exp()
                })
                .collect();
            let sum: f64 = scores.iter().sum();
            wanted.extend((0..width).map(|column| {
                let parts = (0..total).map(|at| scores[at] / sum * numbers(&v)[(head * total + at) * width + column]);
                parts.sum::<f64>()
            }));
        }
        let mut build = Build::default();
        let out = attention(&mut build, -1, with_mask);
        let mut inputs = vec![q.clone(), k.clone(), v.clone()];
        if with_mask {
            inputs.push(mask.clone());
        }
        fires(&build.outputs(&[out]), "attention", &inputs, &wanted);
    }
}

#[test]
fn attention_of_a_value_to_itself_is_not_fused() {
    let mut build = Build::default();
    let x = build.input();
    let turned = build.with("Transpose", &[x], &[("perm", Attribute::Ints(vec![0, 2, 1]))]);
    let scores = build.node("MatMul", &[x, turned]);
    let weights = build.node("Softmax", &[scores]);
    let out = build.node("MatMul", &[weights, x]);
    falls_back(&build.outputs(&[out]), "attention", &[floats(&[2, 4, 3], 1)]);
}

#[test]
fn attention_of_other_shapes_is_not_fused() {
    type Shape = &'static [usize];
    let shapes: [(i64, [Shape; 3], Option<Shape>); 5] = [
        // Without heads, with keys shared by all batches, along another axis, broadcast by a mask, and empty.
        (-1, [&[2, 4, 5], &[2, 5, 6], &[2, 6, 3]], None),
        (-1, [&[2, 3, 4, 5], &[1, 1, 5, 6], &[1, 3, 6, 3]], None),
        (2, [&[2, 3, 4, 5], &[2, 3, 5, 6], &[2, 3, 6, 3]], None),
        (-1, [&[1, 1, 4, 5], &[1, 1, 5, 6], &[1, 1, 6, 3]], Some(&[2, 3, 4, 6])),
        (-1, [&[1, 2, 4, 5], &[1, 2, 5, 0], &[1, 2, 0, 3]], None),
    ];
    for (axis, given, mask) in shapes {
        let mut build = Build::default();
        let out = attention(&mut build, axis, mask.is_some());
        let inputs: Vec<Tensor> =
            given.into_iter().chain(mask).map(|shape| floats(shape, shape.len() as u64)).collect();
        falls_back(&build.outputs(&[out]), "attention", &inputs);
    }
}

#[test]
fn every_stage_is_seen_in_order() {
    let mut build = Build::default();
    let x = build.input();
    let same = build.node("Identity", &[x]);
    let gate = build.node("Sigmoid", &[same]);
    let out = build.node("Mul", &[same, gate]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let stages = seen.clone();
    let watcher: Watcher =
        Arc::new(move |stage, text| stages.lock().unwrap().push((stage.to_owned(), text.to_string())));
    let settings = Settings { watcher: Some(watcher), ..Settings::default() };
    let program = CompiledPartition::with(build.outputs(&[out]), &HostDevice::new(), settings).unwrap();
    for shape in [&[2, 3][..], &[4], &[2, 3]] {
        run_partition(&program, &[floats(shape, 1)]).unwrap();
    }
    let seen = seen.lock().unwrap();
    let stages: Vec<&str> = seen.iter().map(|(stage, _)| stage.as_str()).collect();
    assert_eq!(stages[..4], ["imported", "no-ops", "dead-code", "silu"]);
    let of_plan = |number| {
        ["lowered", "integer-products", "fused", "folded", "scaled-products", "epilogues", "rotary-append", "placed"]
            .map(|stage| format!("plan-{number}-{stage}"))
    };
    assert_eq!(stages[4..], [of_plan(0), of_plan(1)].concat());
    assert!(seen.iter().all(|(_, text)| text.ends_with('\n')));
}

/// A node of a random graph: an operator, and the indices of its operands in the list of values.
type Choice = (u8, usize, usize);

/// Mixes the operators of patterns with unrelated ones, on values of one shape.
fn random_graph(choices: &[Choice], wanted: &[usize]) -> Graph {
    let mut build = Build::default();
    let mut values = vec![build.input(), build.input()];
    let numbers = [0.5, 1.0, 2.0, std::f64::consts::SQRT_2, 1e-3].map(|number| build.number(number));
    let scale = build.constant(floats(&[3, 3], 9));
    for &(op, a, b) in choices {
        let (x, y) = (values[a % values.len()], values[b % values.len()]);
        let number = numbers[b % numbers.len()];
        let order = |order: [i64; 2]| [("perm", Attribute::Ints(order.to_vec()))];
        let made = match op % 18 {
            0 => build.node("Add", &[x, y]),
            1 => build.node("Mul", &[x, y]),
            2 => build.node("Sub", &[x, y]),
            3 => build.node("Mul", &[x, number]),
            4 => build.node("Add", &[number, x]),
            5 => build.node("Div", &[x, number]),
            6 => build.node("Sigmoid", &[x]),
            7 => build.node("Erf", &[x]),
            8 => build.node("Tanh", &[x]),
            9 => build.node("Identity", &[x]),
            10 => build.with("Transpose", &[x], &order([1, 0])),
            11 => build.with("Transpose", &[x], &order([0, 1])),
            12 => build.node("MatMul", &[x, y]),
            13 => build.with("Softmax", &[x], &[("axis", Attribute::Int(if b % 3 == 0 { 0 } else { -1 }))]),
            14 => {
                let gate = build.node("Sigmoid", &[x]);
                build.node("Mul", &[gate, y])
            }
            15 => {
                let axis = if b % 4 == 0 { 0 } else { -1 };
                let mean = build.mean(x, &[axis]);
                let centred = build.node("Sub", &[x, mean]);
                let square = build.node("Mul", &[centred, centred]);
                let variance = build.mean(square, &[-1]);
                let sum = build.node("Add", &[variance, numbers[4]]);
                let root = build.node("Sqrt", &[sum]);
                let part = build.node("Div", &[if b % 5 == 0 { x } else { centred }, root]);
                values.push(if b % 2 == 0 { part } else { centred });
                build.node("Mul", &[part, scale])
            }
            16 => {
                let inner = build.node("Div", &[x, numbers[3]]);
                let curve = build.node("Erf", &[inner]);
                let weight = build.node("Add", &[curve, numbers[1]]);
                let part = build.node("Mul", &[if b % 3 == 0 { y } else { x }, weight]);
                build.node("Mul", &[part, numbers[0]])
            }
            _ => {
                let shapes = [&[9i64][..], &[3, 3]].map(Tensor::from_i64s);
                let [flat, square] = shapes.map(|shape| build.constant(shape));
                let row = build.node("Reshape", &[x, flat]);
                build.node("Reshape", &[row, square])
            }
        };
        values.push(made);
    }
    let mut outputs: Vec<ValueId> = wanted.iter().map(|at| values[at % values.len()]).collect();
    outputs.push(values[values.len() - 1]);
    build.outputs(&outputs)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn random_graphs_give_the_same_results_with_and_without_passes(
        choices in prop::collection::vec((any::<u8>(), 0usize..40, 0usize..40), 1..20),
        wanted in prop::collection::vec(0usize..40, 0..3),
    ) {
        let graph = random_graph(&choices, &wanted);
        let inputs = [floats(&[3, 3], 1), floats(&[3, 3], 2)];
        let programs = [CompiledPartition::new(graph.clone(), &HostDevice::new()).unwrap(), without_passes(graph)];
        let [with, without] = programs.map(|program| run_partition(&program, &inputs).unwrap());
        for (with, without) in with.iter().zip(&without) {
            prop_assert_eq!(with.shape(), without.shape());
            let (with, without) = (numbers(with), numbers(without));
            let largest = without.iter().fold(1.0f64, |largest, value| largest.max(value.abs()));
            for (found, wanted) in with.iter().zip(&without) {
                let close = (found - wanted).abs() <= 1e-4 * largest || found == wanted || !wanted.is_finite();
                prop_assert!(close, "{} instead of {}", found, wanted);
            }
        }
    }
}
