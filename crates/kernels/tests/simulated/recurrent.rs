//! Tests recurrent layers in the simulator.

use graph::prim::{Cell, RecurrentInputs};
use graph::{DType, Prim, View};
use testkit::ops::recurrent::{CELLS, Input, KINDS, Layer, activation};
use testkit::ops::{Sample, ints, tensor};

use crate::common::{TARGETS, check, check_numbers, dense, list, random, step, strided};

/// Compares a layer with the host, and in single and double precision with the equations.
fn run(layer: &Layer, dtype: DType) {
    let inputs = (0..).zip(layer.inputs()).map(|(buffer, (input, shape))| {
        if input == Input::Lengths {
            // One empty sequence, one that is too long, and others in between.
            let lengths = (0..layer.batch).map(|at| [layer.steps as i64 + 3, 0, 1, 2][at % 4]);
            return (dense(buffer, DType::I32, &shape), ints(DType::I32, lengths));
        }
        let numbers = list(&random(dtype, shape.iter().product(), 30 + input as u64));
        (dense(buffer, dtype, &shape), tensor(dtype, numbers.into_iter().map(|value| value * 0.5)))
    });
    let outputs: Vec<View> = (8..).zip(layer.outputs()).map(|(buffer, shape)| dense(buffer, dtype, &shape)).collect();
    let relative = match dtype {
        DType::F64 => 1e-12,
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        _ => 4e-6,
    };
    let sample = Sample::new(Prim::Recurrent(layer.prim.clone()), inputs.collect(), outputs);
    check(&sample.step, &sample.inputs, &sample.rooms(), relative);
    if matches!(dtype, DType::F32 | DType::F64) {
        check_numbers(&TARGETS[..1], &sample, &layer.expected(&sample.values()), relative);
    }
}

#[test]
fn every_cell_and_type() {
    for cell in CELLS {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
            run(&Layer::new(cell), dtype);
        }
    }
}

#[test]
fn extents_around_those_of_teams_and_waves() {
    for cell in CELLS {
        for (steps, batch, input, hidden) in [(1, 1, 1, 1), (2, 9, 40, 7), (2, 1, 3, 34)] {
            run(&Layer { steps, batch, input, hidden, ..Layer::new(cell) }, DType::F32);
        }
    }
}

#[test]
fn every_optional_input_and_flag() {
    for cell in CELLS {
        for reverse in [false, true] {
            let mut layer = Layer { steps: 3, batch: 5, hidden: 4, ..Layer::new(cell) };
            let is_lstm = cell == Cell::Lstm;
            layer.prim.reverse = reverse;
            layer.prim.has =
                RecurrentInputs { bias: true, lengths: true, initial_h: true, initial_c: is_lstm, peepholes: is_lstm };
            run(&layer, DType::F32);
            layer.prim.clip = Some(0.3);
            layer.prim.input_forget = is_lstm;
            run(&layer, DType::F32);
            layer.prim.has.initial_h = false;
            run(&layer, DType::F32);
        }
    }
}

#[test]
fn every_activation() {
    for kind in KINDS {
        for cell in [Cell::Lstm, Cell::Rnn] {
            let mut layer = Layer::new(cell);
            layer.prim.activations.iter_mut().for_each(|to| *to = activation(kind));
            run(&layer, DType::F32);
        }
    }
}

#[test]
fn batch_first_inputs_and_transposed_weights() {
    let (steps, batch, input, hidden) = (3usize, 2usize, 4usize, 5usize);
    let prim = Layer::new(Cell::Rnn).prim;
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
