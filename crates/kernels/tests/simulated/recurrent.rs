//! Tests recurrent layers in the simulator.

use graph::prim::{Cell, RecurrentInputs};
use graph::{DType, Prim, Scalar, Tensor, View};
use testkit::ops::recurrent::{CELLS, Input, KINDS, Layer, activation};

use crate::common::{TARGETS, check, check_numbers, dense, random, step, strided};

/// Compares a layer with the host, and in single and double precision with the equations.
fn run(layer: &Layer, dtype: DType) {
    let (mut views, mut buffers): (Vec<View>, Vec<Tensor>) = (Vec::new(), Vec::new());
    for (buffer, (input, shape)) in (0..).zip(layer.inputs()) {
        let count = shape.iter().product();
        if input == Input::Lengths {
            // One empty sequence, one that is too long, and others in between.
            let lengths = (0..layer.batch).map(|at| Scalar::Int([layer.steps as i64 + 3, 0, 1, 2][at % 4]));
            views.push(dense(buffer, DType::I32, &shape));
            buffers.push(Tensor::from_scalars(DType::I32, &[count], lengths).unwrap());
            continue;
        }
        let seed = 30 + input as u64;
        let scalars = random(dtype, count, seed).scalars().map(|v| v.as_f64() * 0.5).collect::<Vec<_>>();
        views.push(dense(buffer, dtype, &shape));
        buffers.push(Tensor::from_scalars(dtype, &[count], scalars.into_iter().map(Scalar::Float)).unwrap());
    }
    let outputs: Vec<View> = (8..).zip(layer.outputs()).map(|(buffer, shape)| dense(buffer, dtype, &shape)).collect();
    let sizes: Vec<usize> = outputs.iter().map(View::elems).collect();
    let relative = match dtype {
        DType::F64 => 1e-12,
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        _ => 4e-6,
    };
    let step = step(Prim::Recurrent(layer.prim.clone()), views, outputs);
    check(&step, &buffers, &sizes, relative);
    if matches!(dtype, DType::F32 | DType::F64) {
        let values: Vec<Vec<f64>> =
            buffers.iter().map(|buffer| buffer.scalars().map(|value| value.as_f64()).collect()).collect();
        check_numbers(&TARGETS[..1], &step, &buffers, &layer.expected(&values), relative);
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
fn batches_first_and_turned_weights() {
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
