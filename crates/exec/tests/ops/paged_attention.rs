//! Runs PagedAttention step by step on caches in blocks, and compares it with attention over whole sequences in double
//! precision.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, tensor};

const HEADS: usize = 4;
const SHARED: usize = 2;
const SIZE: usize = 16;
const BLOCK: usize = 4;
const BLOCKS: usize = 23;
const MOST: usize = 6;

/// Sequences that grow step by step.
#[derive(Clone)]
struct Sequences {
    dtype: DType,
    /// How many tokens each sequence gets in each step.
    steps: Vec<Vec<usize>>,
    /// Queries, keys and values are one input.
    packed: bool,
    /// Half of the rotated channels; 0 if there is no rotation.
    half: usize,
    offset: usize,
    interleaved: bool,
    normed: bool,
    sinks: bool,
    slots: bool,
    causal: bool,
    window: Option<usize>,
    softcap: f32,
    scale: f32,
}

impl Default for Sequences {
    fn default() -> Self {
        Self {
            dtype: DType::F32,
            steps: vec![vec![5, 0, 3], vec![1, 7, 1], vec![1, 1, 1], vec![0, 2, 4]],
            packed: false,
            half: 0,
            offset: 0,
            interleaved: false,
            normed: false,
            sinks: false,
            slots: false,
            causal: true,
            window: None,
            softcap: 0.0,
            scale: 0.0,
        }
    }
}

/// The block of a page: every block belongs to one page at most.
fn entry(sequence: usize, page: usize) -> usize {
    (sequence * MOST + page + 2) * 5 % BLOCKS
}

impl Sequences {
    fn tolerance(&self) -> f64 {
        match self.dtype {
            DType::F32 => 3e-5,
            DType::F16 => 1e-2,
            _ => 6e-2,
        }
    }

    /// A head after its norm and rotation.
    fn prepared(&self, head: Vec<f64>, weight: &Array, angles: [&Array; 2], position: usize) -> Vec<f64> {
        let mut x = head;
        if self.normed {
            let mean = x.iter().map(|x| x * x).sum::<f64>() / SIZE as f64;
            x = x.iter().zip(&weight.values).map(|(x, w)| x / (mean + 1e-5).sqrt() * w).collect();
        }
        let old = x.clone();
        for pair in 0..self.half {
            let [a, b] = if self.interleaved { [2 * pair, 2 * pair + 1] } else { [pair, pair + self.half] };
            let [a, b] = [a + self.offset, b + self.offset];
            let [cosine, sine] = angles.map(|angle| angle.at(&[position, pair]));
            x[a] = old[a] * cosine - old[b] * sine;
            x[b] = old[b] * cosine + old[a] * sine;
        }
        x
    }

    fn check(&self) {
        let dtype = self.dtype;
        let sequences = self.steps[0].len();
        let longest = (0..sequences).map(|s| self.steps.iter().map(|step| step[s]).sum::<usize>()).max().unwrap();
        let whole = |heads: usize, seed| Array::random(dtype, &[sequences, longest, heads, SIZE], seed);
        let [q, k, v] = [whole(HEADS, 1), whole(SHARED, 2), whole(SHARED, 3)];
        let weights = [Array::random(dtype, &[SIZE], 4), Array::random(dtype, &[SIZE], 5)];
        let sinks = Array::random(dtype, &[HEADS], 6);
        let angles = [
            Array::random(dtype, &[longest, self.half.max(1)], 7),
            Array::random(dtype, &[longest, self.half.max(1)], 8),
        ];
        let row = |whole: &Array, s: usize, t: usize, h: usize| -> Vec<f64> {
            (0..SIZE).map(|d| whole.at(&[s, t, h, d])).collect()
        };
        let angle = [&angles[0], &angles[1]];
        let key = |s: usize, t: usize, h: usize| self.prepared(row(&k, s, t, h), &weights[1], angle, t);
        let expected = |s: usize, t: usize, h: usize, end: usize| {
            let query = self.prepared(row(&q, s, t, h), &weights[0], angle, t);
            let scale = if self.scale == 0.0 { 1.0 / (SIZE as f64).sqrt() } else { f64::from(self.scale) };
            let start = self.window.map_or(0, |window| (t + 1).saturating_sub(window));
            let shared = h / (HEADS / SHARED);
            let weight = |at: usize| {
                let score = query.iter().zip(key(s, at, shared)).map(|(q, k)| q * k).sum::<f64>() * scale;
                let cap = f64::from(self.softcap);
                if cap > 0.0 { (cap * (score / cap).tanh()).exp() } else { score.exp() }
            };
            let seen = start..if self.causal { t + 1 } else { end };
            let sum: f64 = seen.clone().map(weight).sum::<f64>() + if self.sinks { sinks.at(&[h]).exp() } else { 0.0 };
            (0..SIZE)
                .map(|d| seen.clone().map(|at| weight(at) * v.at(&[s, at, shared, d])).sum::<f64>() / sum)
                .collect::<Vec<_>>()
        };

        // Rows that nothing has written hold NaN.
        let empty = Array::of(&[BLOCKS, BLOCK, SHARED, SIZE], |_| f64::NAN).tensor(dtype);
        let mut caches = [empty.clone(), empty];
        let mut lengths = vec![0; sequences];
        for step in &self.steps {
            let tokens: Vec<(usize, usize)> = (0..sequences)
                .flat_map(|s| {
                    let first = lengths[s];
                    (0..step[s]).map(move |t| (s, first + t))
                })
                .collect();
            let found =
                self.case([&q, &k, &v], &weights, &sinks, &angles, (step, &lengths, &tokens), &caches).run().unwrap();
            let wanted: Vec<f64> = tokens
                .iter()
                .flat_map(|&(s, t)| (0..HEADS).flat_map(move |h| [(s, t, h)]))
                .flat_map(|(s, t, h)| expected(s, t, h, lengths[s] + step[s]))
                .collect();
            assert_close(&numbers(&found[0]), &wanted, self.tolerance());
            for &(s, t) in &tokens {
                let place = [entry(s, t / BLOCK), t % BLOCK];
                let stored = [Array::from(&found[1]), Array::from(&found[2])];
                for h in 0..SHARED {
                    let at = |which: usize| {
                        (0..SIZE).map(|d| stored[which].at(&[place[0], place[1], h, d])).collect::<Vec<_>>()
                    };
                    assert_close(&at(0), &key(s, t, h), self.tolerance());
                    assert_eq!(at(1), row(&v, s, t, h));
                }
            }
            caches = [found[1].clone(), found[2].clone()];
            lengths.iter_mut().zip(step).for_each(|(length, new)| *length += new);
        }
    }

    fn case(
        &self,
        whole: [&Array; 3],
        weights: &[Array; 2],
        sinks: &Array,
        angles: &[Array; 2],
        (step, lengths, tokens): (&[usize], &[usize], &[(usize, usize)]),
        caches: &[Tensor; 2],
    ) -> Case {
        let dtype = self.dtype;
        let count = tokens.len();
        let part = |whole: &Array| {
            let heads = whole.shape[2];
            Array::of(&[count, heads * SIZE], |at| {
                let (s, t) = tokens[at[0]];
                whole.at(&[s, t, at[1] / SIZE, at[1] % SIZE])
            })
        };
        let [q, k, v] = whole.map(part);
        let ints = |shape: &[usize], values: Vec<f64>| Some(tensor(DType::I32, shape, &values));
        let sequences = step.len();
        let starts = (0..=sequences).map(|at| step[..at].iter().sum::<usize>() as f64).collect();
        let pages = |s: usize| (lengths[s] + step[s]).div_ceil(BLOCK);
        let table =
            Array::of(&[sequences, MOST], |at| if at[1] < pages(at[0]) { entry(at[0], at[1]) as f64 } else { -1.0 });
        let mut case = Case::new("PagedAttention", 1, Vec::new(), &[dtype; 3]);
        case.domain = "com.microsoft";
        case.inputs = if self.packed {
            let width = (HEADS + 2 * SHARED) * SIZE;
            let all = Array::of(&[count, width], |at| {
                let (token, column) = (at[0], at[1]);
                let ends = [HEADS * SIZE, (HEADS + SHARED) * SIZE];
                match column {
                    c if c < ends[0] => q.at(&[token, c]),
                    c if c < ends[1] => k.at(&[token, c - ends[0]]),
                    c => v.at(&[token, c - ends[1]]),
                }
            });
            vec![Some(all.tensor(dtype)), None, None]
        } else {
            [q, k, v].map(|array| Some(array.tensor(dtype))).to_vec()
        };
        case.inputs.extend(caches.iter().cloned().map(Some));
        case.inputs.push(ints(&[sequences + 1], starts));
        case.inputs.push(ints(&[sequences], lengths.iter().map(|&length| length as f64).collect()));
        case.inputs.push(Some(table.tensor(DType::I32)));
        case.inputs.extend(angles.iter().map(|angle| (self.half > 0).then(|| angle.tensor(dtype))));
        let slots = tokens.iter().map(|&(s, t)| (entry(s, t / BLOCK) * BLOCK + t % BLOCK) as f64).collect();
        case.inputs.push(if self.slots { ints(&[count], slots) } else { None });
        case.inputs.push(self.sinks.then(|| sinks.tensor(dtype)));
        case.inputs.extend(weights.iter().map(|weight| self.normed.then(|| weight.tensor(dtype))));
        case.inputs.extend([None, None]);
        case.inputs.push(ints(&[2], vec![0.0, 0.0]));
        let int = |value: usize| Attribute::Int(value as i64);
        case.attribute("num_heads", int(HEADS))
            .attribute("kv_num_heads", int(SHARED))
            .attribute("do_rotary", int(usize::from(self.half > 0)))
            .attribute("rotary_interleaved", int(usize::from(self.interleaved)))
            .attribute("rotary_offset", int(self.offset))
            .attribute("is_causal", int(usize::from(self.causal)))
            .attribute("local_window_size", Attribute::Int(self.window.map_or(-1, |window| window as i64)))
            .attribute("softcap", Attribute::Float(self.softcap))
            .attribute("scale", Attribute::Float(self.scale))
            .attribute("qk_norm_epsilon", Attribute::Float(1e-5))
    }
}

#[test]
fn sequences_share_a_cache_in_blocks() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        Sequences { dtype, ..Sequences::default() }.check();
        // Keep scores small, because rotated keys are rounded to the type.
        Sequences { dtype, packed: true, half: 8, scale: 0.05, ..Sequences::default() }.check();
    }
    Sequences { slots: true, scale: 0.4, ..Sequences::default() }.check();
}

#[test]
fn queries_and_keys_are_normalised_and_rotated() {
    let plain = Sequences { normed: true, half: 8, ..Sequences::default() };
    plain.check();
    Sequences { dtype: DType::F16, packed: true, ..plain.clone() }.check();
    Sequences { interleaved: true, half: 4, ..plain.clone() }.check();
    Sequences { offset: 8, half: 4, normed: false, ..plain }.check();
}

#[test]
fn scores_are_changed_in_every_way() {
    let plain = Sequences::default();
    Sequences { window: Some(3), ..plain.clone() }.check();
    Sequences { causal: false, ..plain.clone() }.check();
    Sequences { causal: false, window: Some(2), sinks: true, ..plain.clone() }.check();
    Sequences { softcap: 1.5, dtype: DType::F16, ..plain.clone() }.check();
    Sequences { sinks: true, half: 8, packed: true, window: Some(5), softcap: 2.0, ..plain }.check();
}

/// A token whose slot is -1 is not stored; it sees what the cache already holds there.
#[test]
fn tokens_without_a_slot_are_not_stored() {
    let dtype = DType::F32;
    let cache = Array::random(dtype, &[2, 4, 1, 8], 1);
    let row = |seed| Array::random(dtype, &[1, 8], seed).tensor(dtype);
    let ints = |shape: &[usize], values: &[f64]| Some(tensor(DType::I32, shape, values));
    let mut case = Case::new("PagedAttention", 1, vec![row(2), row(3), row(4)], &[dtype; 3]);
    case.domain = "com.microsoft";
    case.inputs.extend([Some(cache.tensor(dtype)), Some(cache.tensor(dtype))]);
    case.inputs.extend([ints(&[2], &[0.0, 1.0]), ints(&[1], &[0.0]), ints(&[1, 1], &[1.0]), None, None]);
    case.inputs.push(ints(&[1], &[-1.0]));
    let case = case.attribute("num_heads", Attribute::Int(1)).attribute("kv_num_heads", Attribute::Int(1));
    let found = case.run().unwrap();
    for present in &found[1..] {
        assert_eq!(numbers(present), cache.values);
    }
    // One key has all the weight.
    let seen: Vec<f64> = (0..8).map(|d| cache.at(&[1, 0, 0, d])).collect();
    assert_close(&numbers(&found[0]), &seen, 1e-6);
}

#[test]
fn a_table_out_of_range_is_an_error() {
    let plain = Sequences { steps: vec![vec![5, 1]], ..Sequences::default() };
    let whole = |heads: usize| Array::random(DType::F32, &[2, 5, heads, SIZE], 1);
    let [q, k, v] = [whole(HEADS), whole(SHARED), whole(SHARED)];
    let one = Array::of(&[SIZE], |_| 1.0);
    let angle = Array::of(&[1, 1], |_| 1.0);
    let cache = Array::of(&[BLOCKS, BLOCK, SHARED, SIZE], |_| 0.0).tensor(DType::F32);
    let tokens = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0)];
    for bad in [BLOCKS as f64, -1.0] {
        let mut case = plain.case(
            [&q, &k, &v],
            &[one.clone(), one.clone()],
            &one,
            &[angle.clone(), angle.clone()],
            (&[5, 1], &[0, 0], &tokens),
            &[cache.clone(), cache.clone()],
        );
        case.inputs[7] = Some(Array::of(&[2, MOST], |at| if at == [0, 1] { bad } else { 3.0 }).tensor(DType::I32));
        assert!(case.run().unwrap_err().contains("out of range"), "{bad}");
    }
}

#[test]
fn unsupported_caches_are_declined_with_a_reason() {
    let reason = |dtype: DType, more: Vec<(&'static str, Attribute)>, outputs: usize| {
        let row = || Some(Array::of(&[1, 8], |_| 0.0).tensor(DType::F16));
        let cache = || Some(Array::of(&[2, 4, 1, 8], |_| 0.0).tensor(dtype));
        let ints = |shape: &[usize]| Some(Array::of(shape, |_| 0.0).tensor(DType::I32));
        let mut case = Case::new("PagedAttention", 1, Vec::new(), &[DType::F16, dtype, dtype][..outputs]);
        case.domain = "com.microsoft";
        case.inputs = vec![row(), row(), row(), cache(), cache(), ints(&[2]), ints(&[1]), ints(&[1, 1])];
        case.attributes = more;
        case.attributes.extend([("num_heads", Attribute::Int(1)), ("kv_num_heads", Attribute::Int(1))]);
        case.run().unwrap_err()
    };
    let text = |name: &'static str, value: &str| vec![(name, Attribute::Text(value.to_owned()))];
    assert!(reason(DType::F16, text("kv_cache_layout", "LATENT"), 3).contains("LATENT"));
    assert!(reason(DType::I8, text("k_quant_type", "PER_TENSOR"), 3).contains("quantised paged caches"));
    assert!(reason(DType::F16, text("k_cache_dtype", "bfloat16"), 3).contains("k_cache_dtype"));
    assert!(reason(DType::F16, Vec::new(), 1).contains("key_cache_out"));
}
