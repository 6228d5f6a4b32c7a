//! Recurrent layers against the operators' equations, element by element in double precision.
#![allow(clippy::unwrap_used, clippy::panic)]
mod support;

use graph::{
    DType, Prim,
    prim::{Activation, ActivationKind, Cell, Recurrent, RecurrentInputs},
};
use proptest::prelude::*;
use support::{Data, Layout, Out, assert_near, run};

const KINDS: [ActivationKind; 11] = [
    ActivationKind::Sigmoid,
    ActivationKind::Tanh,
    ActivationKind::Relu,
    ActivationKind::Affine,
    ActivationKind::LeakyRelu,
    ActivationKind::ThresholdedRelu,
    ActivationKind::ScaledTanh,
    ActivationKind::HardSigmoid,
    ActivationKind::Elu,
    ActivationKind::Softsign,
    ActivationKind::Softplus,
];

fn activate(activation: Activation, clip: Option<f32>, x: f64) -> f64 {
    let x = clip.map_or(x, |clip| x.clamp(-f64::from(clip), f64::from(clip)));
    let (alpha, beta) = (f64::from(activation.alpha), f64::from(activation.beta));
    match activation.kind {
        ActivationKind::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        ActivationKind::Tanh => x.tanh(),
        ActivationKind::Relu => x.max(0.0),
        ActivationKind::Affine => alpha * x + beta,
        ActivationKind::LeakyRelu => x.max(0.0) + alpha * x.min(0.0),
        ActivationKind::ThresholdedRelu if x >= alpha => x,
        ActivationKind::ThresholdedRelu => 0.0,
        ActivationKind::ScaledTanh => alpha * (beta * x).tanh(),
        ActivationKind::HardSigmoid => (alpha * x + beta).clamp(0.0, 1.0),
        ActivationKind::Elu => x.max(0.0) + alpha * x.min(0.0).exp_m1(),
        ActivationKind::Softsign => x / (1.0 + x.abs()),
        ActivationKind::Softplus => x.exp().ln_1p(),
    }
}

struct Case {
    prim: Recurrent,
    dtype: DType,
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    layout: Layout,
}

impl Case {
    fn gates(&self) -> usize {
        match self.prim.cell {
            Cell::Lstm => 4,
            Cell::Gru { .. } => 3,
            Cell::Rnn => 1,
        }
    }

    fn check(&self, seed: u64) {
        let Self { prim, dtype, steps, batch, input, hidden, layout } = self;
        let (dtype, steps, batch, input, hidden) = (*dtype, *steps, *batch, *input, *hidden);
        let all = self.gates() * hidden;
        let noise = |shape: &[usize], salt: u64| {
            let mut data = Data::noise(dtype, shape, seed * 10 + salt);
            data = Data::new(dtype, shape, data.values.iter().map(|value| value / 4.0).collect());
            data.laid(*layout)
        };
        let (x, w, r) = (noise(&[steps, batch, input], 1), noise(&[all, input], 2), noise(&[all, hidden], 3));
        let bias = noise(&[2 * all], 4);
        let lengths: Vec<f64> = (0..batch).map(|b| ((seed as usize + b * 3) % (steps + 1)) as f64).collect();
        let lengths = Data::new(DType::I32, &[batch], lengths);
        let (h0, c0) = (noise(&[batch, hidden], 5), noise(&[batch, hidden], 6));
        let peepholes = noise(&[3 * hidden], 7);
        let mut inputs = vec![x.clone(), w.clone(), r.clone()];
        for (is_there, data) in [
            (prim.has.bias, &bias),
            (prim.has.lengths, &lengths),
            (prim.has.initial_h, &h0),
            (prim.has.initial_c, &c0),
            (prim.has.peepholes, &peepholes),
        ] {
            if is_there {
                inputs.push(data.clone());
            }
        }
        let mut outs = vec![
            Out::new(dtype, &[steps, batch, hidden]).laid(*layout),
            Out::new(dtype, &[batch, hidden]).laid(*layout),
        ];
        if prim.cell == Cell::Lstm {
            outs.push(Out::new(dtype, &[batch, hidden]));
        }
        let got = run(Prim::Recurrent(prim.clone()), &inputs, &outs).unwrap();

        let mut want_y = vec![0.0; steps * batch * hidden];
        let (mut want_h, mut want_c) = (vec![0.0; batch * hidden], vec![0.0; batch * hidden]);
        let act = |at: usize, x: f64| activate(prim.activations[at], prim.clip, x);
        for b in 0..batch {
            let initial = |has: bool, data: &Data, j: usize| if has { data.at(&[b, j]) } else { 0.0 };
            let mut h: Vec<f64> = (0..hidden).map(|j| initial(prim.has.initial_h, &h0, j)).collect();
            let mut c: Vec<f64> = (0..hidden).map(|j| initial(prim.has.initial_c, &c0, j)).collect();
            let length = if prim.has.lengths { lengths.values[b] as usize } else { steps };
            let order: Vec<usize> = if prim.reverse { (0..length).rev().collect() } else { (0..length).collect() };
            for t in order {
                let wb = |row: usize| if prim.has.bias { bias.values[row] } else { 0.0 };
                let rb = |row: usize| if prim.has.bias { bias.values[all + row] } else { 0.0 };
                let from_x = |row: usize| (0..input).map(|k| x.at(&[t, b, k]) * w.at(&[row, k])).sum::<f64>() + wb(row);
                let from_h = |row: usize, h: &[f64]| (0..hidden).map(|k| h[k] * r.at(&[row, k])).sum::<f64>() + rb(row);
                let peephole = |at: usize, c: f64, j: usize| {
                    if prim.has.peepholes { peepholes.values[at * hidden + j] * c } else { 0.0 }
                };
                let gate = |at: usize, j: usize| from_x(at * hidden + j) + from_h(at * hidden + j, &h);
                match prim.cell {
                    Cell::Rnn => h = (0..hidden).map(|j| act(0, gate(0, j))).collect(),
                    Cell::Gru { linear_before_reset } => {
                        let z: Vec<f64> = (0..hidden).map(|j| act(0, gate(0, j))).collect();
                        let reset: Vec<f64> = (0..hidden).map(|j| act(0, gate(1, j))).collect();
                        let reset_h: Vec<f64> = h.iter().zip(&reset).map(|(h, r)| h * r).collect();
                        let new = |j: usize| {
                            let row = 2 * hidden + j;
                            let part =
                                if linear_before_reset { reset[j] * from_h(row, &h) } else { from_h(row, &reset_h) };
                            act(1, from_x(row) + part)
                        };
                        h = (0..hidden).map(|j| (1.0 - z[j]) * new(j) + z[j] * h[j]).collect();
                    }
                    Cell::Lstm => {
                        let next = (0..hidden)
                            .map(|j| {
                                let i = act(0, gate(0, j) + peephole(0, c[j], j));
                                let f =
                                    if prim.input_forget { 1.0 - i } else { act(0, gate(2, j) + peephole(2, c[j], j)) };
                                let cell = f * c[j] + i * act(1, gate(3, j));
                                let o = act(0, gate(1, j) + peephole(1, cell, j));
                                (o * activate(prim.activations[2], None, cell), cell)
                            })
                            .collect::<Vec<(f64, f64)>>();
                        (h, c) = next.into_iter().unzip();
                    }
                }
                want_y[(t * batch + b) * hidden..][..hidden].copy_from_slice(&h);
            }
            want_h[b * hidden..][..hidden].copy_from_slice(&h);
            want_c[b * hidden..][..hidden].copy_from_slice(&c);
        }
        let tolerance = match dtype {
            DType::F64 => 1e-9,
            DType::F32 => 2e-5,
            _ => 5e-3,
        };
        assert_near(&got[0], &want_y, tolerance, prim);
        assert_near(&got[1], &want_h, tolerance, prim);
        if prim.cell == Cell::Lstm {
            assert_near(&got[2], &want_c, tolerance, prim);
        }
    }
}

fn activation(kind: ActivationKind) -> Activation {
    Activation { kind, alpha: 0.4, beta: 0.3 }
}

fn standard(cell: Cell) -> Vec<Activation> {
    let (s, t) = (activation(ActivationKind::Sigmoid), activation(ActivationKind::Tanh));
    match cell {
        Cell::Lstm => vec![s, t, t],
        Cell::Gru { .. } => vec![s, t],
        Cell::Rnn => vec![t],
    }
}

const CELLS: [Cell; 4] =
    [Cell::Lstm, Cell::Gru { linear_before_reset: false }, Cell::Gru { linear_before_reset: true }, Cell::Rnn];

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn follows_the_equations(
        cell in prop::sample::select(&CELLS[..]),
        kinds in prop::collection::vec(prop::sample::select(&KINDS[..]), 3),
        flags in (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        clip in prop::option::of(0.2f32..1.5),
        dtype in prop::sample::select(vec![DType::F32, DType::F64]),
        extents in (1usize..5, 1usize..4, 1usize..6, 1usize..9),
        layout in prop::sample::select(&Layout::ALL[..]),
        seed in 0u64..1000,
    ) {
        let is_lstm = cell == Cell::Lstm;
        let (reverse, input_forget, bias, lengths, initial_h, initial_c, peepholes) = flags;
        let has = RecurrentInputs { bias, lengths, initial_h, initial_c: initial_c && is_lstm, peepholes: peepholes && is_lstm };
        let activations = kinds.into_iter().take(standard(cell).len()).map(activation).collect();
        let prim = Recurrent { cell, reverse, activations, clip, input_forget: input_forget && is_lstm, has };
        let (steps, batch, input, hidden) = extents;
        Case { prim, dtype, steps, batch, input, hidden, layout }.check(seed);
    }
}

#[test]
fn wide_layers_use_whole_strips() {
    for cell in CELLS {
        for (batch, dtype) in [(1, DType::F32), (5, DType::F32), (2, DType::F16)] {
            let has = RecurrentInputs { bias: true, ..Default::default() };
            let prim =
                Recurrent { cell, reverse: false, activations: standard(cell), clip: None, input_forget: false, has };
            Case { prim, dtype, steps: 3, batch, input: 20, hidden: 35, layout: Layout::Dense }.check(4);
        }
    }
}
