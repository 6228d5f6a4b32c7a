//! Reductions, norms, lookups and other steps along rows.
use graph::prim::{
    Activation, ActivationKind, ArgReduce, Axis, BatchDims, Cell, Cumulative, Norm, Recurrent, RecurrentInputs, Reduce,
    ReduceKind, Scatter, ScatterKind, Softmax, TopK,
};
use graph::{DType, Prim};

use crate::{Sample, sample};

pub(crate) fn rows(dtype: DType, samples: &mut Vec<Sample>) {
    let (wide, narrow): (&[usize], &[usize]) = (&[64, 1024], &[4096, 49]);
    for (name, extents) in [("", wide), ("short ", narrow)] {
        for (kind, word) in [(ReduceKind::Sum, "sum"), (ReduceKind::Mean, "mean"), (ReduceKind::Max, "max")] {
            let prim = Prim::Reduce(Reduce { kind, axes: 1 });
            let label = format!("reduce {word} {name}{dtype}");
            samples.push(sample(label, prim, &[(dtype, extents)], &[(dtype, &extents[..1])]));
        }
        let prim = Prim::Softmax(Softmax { log: false });
        samples.push(sample(format!("softmax {name}{dtype}"), prim, &[(dtype, extents)], &[(dtype, extents)]));
    }
    for (centre, word) in [(true, "layer"), (false, "RMS")] {
        let prim =
            Prim::Norm(Norm { axes: 1, epsilon: 1e-5, centre, scale: true, bias: centre, round_before_scale: !centre });
        let (x, by_column) = ((dtype, wide), (dtype, &wide[1..]));
        let inputs: &[_] = if centre { &[x, by_column, by_column] } else { &[x, by_column] };
        samples.push(sample(format!("norm {word} {dtype}"), prim, inputs, &[x]));
    }
    // Enough rows that threads hold more of each, with lengths for one wave, for several, and not a multiple of a pack.
    for (word, extents) in [("many", [1 << 16, 1024]), ("wide", [1 << 16, 4096]), ("odd", [1 << 18, 197])] {
        let (x, by_row) = ((dtype, &extents[..]), (dtype, &extents[..1]));
        samples.push(sample(format!("reduce sum {word} {dtype}"), reduce_sum(), &[x], &[by_row]));
        let prim = Prim::Softmax(Softmax { log: false });
        samples.push(sample(format!("softmax {word} {dtype}"), prim, &[x], &[x]));
        let norm = Norm { axes: 1, epsilon: 1e-5, centre: true, scale: true, bias: true, round_before_scale: false };
        let by_column = (dtype, &extents[1..]);
        samples.push(sample(format!("norm {word} {dtype}"), Prim::Norm(norm), &[x, by_column, by_column], &[x]));
    }
    let mut columns =
        sample(format!("reduce sum columns {dtype}"), reduce_sum(), &[(dtype, wide)], &[(dtype, &wide[..1])]);
    columns.step.inputs[0].strides = [1isize, 64].into_iter().collect();
    samples.push(columns);
    let long: (DType, &[usize]) = (dtype, &[8, 32_768]);
    samples.push(sample(format!("reduce sum long {dtype}"), reduce_sum(), &[long], &[(dtype, &[8])]));
    samples.push(sample(format!("softmax long {dtype}"), Prim::Softmax(Softmax { log: false }), &[long], &[long]));
    let prim = Prim::ArgReduce(ArgReduce { largest: true, last: false });
    samples.push(sample(format!("arg_reduce {dtype}"), prim, &[(dtype, wide)], &[(DType::I64, &wide[..1])]));
    let prim = Prim::TopK(TopK { k: 5, largest: true, sorted: true });
    let outputs: &[(DType, &[usize])] = &[(dtype, &[64, 5]), (DType::I64, &[64, 5])];
    samples.push(sample(format!("top_k {dtype}"), prim, &[(dtype, wide)], outputs));
    let prim = Prim::Cumulative(Cumulative { product: false, exclusive: false, reverse: false });
    let extents: &[usize] = &[64, 1024, 1];
    samples.push(sample(format!("cumulative {dtype}"), prim.clone(), &[(dtype, extents)], &[(dtype, extents)]));
    let extents: &[usize] = &[64, 16, 32];
    samples.push(sample(format!("cumulative short {dtype}"), prim, &[(dtype, extents)], &[(dtype, extents)]));
}

fn reduce_sum() -> Prim {
    Prim::Reduce(Reduce { kind: ReduceKind::Sum, axes: 1 })
}

pub(crate) fn indexing(dtype: DType, samples: &mut Vec<Sample>) {
    let data: (DType, &[usize]) = (dtype, &[1, 1000, 256]);
    let inputs: [(DType, &[usize]); 2] = [data, (DType::I64, &[64])];
    samples.push(sample(format!("gather {dtype}"), Prim::Gather, &inputs, &[(dtype, &[1, 64, 256])]));
    let flat: (DType, &[usize]) = (dtype, &[64, 256]);
    let inputs: [(DType, &[usize]); 2] = [flat, (DType::I64, &[16, 256])];
    let prim = Prim::GatherElements(Axis(0));
    samples.push(sample(format!("gather_elements {dtype}"), prim, &inputs, &[(dtype, &[16, 256])]));
    let inputs: [(DType, &[usize]); 2] = [flat, (DType::I64, &[16, 1])];
    let prim = Prim::GatherNd(BatchDims(0));
    samples.push(sample(format!("gather_nd {dtype}"), prim, &inputs, &[(dtype, &[16, 256])]));
    let inputs: [(DType, &[usize]); 3] = [flat, (DType::I64, &[16, 1]), (dtype, &[16, 256])];
    let prim = Prim::ScatterNd(Scatter { kind: ScatterKind::Replace, axis: 0 });
    samples.push(sample(format!("scatter_nd {dtype}"), prim, &inputs, &[flat]));
    let inputs: [(DType, &[usize]); 3] = [flat, (DType::I64, &[16, 256]), (dtype, &[16, 256])];
    let prim = Prim::ScatterElements(Scatter { kind: ScatterKind::Add, axis: 0 });
    samples.push(sample(format!("scatter_elements add {dtype}"), prim, &inputs, &[flat]));
    let inputs: [(DType, &[usize]); 3] = [(dtype, &[1000]), (DType::I64, &[4096, 1]), (dtype, &[4096])];
    let prim = Prim::ScatterNd(Scatter { kind: ScatterKind::Add, axis: 0 });
    samples.push(sample(format!("scatter_nd add {dtype}"), prim, &inputs, &[(dtype, &[1000])]));
}

/// Recurrent layers.
pub(crate) fn sequences(dtype: DType, samples: &mut Vec<Sample>) {
    let activation = |kind| Activation { kind, alpha: 0.0, beta: 0.0 };
    for (cell, word, gates) in [(Cell::Lstm, "LSTM", 4usize), (Cell::Gru { linear_before_reset: true }, "GRU", 3)] {
        let prim = Prim::Recurrent(Recurrent {
            cell,
            reverse: false,
            activations: [ActivationKind::Sigmoid, ActivationKind::Tanh, ActivationKind::Tanh].map(activation).to_vec(),
            clip: None,
            input_forget: false,
            has: RecurrentInputs::default(),
        });
        let weights = [gates * 256, 256];
        let inputs: [(DType, &[usize]); 3] = [(dtype, &[2, 4, 256]), (dtype, &weights), (dtype, &weights)];
        let state: (DType, &[usize]) = (dtype, &[4, 256]);
        let outputs: [(DType, &[usize]); 3] = [(dtype, &[2, 4, 256]), state, state];
        let count = if cell == Cell::Lstm { 3 } else { 2 };
        samples.push(sample(format!("recurrent {word} {dtype}"), prim, &inputs, &outputs[..count]));
    }
}
