//! Attention with shared heads, masks, bounds, lengths and statistics, and its gradient.

use hipdnn::{Attention, TensorId};

use super::graph;
use super::slopes::{near, nudged};
use crate::bench::{Answer, Bench, ExpectedOutput};
use crate::data::{Data, assert_close, flat, indices};
use crate::draw::Draw;
use crate::element::Element;

const SCALE: f64 = 0.5;

struct Case {
    q: Data,
    k: Data,
    v: Data,
    mask: Option<Data>,
    /// The number of valid queries and keys of each batch.
    lengths: Option<[Data; 2]>,
    is_causal: bool,
    aligns_ends: bool,
    left: Option<i64>,
    right: Option<i64>,
}

/// The outputs of attention: results, and the logarithm of each row's sum.
struct Attended {
    o: Vec<f64>,
    sums: Vec<f64>,
}

impl Case {
    fn draw(element: Element, draw: &mut Draw) -> Self {
        let (batch, key_heads, shared) = (draw.int(1..3), draw.int(1..3), draw.int(1..3));
        let (rows, columns, depth, width) = (draw.int(1..6), draw.int(1..6), draw.int(1..6), draw.int(1..6));
        let heads = key_heads * shared;
        let of = |dims: &[i64], draw: &mut Draw| Data::random(element, dims, draw).arranged(draw);
        let mask = [1, batch].map(|extent| draw.choose(&[1, extent]))[1];
        let mask = [mask, draw.choose(&[1, heads]), draw.choose(&[1, rows]), columns];
        Self {
            q: of(&[batch, heads, rows, depth], draw),
            k: of(&[batch, key_heads, columns, depth], draw),
            v: of(&[batch, key_heads, columns, width], draw),
            mask: draw.flag().then(|| of(&mask, draw)),
            lengths: None,
            is_causal: draw.flag(),
            aligns_ends: false,
            left: None,
            right: None,
        }
    }

    /// Heads as in real models, with types and extents that fused GPU engines support.
    fn wide(draw: &mut Draw) -> Self {
        let element = draw.choose(&[Element::F16, Element::Bf16]);
        let (batch, key_heads, shared) = (draw.int(1..3), draw.int(1..3), draw.choose(&[1, 2, 4]));
        let (rows, depth) = (8 * draw.int(1..5), draw.choose(&[32, 64]));
        let columns = draw.choose(&[rows, rows + 16]);
        let mut of = |dims: &[i64]| Data::random(element, dims, draw).map(|value| value / 4.0);
        let q = of(&[batch, key_heads * shared, rows, depth]);
        let [k, v] = [(); 2].map(|()| of(&[batch, key_heads, columns, depth]));
        let (is_causal, aligns_ends) = (draw.flag(), draw.flag());
        Self { q, k, v, mask: None, lengths: None, is_causal, aligns_ends, left: None, right: None }
    }

    /// With bounds around a diagonal that starts or ends in a corner.
    fn bounded(mut self, draw: &mut Draw) -> Self {
        self.aligns_ends = draw.flag();
        self.left = draw.flag().then(|| draw.int(1..4));
        self.right = (!self.is_causal && draw.flag()).then(|| draw.int(0..3));
        self
    }

    fn sees(&self, batch: i64, row: i64, column: i64) -> bool {
        let (rows, columns) = (self.q.dims[2], self.k.dims[2]);
        let diagonal = row + if self.aligns_ends { columns - rows } else { 0 };
        let right = if self.is_causal { Some(0) } else { self.right };
        let is_real = self.lengths.as_ref().is_none_or(|[queries, keys]| {
            let at = batch as usize;
            (row as f64) < queries.values[at] && (column as f64) < keys.values[at]
        });
        is_real
            && right.is_none_or(|right| column <= diagonal + right)
            && self.left.is_none_or(|left| column > diagonal - left)
    }

    fn is_blind(&self, batch: i64, row: i64) -> bool {
        (0..self.k.dims[2]).all(|column| !self.sees(batch, row, column))
    }

    /// By the definition; a row that sees no key gives zeros.
    fn attend(&self, q: &[f64], k: &[f64], v: &[f64], mask: &[f64]) -> Attended {
        let (columns, depth, width) = (self.k.dims[2], self.q.dims[3], self.v.dims[3]);
        let shared = self.q.dims[1] / self.k.dims[1];
        let mut made = Attended { o: Vec::new(), sums: Vec::new() };
        for index in indices(&self.q.dims[..3]) {
            let (b, h, row) = (index[0], index[1], index[2]);
            let score = |column: i64| {
                if !self.sees(b, row, column) {
                    return f64::NEG_INFINITY;
                }
                let product = |at: i64| {
                    q[flat(&self.q.dims, &[b, h, row, at])] * k[flat(&self.k.dims, &[b, h / shared, column, at])]
                };
                let more = self.mask.as_ref().map_or(0.0, |data| {
                    let at: Vec<i64> =
                        [b, h, row, column].iter().zip(&data.dims).map(|(at, extent)| *at.min(&(extent - 1))).collect();
                    mask[flat(&data.dims, &at)]
                });
                SCALE * (0..depth).map(product).sum::<f64>() + more
            };
            let scores: Vec<f64> = (0..columns).map(score).collect();
            let total: f64 = scores.iter().map(|score| score.exp()).sum();
            made.sums.push(total.ln());
            for at in 0..width {
                let part = |column: i64| {
                    scores[column as usize].exp() / total * v[flat(&self.v.dims, &[b, h / shared, column, at])]
                };
                made.o.push(if total == 0.0 { 0.0 } else { (0..columns).map(part).sum() });
            }
        }
        made
    }

    fn attended(&self) -> Attended {
        let mask = self.mask.as_ref().map_or(&[][..], |mask| &mask.values);
        self.attend(&self.q.values, &self.k.values, &self.v.values, mask)
    }

    fn describe<'d>(&'d self, graph: &mut hipdnn::Graph) -> (Attention, [TensorId; 3], Vec<(TensorId, &'d Data)>) {
        let qkv = [&self.q, &self.k, &self.v].map(|data| graph.tensor(data.tensor()));
        let mut inputs: Vec<_> = qkv.into_iter().zip([&self.q, &self.k, &self.v]).collect();
        let mask = self.mask.as_ref().map(|data| (graph.tensor(data.tensor()), data));
        inputs.extend(mask);
        let lengths = self.lengths.as_ref().map(|data| data.each_ref().map(|data| graph.tensor(data.tensor())));
        inputs.extend(lengths.into_iter().flatten().zip(self.lengths.iter().flatten()));
        let what = Attention {
            scale: Some(SCALE as f32),
            is_causal: self.is_causal,
            aligns_ends: self.aligns_ends,
            left_bound: self.left,
            right_bound: self.right,
            mask: mask.map(|(id, _)| id),
            lengths,
            ..Attention::default()
        };
        (what, qkv, inputs)
    }

    fn forward(&self, bench: &Bench, draw: &mut Draw) -> Answer {
        let element = self.q.element;
        // Sums are in the compute type, whatever the data's type.
        let kept = if element == Element::F64 { element } else { Element::F32 };
        let mut graph = graph(element);
        let (what, qkv, inputs) = self.describe(&mut graph);
        let (o, sums) = graph.attention_training(what, qkv);
        let wants = [ExpectedOutput::arranged(o, element, draw), ExpectedOutput::new(sums, kept)];
        let found = bench.run_for(&mut graph, &inputs, &wants)?;
        let wanted = self.attended();
        assert_close(&found[0], &wanted.o, element)?;
        assert_close(&found[1], &wanted.sums, element)
    }

    fn backward(&self, bench: &Bench, draw: &mut Draw) -> Answer {
        let element = self.q.element;
        let kept = if element == Element::F64 { element } else { Element::F32 };
        let made = self.attended();
        let o_dims = [self.q.dims[0], self.q.dims[1], self.q.dims[2], self.v.dims[3]];
        let o = Data::new(element, &o_dims, made.o).map(|value| value).arranged(draw);
        let sums = Data::new(kept, &[o_dims[0], o_dims[1], o_dims[2], 1], made.sums);
        let d_o = Data::random(element, &o_dims, draw).arranged(draw);
        let mut graph = graph(element);
        let (what, qkv, mut inputs) = self.describe(&mut graph);
        let [oi, si, di] = [&o, &sums, &d_o].map(|data| graph.tensor(data.tensor()));
        inputs.extend([(oi, &o), (si, &sums), (di, &d_o)]);
        let gradients = graph.attention_backward(what, qkv, [oi, si], di);
        let wants = gradients.map(|id| ExpectedOutput::arranged(id, element, draw));
        let found = bench.run_for(&mut graph, &inputs, &wants)?;
        let mask = self.mask.as_ref().map_or(&[][..], |mask| &mask.values);
        let loss = |q: &[f64], k: &[f64], v: &[f64]| -> f64 {
            self.attend(q, k, v, mask).o.iter().zip(&d_o.values).map(|(o, d_o)| o * d_o).sum()
        };
        let (q, k, v) = (&self.q.values, &self.k.values, &self.v.values);
        near("dq", &found[0], element, |at, by| loss(&nudged(q, at, by), k, v))?;
        near("dk", &found[1], element, |at, by| loss(q, &nudged(k, at, by), v))?;
        near("dv", &found[2], element, |at, by| loss(q, k, &nudged(v, at, by)))
    }
}

fn lengths(case: &Case, draw: &mut Draw) -> [Data; 2] {
    let batch = case.q.dims[0];
    let of = |most: i64, draw: &mut Draw| {
        let values = (0..batch).map(|_| draw.int(1..most + 1) as f64).collect();
        Data::new(Element::I32, &[batch, 1, 1, 1], values)
    };
    [of(case.q.dims[2], draw), of(case.k.dims[2], draw)]
}

pub fn forward(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    Case::draw(element, draw).forward(bench, draw)
}

/// Bounds around the diagonal, including rows that see no key.
pub fn bounded(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    Case::draw(element, draw).bounded(draw).forward(bench, draw)
}

/// Sequences of different lengths.
pub fn padded(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let mut case = Case::draw(element, draw);
    case.lengths = Some(lengths(&case, draw));
    case.forward(bench, draw)
}

pub fn backward(bench: &Bench, draw: &mut Draw) -> Answer {
    let element = Element::draw(draw);
    let mut case = Case::draw(element, draw).bounded(draw);
    if draw.flag() {
        case.lengths = Some(lengths(&case, draw));
    }
    // The sum of a row that sees no key is minus infinity, which not every type of statistics can represent.
    let blind = indices(&case.q.dims[..3]).iter().any(|index| case.is_blind(index[0], index[2]));
    if blind && element != Element::F64 {
        (case.left, case.right, case.aligns_ends, case.lengths) = (None, None, false, None);
    }
    case.backward(bench, draw)
}

pub fn wide(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::wide(draw);
    let element = case.q.element;
    let mut graph = graph(element);
    let (what, qkv, inputs) = case.describe(&mut graph);
    let o = graph.attention(what, qkv);
    let found = bench.run(&mut graph, &inputs, &[o], element)?;
    assert_close(&found[0], &case.attended().o, element)
}
