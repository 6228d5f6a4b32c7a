//! Products of matrices: batched, of 8-bit integers, and of experts.

use hipdnn::sys::{DataType, PointwiseMode as M};
use hipdnn::{Graph, MoeGroupedMatmul};

use super::graph;
use crate::bench::{Answer, Bench, ExpectedOutput};
use crate::data::{Data, assert_close, indices};
use crate::draw::Draw;
use crate::element::Element;

/// Operands with batches, either of which may be broadcast.
struct Case {
    a: Vec<i64>,
    b: Vec<i64>,
    c: Vec<i64>,
}

impl Case {
    fn draw(most: i64, draw: &mut Draw) -> Self {
        let batch = draw.list(0..3, |draw| (draw.int(1..4), draw.int(0..3)));
        let (m, k, n) = (draw.int(1..most), draw.int(1..most), draw.int(1..most));
        let side = |which: i64| batch.iter().map(move |&(extent, one)| if one == which { 1 } else { extent });
        Self {
            a: side(1).chain([m, k]).collect(),
            b: side(2).chain([k, n]).collect(),
            c: side(1).zip(side(2)).map(|(a, b)| a.max(b)).chain([m, n]).collect(),
        }
    }

    fn product(&self, a: &Data, b: &Data) -> Vec<f64> {
        let batch = self.c.len() - 2;
        let one = |index: &Vec<i64>| -> f64 {
            let (batches, place) = index.split_at(batch);
            let of = |data: &Data, row: i64, column: i64| {
                let at: Vec<i64> = batches.iter().zip(&data.dims).map(|(at, extent)| *at.min(&(extent - 1))).collect();
                data.at(&[&at[..], &[row, column]].concat())
            };
            (0..self.a[batch + 1]).map(|inner| of(a, place[0], inner) * of(b, inner, place[1])).sum()
        };
        indices(&self.c).iter().map(one).collect()
    }
}

pub fn product(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let case = Case::draw(9, draw);
    let [a, b] = [&case.a, &case.b].map(|dims| Data::random(element, dims, draw).arranged(draw));
    let mut graph = graph(element);
    let [ai, bi] = [&a, &b].map(|data| graph.tensor(data.tensor()));
    let c = graph.matmul(ai, bi);
    let want = ExpectedOutput::arranged(c, element, draw);
    let found = bench.run_for(&mut graph, &[(ai, &a), (bi, &b)], &[want])?;
    assert_close(&found[0], &case.product(&a, &b), element)
}

/// As in a network's layer: larger matrices, a bias and an activation.
pub fn with_bias(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let case = Case::draw(40, draw);
    let [a, b] = [&case.a, &case.b].map(|dims| Data::random(element, dims, draw).map(|value| value * 0.25));
    let bias: Vec<i64> =
        case.c.iter().enumerate().map(|(axis, &extent)| if axis + 1 == case.c.len() { extent } else { 1 }).collect();
    let bias = Data::random(element, &bias, draw);
    let mut graph = graph(element);
    let [ai, bi, oi] = [&a, &b, &bias].map(|data| graph.tensor(data.tensor()));
    let c = graph.matmul(ai, bi);
    let sum = graph.pointwise(M::ADD, &[c, oi]);
    let made = graph.pointwise(M::SIGMOID_FWD, &[sum]);
    let want = ExpectedOutput::new(made, element);
    let found = bench.run_for(&mut graph, &[(ai, &a), (bi, &b), (oi, &bias)], &[want])?;
    let width = bias.values.len();
    let shifted = case.product(&a, &b).into_iter().enumerate().map(|(at, value)| value + bias.values[at % width]);
    let wanted: Vec<f64> = shifted.map(|value| 1.0 / (1.0 + (-value).exp())).collect();
    assert_close(&found[0], &wanted, element)
}

/// 8-bit integers with integer sums.
pub fn of_bytes(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(20, draw);
    let [a, b] = [&case.a, &case.b].map(|dims| Data::whole(Element::I8, dims, -128..128, draw).arranged(draw));
    let mut graph = Graph::new(DataType::INT8, DataType::INT32);
    let [ai, bi] = [&a, &b].map(|data| graph.tensor(data.tensor()));
    let c = graph.matmul(ai, bi);
    let found = bench.run(&mut graph, &[(ai, &a), (bi, &b)], &[c], Element::I32)?;
    assert_close(&found[0], &case.product(&a, &b), Element::I32)
}

/// Tokens sorted by expert; some experts have none.
struct Experts {
    token: Data,
    weight: Data,
    first: Data,
    /// The expert of each token.
    owner: Vec<i64>,
}

impl Experts {
    fn draw(element: Element, draw: &mut Draw) -> Self {
        let (experts, rows, depth, width) = (draw.int(1..5), draw.int(1..9), draw.int(1..9), draw.int(1..9));
        let mut owner: Vec<i64> = (0..rows).map(|_| draw.int(0..experts)).collect();
        owner.sort_unstable();
        let first = (0..experts).map(|expert| owner.iter().filter(|&&of| of < expert).count() as f64).collect();
        Self {
            token: Data::random(element, &[1, rows, depth], draw),
            weight: Data::random(element, &[experts, depth, width], draw).arranged(draw),
            first: Data::new(Element::I32, &[experts, 1, 1], first),
            owner,
        }
    }
}

pub fn of_experts(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let Experts { token, weight, first, owner } = Experts::draw(element, draw);
    let mut graph = graph(element);
    let [ti, wi, fi] = [&token, &weight, &first].map(|data| graph.tensor(data.tensor()));
    let made = graph.moe_grouped_matmul(MoeGroupedMatmul::default(), [ti, wi, fi], None);
    let found = bench.run(&mut graph, &[(ti, &token), (wi, &weight), (fi, &first)], &[made], element)?;
    let (rows, width) = (token.dims[1], weight.dims[2]);
    let one = |index: &Vec<i64>| -> f64 {
        let expert = owner[index[0] as usize];
        (0..token.dims[2]).map(|at| token.at(&[0, index[0], at]) * weight.at(&[expert, at, index[1]])).sum()
    };
    let wanted: Vec<f64> = indices(&[rows, width]).iter().map(one).collect();
    assert_close(&found[0], &wanted, element)
}

pub fn of_experts_backward(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let Experts { token, weight, first, owner } = Experts::draw(element, draw);
    let dy = Data::random(element, &[1, token.dims[1], weight.dims[2]], draw);
    let mut graph = graph(element);
    let [di, ti, fi] = [&dy, &token, &first].map(|data| graph.tensor(data.tensor()));
    let made = graph.moe_grouped_matmul_backward([di, ti, fi]);
    let found = bench.run(&mut graph, &[(di, &dy), (ti, &token), (fi, &first)], &[made], element)?;
    let one = |index: &Vec<i64>| -> f64 {
        let own = (0..token.dims[1]).filter(|&row| owner[row as usize] == index[0]);
        own.map(|row| token.at(&[0, row, index[1]]) * dy.at(&[0, row, index[2]])).sum()
    };
    let wanted: Vec<f64> = indices(&weight.dims).iter().map(one).collect();
    assert_close(&found[0], &wanted, element)
}
