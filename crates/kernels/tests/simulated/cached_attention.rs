//! Tests attention over caches in the simulator, against loops in double precision.

use graph::prim::{CachedAttention, Filled, Sinks};
use graph::{DType, Prim, Scalar, Tensor};

use crate::common::{check_numbers, dense, random, step, strided};

/// Both wave widths without matrix instructions, then all kinds of matrix instructions.
const TARGETS: [&str; 6] = ["gfx1030", "gfx906", "gfx1100", "gfx942", "gfx1201", "sm_90"];
const PLAIN: [&str; 2] = ["gfx1030", "gfx906"];
const MATRIX: [&str; 4] = ["gfx1100", "gfx942", "gfx1201", "sm_90"];

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    /// The length of each batch after the step.
    lengths: Vec<i64>,
    shared: usize,
    group: usize,
    tokens: usize,
    total: usize,
    size: usize,
    width: usize,
    causal: bool,
    window: Option<usize>,
    softcap: Option<f32>,
    bias: bool,
    sinks: Sinks,
}

impl Default for Case {
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
            causal: true,
            window: None,
            softcap: None,
            bias: false,
            sinks: Sinks::None,
        }
    }
}

impl Case {
    fn before(&self, batch: usize) -> usize {
        (self.lengths[batch] - self.tokens as i64).max(0) as usize
    }

    /// Keys or values, followed by NaN after those that the tokens see: fresh memory may hold anything.
    fn cache(&self, elems: usize, seed: u64) -> Tensor {
        let rows = self.shared * self.total;
        let numbers = random(self.dtype, self.lengths.len() * rows * elems, seed);
        let filled = numbers.scalars().enumerate().map(|(at, value)| {
            let (batch, key) = (at / elems / rows, at / elems % self.total);
            if key < self.before(batch) + self.tokens { value } else { Scalar::Float(f64::NAN) }
        });
        Tensor::from_scalars(self.dtype, numbers.shape(), filled).unwrap()
    }

    fn check(&self, targets: &[&str]) {
        let &Self { dtype, shared, group, tokens, total, size, width, .. } = self;
        let (batch, heads, of) = (self.lengths.len(), shared * group, self.dtype);
        // Queries and results are stored token by token, with all heads side by side.
        let by_token = |buffer: u32, size: usize| {
            let (size, row) = (size as isize, (heads * size) as isize);
            strided(buffer, of, &[batch, heads, tokens, size as usize], &[tokens as isize * row, size, row, 1], 0)
        };
        let mut inputs = vec![
            random(of, batch * tokens * heads * size, 1),
            self.cache(size, 2),
            self.cache(width, 3),
            Tensor::from_scalars(DType::I32, &[batch], self.lengths.iter().map(|&n| Scalar::Int(n))).unwrap(),
        ];
        let mut views = vec![
            by_token(0, size),
            dense(1, of, &[batch, shared, total, size]),
            dense(2, of, &[batch, shared, total, width]),
            dense(3, DType::I32, &[batch]),
        ];
        if self.bias {
            // The same for all batches.
            let row = total as isize;
            let strides = [0, tokens as isize * row, row, 1];
            views.push(strided(4, of, &[batch, heads, tokens, total], &strides, 0));
            inputs.push(random(of, heads * tokens * total, 4));
        }
        if self.sinks == Sinks::Given {
            views.push(dense(5, of, &[heads]));
            inputs.push(random(of, heads, 5));
        }
        let alpha = 0.37f32;
        let prim = Prim::CachedAttention(CachedAttention {
            alpha,
            filled: Filled { shift: -(tokens as i64) },
            causal: self.causal,
            window: self.window,
            softcap: self.softcap,
            bias: self.bias,
            sinks: self.sinks,
        });
        let wanted = self.wanted(&inputs, f64::from(alpha));
        let relative = match dtype {
            DType::F32 => 2e-5,
            DType::F16 => 6e-3,
            _ => 4e-2,
        };
        check_numbers(targets, &step(prim, views, vec![by_token(6, width)]), &inputs, &[wanted], relative);
    }

    fn wanted(&self, inputs: &[Tensor], alpha: f64) -> Vec<f64> {
        let lists: Vec<Vec<f64>> = inputs.iter().map(|tensor| tensor.scalars().map(Scalar::as_f64).collect()).collect();
        let (q, k, v) = (&lists[0], &lists[1], &lists[2]);
        let heads = self.shared * self.group;
        let mut out = Vec::new();
        for b in 0..self.lengths.len() {
            for t in 0..self.tokens {
                for h in 0..heads {
                    let own = self.before(b) + t;
                    let end = if self.causal { own + 1 } else { self.before(b) + self.tokens };
                    let start = self.window.map_or(0, |window| (own + 1).saturating_sub(window));
                    let row = |j: usize| (b * self.shared + h / self.group) * self.total + j;
                    let score = |j: usize| {
                        let from = ((b * self.tokens + t) * heads + h) * self.size;
                        let dot: f64 = (0..self.size).map(|d| q[from + d] * k[row(j) * self.size + d]).sum();
                        let score = match self.softcap.map(f64::from) {
                            Some(cap) => cap * (dot * alpha / cap).tanh(),
                            None => dot * alpha,
                        };
                        score + if self.bias { lists[4][(h * self.tokens + t) * self.total + j] } else { 0.0 }
                    };
                    let scores: Vec<f64> = (start..end.min(self.total)).map(score).collect();
                    let sink = match self.sinks {
                        Sinks::None => None,
                        Sinks::Zero => Some(0.0),
                        Sinks::Given => lists.last().map(|sinks| sinks[h]),
                    };
                    let weights: Vec<f64> = scores.iter().map(|score| score.exp()).collect();
                    let sum = weights.iter().sum::<f64>() + sink.map_or(0.0, f64::exp);
                    out.extend((0..self.width).map(|e| {
                        let of = |(j, weight): (usize, &f64)| weight * v[row(start + j) * self.width + e];
                        weights.iter().enumerate().map(of).sum::<f64>() / sum
                    }));
                }
            }
        }
        out
    }
}

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

#[test]
fn one_token_reads_as_much_of_the_cache_as_its_length_says() {
    let all = &TYPES[..];
    for (types, group, size) in [(all, 1, 64), (&TYPES[1..2], 3, 40), (all, 7, 128), (&TYPES[..1], 12, 19)] {
        for &dtype in types {
            let lengths = vec![260, 1, 130];
            let case = Case { dtype, lengths, shared: 1, group, total: 260, size, width: size, ..Case::default() };
            case.check(&PLAIN);
        }
    }
    Case { dtype: DType::F32, size: 256, width: 200, ..Case::default() }.check(&PLAIN);
    Case { dtype: DType::F16, size: 256, width: 256, group: 5, ..Case::default() }.check(&PLAIN);
}

#[test]
fn few_tokens_see_each_what_they_may() {
    let plain = Case { tokens: 3, shared: 1, ..Case::default() };
    for case in [
        Case { shared: 2, ..plain.clone() },
        Case { dtype: DType::F32, ..plain.clone() },
        Case { causal: false, ..plain.clone() },
        Case { window: Some(2), ..plain.clone() },
        Case { window: Some(40), sinks: Sinks::Zero, ..plain.clone() },
        Case { softcap: Some(1.5), bias: true, ..plain.clone() },
        Case { dtype: DType::F32, bias: true, sinks: Sinks::Given, ..plain.clone() },
        // Fewer tokens than rows: those beyond the length count from 0.
        Case { lengths: vec![2, 80], ..plain.clone() },
    ] {
        case.check(&PLAIN);
    }
}

#[test]
fn few_rows_go_from_memory_to_fragments() {
    let targets = ["gfx942", "sm_90"];
    let plain = Case { lengths: vec![330, 1, 130], total: 340, shared: 1, size: 64, width: 64, ..Case::default() };
    for case in [
        Case { group: 4, shared: 2, ..plain.clone() },
        Case { dtype: DType::Bf16, size: 128, width: 64, group: 7, ..plain.clone() },
        Case { size: 64, width: 128, group: 16, ..plain.clone() },
        Case { group: 1, tokens: 3, ..plain.clone() },
        Case { group: 4, tokens: 4, size: 128, width: 128, causal: false, ..plain.clone() },
        Case { window: Some(2), ..plain.clone() },
        Case { window: Some(100), tokens: 5, sinks: Sinks::Zero, ..plain.clone() },
        Case { softcap: Some(1.5), bias: true, tokens: 2, ..plain.clone() },
        Case { bias: true, sinks: Sinks::Given, ..plain.clone() },
        // Fewer tokens than rows.
        Case { lengths: vec![2, 340], tokens: 3, ..plain.clone() },
        Case { lengths: vec![i64::from(i32::MAX), 341], ..plain.clone() },
    ] {
        case.check(&targets);
    }
}

/// One block sums more than eight parts, and several of its threads sum the same elements.
#[test]
fn many_parts_of_the_keys_are_added_up() {
    let plain = Case { lengths: vec![1020], total: 1024, shared: 1, size: 64, width: 64, ..Case::default() };
    for group in [1, 8, 16] {
        Case { group, ..plain.clone() }.check(&TARGETS);
    }
    Case { dtype: DType::F32, group: 3, ..plain }.check(&PLAIN);
}

#[test]
fn prompts_go_tile_by_tile() {
    let plain = Case { tokens: 45, lengths: vec![45, 170], total: 170, ..Case::default() };
    plain.check(&TARGETS);
    // The code for visibility and scores is the same for all kinds of matrix instructions, so each case uses two of
    // them.
    let plain = Case { shared: 1, ..plain };
    for (number, case) in [
        Case { dtype: DType::Bf16, group: 1, tokens: 70, ..plain.clone() },
        Case { window: Some(20), sinks: Sinks::Given, ..plain.clone() },
        Case { causal: false, window: Some(90), ..plain.clone() },
        Case { softcap: Some(2.0), bias: true, ..plain.clone() },
        Case { size: 19, width: 37, group: 3, tokens: 9, ..plain.clone() },
        Case { lengths: vec![170, 60], group: 9, tokens: 3, ..plain.clone() },
    ]
    .into_iter()
    .enumerate()
    {
        case.check(&[MATRIX[number % 4], MATRIX[(number + 1) % 4]]);
    }
    Case { dtype: DType::F32, ..plain.clone() }.check(&PLAIN);
    Case { size: 128, width: 128, group: 1, tokens: 20, lengths: vec![130], total: 140, ..plain }.check(&MATRIX);
}

/// On CUDA, scores are computed ahead of values if a cache has space for more than a few keys, however many a prompt
/// sees.
#[test]
fn prompts_in_long_caches() {
    let plain = Case { tokens: 130, lengths: vec![130, 290], total: 300, size: 64, width: 64, ..Case::default() };
    for case in [
        plain.clone(),
        Case { dtype: DType::Bf16, causal: false, ..plain.clone() },
        Case { window: Some(40), sinks: Sinks::Given, ..plain.clone() },
        Case { size: 19, width: 37, ..plain },
    ] {
        case.check(&["sm_90"]);
    }
}

/// On AMD, two waves share such rows.
#[test]
fn prompts_with_large_heads_go_tile_by_tile() {
    let lengths = vec![20, 75];
    let plain = Case { tokens: 20, lengths, total: 80, shared: 1, size: 256, width: 256, ..Case::default() };
    plain.check(&MATRIX);
    for (number, case) in [
        Case { dtype: DType::Bf16, softcap: Some(2.0), bias: true, tokens: 17, ..plain.clone() },
        Case { softcap: Some(2.0), window: Some(9), group: 1, ..plain.clone() },
        Case { window: Some(30), sinks: Sinks::Given, causal: false, ..plain.clone() },
        Case { size: 192, width: 128, bias: true, sinks: Sinks::Zero, ..plain.clone() },
        // No packs, and parts that end in different ways.
        Case { size: 147, width: 131, group: 3, tokens: 7, ..plain.clone() },
        Case { size: 40, width: 168, group: 9, tokens: 3, ..plain.clone() },
        // So few rows that blocks process parts of the keys.
        Case { group: 1, tokens: 18, lengths: vec![200], total: 230, ..plain.clone() },
        Case { group: 1, tokens: 18, lengths: vec![230], total: 230, softcap: Some(3.0), ..plain.clone() },
    ]
    .into_iter()
    .enumerate()
    {
        case.check(&[MATRIX[number % 4], MATRIX[(number + 1) % 4]]);
    }
}

#[test]
fn lengths_beyond_the_cache_are_bounded() {
    let case = Case { lengths: vec![80, 80], ..Case::default() };
    // The result for what the cache holds; the append step has already reported the error.
    Case { lengths: vec![i64::from(i32::MAX), 81], ..case }.check(&PLAIN);
}
