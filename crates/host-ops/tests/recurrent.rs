//! Recurrent layers against the operators' equations, element by element in double precision.
#![allow(clippy::unwrap_used, clippy::panic)]
mod support;

use graph::prim::{Cell, Recurrent, RecurrentInputs};
use graph::{DType, Prim};
use proptest::prelude::*;
use testkit::ops::recurrent::{CELLS, Input, KINDS, Layer, activation};

use support::{Data, Layout, Out, assert_near, run};

fn check(layer: &Layer, dtype: DType, layout: Layout, seed: u64) {
    let data = |(input, shape): (Input, Vec<usize>)| {
        if input == Input::Lengths {
            let lengths = (0..layer.batch).map(|b| ((seed as usize + b * 3) % (layer.steps + 1)) as f64).collect();
            return Data::new(DType::I32, &shape, lengths);
        }
        let noise = Data::noise(dtype, &shape, seed * 10 + input as u64 + 1);
        Data::new(dtype, &shape, noise.values.iter().map(|value| value / 4.0).collect()).laid(layout)
    };
    let inputs: Vec<Data> = layer.inputs().into_iter().map(data).collect();
    let mut outs: Vec<Out> = layer.outputs().iter().map(|shape| Out::new(dtype, shape).laid(layout)).collect();
    if let Some(cell) = outs.get_mut(2) {
        *cell = cell.clone().laid(Layout::Dense);
    }
    let got = run(Prim::Recurrent(layer.prim.clone()), &inputs, &outs).unwrap();
    let values: Vec<Vec<f64>> = inputs.iter().map(|data| data.values.clone()).collect();
    let tolerance = match dtype {
        DType::F64 => 1e-9,
        DType::F32 => 2e-5,
        _ => 5e-3,
    };
    let wanted = layer.expected(&values);
    assert_eq!(got.len(), wanted.len());
    for (got, wanted) in got.iter().zip(&wanted) {
        assert_near(got, wanted, tolerance, layer);
    }
}

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
        let usual = Layer::new(cell).prim.activations.len();
        let activations = kinds.into_iter().take(usual).map(activation).collect();
        let prim = Recurrent { cell, reverse, activations, clip, input_forget: input_forget && is_lstm, has };
        let (steps, batch, input, hidden) = extents;
        check(&Layer { prim, steps, batch, input, hidden }, dtype, layout, seed);
    }
}

#[test]
fn wide_layers_use_whole_strips() {
    for cell in CELLS {
        for (batch, dtype) in [(1, DType::F32), (5, DType::F32), (2, DType::F16)] {
            let mut layer = Layer { steps: 3, batch, input: 20, hidden: 35, ..Layer::new(cell) };
            layer.prim.has.bias = true;
            check(&layer, dtype, Layout::Dense, 4);
        }
    }
}
