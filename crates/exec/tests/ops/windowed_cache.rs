//! Runs GroupQueryAttention on windowed caches, step by step, and compares it with attention over whole sequences.
use std::sync::Arc;

use exec::{CompiledPartition, Input, Order, Run, Serial};
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::array::Array;
use crate::common::{Case, assert_close, device, numbers, tensor};

const HEADS: usize = 4;
const SHARED: usize = 2;
const SIZE: usize = 8;

/// Sequences that pass through a cache.
#[derive(Clone)]
struct Sequences {
    dtype: DType,
    capacity: usize,
    window: usize,
    /// How many tokens each sequence has in the first step.
    prompt: Vec<usize>,
    /// How many tokens each later step adds to all sequences.
    steps: Vec<usize>,
    bias: bool,
    sinks: bool,
    softcap: f32,
    /// Added to `total_sequence_length`, as for masks of a fixed width.
    spare: usize,
}

impl Default for Sequences {
    fn default() -> Self {
        Self {
            dtype: DType::F32,
            capacity: 6,
            window: 4,
            prompt: vec![3, 5],
            steps: vec![1, 1, 1, 1, 1, 1, 1, 1],
            bias: false,
            sinks: false,
            softcap: 0.0,
            spare: 0,
        }
    }
}

/// How many positions a cache holds, by the definition: one token after the other.
fn resident(length: usize, capacity: usize, window: usize) -> usize {
    (0..length).fold(0, |held, _| if held == capacity { window } else { held + 1 })
}

impl Sequences {
    fn longest(&self) -> usize {
        self.prompt.iter().max().unwrap() + self.steps.iter().sum::<usize>()
    }

    /// The node for one step. `tokens` are the positions of each sequence.
    fn case(&self, whole: &[Array; 3], at: &[usize], rows: usize, caches: [Tensor; 2], total: usize) -> Case {
        let batch = at.len();
        let part = |whole: &Array| {
            let heads = whole.shape[2];
            let rows = Array::of(&[batch, rows, heads * SIZE], |i| {
                whole.at(&[i[0], (at[i[0]] + i[1]).min(whole.shape[1] - 1), i[2] / SIZE, i[2] % SIZE])
            });
            Some(rows.tensor(self.dtype))
        };
        let [keys, values] = caches;
        let ends: Vec<f64> = self.ends(at, rows).iter().map(|&end| end as f64 - 1.0).collect();
        let mut case = Case::new("GroupQueryAttention", 1, Vec::new(), &[self.dtype; 3]);
        case.domain = "com.microsoft";
        case.inputs = vec![
            part(&whole[0]),
            part(&whole[1]),
            part(&whole[2]),
            Some(keys),
            Some(values),
            Some(tensor(DType::I32, &[batch], &ends)),
            Some(tensor(DType::I32, &[], &[total as f64])),
            None,
            None,
            None,
            self.bias.then(|| self.bias_of(at, rows, total).tensor(self.dtype)),
            self.sinks.then(|| self.sinks_of().tensor(self.dtype)),
        ];
        let number = |value: usize| Attribute::Int(value as i64);
        case.attribute("num_heads", number(HEADS))
            .attribute("kv_num_heads", number(SHARED))
            .attribute("local_window_size", number(self.window))
            .attribute("softcap", Attribute::Float(self.softcap))
            .attribute("sliding_window_cache", number(1))
    }

    /// The lengths after a step; the first step has sequences of different lengths.
    fn ends(&self, at: &[usize], rows: usize) -> Vec<usize> {
        if at.iter().all(|&at| at == 0) { self.prompt.clone() } else { at.iter().map(|at| at + rows).collect() }
    }

    /// The bias of a query and a key by their positions, for all sequences alike.
    fn bias_at(&self, head: usize, own: usize, key: usize) -> f64 {
        let exact = ((3 * head + 5 * own + 7 * key) % 11) as f64 / 8.0 - 0.5;
        if self.bias { exact } else { 0.0 }
    }

    fn bias_of(&self, at: &[usize], rows: usize, total: usize) -> Array {
        Array::of(&[at.len(), HEADS, rows, total], |i| self.bias_at(i[1], at[i[0]] + i[2], i[3]))
    }

    fn sinks_of(&self) -> Array {
        Array::random(self.dtype, &[HEADS], 9)
    }

    /// The result of a token.
    fn wanted(&self, whole: &[Array; 3], batch: usize, own: usize) -> Vec<f64> {
        let [q, k, v] = whole;
        let (first, cap) = ((own + 1).saturating_sub(self.window), f64::from(self.softcap));
        let head = |h: usize| {
            let shared = h / (HEADS / SHARED);
            let score = |j: usize| {
                let dot: f64 = (0..SIZE).map(|d| q.at(&[batch, own, h, d]) * k.at(&[batch, j, shared, d])).sum();
                let dot = dot / (SIZE as f64).sqrt();
                let capped = if cap > 0.0 { cap * (dot / cap).tanh() } else { dot };
                (capped + self.bias_at(h, own, j)).exp()
            };
            let weights: Vec<f64> = (first..=own).map(score).collect();
            let sink = if self.sinks { self.sinks_of().at(&[h]).exp() } else { 0.0 };
            let sum = weights.iter().sum::<f64>() + sink;
            let value = move |d: usize| {
                let of = |(at, weight): (usize, &f64)| weight * v.at(&[batch, first + at, shared, d]);
                weights.iter().enumerate().map(of).sum::<f64>() / sum
            };
            (0..SIZE).map(value).collect::<Vec<f64>>()
        };
        (0..HEADS).flat_map(head).collect()
    }

    fn check(&self) {
        let (batch, longest) = (self.prompt.len(), self.longest());
        let whole = [(HEADS, 1), (SHARED, 2), (SHARED, 3)]
            .map(|(heads, seed)| Array::random(self.dtype, &[batch, longest, heads, SIZE], seed));
        let tolerance = if self.dtype == DType::F32 { 2e-5 } else { 6e-3 };
        let junk = Array::of(&[batch, SHARED, self.capacity, SIZE], |_| 77.0).tensor(self.dtype);
        let mut caches = [junk.clone(), junk];
        let mut at = vec![0; batch];
        for rows in [*self.prompt.iter().max().unwrap()].into_iter().chain(self.steps.iter().copied()) {
            let ends = self.ends(&at, rows);
            let total = if at.iter().all(|&at| at == 0) { rows } else { ends.iter().max().unwrap() + self.spare };
            let [out, keys, values] = in_place(&self.case(&whole, &at, rows, caches, total));
            for b in 0..batch {
                for own in at[b]..ends[b] {
                    let found = &numbers(&out)[(b * rows + own - at[b]) * HEADS * SIZE..][..HEADS * SIZE];
                    assert_close(found, &self.wanted(&whole, b, own), tolerance);
                }
                let held = resident(ends[b], self.capacity, self.window);
                for (cache, whole) in [(&keys, &whole[1]), (&values, &whole[2])] {
                    let cache = Array::from(cache);
                    assert_eq!(cache.shape, [batch, SHARED, self.capacity, SIZE]);
                    for (h, row, d) in (0..SHARED * held * SIZE).map(|i| (i / SIZE / held, i / SIZE % held, i % SIZE)) {
                        let position = ends[b] - held + row;
                        assert_eq!(cache.at(&[b, h, row, d]), whole.at(&[b, position, h, d]), "position {position}");
                    }
                }
            }
            (caches, at) = ([keys, values], ends);
        }
    }
}

/// Runs a node whose caches, inputs 3 and 4, are updated in place.
fn in_place(case: &Case) -> [Tensor; 3] {
    let (graph, inputs) = case.graph().unwrap();
    let program = CompiledPartition::new(graph, device::get()).unwrap();
    let shapes: Vec<Input<'_>> = inputs
        .iter()
        .enumerate()
        .map(|(at, tensor)| Input { shape: tensor.shape(), value: program.needs_value(at).then(|| tensor.bytes()) })
        .collect();
    let prepared = program.plan(&shapes).unwrap();
    let aligned = |tensor: &Tensor| {
        let mut words = vec![0u64; tensor.bytes().len().div_ceil(8)];
        words.iter_mut().zip(tensor.bytes().chunks(8)).for_each(|(word, bytes)| {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        });
        words
    };
    let mut memory: Vec<Vec<u64>> = inputs.iter().map(aligned).collect();
    let mut out = vec![0u64; inputs[0].bytes().len().div_ceil(8)];
    let mut outputs = vec![out.as_mut_ptr().cast::<u8>()];
    outputs.extend(memory[3..5].iter_mut().map(|cache| cache.as_mut_ptr().cast::<u8>()));
    let sources: Vec<*const u8> = memory.iter().map(|words| words.as_ptr().cast()).collect();
    let run = Run { inputs: &sources, outputs: &outputs, parallel: &Serial, observer: None };
    // SAFETY: complete tensors of the planned shapes; the caches are updated in place, as the primitive allows.
    unsafe { Arc::clone(&prepared).run(run, Order::Now).unwrap() };
    let tensor = |words: &[u64], like: &Tensor| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take(like.bytes().len()).collect();
        Tensor::from_bytes(like.dtype(), like.shape(), &bytes).unwrap()
    };
    [tensor(&out, &inputs[0]), tensor(&memory[3], &inputs[3]), tensor(&memory[4], &inputs[4])]
}

#[test]
fn a_windowed_cache_gives_the_results_of_a_whole_one() {
    let plain = Sequences::default();
    let cases = [
        plain.clone(),
        Sequences { capacity: 4, ..plain.clone() },
        Sequences { capacity: 64, ..plain.clone() },
        Sequences { bias: true, ..plain.clone() },
        Sequences { sinks: true, softcap: 1.5, ..plain.clone() },
        Sequences { spare: 5, ..plain.clone() },
        // Chunks shorter and longer than the cache.
        Sequences { steps: vec![3, 2, 9, 1, 4], ..plain.clone() },
        Sequences { steps: vec![3, 2, 9, 1, 4], capacity: 4, bias: true, ..plain.clone() },
        // Prompts longer than the cache.
        Sequences { prompt: vec![11, 3, 7], ..plain.clone() },
        Sequences { prompt: vec![11, 3, 7], capacity: 4, window: 1, steps: vec![2, 1, 6], ..plain.clone() },
        Sequences { dtype: DType::F16, steps: vec![1, 3, 9], ..plain.clone() },
        Sequences { dtype: DType::F16, steps: vec![1, 3, 9], bias: true, ..plain },
    ];
    cases.iter().for_each(Sequences::check);
}

#[test]
fn a_windowed_cache_needs_a_window_that_fits_it() {
    let sequences = Sequences { capacity: 3, ..Sequences::default() };
    let shapes = [HEADS, SHARED, SHARED].map(|heads| Array::random(DType::F32, &[2, 9, heads, SIZE], 1));
    let cache = || Array::of(&[2, SHARED, 3, SIZE], |_| 0.0).tensor(DType::F32);
    let case = || sequences.case(&shapes, &[4, 4], 1, [cache(), cache()], 5);
    let message = case().run().unwrap_err();
    assert!(message.contains("a cache of 3 rows is shorter than its window of 4"), "{message}");
    let no_window = case().attribute("local_window_size", Attribute::Int(-1));
    assert!(no_window.run().unwrap_err().contains("sliding_window_cache needs local_window_size"));
}
