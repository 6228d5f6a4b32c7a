//! Compares recurrent layers with loops in double precision.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, tensor};

const STEPS: usize = 4;
const BATCH: usize = 3;
const WIDTH: usize = 2;
const HIDDEN: usize = 5;

type Activation = fn(f64) -> f64;
/// The states h and c.
type States = (Vec<f64>, Vec<f64>);
/// Maps the direction, x, h and c to the next states.
type Step<'a> = dyn Fn(usize, &[f64], &[f64], &[f64]) -> States + 'a;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The parameters of a layer, for all directions.
struct Layer {
    gates: usize,
    x: Array,
    w: Array,
    r: Array,
    bias: Array,
    h: Array,
    c: Array,
    peepholes: Array,
    lengths: Vec<usize>,
}

impl Layer {
    fn new(gates: usize, directions: usize) -> Self {
        let random = |shape: &[usize], seed| {
            let array = Array::random(DType::F32, shape, seed);
            Array { values: array.values.iter().map(|value| value * 0.5).collect(), ..array }
        };
        Self {
            gates,
            x: random(&[STEPS, BATCH, WIDTH], 1),
            w: random(&[directions, gates * HIDDEN, WIDTH], 2),
            r: random(&[directions, gates * HIDDEN, HIDDEN], 3),
            bias: random(&[directions, 2 * gates * HIDDEN], 4),
            h: random(&[directions, BATCH, HIDDEN], 5),
            c: random(&[directions, BATCH, HIDDEN], 6),
            peepholes: random(&[directions, 3 * HIDDEN], 7),
            lengths: vec![STEPS; BATCH],
        }
    }

    fn inputs(&self) -> Vec<Option<Tensor>> {
        let lengths: Vec<f64> = self.lengths.iter().map(|&length| length as f64).collect();
        let arrays = [&self.x, &self.w, &self.r, &self.bias].map(|array| Some(array.tensor(DType::F32)));
        let mut inputs = arrays.to_vec();
        inputs.push(Some(tensor(DType::I32, &[BATCH], &lengths)));
        inputs.push(Some(self.h.tensor(DType::F32)));
        if self.gates == 4 {
            inputs.extend([&self.c, &self.peepholes].map(|array| Some(array.tensor(DType::F32))));
        }
        inputs
    }

    /// The inputs of one gate for one unit: the product with x and the product with a state, each with its bias.
    fn gate(&self, direction: usize, gate: usize, unit: usize, x: &[f64], state: &[f64]) -> (f64, f64) {
        let row = gate * HIDDEN + unit;
        let from_x: f64 = (0..WIDTH).map(|at| self.w.at(&[direction, row, at]) * x[at]).sum();
        let from_h: f64 = (0..HIDDEN).map(|at| self.r.at(&[direction, row, at]) * state[at]).sum();
        let bias = |at: usize| self.bias.at(&[direction, at]);
        (from_x + bias(row), from_h + bias(self.gates * HIDDEN + row))
    }

    /// Runs one sequence in one direction. Returns all states h, and the last states.
    fn run(&self, direction: usize, batch: usize, reverse: bool, step: &Step<'_>) -> (Vec<Vec<f64>>, States) {
        let state = |array: &Array| (0..HIDDEN).map(|unit| array.at(&[direction, batch, unit])).collect::<Vec<_>>();
        let (mut h, mut c) = (state(&self.h), state(&self.c));
        let mut y = vec![vec![0.0; HIDDEN]; STEPS];
        let length = self.lengths[batch];
        for at in 0..length {
            let at = if reverse { length - 1 - at } else { at };
            let x: Vec<f64> = (0..WIDTH).map(|input| self.x.at(&[at, batch, input])).collect();
            (h, c) = step(direction, &x, &h, &c);
            y[at] = h.clone();
        }
        (y, (h, c))
    }

    /// Compares the outputs of a case with the loops.
    fn check(&self, case: Case, reversed: &[bool], step: &Step<'_>) {
        let found = case.run().unwrap();
        let count = reversed.len();
        let (mut y, mut last_h, mut last_c) = (
            vec![0.0; STEPS * count * BATCH * HIDDEN],
            vec![0.0; count * BATCH * HIDDEN],
            vec![0.0; count * BATCH * HIDDEN],
        );
        for (direction, &reverse) in reversed.iter().enumerate() {
            for batch in 0..BATCH {
                let (rows, (h, c)) = self.run(direction, batch, reverse, step);
                for unit in 0..HIDDEN {
                    for (at, row) in rows.iter().enumerate() {
                        y[((at * count + direction) * BATCH + batch) * HIDDEN + unit] = row[unit];
                    }
                    last_h[(direction * BATCH + batch) * HIDDEN + unit] = h[unit];
                    last_c[(direction * BATCH + batch) * HIDDEN + unit] = c[unit];
                }
            }
        }
        assert_close(&numbers(&found[0]), &y, 1e-5);
        assert_close(&numbers(&found[1]), &last_h, 1e-5);
        if let Some(c) = found.get(2) {
            assert_close(&numbers(c), &last_c, 1e-5);
        }
    }
}

fn case(op_type: &'static str, layer: &Layer, direction: &str) -> Case {
    let outputs = if layer.gates == 4 { vec![DType::F32; 3] } else { vec![DType::F32; 2] };
    let mut case = Case::new(op_type, 14, Vec::new(), &outputs)
        .attribute("hidden_size", Attribute::Int(HIDDEN as i64))
        .attribute("direction", Attribute::Text(direction.to_owned()));
    case.inputs = layer.inputs();
    case
}

const DIRECTIONS: [(&str, &[bool]); 3] =
    [("forward", &[false]), ("reverse", &[true]), ("bidirectional", &[false, true])];

/// One step of an LSTM with the activations f, g and h.
fn lstm_step(
    layer: &Layer,
    [f, g, h_of]: [Activation; 3],
    clip: f64,
) -> impl Fn(usize, &[f64], &[f64], &[f64]) -> States {
    move |direction, x, h, c| {
        let units = (0..HIDDEN).map(|unit| {
            let gate = |gate| {
                let (a, b) = layer.gate(direction, gate, unit, x, h);
                a + b
            };
            let peephole = |at: usize| layer.peepholes.at(&[direction, at * HIDDEN + unit]);
            let clipped = |value: f64| value.clamp(-clip, clip);
            let input = f(clipped(gate(0) + peephole(0) * c[unit]));
            let forget = f(clipped(gate(2) + peephole(2) * c[unit]));
            let next_c = forget * c[unit] + input * g(clipped(gate(3)));
            let output = f(clipped(gate(1) + peephole(1) * next_c));
            (output * h_of(next_c), next_c)
        });
        units.unzip()
    }
}

#[test]
fn lstms_in_every_direction_with_peepholes() {
    for (name, reversed) in DIRECTIONS {
        let layer = Layer::new(4, reversed.len());
        layer.check(
            case("LSTM", &layer, name),
            reversed,
            &lstm_step(&layer, [sigmoid, f64::tanh, f64::tanh], f64::MAX),
        );
    }
}

#[test]
fn integer_weights_stand_for_multiples_of_their_scales() {
    for (name, reversed) in DIRECTIONS {
        for (dtype, by_gate) in [(DType::U8, false), (DType::I8, true)] {
            let mut layer = Layer::new(4, reversed.len());
            let count = reversed.len();
            let (gates, low) = (4 * HIDDEN, if dtype == DType::I8 { -128.0 } else { 0.0 });
            let shape = if by_gate { vec![count, gates] } else { vec![count] };
            let scale = Array::of(&shape, |at| (1 + at.iter().sum::<usize>() % 5) as f64 / 1024.0);
            let zero = Array::of(&shape, |at| low + 120.0 + at.iter().sum::<usize>() as f64);
            let random = |width: usize, seed: u64| {
                let numbers = Array::random(DType::F32, &[count, width, gates], seed);
                Array::of(&numbers.shape, |at| (numbers.at(at) * 1e4).rem_euclid(256.0).floor() + low)
            };
            let integers = [random(WIDTH, 8), random(HIDDEN, 9)];
            // An LSTM has the gates before the width.
            let floats = |integers: &Array| {
                Array::of(&[count, gates, integers.shape[1]], |at| {
                    let of = |array: &Array| if by_gate { array.at(&at[..2]) } else { array.at(&at[..1]) };
                    (integers.at(&[at[0], at[2], at[1]]) - of(&zero)) * of(&scale)
                })
            };
            (layer.w, layer.r) = (floats(&integers[0]), floats(&integers[1]));
            let mut case = case("DynamicQuantizeLSTM", &layer, name);
            (case.domain, case.since_version) = ("com.microsoft", 1);
            for (at, integers) in integers.iter().enumerate() {
                case.inputs[1 + at] = Some(integers.tensor(dtype));
                case.inputs.extend([Some(scale.tensor(DType::F32)), Some(zero.tensor(dtype))]);
            }
            layer.check(case, reversed, &lstm_step(&layer, [sigmoid, f64::tanh, f64::tanh], f64::MAX));
        }
    }
}

#[test]
fn short_sequences_end_early_and_are_reversed_in_place() {
    for (name, reversed) in DIRECTIONS {
        let layer = Layer { lengths: vec![2, 4, 1], ..Layer::new(4, reversed.len()) };
        layer.check(
            case("LSTM", &layer, name),
            reversed,
            &lstm_step(&layer, [sigmoid, f64::tanh, f64::tanh], f64::MAX),
        );
    }
}

#[test]
fn activations_take_their_parameters_in_order() {
    let layer = Layer::new(4, 1);
    let names = ["HardSigmoid", "LeakyRelu", "ScaledTanh"].map(str::to_owned).to_vec();
    let case = case("LSTM", &layer, "forward")
        .attribute("activations", Attribute::Texts(names))
        .attribute("activation_alpha", Attribute::Floats(vec![0.25, 0.125, 1.5]))
        .attribute("activation_beta", Attribute::Floats(vec![0.375, 0.75]));
    let hard: Activation = |x| (0.25 * x + 0.375).clamp(0.0, 1.0);
    let leaky: Activation = |x| if x < 0.0 { 0.125 * x } else { x };
    let scaled: Activation = |x| 1.5 * (0.75 * x).tanh();
    layer.check(case, &[false], &lstm_step(&layer, [hard, leaky, scaled], f64::MAX));
}

#[test]
fn grus_reset_before_or_after_the_product() {
    for (name, reversed) in DIRECTIONS {
        for linear in [false, true] {
            let layer = Layer { lengths: vec![4, 3, 2], ..Layer::new(3, reversed.len()) };
            let step = |direction: usize, x: &[f64], h: &[f64], _: &[f64]| {
                let gate = |gate, unit| {
                    let (a, b) = layer.gate(direction, gate, unit, x, h);
                    sigmoid(a + b)
                };
                let reset: Vec<f64> = (0..HIDDEN).map(|unit| gate(1, unit)).collect();
                let kept: Vec<f64> = (0..HIDDEN).map(|unit| reset[unit] * h[unit]).collect();
                let next = (0..HIDDEN).map(|unit| {
                    let hidden = if linear {
                        let (a, b) = layer.gate(direction, 2, unit, x, h);
                        a + reset[unit] * b
                    } else {
                        let (a, b) = layer.gate(direction, 2, unit, x, &kept);
                        a + b
                    };
                    let update = gate(0, unit);
                    (1.0 - update) * hidden.tanh() + update * h[unit]
                });
                (next.collect(), vec![0.0; HIDDEN])
            };
            let case = case("GRU", &layer, name).attribute("linear_before_reset", Attribute::Int(i64::from(linear)));
            layer.check(case, reversed, &step);
        }
    }
}

#[test]
fn plain_layers_clip_the_input_of_their_activation() {
    for clip in [f64::MAX, 0.5] {
        let layer = Layer::new(1, 1);
        let step = |direction: usize, x: &[f64], h: &[f64], _: &[f64]| {
            let next = (0..HIDDEN).map(|unit| {
                let (a, b) = layer.gate(direction, 0, unit, x, h);
                (a + b).clamp(-clip, clip).max(0.0)
            });
            (next.collect(), vec![0.0; HIDDEN])
        };
        let mut case =
            case("RNN", &layer, "forward").attribute("activations", Attribute::Texts(vec!["Relu".to_owned()]));
        if clip < 1.0 {
            case = case.attribute("clip", Attribute::Float(clip as f32));
        }
        layer.check(case, &[false], &step);
    }
}

#[test]
fn layout_1_is_layout_0_with_axes_swapped() {
    for op_type in ["LSTM", "GRU", "RNN"] {
        let gates = match op_type {
            "LSTM" => 4,
            "GRU" => 3,
            _ => 1,
        };
        let layer = Layer::new(gates, 2);
        let plain = case(op_type, &layer, "bidirectional").run().unwrap();
        let mut swapped = case(op_type, &layer, "bidirectional").attribute("layout", Attribute::Int(1));
        let turned = |array: &Array| {
            let shape = [array.shape[1], array.shape[0], array.shape[2]];
            Array::of(&shape, |index| array.at(&[index[1], index[0], index[2]])).tensor(DType::F32)
        };
        for at in [0, 5, 6] {
            if let Some(Some(input)) = swapped.inputs.get_mut(at) {
                *input = turned(&Array::from(&*input));
            }
        }
        let found = swapped.run().unwrap();
        let y = Array::from(&plain[0]);
        let wanted = Array::of(&[BATCH, STEPS, 2, HIDDEN], |index| y.at(&[index[1], index[2], index[0], index[3]]));
        assert_eq!(numbers(&found[0]), wanted.values, "{op_type}");
        for at in 1..found.len() {
            assert_eq!(numbers(&found[at]), numbers(&turned(&Array::from(&plain[at]))), "{op_type}");
        }
    }
}

#[test]
fn an_lstm_clips_its_gates_but_not_its_cell_like_onnx_runtime() {
    let list = |count: usize, step: usize, modulus: usize, plus: f64| -> Vec<f64> {
        (0..count).map(|at| (at * step % modulus) as f64 / modulus as f64 + plus).collect()
    };
    let inputs = vec![
        tensor(DType::F32, &[5, 1, 2], &list(10, 7, 10, -0.3)),
        tensor(DType::F32, &[1, 8, 2], &list(16, 5, 17, -0.3)),
        tensor(DType::F32, &[1, 8, 2], &list(16, 3, 13, -0.3)),
        tensor(DType::F32, &[1, 16], &list(16, 11, 19, 0.0)),
    ];
    let case = Case::new("LSTM", 14, inputs, &[DType::F32; 3])
        .attribute("hidden_size", Attribute::Int(2))
        .attribute("clip", Attribute::Float(0.4));
    let found = case.run().unwrap();
    // The results of ONNX Runtime 1.31.1's CPU provider. A cell clipped to 0.4 would give 0.227 at the end.
    let y = [0.133_882_7, 0.208_600_22, 0.250_212_04, 0.273_830_21, 0.287_479_37];
    let y: Vec<f64> = y.iter().flat_map(|&value| [value, value]).collect();
    assert_close(&numbers(&found[0]), &y, 1e-6);
    assert_close(&numbers(&found[2]), &[0.523_221_49; 2], 1e-6);
}
