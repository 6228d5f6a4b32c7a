//! Tests recurrent layers in the simulator.

use crate::common::{check, dense, random, step, strided};
use graph::{
    DType, Prim, Scalar, Tensor, View,
    prim::{Activation, ActivationKind, Cell, Recurrent, RecurrentInputs},
};

const CELLS: [Cell; 4] =
    [Cell::Lstm, Cell::Gru { linear_before_reset: false }, Cell::Gru { linear_before_reset: true }, Cell::Rnn];
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

#[derive(Clone)]
struct Case {
    prim: Recurrent,
    dtype: DType,
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
}

fn activation(kind: ActivationKind) -> Activation {
    Activation { kind, alpha: 0.4, beta: 0.3 }
}

impl Case {
    fn new(cell: Cell) -> Self {
        let kinds: &[ActivationKind] = match cell {
            Cell::Lstm => &[ActivationKind::Sigmoid, ActivationKind::Tanh, ActivationKind::Tanh],
            Cell::Gru { .. } => &[ActivationKind::Sigmoid, ActivationKind::Tanh],
            Cell::Rnn => &[ActivationKind::Tanh],
        };
        let activations = kinds.iter().map(|&kind| activation(kind)).collect();
        let prim = Recurrent {
            cell,
            reverse: false,
            activations,
            clip: None,
            input_forget: false,
            has: RecurrentInputs::default(),
        };
        Self { prim, dtype: DType::F32, steps: 3, batch: 2, input: 5, hidden: 6 }
    }

    fn run(&self) {
        let Self { prim, dtype, steps, batch, input, hidden } = self.clone();
        let gates = match prim.cell {
            Cell::Lstm => 4,
            Cell::Gru { .. } => 3,
            Cell::Rnn => 1,
        };
        let has = prim.has;
        let shapes = [
            (true, vec![steps, batch, input]),
            (true, vec![gates * hidden, input]),
            (true, vec![gates * hidden, hidden]),
            (has.bias, vec![2 * gates * hidden]),
            (has.lengths, vec![batch]),
            (has.initial_h, vec![batch, hidden]),
            (has.initial_c, vec![batch, hidden]),
            (has.peepholes, vec![3 * hidden]),
        ];
        let (mut views, mut buffers): (Vec<View>, Vec<Tensor>) = (Vec::new(), Vec::new());
        for (at, (is_there, shape)) in shapes.into_iter().enumerate() {
            if !is_there {
                continue;
            }
            let buffer = views.len() as u32;
            let count = shape.iter().product();
            if at == 4 {
                // One empty sequence, one that is too long, and others in between.
                let lengths = (0..batch).map(|at| Scalar::Int([steps as i64 + 3, 0, 1, 2][at % 4]));
                views.push(dense(buffer, DType::I32, &shape));
                buffers.push(Tensor::from_scalars(DType::I32, &[count], lengths).unwrap());
                continue;
            }
            let scalars = random(dtype, count, 30 + at as u64).scalars().map(|v| v.as_f64() * 0.5).collect::<Vec<_>>();
            views.push(dense(buffer, dtype, &shape));
            buffers.push(Tensor::from_scalars(dtype, &[count], scalars.into_iter().map(Scalar::Float)).unwrap());
        }
        let mut outputs = vec![dense(8, dtype, &[steps, batch, hidden]), dense(9, dtype, &[batch, hidden])];
        if prim.cell == Cell::Lstm {
            outputs.push(dense(10, dtype, &[batch, hidden]));
        }
        let sizes: Vec<usize> = outputs.iter().map(View::elems).collect();
        let relative = match dtype {
            DType::F64 => 1e-12,
            DType::F16 => 2e-3,
            DType::Bf16 => 1.6e-2,
            _ => 4e-6,
        };
        check(&step(Prim::Recurrent(prim), views, outputs), &buffers, &sizes, relative);
    }
}

#[test]
fn every_cell_and_type() {
    for cell in CELLS {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
            Case { dtype, ..Case::new(cell) }.run();
        }
    }
}

#[test]
fn extents_around_those_of_teams_and_waves() {
    for cell in CELLS {
        for (steps, batch, input, hidden) in [(1, 1, 1, 1), (2, 9, 40, 7), (2, 1, 3, 34)] {
            Case { steps, batch, input, hidden, ..Case::new(cell) }.run();
        }
    }
}

#[test]
fn every_optional_input_and_flag() {
    for cell in CELLS {
        for reverse in [false, true] {
            let mut case = Case { steps: 3, batch: 5, hidden: 4, ..Case::new(cell) };
            let is_lstm = cell == Cell::Lstm;
            case.prim.reverse = reverse;
            case.prim.has =
                RecurrentInputs { bias: true, lengths: true, initial_h: true, initial_c: is_lstm, peepholes: is_lstm };
            case.run();
            case.prim.clip = Some(0.3);
            case.prim.input_forget = is_lstm;
            case.run();
            case.prim.has.initial_h = false;
            case.run();
        }
    }
}

#[test]
fn every_activation() {
    for kind in KINDS {
        for cell in [Cell::Lstm, Cell::Rnn] {
            let mut case = Case::new(cell);
            case.prim.activations.iter_mut().for_each(|to| *to = activation(kind));
            case.run();
        }
    }
}

#[test]
fn batches_first_and_turned_weights() {
    let (steps, batch, input, hidden) = (3usize, 2usize, 4usize, 5usize);
    let prim = Case::new(Cell::Rnn).prim;
    let views = vec![
        strided(0, DType::F32, &[steps, batch, input], &[4, 12, 1], 0),
        strided(1, DType::F32, &[hidden, input], &[1, 5], 0),
        strided(2, DType::F32, &[hidden, hidden], &[1, 5], 0),
    ];
    let outputs = vec![
        strided(3, DType::F32, &[steps, batch, hidden], &[5, 15, 1], 0),
        strided(4, DType::F32, &[batch, hidden], &[1, 2], 0),
    ];
    let buffers = [24, 20, 25].map(|count| random(DType::F32, count, count as u64));
    check(&step(Prim::Recurrent(prim), views, outputs), &buffers, &[30, 10], 4e-6);
}
