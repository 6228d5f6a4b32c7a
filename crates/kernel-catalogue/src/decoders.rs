//! Decoder layers other than attention over a cache: experts, and layers with a state of fixed size.
use graph::prim::{CausalConv, ExpertProduct, ExpertWeights, LinearAttention};
use graph::{DType, Prim};

use crate::{Sample, sample};

/// Both layers of experts, for one token and for several.
pub(crate) fn experts(dtype: DType, samples: &mut Vec<Sample>) {
    let (count, columns, depth) = (32usize, 1024usize, 2880usize);
    for (tokens, word) in [(1usize, "token"), (16, "prompt")] {
        let (x, chosen, made) = ([tokens, depth], [tokens * 4], [tokens * 4, columns]);
        let x: (DType, &[usize]) = (dtype, &x);
        let chosen: (DType, &[usize]) = (DType::I64, &chosen);
        let bias: (DType, &[usize]) = (dtype, &[count, columns]);
        let made = [(DType::F32, &made[..])];
        let weights = ExpertWeights::Floats;
        let prim = Prim::ExpertProduct(ExpertProduct { share: 4, weights, bias: false });
        let inputs = [x, chosen, (dtype, &[count, columns, depth])];
        samples.push(sample(format!("expert_product {word} {dtype}"), prim, &inputs, &made));
        for (bits, zeros) in [(4, false), (4, true), (8, false)] {
            let weights = ExpertWeights::Packed { bits, block: 32, zeros };
            let prim = Prim::ExpertProduct(ExpertProduct { share: 4, weights, bias: true });
            let scales = [count, columns, depth / 32];
            let (packed, zero_row) = ([count, columns, depth * bits / 8], [count, columns, depth / 32 * bits / 8]);
            let mut inputs = vec![x, chosen, (DType::U8, &packed[..]), (dtype, &scales[..])];
            inputs.extend(zeros.then_some((DType::U8, &zero_row[..])));
            inputs.push(bias);
            let end = if zeros { " zeros" } else { "" };
            samples.push(sample(format!("expert_product {bits} bits{end} {word} {dtype}"), prim, &inputs, &made));
        }
        let prim = ExpertProduct { share: 4, weights: ExpertWeights::Float4 { block: 32 }, bias: true };
        let (packed, scales) = ([count, columns, depth / 2], [count, columns, depth / 32]);
        let inputs = [x, chosen, (DType::U8, &packed[..]), (DType::F32, &scales[..]), bias];
        samples.push(sample(
            format!("expert_product float4 {word} {dtype}"),
            Prim::ExpertProduct(prim),
            &inputs,
            &made,
        ));
    }
}

/// Convolutions and linear attention, for one token and for a prompt.
pub(crate) fn states(dtype: DType, samples: &mut Vec<Sample>) {
    for (length, word) in [(1usize, "token"), (512, "prompt")] {
        let x = [1, 8192, length];
        let [x, state]: [(DType, &[usize]); 2] = [(dtype, &x), (dtype, &[1, 8192, 3])];
        let prim = Prim::CausalConv(CausalConv { dilation: 1, past: true, bias: true, silu: true });
        let inputs = [x, (dtype, &[8192, 4][..]), state, (dtype, &[8192])];
        samples.push(sample(format!("causal_conv {word} {dtype}"), prim, &inputs, &[x, state]));
        let (q, v, rate) = ([1, 16, length, 128], [1, 32, length, 128], [1, 32, length]);
        let [q, v, rate]: [(DType, &[usize]); 3] = [(dtype, &q), (dtype, &v), (dtype, &rate)];
        for (kept, name) in [(dtype, ""), (DType::F32, " f32 state")] {
            let state: (DType, &[usize]) = (kept, &[1, 32, 128, 128]);
            let prim = LinearAttention { scale: 0.125, past: true, decay: true, delta: true };
            for (decay, end) in [("", 0), (" by row", 1)] {
                let label = format!("linear_attention{name}{decay} {word} {dtype}");
                let inputs = [q, q, v, state, v, rate];
                let mut made = sample(label, Prim::LinearAttention(prim), &inputs, &[v, state]);
                made.step.inputs[4].strides[3] = end;
                samples.push(made);
            }
        }
    }
}
