//! Attention, with and without a cache.
use graph::expr::{Binary, Expr};
use graph::prim::{
    Append, AppendAttention, Attention, CachedAttention, Filled, PagedAttention, PagedPlaces, Positions, Rotary, Sinks,
};
use graph::{DType, Prim};

use crate::{Sample, expression, sample};

/// Attention with a mask for each key, and causal attention.
pub(crate) fn attention(dtype: DType, samples: &mut Vec<Sample>) {
    for (name, rows, size) in [("", 512usize, 64usize), ("one row ", 1, 64), ("heads of 160 ", 512, 160)] {
        let shape: [usize; 4] = [2, 12, rows, 4096];
        let prim = Prim::Attention(Attention {
            alpha: 0.125,
            shape: shape.into_iter().collect(),
            scores: expression(dtype, 2),
            zero_if_hidden: false,
        });
        let (k, v): (&[usize], &[usize]) = (&[24, size, 4096], &[24, 4096, size]);
        let inputs = [(dtype, &[24, rows, size][..]), (dtype, k), (dtype, v), (dtype, &shape[..])];
        let label = format!("attention {name}{dtype}");
        let mut made = sample(label, prim, &inputs, &[(dtype, &[2, 12, rows, size])]);
        made.step.inputs[1].strides = [size as isize * 4096, 1, size as isize].into_iter().collect();
        made.step.inputs[3].strides = [4096isize, 0, 0, 1].into_iter().collect();
        samples.push(made);
    }
    for size in [64, 128] {
        let (rows, shape) = ([24, 512, size], [2, 12, 512, size]);
        let prim = Prim::Attention(Attention {
            alpha: 0.125,
            shape: [2, 12, 512, 512].into_iter().collect(),
            scores: up_to_own(dtype),
            zero_if_hidden: false,
        });
        let inputs = [(dtype, &rows[..]), (dtype, &[24, size, 512]), (dtype, &rows)];
        let mut made = sample(format!("attention causal {size} {dtype}"), prim, &inputs, &[(dtype, &shape)]);
        made.step.inputs[1].strides = [size as isize * 512, 1, size as isize].into_iter().collect();
        samples.push(made);
    }
}

/// A decoder's steps on its caches: a prompt, and one token.
pub(crate) fn decoder(dtype: DType, samples: &mut Vec<Sample>) {
    let filled = Filled { shift: 0 };
    let lengths: (DType, &[usize]) = (DType::I32, &[2]);
    for (rows, word) in [(512usize, "prompt"), (1, "token")] {
        let given = [2, rows];
        let behind = (Positions::Behind(filled), lengths, "");
        let turns = [behind, (Positions::Given, (DType::I64, &given[..]), " given")].into_iter().flat_map(
            |(positions, operand, end)| {
                [(false, ""), (true, " interleaved")].map(|(interleaved, kind)| {
                    (Rotary { interleaved, positions }, operand, format!("{kind}{end} {word} {dtype}"))
                })
            },
        );
        for (rotary, operand, label) in turns.clone() {
            let x: (DType, &[usize]) = (dtype, &[2, rows, 40, 64]);
            let angles: (DType, &[usize]) = (dtype, &[4096, 32]);
            samples.push(sample(format!("rotary{label}"), Prim::Rotary(rotary), &[x, angles, angles, operand], &[x]));
        }
        let (new, cache): (&[usize], &[usize]) = (&[2, 8, rows, 64], &[2, 8, 4096, 64]);
        let prim = Prim::Append(Append { filled, past: true, rotary: None });
        let inputs = [lengths, (dtype, new), (dtype, new), (dtype, cache), (dtype, cache)];
        samples.push(sample(format!("append {word} {dtype}"), prim, &inputs, &[(dtype, cache), (dtype, cache)]));
        for (rotary, operand, label) in turns.clone() {
            let prim = Prim::Append(Append { filled, past: true, rotary: Some(rotary) });
            let (queries, angles): (&[usize], &[usize]) = (&[2, 32, rows, 64], &[4096, 32]);
            let more = [(dtype, queries), (dtype, angles), (dtype, angles), operand];
            let outputs = [(dtype, cache), (dtype, cache), (dtype, queries)];
            samples.push(sample(format!("rotary_append{label}"), prim, &[&inputs[..], &more].concat(), &outputs));
        }
        let staged = [2, 8, 1024 + rows, 64];
        let (staged, kept): (&[usize], &[usize]) = (&staged, &[2, 8, 1024, 64]);
        let inputs = [(DType::I64, &[2][..]), (dtype, staged), (dtype, staged), (dtype, kept), (dtype, kept)];
        samples.push(sample(format!("retain {word} {dtype}"), Prim::Retain, &inputs, &[(dtype, kept), (dtype, kept)]));
        for (heads, size, softcap) in
            [(8usize, 128usize, None), (32, 64, None), (64, 128, None), (16, 256, None), (16, 256, Some(50.0))]
        {
            let attention = CachedAttention {
                alpha: 0.125,
                filled,
                causal: true,
                window: None,
                softcap,
                bias: false,
                sinks: Sinks::None,
            };
            let (q, cache): (&[usize], &[usize]) = (&[2, heads, rows, size], &[2, 8, 4096, size]);
            let inputs = [(dtype, q), (dtype, cache), (dtype, cache), lengths];
            let name = if softcap.is_some() { "attention softcap" } else { "attention" };
            let label = format!("cached_{name} {word} {heads} heads of {size} {dtype}");
            samples.push(sample(label, Prim::CachedAttention(attention), &inputs, &[(dtype, q)]));
            // For one token, both are one launch.
            for (rotary, operand, label) in turns.clone().filter(|_| rows == 1) {
                let append = Append { filled, past: true, rotary: Some(rotary) };
                let prim = Prim::AppendAttention(AppendAttention { append, attention });
                let (new, angles): (&[usize], &[usize]) = (&[2, 8, 1, size], &[4096, size / 2]);
                let [new, cache, angles, q] = [new, cache, angles, q].map(|extents| (dtype, extents));
                let inputs = [lengths, new, new, cache, cache, q, angles, angles, operand];
                let label = format!("rotary_append_{name} {heads} heads of {size}{label}");
                samples.push(sample(label, prim, &inputs, &[cache, cache, q, q]));
            }
        }
    }
}

/// A step over a cache in pages.
pub(crate) fn paged(dtype: DType, samples: &mut Vec<Sample>) {
    let ints = |extents: &'static [usize]| (DType::I32, extents);
    let (places, table) = (ints(&[4, 32]), ints(&[32, 16]));
    let prim = PagedPlaces { block: 256, blocks: 512, causal: true, slots: false };
    let inputs = [ints(&[33]), ints(&[32]), table];
    samples.push(sample(format!("paged_places {dtype}"), Prim::PagedPlaces(prim), &inputs, &[places]));
    for (heads, size, softcap) in [(32usize, 64usize, None), (64, 128, None), (16, 256, Some(50.0))] {
        let (q, new, cache) = ([32, heads, size], [32, 8, size], [512, 256, 8, size]);
        let [q, new, cache]: [(DType, &[usize]); 3] = [(dtype, &q), (dtype, &new), (dtype, &cache)];
        let label = format!("of {size} {dtype}");
        let inputs = [places, new, new, cache, cache];
        samples.push(sample(format!("paged_append {label}"), Prim::PagedAppend, &inputs, &[cache, cache]));
        let prim = PagedAttention { alpha: 0.125, window: None, softcap, sinks: Sinks::None };
        let label = format!("paged_attention {heads} heads {label}");
        samples.push(sample(label, Prim::PagedAttention(prim), &[q, cache, cache, places, table], &[q]));
    }
}

/// Products of a row with the keys up to its own.
fn up_to_own(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let product = expr.input(0, dtype);
    let (row, key) = (expr.index(2), expr.index(3));
    let is_ahead = expr.binary(Binary::Gt, key, row);
    let never = expr.constant(graph::Scalar::Float(f64::NEG_INFINITY), dtype);
    let value = expr.select(is_ahead, never, product);
    expr.finish(value);
    expr
}
