//! Recurrent layers, computed element by element by the equations of ONNX's LSTM, GRU and RNN.

use graph::prim::{Activation, ActivationKind, Cell, Recurrent, RecurrentInputs};

/// Every kind of cell.
pub const CELLS: [Cell; 4] =
    [Cell::Lstm, Cell::Gru { linear_before_reset: false }, Cell::Gru { linear_before_reset: true }, Cell::Rnn];

/// Every activation.
pub const KINDS: [ActivationKind; 11] = [
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

/// An input of a layer. Only the first three are always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The sequences: steps × batch × input.
    X,
    /// The weights of the input: gates · hidden × input.
    W,
    /// The weights of the state: gates · hidden × hidden.
    R,
    /// A bias for each row of both weights.
    Bias,
    /// The length of each sequence, in integers.
    Lengths,
    /// The state before the first step.
    InitialH,
    /// An LSTM's cell state before the first step.
    InitialC,
    /// An LSTM's weights of the cell state.
    Peepholes,
}

/// A layer: the primitive and its extents.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The cell, its direction, activations and inputs.
    pub prim: Recurrent,
    /// The number of steps.
    pub steps: usize,
    /// The number of sequences.
    pub batch: usize,
    /// The width of the input.
    pub input: usize,
    /// The width of the state.
    pub hidden: usize,
}

/// An activation with parameters that differ from the defaults.
pub fn activation(kind: ActivationKind) -> Activation {
    Activation { kind, alpha: 0.4, beta: 0.3 }
}

impl Layer {
    /// A small layer with the cell's usual activations, and without optional inputs.
    pub fn new(cell: Cell) -> Layer {
        let kinds: &[ActivationKind] = match cell {
            Cell::Lstm => &[ActivationKind::Sigmoid, ActivationKind::Tanh, ActivationKind::Tanh],
            Cell::Gru { .. } => &[ActivationKind::Sigmoid, ActivationKind::Tanh],
            Cell::Rnn => &[ActivationKind::Tanh],
        };
        let prim = Recurrent {
            cell,
            reverse: false,
            activations: kinds.iter().map(|&kind| activation(kind)).collect(),
            clip: None,
            input_forget: false,
            has: RecurrentInputs::default(),
        };
        Layer { prim, steps: 3, batch: 2, input: 5, hidden: 6 }
    }

    fn gates(&self) -> usize {
        match self.prim.cell {
            Cell::Lstm => 4,
            Cell::Gru { .. } => 3,
            Cell::Rnn => 1,
        }
    }

    /// The inputs that the layer has, in the primitive's order, with their shapes.
    pub fn inputs(&self) -> Vec<(Input, Vec<usize>)> {
        let (has, all, state) = (self.prim.has, self.gates() * self.hidden, vec![self.batch, self.hidden]);
        let inputs = [
            (true, Input::X, vec![self.steps, self.batch, self.input]),
            (true, Input::W, vec![all, self.input]),
            (true, Input::R, vec![all, self.hidden]),
            (has.bias, Input::Bias, vec![2 * all]),
            (has.lengths, Input::Lengths, vec![self.batch]),
            (has.initial_h, Input::InitialH, state.clone()),
            (has.initial_c, Input::InitialC, state),
            (has.peepholes, Input::Peepholes, vec![3 * self.hidden]),
        ];
        inputs.into_iter().filter(|input| input.0).map(|(_, input, shape)| (input, shape)).collect()
    }

    /// The shapes of the outputs: all states, the last one, and an LSTM's last cell state.
    pub fn outputs(&self) -> Vec<Vec<usize>> {
        let state = vec![self.batch, self.hidden];
        let mut shapes = vec![vec![self.steps, self.batch, self.hidden], state.clone()];
        if self.prim.cell == Cell::Lstm {
            shapes.push(state);
        }
        shapes
    }

    /// The outputs for dense values of the [`inputs`](Self::inputs). Sequences that are too long end with the steps.
    ///
    /// # Panics
    /// When an input is missing or too short.
    pub fn expected(&self, values: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let inputs = self.inputs();
        let of = |input: Input| inputs.iter().position(|(known, _)| *known == input).map(|at| values[at].as_slice());
        let row = |input: Input, at: usize| {
            of(input)
                .map_or_else(|| vec![0.0; self.hidden], |values| values[at * self.hidden..][..self.hidden].to_vec())
        };
        let mut all = vec![0.0; self.steps * self.batch * self.hidden];
        let (mut last_h, mut last_c) = (Vec::new(), Vec::new());
        for b in 0..self.batch {
            let (mut h, mut c) = (row(Input::InitialH, b), row(Input::InitialC, b));
            let length = of(Input::Lengths).map_or(self.steps, |lengths| self.steps.min(lengths[b] as usize));
            for at in 0..length {
                let t = if self.prim.reverse { length - 1 - at } else { at };
                let x = &values[0][(t * self.batch + b) * self.input..][..self.input];
                (h, c) = self.step(&of, x, &h, &c);
                all[(t * self.batch + b) * self.hidden..][..self.hidden].copy_from_slice(&h);
            }
            last_h.extend(h);
            last_c.extend(c);
        }
        let mut outputs = vec![all, last_h, last_c];
        outputs.truncate(self.outputs().len());
        outputs
    }

    /// The next states of one sequence.
    fn step<'a>(
        &self,
        of: &dyn Fn(Input) -> Option<&'a [f64]>,
        x: &[f64],
        h: &[f64],
        c: &[f64],
    ) -> (Vec<f64>, Vec<f64>) {
        let (prim, hidden) = (&self.prim, self.hidden);
        let weighted = |matrix: Input, row: usize, from: &[f64]| -> f64 {
            let columns = of(matrix).unwrap_or_default()[row * from.len()..].iter();
            columns.zip(from).map(|(weight, value)| weight * value).sum()
        };
        let bias = |row: usize| of(Input::Bias).map_or(0.0, |bias| bias[row]);
        let from_x = |row: usize| weighted(Input::W, row, x) + bias(row);
        let from_h = |row: usize, h: &[f64]| weighted(Input::R, row, h) + bias(self.gates() * hidden + row);
        let gate = |at: usize, j: usize| from_x(at * hidden + j) + from_h(at * hidden + j, h);
        let peephole = |at: usize, c: f64, j: usize| of(Input::Peepholes).map_or(0.0, |p| p[at * hidden + j] * c);
        let active = |at: usize, x: f64| activate(prim.activations[at], prim.clip, x);
        match prim.cell {
            Cell::Rnn => ((0..hidden).map(|j| active(0, gate(0, j))).collect(), c.to_vec()),
            Cell::Gru { linear_before_reset } => {
                let [z, reset] = [0, 1].map(|at| (0..hidden).map(|j| active(0, gate(at, j))).collect::<Vec<f64>>());
                let reset_h: Vec<f64> = h.iter().zip(&reset).map(|(h, r)| h * r).collect();
                let new = |j: usize| {
                    let row = 2 * hidden + j;
                    let part = if linear_before_reset { reset[j] * from_h(row, h) } else { from_h(row, &reset_h) };
                    active(1, from_x(row) + part)
                };
                ((0..hidden).map(|j| (1.0 - z[j]) * new(j) + z[j] * h[j]).collect(), c.to_vec())
            }
            Cell::Lstm => (0..hidden)
                .map(|j| {
                    let i = active(0, gate(0, j) + peephole(0, c[j], j));
                    let f = if prim.input_forget { 1.0 - i } else { active(0, gate(2, j) + peephole(2, c[j], j)) };
                    let cell = f * c[j] + i * active(1, gate(3, j));
                    let o = active(0, gate(1, j) + peephole(1, cell, j));
                    (o * activate(prim.activations[2], None, cell), cell)
                })
                .unzip(),
        }
    }
}

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
