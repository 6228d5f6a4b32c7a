//! Attention over caches, by loops over queries and keys.

use std::ops::Range;

use graph::prim::{CachedAttention, Filled, Sinks};
use graph::{DType, Prim, Tensor, View};

use super::{Sample, dense, ints, list, random, strided, tensor};

/// The factor of the products of queries and keys.
pub const ALPHA: f32 = 0.37;

/// What is done with scores.
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    /// Tokens see no later ones.
    pub causal: bool,
    /// The number of keys a token sees, up to its own.
    pub window: Option<usize>,
    /// The bound of scores.
    pub softcap: Option<f32>,
    /// Whether a bias is added.
    pub bias: bool,
    /// A score without a value.
    pub sinks: Sinks,
}

impl Scores {
    /// Causal scores, not changed further.
    pub const PLAIN: Self = Self { causal: true, window: None, softcap: None, bias: false, sinks: Sinks::None };

    /// The attributes of the primitive.
    pub fn attention(&self, filled: Filled) -> CachedAttention {
        let Self { causal, window, softcap, bias, sinks } = *self;
        CachedAttention { alpha: ALPHA, filled, causal, window, softcap, bias, sinks }
    }

    /// The keys that a token sees, if it has `own` before it and the cache `filled` rows with all new tokens.
    pub fn keys(&self, own: usize, filled: usize) -> Range<usize> {
        let start = self.window.map_or(0, |window| (own + 1).saturating_sub(window));
        start..if self.causal { own + 1 } else { filled }
    }

    /// The operands after the caches: a bias that is the same for all batches `[heads, tokens, total]`, and a sink for
    /// each head.
    pub fn operands(&self, dtype: DType, [batch, heads, tokens, total]: [usize; 4]) -> Vec<(View, Tensor)> {
        let row = total as isize;
        let bias = strided(8, dtype, &[batch, heads, tokens, total], &[0, tokens as isize * row, row, 1], 0);
        let mut operands = Vec::new();
        operands.extend(self.bias.then(|| (bias, random(dtype, heads * tokens * total, 4))));
        operands.extend((self.sinks == Sinks::Given).then(|| (dense(9, dtype, &[heads]), random(dtype, heads, 5))));
        operands
    }

    /// One row of the result, from the products of its query with the keys it sees, their biases and values.
    pub fn attend<'a>(
        &self,
        products: impl Iterator<Item = f64>,
        biases: Option<&[f64]>,
        sink: Option<f64>,
        values: impl Iterator<Item = &'a [f64]>,
        width: usize,
    ) -> Vec<f64> {
        let scores: Vec<f64> = products
            .enumerate()
            .map(|(key, product)| {
                let score = product * f64::from(ALPHA);
                let score = self.softcap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh());
                score + biases.map_or(0.0, |biases| biases[key])
            })
            .collect();
        let largest = scores.iter().copied().fold(sink.unwrap_or(f64::NEG_INFINITY), f64::max);
        let weights = scores.iter().map(|score| (score - largest).exp());
        let sum = weights.clone().sum::<f64>() + sink.map_or(0.0, |sink| (sink - largest).exp());
        let mut row = vec![0.0; width];
        for (weight, value) in weights.zip(values) {
            row.iter_mut().zip(value).for_each(|(to, value)| *to += weight * value / sum);
        }
        row
    }

    /// The sink of a head, from the last operand.
    pub fn sink(&self, values: &[Vec<f64>], head: usize) -> Option<f64> {
        match self.sinks {
            Sinks::None => None,
            Sinks::Zero => Some(0.0),
            Sinks::Given => values.last().map(|sinks| sinks[head]),
        }
    }
}

/// New tokens that see a cache, which already has their keys and values.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// The type of all numbers.
    pub dtype: DType,
    /// The length of each sequence after the step.
    pub lengths: Vec<i64>,
    /// The heads of keys and values.
    pub shared: usize,
    /// The heads of queries for each of them.
    pub group: usize,
    /// The number of new tokens.
    pub tokens: usize,
    /// The rows of the cache.
    pub total: usize,
    /// The size of a key.
    pub size: usize,
    /// The size of a value.
    pub width: usize,
    /// What is done with scores.
    pub scores: Scores,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            dtype: DType::F16,
            lengths: vec![70, 33],
            shared: 2,
            group: 2,
            tokens: 1,
            total: 80,
            size: 32,
            width: 32,
            scores: Scores::PLAIN,
        }
    }
}

/// A cache `[batch, heads, total, size]` with NaN after its filled rows: fresh memory may hold anything.
pub fn cache(dtype: DType, [batch, heads, total, size]: [usize; 4], filled: &[usize], seed: u64) -> Tensor {
    let numbers = list(&random(dtype, batch * heads * total * size, seed));
    let kept = numbers.into_iter().enumerate().map(|(at, value)| {
        let row = at / size;
        if row % total < filled[row / total / heads] { value } else { f64::NAN }
    });
    tensor(dtype, kept)
}

impl Tokens {
    /// The number of heads of queries.
    pub fn heads(&self) -> usize {
        self.shared * self.group
    }

    fn before(&self, batch: usize) -> usize {
        (self.lengths[batch] - self.tokens as i64).max(0) as usize
    }

    /// The step. Queries and results are stored token by token, with all heads side by side.
    pub fn sample(&self) -> Sample {
        let &Self { dtype, shared, tokens, total, .. } = self;
        let (batch, heads) = (self.lengths.len(), self.heads());
        let by_token = |buffer: u32, size: usize| {
            let (size, row) = (size as isize, (heads * size) as isize);
            strided(buffer, dtype, &[batch, heads, tokens, size as usize], &[tokens as isize * row, size, row, 1], 0)
        };
        let filled: Vec<usize> = (0..batch).map(|batch| self.before(batch) + tokens).collect();
        let mut inputs = vec![(by_token(0, self.size), random(dtype, batch * tokens * heads * self.size, 1))];
        for (buffer, size) in [(1, self.size), (2, self.width)] {
            let shape = [batch, shared, total, size];
            inputs.push((dense(buffer, dtype, &shape), cache(dtype, shape, &filled, u64::from(buffer) + 1)));
        }
        inputs.push((dense(3, DType::I32, &[batch]), ints(DType::I32, self.lengths.iter().copied())));
        inputs.extend(self.scores.operands(dtype, [batch, heads, tokens, total]));
        let prim = self.scores.attention(Filled { shift: -(tokens as i64) });
        Sample::new(Prim::CachedAttention(prim), inputs, vec![by_token(6, self.width)])
    }

    /// The result for the values of the sample's inputs.
    pub fn expected(&self, values: &[Vec<f64>]) -> Vec<f64> {
        let &Self { tokens, total, size, width, .. } = self;
        let heads = self.heads();
        let row = |(at, query): (usize, &[f64])| {
            let (batch, head, token) = (at / tokens / heads, at / tokens % heads, at % tokens);
            let seen = self.scores.keys(self.before(batch) + token, self.before(batch) + tokens);
            let seen = seen.start..seen.end.min(total);
            let first = (batch * self.shared + head / self.group) * total;
            let keys = values[1][first * size..].chunks(size).take(seen.end).skip(seen.start);
            let products = keys.map(|key| query.iter().zip(key).map(|(q, k)| q * k).sum());
            let biases = self.scores.bias.then(|| &values[4][at * total..][seen.clone()]);
            let held = values[2][first * width..].chunks(width).take(seen.end).skip(seen.start);
            self.scores.attend(products, biases, self.scores.sink(values, head), held, width)
        };
        values[0].chunks(size).enumerate().flat_map(row).collect()
    }
}

/// One token that reads as much of the cache as its length says.
pub fn one_token() -> Vec<Tokens> {
    const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
    let plain = Tokens { lengths: vec![260, 1, 130], shared: 1, total: 260, ..Tokens::default() };
    let mut cases = Vec::new();
    for (types, group, size) in
        [(&TYPES[..], 1, 64), (&TYPES[1..2], 3, 40), (&TYPES[..], 7, 128), (&TYPES[..1], 12, 19)]
    {
        cases.extend(types.iter().map(|&dtype| Tokens { dtype, group, size, width: size, ..plain.clone() }));
    }
    cases.push(Tokens { dtype: DType::F32, size: 256, width: 200, ..Tokens::default() });
    cases.push(Tokens { size: 256, width: 256, group: 5, ..Tokens::default() });
    cases
}

/// A few tokens with every way to change scores.
pub fn few_tokens() -> Vec<Tokens> {
    let plain = Tokens { tokens: 3, shared: 1, ..Tokens::default() };
    let with = |scores| Tokens { scores, ..plain.clone() };
    vec![
        Tokens { shared: 2, ..plain.clone() },
        Tokens { dtype: DType::F32, ..plain.clone() },
        with(Scores { causal: false, ..Scores::PLAIN }),
        with(Scores { window: Some(2), ..Scores::PLAIN }),
        with(Scores { window: Some(40), sinks: Sinks::Zero, ..Scores::PLAIN }),
        with(Scores { softcap: Some(1.5), bias: true, ..Scores::PLAIN }),
        Tokens { dtype: DType::F32, ..with(Scores { bias: true, sinks: Sinks::Given, ..Scores::PLAIN }) },
        // Fewer tokens than rows: those beyond the length count from 0.
        Tokens { lengths: vec![2, 80], ..plain.clone() },
    ]
}

/// Prompts, with every way to change scores.
pub fn prompts() -> Vec<Tokens> {
    let plain = Tokens { tokens: 45, lengths: vec![45, 170], total: 170, shared: 1, ..Tokens::default() };
    let with = |scores| Tokens { scores, ..plain.clone() };
    vec![
        Tokens { dtype: DType::Bf16, group: 1, tokens: 70, ..plain.clone() },
        with(Scores { window: Some(20), sinks: Sinks::Given, ..Scores::PLAIN }),
        with(Scores { causal: false, window: Some(90), ..Scores::PLAIN }),
        with(Scores { softcap: Some(2.0), bias: true, ..Scores::PLAIN }),
        Tokens { size: 19, width: 37, group: 3, tokens: 9, ..plain.clone() },
        Tokens { lengths: vec![170, 60], group: 9, tokens: 3, ..plain.clone() },
    ]
}
