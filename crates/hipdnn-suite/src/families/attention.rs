//! Attention with shared heads, masks and statistics.

use hipdnn::Attention;

use super::graph;
use crate::bench::{Answer, Bench};
use crate::data::{Data, Element, assert_close, indices};
use crate::draw::Draw;

pub fn forward(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let (batch, key_heads, shared) = (draw.int(1..3), draw.int(1..3), draw.int(1..3));
    let (rows, columns, depth, width) = (draw.int(1..6), draw.int(1..6), draw.int(1..6), draw.int(1..6));
    let (is_causal, masked) = (draw.flag(), draw.flag());
    // A row that sees nothing has no softmax.
    let aligns_ends = draw.flag() && !(is_causal && columns < rows);
    let heads = key_heads * shared;
    let q = Data::random(element, &[batch, heads, rows, depth], draw);
    let k = Data::random(element, &[batch, key_heads, columns, depth], draw);
    let v = Data::random(element, &[batch, key_heads, columns, width], draw);
    let mask = Data::random(element, &[1, heads, 1, columns], draw);
    let mut graph = graph(element);
    let [qi, ki, vi] = [&q, &k, &v].map(|data| graph.tensor(data.tensor()));
    let mi = masked.then(|| graph.tensor(mask.tensor()));
    let what = Attention { scale: Some(0.5), is_causal, aligns_ends, mask: mi, ..Attention::default() };
    let (o, statistics) = graph.attention_training(what, [qi, ki, vi]);
    let mut inputs = vec![(qi, &q), (ki, &k), (vi, &v)];
    inputs.extend(mi.map(|mi| (mi, &mask)));
    let found = bench.run(&mut graph, &inputs, &[o, statistics], element)?;
    let (mut wanted, mut sums) = (Vec::new(), Vec::new());
    for index in indices(&[batch, heads, rows]) {
        let (b, h, row) = (index[0], index[1], index[2]);
        let diagonal = row + if aligns_ends { columns - rows } else { 0 };
        let score = |column: i64| {
            if is_causal && column > diagonal {
                return f64::NEG_INFINITY;
            }
            let dot: f64 = (0..depth).map(|at| q.at(&[b, h, row, at]) * k.at(&[b, h / shared, column, at])).sum();
            0.5 * dot + if masked { mask.at(&[0, h, 0, column]) } else { 0.0 }
        };
        let scores: Vec<f64> = (0..columns).map(score).collect();
        let total: f64 = scores.iter().map(|score| score.exp()).sum();
        sums.push(total.ln());
        let mixed = |at: i64| -> f64 {
            let part = |column: i64| scores[column as usize].exp() / total * v.at(&[b, h / shared, column, at]);
            (0..columns).map(part).sum()
        };
        wanted.extend((0..width).map(mixed));
    }
    assert_close(&found[0], &wanted, element)?;
    assert_close(&found[1], &sums, element)
}
