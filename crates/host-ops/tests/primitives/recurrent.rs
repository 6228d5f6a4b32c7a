//! Recurrent layers against the operators' equations, element by element in double precision.
use graph::prim::{Cell, Recurrent, RecurrentInputs};
use graph::{DType, Prim};
use proptest::prelude::*;
use testkit::ops::recurrent::{CELLS, Input, KINDS, Layer, activation};
use testkit::ops::{Arrangement, Sample, dense, ints, list, tensor};

use crate::common::{self, arrangement, laid};

fn check(layer: &Layer, dtype: DType, layout: Arrangement, seed: u64) {
    let inputs = (0..).zip(layer.inputs()).map(|(number, (input, shape))| {
        if input == Input::Lengths {
            let lengths = (0..layer.batch).map(|b| ((seed as usize + b * 3) % (layer.steps + 1)) as i64);
            return (dense(number, DType::I32, &shape), ints(DType::I32, lengths));
        }
        let (view, numbers) = laid(layout(number, dtype, &shape), seed * 10 + input as u64 + 1);
        (view, tensor(dtype, list(&numbers).into_iter().map(|value| value / 4.0)))
    });
    let layouts = [layout, layout, dense];
    let outputs = layer.outputs().into_iter().zip(layouts).zip(10..);
    let outputs = outputs.map(|((shape, layout), number)| layout(number, dtype, &shape)).collect();
    let sample = Sample::new(Prim::Recurrent(layer.prim.clone()), inputs.collect(), outputs);
    let tolerance = match dtype {
        DType::F64 => 1e-9,
        DType::F32 => 2e-5,
        _ => 5e-3,
    };
    common::check(&sample, &layer.expected(&sample.values()), tolerance, layer);
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
        layout in arrangement(),
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
            check(&layer, dtype, dense, 4);
        }
    }
}
