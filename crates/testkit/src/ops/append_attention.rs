//! Attention of a token whose key and value join the cache in the same step.

use graph::prim::{AppendAttention, Sinks};
use graph::{DType, Prim};

use super::Sample;
use super::append::{Growth, Queries};
use super::cached_attention::{Scores, cache};

/// The outputs that are always written: the rotated queries may or may not be stored.
pub const STORED: [usize; 3] = [0, 1, 3];

/// A token of several sequences.
#[derive(Clone, Debug)]
pub struct Token {
    /// The type of all numbers.
    pub dtype: DType,
    /// The length of each sequence, including the token.
    pub lengths: Vec<i64>,
    /// The heads of keys and values.
    pub shared: usize,
    /// The heads of queries for each of them.
    pub group: usize,
    /// The rows of the cache.
    pub total: usize,
    /// The size of a head.
    pub size: usize,
    /// The number of angles of a position.
    pub half: usize,
    /// Whether neighbours are rotated, instead of elements `half` apart.
    pub interleaved: bool,
    /// Positions are given instead of derived from the lengths.
    pub given: bool,
    /// Queries, keys and values share one buffer.
    pub packed: bool,
    /// What is done with scores.
    pub scores: Scores,
}

impl Default for Token {
    fn default() -> Self {
        Self {
            dtype: DType::F16,
            lengths: vec![70, 1],
            shared: 2,
            group: 4,
            total: 80,
            size: 64,
            half: 32,
            interleaved: false,
            given: false,
            packed: true,
            scores: Scores::PLAIN,
        }
    }
}

impl Token {
    /// The number of heads of queries.
    pub fn heads(&self) -> usize {
        self.shared * self.group
    }

    fn growth(&self) -> Growth {
        let &Self { dtype, total, size, half, interleaved, given, .. } = self;
        Growth {
            dtype,
            lengths: self.lengths.clone(),
            heads: self.shared,
            rows: 1,
            held: Some(total),
            total,
            sizes: [size; 2],
            queries: Some(Queries { heads: self.heads(), half, count: 400, interleaved, given }),
            packed: self.packed,
        }
    }

    /// The step. The cache so far is followed by NaN.
    pub fn sample(&self, in_place: bool) -> Sample {
        let (growth, batch, heads) = (self.growth(), self.lengths.len(), self.heads());
        let (append, mut inputs) = growth.parts();
        let before: Vec<usize> = self.lengths.iter().map(|&length| growth.filled().before(length)).collect();
        for (number, seed) in [(3, 7), (4, 8)] {
            inputs[number].1 = cache(self.dtype, [batch, self.shared, self.total, self.size], &before, seed);
        }
        inputs.extend(self.scores.operands(self.dtype, [batch, heads, 1, self.total]));
        let attention = self.scores.attention(growth.filled());
        let mut outputs = growth.outputs(in_place);
        outputs.push(growth.by_token(31, heads, self.size));
        Sample::new(Prim::AppendAttention(AppendAttention { append, attention }), inputs, outputs)
    }

    /// The caches, the rotated queries and the token's result, for the values of the sample's inputs.
    pub fn expected(&self, values: &[Vec<f64>], in_place: bool) -> Vec<Vec<f64>> {
        let (growth, size, total) = (self.growth(), self.size, self.total);
        let mut outputs = growth.expected(values, in_place);
        let row = |(at, query): (usize, &[f64])| {
            let (batch, head) = (at / self.heads(), at % self.heads());
            let own = growth.filled().before(self.lengths[batch]);
            let seen = self.scores.keys(own, own + 1);
            let first = (batch * self.shared + head / self.group) * total;
            let rows = |of: usize| outputs[of][first * size..].chunks(size).take(seen.end).skip(seen.start);
            let products = rows(0).map(|key| query.iter().zip(key).map(|(q, k)| q * k).sum());
            let biases = self.scores.bias.then(|| &values[9][at * total..][seen.clone()]);
            self.scores.attend(products, biases, self.scores.sink(values, head), rows(1), size)
        };
        let result = outputs[2].chunks(size).enumerate().flat_map(row).collect();
        outputs.push(result);
        outputs
    }
}

/// All sizes of heads and groups.
pub fn sizes() -> Vec<Token> {
    let cases = [
        (DType::F16, 16, 128, 64),
        (DType::Bf16, 7, 64, 24),
        (DType::F16, 5, 256, 128),
        (DType::Bf16, 3, 80, 16),
        (DType::F32, 8, 16, 8),
        (DType::F32, 2, 256, 128),
    ];
    let case = |(dtype, group, size, half)| Token { dtype, group, size, half, shared: 1, ..Token::default() };
    cases.map(case).to_vec()
}

/// Every way to change scores, and lengths around those of the parts that kernels take.
pub fn changed_scores() -> Vec<Token> {
    let plain = Token { shared: 1, lengths: vec![330, 2, 130], total: 340, ..Token::default() };
    let with = |scores| Token { scores, ..plain.clone() };
    vec![
        with(Scores { window: Some(1), ..Scores::PLAIN }),
        with(Scores { window: Some(65), sinks: Sinks::Zero, ..Scores::PLAIN }),
        with(Scores { softcap: Some(1.5), bias: true, ..Scores::PLAIN }),
        Token { interleaved: true, ..with(Scores { bias: true, sinks: Sinks::Given, ..Scores::PLAIN }) },
        // Full, and with exactly as many keys as a part takes at once.
        Token { lengths: vec![340, 65, 64], ..plain.clone() },
        // Negative lengths mean an empty cache.
        Token { lengths: vec![0, -3], ..plain.clone() },
    ]
}
