//! Attention spelled out in one graph: two products, and the scores and their softmax between them.

use hipdnn::Pointwise;
use hipdnn::sys::{PointwiseMode as M, ReduceOp};

use super::{graph, scalar};
use crate::bench::{Answer, Bench, ExpectedOutput};
use crate::data::{Data, assert_close, indices};
use crate::draw::Draw;
use crate::element::Element;

const SCALE: f64 = 0.5;

pub fn attention(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let (batch, heads, rows, columns) = (draw.int(1..3), draw.int(1..3), draw.int(1..6), draw.int(2..6));
    let (depth, width) = (draw.int(1..6), draw.int(1..6));
    let (is_limited, is_causal) = (draw.flag(), draw.flag());
    let of = |dims: &[i64], draw: &mut Draw| Data::random(element, dims, draw).arranged(draw);
    let q = of(&[batch, heads, rows, depth], draw);
    let k = of(&[batch, heads, depth, columns], draw);
    let v = of(&[batch, heads, columns, width], draw);
    let mask = [draw.choose(&[1, batch]), draw.choose(&[1, heads]), draw.choose(&[1, rows]), columns];
    let mask = of(&mask, draw);

    let mut graph = graph(element);
    let [qi, ki, vi, mi] = [&q, &k, &v, &mask].map(|data| graph.tensor(data.tensor()));
    let product = graph.matmul(qi, ki);
    let scale = scalar(&mut graph, element, SCALE);
    let mut scores = graph.pointwise(M::MUL, &[product, scale]);
    if is_limited {
        scores = graph.pointwise(M::TANH_FWD, &[scores]);
    }
    scores = graph.pointwise(M::ADD, &[scores, mi]);
    if is_causal {
        let [row, column] =
            [2, 3].map(|axis| graph.pointwise(Pointwise { axis: Some(axis), ..M::GEN_INDEX.into() }, &[product]));
        let is_ahead = graph.pointwise(M::CMP_GT, &[column, row]);
        let never = scalar(&mut graph, element, f64::NEG_INFINITY);
        scores = graph.pointwise(M::BINARY_SELECT, &[never, scores, is_ahead]);
    }
    let one = [batch, heads, rows, 1];
    let most = graph.reduction(ReduceOp::MAX, scores, &one);
    let below = graph.pointwise(M::SUB, &[scores, most]);
    let exp = graph.pointwise(M::EXP, &[below]);
    let sum = graph.reduction(ReduceOp::ADD, exp, &one);
    let weights = graph.pointwise(M::DIV, &[exp, sum]);
    let made = graph.matmul(weights, vi);
    let want = ExpectedOutput::arranged(made, element, draw);
    let found = bench.run_for(&mut graph, &[(qi, &q), (ki, &k), (vi, &v), (mi, &mask)], &[want])?;

    let score = |batch: i64, head: i64, row: i64, column: i64| {
        let product: f64 = (0..depth).map(|at| q.at(&[batch, head, row, at]) * k.at(&[batch, head, at, column])).sum();
        let scaled = product * SCALE;
        let place = [batch, head, row, column];
        let place: Vec<i64> = place.iter().zip(&mask.dims).map(|(at, extent)| *at.min(&(extent - 1))).collect();
        (if is_limited { scaled.tanh() } else { scaled }) + mask.at(&place)
    };
    let one = |index: &Vec<i64>| {
        let (batch, head, row) = (index[0], index[1], index[2]);
        let seen = (0..columns).filter(|&column| !is_causal || column <= row);
        let shares: Vec<(i64, f64)> = seen.map(|column| (column, score(batch, head, row, column).exp())).collect();
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        shares.iter().map(|&(column, share)| share / sum * v.at(&[batch, head, column, index[3]])).sum()
    };
    let wanted: Vec<f64> = indices(&[batch, heads, rows, width]).iter().map(one).collect();
    assert_close(&found[0], &wanted, element)
}
