//! Compares attention and rotary embeddings with loops in double precision.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::array::Array;
use crate::common::{Case, assert_close, device, numbers, tensor};

const BATCH: usize = 2;

/// Reference attention: scores `[b, h, s, t]`, modified by a function, then softmax, then values.
struct Attention<'a> {
    q: &'a Array,
    k: &'a Array,
    v: &'a Array,
    /// Modifies a score, given its value and `[batch, head, query, key]`; minus infinity hides the key.
    score: &'a dyn Fn(f64, [usize; 4]) -> f64,
    scale: f64,
}

impl Attention<'_> {
    fn probabilities(&self) -> Array {
        let (heads, group) = (self.q.shape[1], self.q.shape[1] / self.k.shape[1]);
        let (rows, total, size) = (self.q.shape[2], self.k.shape[2], self.q.shape[3]);
        let mut values = Vec::new();
        for at in crate::array::indices(&[self.q.shape[0], heads, rows]) {
            let (b, h, s) = (at[0], at[1], at[2]);
            let scores: Vec<f64> = (0..total)
                .map(|t| {
                    let dot: f64 = (0..size).map(|d| self.q.at(&[b, h, s, d]) * self.k.at(&[b, h / group, t, d])).sum();
                    (self.score)(dot * self.scale, [b, h, s, t])
                })
                .collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> =
                scores.iter().map(|score| if top == f64::NEG_INFINITY { 0.0 } else { (score - top).exp() }).collect();
            let sum: f64 = powers.iter().sum();
            values.extend(powers.iter().map(|power| if sum == 0.0 { 0.0 } else { power / sum }));
        }
        Array { shape: vec![self.q.shape[0], heads, rows, total], values }
    }

    fn result(&self) -> Array {
        let probabilities = self.probabilities();
        let group = self.q.shape[1] / self.k.shape[1];
        let shape = [self.q.shape[0], self.q.shape[1], self.q.shape[2], self.v.shape[3]];
        Array::of(&shape, |index| {
            let (b, h, s, d) = (index[0], index[1], index[2], index[3]);
            (0..self.k.shape[2]).map(|t| probabilities.at(&[b, h, s, t]) * self.v.at(&[b, h / group, t, d])).sum()
        })
    }
}

fn random(shape: &[usize], seed: u64) -> Array {
    Array::random(DType::F32, shape, seed)
}

/// Concatenates two arrays `[b, h, …, d]` along the third axis.
fn behind(past: &Array, new: &Array) -> Array {
    let mut shape = new.shape.clone();
    shape[2] += past.shape[2];
    Array::of(&shape, |index| match index[2].checked_sub(past.shape[2]) {
        None => past.at(index),
        Some(at) => new.at(&[index[0], index[1], at, index[3]]),
    })
}

/// Converts `[b, h, s, d]` to `[b, s, h · d]`.
fn joined(array: &Array) -> Array {
    let (heads, size) = (array.shape[1], array.shape[3]);
    Array::of(&[array.shape[0], array.shape[2], heads * size], |index| {
        array.at(&[index[0], index[2] / size, index[1], index[2] % size])
    })
}

fn plain(score: f64, _: [usize; 4]) -> f64 {
    score
}

fn case(op_type: &'static str, inputs: &[Option<&Array>], outputs: usize) -> Case {
    let mut case = Case::new(op_type, 23, Vec::new(), &vec![DType::F32; outputs]);
    case.inputs = inputs.iter().map(|input| input.map(|array| array.tensor(DType::F32))).collect();
    case
}

#[test]
fn heads_may_be_shared_and_merged() {
    for (heads, shared) in [(3, 3), (6, 2), (4, 1)] {
        let (q, k, v) =
            (random(&[BATCH, heads, 4, 8], 1), random(&[BATCH, shared, 5, 8], 2), random(&[BATCH, shared, 5, 6], 3));
        let wanted = Attention { q: &q, k: &k, v: &v, score: &plain, scale: 1.0 / 8f64.sqrt() }.result();
        let found = case("Attention", &[Some(&q), Some(&k), Some(&v)], 1).run().unwrap();
        assert_close(&numbers(&found[0]), &wanted.values, 1e-5);
        let flat = case("Attention", &[Some(&joined(&q)), Some(&joined(&k)), Some(&joined(&v))], 1)
            .attribute("q_num_heads", Attribute::Int(heads as i64))
            .attribute("kv_num_heads", Attribute::Int(shared as i64));
        assert_close(&numbers(&flat.run().unwrap()[0]), &joined(&wanted).values, 1e-5);
    }
}

#[test]
fn the_past_precedes_the_keys_and_every_stage_can_be_an_output() {
    let (q, k, v) = (random(&[BATCH, 2, 3, 4], 1), random(&[BATCH, 2, 3, 4], 2), random(&[BATCH, 2, 3, 5], 3));
    let (past_k, past_v) = (random(&[BATCH, 2, 4, 4], 4), random(&[BATCH, 2, 4, 5], 5));
    let mask = random(&[3, 7], 6);
    let (all_k, all_v) = (behind(&past_k, &k), behind(&past_v, &v));
    let cap = |score: f64| 2.0 * (score / 2.0).tanh();
    let seen = |score: f64, [_, _, s, t]: [usize; 4]| {
        if t > s + 4 { f64::NEG_INFINITY } else { cap(score) + mask.at(&[s, t]) }
    };
    let attention = Attention { q: &q, k: &all_k, v: &all_v, score: &seen, scale: 0.25 };
    let raw = |stage: &dyn Fn(f64, [usize; 4]) -> f64| {
        Array::of(&[BATCH, 2, 3, 7], |at| {
            let dot: f64 = (0..4).map(|d| q.at(&[at[0], at[1], at[2], d]) * all_k.at(&[at[0], at[1], at[3], d])).sum();
            stage(0.25 * dot, [at[0], at[1], at[2], at[3]])
        })
    };
    let stages = [raw(&plain), raw(&|score, _| cap(score)), raw(&seen), attention.probabilities()];
    for (mode, stage) in stages.iter().enumerate() {
        let inputs = [&q, &k, &v, &mask, &past_k, &past_v].map(Some);
        let found = case("Attention", &inputs, 4)
            .attribute("scale", Attribute::Float(0.25))
            .attribute("softcap", Attribute::Float(2.0))
            .attribute("is_causal", Attribute::Int(1))
            .attribute("qk_matmul_output_mode", Attribute::Int(mode as i64))
            .run()
            .unwrap();
        assert_close(&numbers(&found[0]), &attention.result().values, 1e-5);
        assert_eq!(numbers(&found[1]), all_k.values);
        assert_eq!(numbers(&found[2]), all_v.values);
        assert_close(&numbers(&found[3]), &stage.values, 1e-5);
    }
}

/// More rows and keys than kernels process at a time, in half precision.
#[test]
fn long_causal_attention_hides_later_keys() {
    for (heads, shared, past) in [(2, 2, 0), (2, 1, 37)] {
        let (rows, size) = (150, 16);
        let halves =
            |heads: usize, rows: usize, seed: u64| Array::random(DType::F16, &[BATCH, heads, rows, size], seed);
        let (q, k, v) = (halves(heads, rows, 1), halves(shared, rows, 2), halves(shared, rows, 3));
        let (past_k, past_v) = (halves(shared, past, 4), halves(shared, past, 5));
        let (all_k, all_v) = (behind(&past_k, &k), behind(&past_v, &v));
        let seen = |score: f64, [_, _, s, t]: [usize; 4]| if t > s + past { f64::NEG_INFINITY } else { score };
        let wanted = Attention { q: &q, k: &all_k, v: &all_v, score: &seen, scale: 0.25 }.result();
        let mut case = Case::new("Attention", 23, Vec::new(), &[DType::F16]).attribute("is_causal", Attribute::Int(1));
        case.inputs = [&q, &k, &v].map(|array| Some(array.tensor(DType::F16))).to_vec();
        if past > 0 {
            case.inputs.push(None);
            case.inputs.extend([&past_k, &past_v].map(|array| Some(array.tensor(DType::F16))));
        }
        assert_close(&numbers(&case.run().unwrap()[0]), &wanted.values, 1e-2);
    }
}

#[test]
fn masks_hide_keys_and_fully_masked_rows_are_zero() {
    let (q, k, v) = (random(&[BATCH, 1, 3, 4], 1), random(&[BATCH, 1, 4, 4], 2), random(&[BATCH, 1, 4, 2], 3));
    let visible = |s: usize, t: usize| s != 1 && (s + t).is_multiple_of(2) && t < 3;
    let score = |score: f64, [_, _, s, t]: [usize; 4]| if visible(s, t) { score } else { f64::NEG_INFINITY };
    let wanted = Attention { q: &q, k: &k, v: &v, score: &score, scale: 0.5 }.result();
    // Shorter than the keys: the last key is hidden.
    let mask = Array::of(&[3, 3], |index| f64::from(u8::from(visible(index[0], index[1]))));
    let mut with_mask = case("Attention", &[Some(&q), Some(&k), Some(&v)], 1);
    with_mask.inputs.push(Some(mask.tensor(DType::Bool)));
    assert_close(&numbers(&with_mask.run().unwrap()[0]), &wanted.values, 1e-5);
    let lengths = [2usize, 4];
    let score = |score: f64, [b, _, _, t]: [usize; 4]| if t < lengths[b] { score } else { f64::NEG_INFINITY };
    let wanted = Attention { q: &q, k: &k, v: &v, score: &score, scale: 0.5 }.result();
    let mut with_lengths = case("Attention", &[Some(&q), Some(&k), Some(&v)], 1);
    with_lengths.inputs.extend([None, None, None, Some(Tensor::from_i64s(&[2, 4]))]);
    assert_close(&numbers(&with_lengths.run().unwrap()[0]), &wanted.values, 1e-5);
}

/// The product of the input with the weights for queries, keys or values, with separate heads.
fn projected(x: &Array, w: &Array, bias: &Array, heads: usize, part: usize) -> Array {
    let width = w.shape[1] / 3;
    let size = width / heads;
    Array::of(&[x.shape[0], heads, x.shape[1], size], |index| {
        let column = part * width + index[1] * size + index[3];
        let dot: f64 = (0..w.shape[0]).map(|at| x.at(&[index[0], index[2], at]) * w.at(&[at, column])).sum();
        dot + bias.at(&[column])
    })
}

#[test]
fn microsoft_attention_projects_masks_and_extends_a_past() {
    let (x, w, bias) = (random(&[BATCH, 3, 4], 1), random(&[4, 12], 2), random(&[12], 3));
    let past = random(&[2, BATCH, 2, 2, 2], 4);
    let part = |at: usize| projected(&x, &w, &bias, 2, at);
    let kept = |at: usize| {
        let size = BATCH * 2 * 2 * 2;
        Array { shape: vec![BATCH, 2, 2, 2], values: past.values[at * size..][..size].to_vec() }
    };
    let (q, k, v) = (part(0), behind(&kept(0), &part(1)), behind(&kept(1), &part(2)));
    let raw = |b: usize, t: usize| !(b + t).is_multiple_of(3);
    let ends = [3usize, 5];
    for (mask, keep) in [
        (Array::of(&[BATCH, 5], |at| f64::from(u8::from(raw(at[0], at[1])))), &raw as &dyn Fn(usize, usize) -> bool),
        // ONNX Runtime GenAI's mask, with columns for keys to come.
        (Array::of(&[BATCH, 9], |at| f64::from(u8::from(at[1] < 5 && raw(at[0], at[1])))), &raw),
        (Array::of(&[BATCH, 3, 8], |at| f64::from(u8::from(raw(at[0], at[2])))), &raw),
        (Array { shape: vec![2], values: vec![3.0, 5.0] }, &|b: usize, t: usize| t < ends[b]),
        (Array { shape: vec![4], values: vec![3.0, 5.0, 1.0, 0.0] }, &|b: usize, t: usize| t < ends[b] && t + b >= 1),
    ] {
        for causal in [false, true] {
            let score = |score: f64, [b, _, s, t]: [usize; 4]| {
                if causal && t > s + 2 {
                    return f64::NEG_INFINITY;
                }
                score + if keep(b, t) { 0.0 } else { -10000.0 }
            };
            let wanted = Attention { q: &q, k: &k, v: &v, score: &score, scale: 1.0 / 2f64.sqrt() }.result();
            let mut case = case("Attention", &[Some(&x), Some(&w), Some(&bias)], 2)
                .attribute("num_heads", Attribute::Int(2))
                .attribute("unidirectional", Attribute::Int(i64::from(causal)));
            case.domain = "com.microsoft";
            case.inputs.extend([Some(mask.tensor(DType::I32)), Some(past.tensor(DType::F32))]);
            let found = case.run().unwrap();
            assert_close(&numbers(&found[0]), &joined(&wanted).values, 1e-4);
            assert_eq!(found[1].shape(), [2, BATCH, 2, 5, 2]);
            assert_close(&numbers(&found[1]), &[&k.values[..], &v.values].concat(), 1e-5);
        }
    }
}

#[test]
fn multi_head_attention_adds_biases_and_accepts_split_heads() {
    let (heads, size) = (2, 4);
    let (q, k, v) =
        (random(&[BATCH, heads, 3, size], 1), random(&[BATCH, heads, 5, size], 2), random(&[BATCH, heads, 5, size], 3));
    let bias = random(&[3 * heads * size], 4);
    let attention_bias = random(&[1, heads, 3, 5], 5);
    let with_bias = |array: &Array, part: usize| {
        Array::of(&array.shape, |at| array.at(at) + bias.at(&[(part * heads + at[1]) * size + at[3]]))
    };
    let score = |score: f64, [_, h, s, t]: [usize; 4]| score + attention_bias.at(&[0, h, s, t]);
    let attend = |q: &Array, k: &Array, v: &Array| Attention { q, k, v, score: &score, scale: 0.5 }.result();
    let wanted = attend(&with_bias(&q, 0), &with_bias(&k, 1), &with_bias(&v, 2));
    let mha = |inputs: &[Option<&Array>]| {
        let mut case = case("MultiHeadAttention", inputs, 1).attribute("num_heads", Attribute::Int(heads as i64));
        case.domain = "com.microsoft";
        case.run().unwrap()
    };
    let (flat_q, flat_k, flat_v) = (joined(&q), joined(&k), joined(&v));
    let found = mha(&[Some(&flat_q), Some(&flat_k), Some(&flat_v), Some(&bias), None, Some(&attention_bias)]);
    assert_close(&numbers(&found[0]), &joined(&wanted).values, 1e-5);
    let found = mha(&[Some(&flat_q), Some(&k), Some(&v), None, None, Some(&attention_bias)]);
    assert_close(&numbers(&found[0]), &joined(&attend(&q, &k, &v)).values, 1e-5);
    // Columns for keys to come are not read.
    let wide =
        Array::of(&[1, heads, 3, 8], |at| if at[3] < 5 { attention_bias.at(&[0, at[1], at[2], at[3]]) } else { 9.0 });
    let found = mha(&[Some(&flat_q), Some(&k), Some(&v), None, None, Some(&wide)]);
    assert_close(&numbers(&found[0]), &joined(&attend(&q, &k, &v)).values, 1e-5);
}

#[test]
fn rotary_embeddings_rotate_pairs_by_position() {
    let (heads, sequence, size) = (2, 3, 6);
    let x = random(&[BATCH, heads, sequence, size], 1);
    let positions = [[4usize, 0, 2], [1, 3, 3]];
    for interleaved in [false, true] {
        for turning in [0, 4] {
            let half = if turning == 0 { 3 } else { 2 };
            let (cosines, sines) = (random(&[5, half], 2), random(&[5, half], 3));
            let wanted = Array::of(&x.shape, |at| {
                let (b, h, s, d) = (at[0], at[1], at[2], at[3]);
                if d >= 2 * half {
                    return x.at(at);
                }
                let (pair, second) = if interleaved { (d / 2, d % 2 == 1) } else { (d % half, d >= half) };
                let place = |second: bool| match (interleaved, second) {
                    (true, second) => 2 * pair + usize::from(second),
                    (false, second) => pair + if second { half } else { 0 },
                };
                let (cosine, sine) = (cosines.at(&[positions[b][s], pair]), sines.at(&[positions[b][s], pair]));
                let (a, b2) = (x.at(&[b, h, s, place(false)]), x.at(&[b, h, s, place(true)]));
                if second { sine * a + cosine * b2 } else { cosine * a - sine * b2 }
            });
            let list: Vec<f64> = positions.iter().flatten().map(|&position| position as f64).collect();
            let ids = tensor(DType::I64, &[BATCH, sequence], &list);
            let attributes = |case: Case| {
                case.attribute("interleaved", Attribute::Int(i64::from(interleaved)))
                    .attribute("rotary_embedding_dim", Attribute::Int(turning))
                    .attribute("num_heads", Attribute::Int(heads as i64))
            };
            for flat in [false, true] {
                let (input, output) = if flat { (joined(&x), joined(&wanted)) } else { (x.clone(), wanted.clone()) };
                let mut onnx = attributes(case("RotaryEmbedding", &[Some(&input), Some(&cosines), Some(&sines)], 1));
                onnx.inputs.push(Some(ids.clone()));
                assert_close(&numbers(&onnx.run().unwrap()[0]), &output.values, 1e-6);
                let mut contrib = attributes(case("RotaryEmbedding", &[Some(&input)], 1));
                contrib.domain = "com.microsoft";
                let caches = [&cosines, &sines].map(|array| Some(array.tensor(DType::F32)));
                contrib.inputs.push(Some(ids.clone()));
                contrib.inputs.extend(caches);
                assert_close(&numbers(&contrib.run().unwrap()[0]), &output.values, 1e-6);
            }
        }
    }
}

/// A cache of `room` rows that starts with the past, and the same with the new rows after the past; the rest is zero.
fn caches(room: usize, past: &Array, new: &Array) -> [Array; 2] {
    let mut shape = past.shape.clone();
    shape[2] = room;
    let all = behind(past, new);
    [past, &all].map(|rows| Array::of(&shape, |at| if at[2] < rows.shape[2] { rows.at(at) } else { 0.0 }))
}

#[test]
fn multi_head_attention_appends_to_a_cache() {
    let (heads, size, rows, held, room) = (2, 4, 2, 3, 9);
    let part = |seed: u64| random(&[BATCH, heads, rows, size], seed);
    let (q, k, v) = (part(1), part(2), part(3));
    let past = |seed: u64| random(&[BATCH, heads, held, size], seed);
    let (past_k, past_v) = (past(4), past(5));
    let ([cache_k, present_k], [cache_v, present_v]) = (caches(room, &past_k, &k), caches(room, &past_v, &v));
    let (all_k, all_v) = (behind(&past_k, &k), behind(&past_v, &v));
    let bias = random(&[1, heads, rows, held + rows], 6);
    let keep = |b: usize, t: usize| b == 0 || t != 1;
    for (causal, with_bias, with_mask) in
        [(false, false, false), (true, true, false), (true, false, true), (false, true, true)]
    {
        // With a causal mask, columns for keys to come may follow, even more than the cache has room for.
        let columns = if causal { room + 4 } else { held + rows };
        let mask = Array::of(&[BATCH, columns], |at| f64::from(u8::from(keep(at[0], at[1]))));
        let score = |score: f64, [b, h, s, t]: [usize; 4]| {
            if causal && t > s + held {
                return f64::NEG_INFINITY;
            }
            let filter = if with_mask && !keep(b, t) { -10000.0 } else { 0.0 };
            score + filter + if with_bias { bias.at(&[0, h, s, t]) } else { 0.0 }
        };
        let wanted = Attention { q: &q, k: &all_k, v: &all_v, score: &score, scale: 0.5 }.result();
        let flat = [&q, &k, &v].map(joined);
        let mut case = case("MultiHeadAttention", &flat.each_ref().map(Some), 3)
            .attribute("num_heads", Attribute::Int(heads as i64))
            .attribute("unidirectional", Attribute::Int(i64::from(causal)));
        case.domain = "com.microsoft";
        case.inputs.extend([
            None,
            with_mask.then(|| mask.tensor(DType::I32)),
            with_bias.then(|| bias.tensor(DType::F32)),
            Some(cache_k.tensor(DType::F32)),
            Some(cache_v.tensor(DType::F32)),
            Some(tensor(DType::I32, &[1], &[held as f64])),
        ]);
        let found = case.run().unwrap();
        assert_close(&numbers(&found[0]), &joined(&wanted).values, 1e-5);
        assert_eq!(numbers(&found[1]), present_k.values);
        assert_eq!(numbers(&found[2]), present_v.values);
    }
}

#[test]
fn microsoft_attention_appends_to_a_cache() {
    let (x, w, bias) = (random(&[BATCH, 1, 4], 1), random(&[4, 12], 2), random(&[12], 3));
    let past = [4, 5].map(|seed| random(&[BATCH, 2, 3, 2], seed));
    let part = |at: usize| projected(&x, &w, &bias, 2, at);
    let (q, k, v) = (part(0), part(1), part(2));
    let ([cache_k, present_k], [cache_v, present_v]) = (caches(6, &past[0], &k), caches(6, &past[1], &v));
    let (all_k, all_v) = (behind(&past[0], &k), behind(&past[1], &v));
    let wanted = Attention { q: &q, k: &all_k, v: &all_v, score: &plain, scale: 1.0 / 2f64.sqrt() }.result();
    let cache = Array { shape: vec![2, BATCH, 2, 6, 2], values: [cache_k.values, cache_v.values].concat() };
    let mut case = case("Attention", &[Some(&x), Some(&w), Some(&bias)], 2)
        .attribute("num_heads", Attribute::Int(2))
        .attribute("unidirectional", Attribute::Int(1))
        .attribute("past_present_share_buffer", Attribute::Int(1));
    case.domain = "com.microsoft";
    case.inputs.extend([None, Some(cache.tensor(DType::F32)), None, Some(tensor(DType::I32, &[1], &[3.0]))]);
    let found = case.run().unwrap();
    assert_close(&numbers(&found[0]), &joined(&wanted).values, 1e-5);
    assert_close(&numbers(&found[1]), &[present_k.values, present_v.values].concat(), 1e-5);
}

#[test]
fn one_token_attends_to_a_cache_or_to_another_sequence() {
    let (heads, size, held, room) = (2, 4, 3, 6);
    let part = |rows: usize, seed: u64| random(&[BATCH, heads, rows, size], seed);
    let (q, k, v, past_k, past_v) = (part(1, 1), part(1, 2), part(1, 3), part(held, 4), part(held, 5));
    let attention = |inputs: &[&Array], outputs: usize| {
        let inputs: Vec<_> = inputs.iter().map(|&input| Some(input)).collect();
        let mut case = case("DecoderMaskedMultiHeadAttention", &inputs, outputs)
            .attribute("num_heads", Attribute::Int(heads as i64));
        case.domain = "com.microsoft";
        case
    };
    let ([cache_k, present_k], [cache_v, present_v]) = (caches(room, &past_k, &k), caches(room, &past_v, &v));
    let (all_k, all_v) = (behind(&past_k, &k), behind(&past_v, &v));
    let keep = |b: usize, t: usize| b == 0 || t != 1;
    let mask = Array::of(&[BATCH, held + 1], |at| f64::from(u8::from(keep(at[0], at[1]))));
    let score = |score: f64, [b, _, _, t]: [usize; 4]| score + if keep(b, t) { 0.0 } else { -10000.0 };
    let wanted = Attention { q: &q, k: &all_k, v: &all_v, score: &score, scale: 0.5 }.result();
    let in_place = |shares: i64| {
        let mut case = attention(&[&joined(&q), &joined(&k), &joined(&v)], 3);
        case.inputs.extend([
            Some(mask.tensor(DType::I32)),
            None,
            Some(cache_k.tensor(DType::F32)),
            Some(cache_v.tensor(DType::F32)),
            Some(tensor(DType::I32, &[1], &[held as f64])),
        ]);
        case.attribute("past_present_share_buffer", Attribute::Int(shares)).run()
    };
    let found = in_place(1).unwrap();
    assert_close(&numbers(&found[0]), &joined(&wanted).values, 1e-5);
    assert_eq!(numbers(&found[1]), present_k.values);
    assert_eq!(numbers(&found[2]), present_v.values);
    let declined = in_place(0).unwrap_err();
    assert!(declined.contains("past_present_share_buffer"), "{declined}");

    let wanted = Attention { q: &q, k: &past_k, v: &past_v, score: &plain, scale: 0.5 }.result();
    let found = attention(&[&joined(&q), &past_k, &past_v], 1).run().unwrap();
    assert_close(&numbers(&found[0]), &joined(&wanted).values, 1e-5);
}

#[test]
fn quantised_projections_and_tables() {
    let bytes = |dtype: DType, shape: &[usize], seed: u64| {
        let low = if dtype == DType::I8 { -128.0 } else { 0.0 };
        let numbers = random(shape, seed);
        Array::of(shape, |at| (numbers.at(at) * 1e4).rem_euclid(256.0).floor() + low)
    };
    let number = |dtype, value| Some(tensor(dtype, &[], &[value]));
    let (x, w, bias) = (bytes(DType::U8, &[BATCH, 3, 4], 1), bytes(DType::I8, &[4, 12], 2), random(&[12], 3));
    let scales = Array::of(&[12], |at| (1 + at[0]) as f64 / 2048.0);
    let floats = Array::of(&x.shape, |at| (x.at(at) - 125.0) / 64.0);
    let weights = Array::of(&w.shape, |at| (w.at(at) - 3.0) * scales.at(&at[1..]));
    let part = |at: usize| projected(&floats, &weights, &bias, 2, at);
    let (q, k, v) = (part(0), part(1), part(2));
    let score = |score: f64, [_, _, s, t]: [usize; 4]| if t > s { f64::NEG_INFINITY } else { score };
    let wanted = Attention { q: &q, k: &k, v: &v, score: &score, scale: 1.0 / 2f64.sqrt() }.result();
    let mut attention = case("QAttention", &[], 1)
        .attribute("num_heads", Attribute::Int(2))
        .attribute("unidirectional", Attribute::Int(1));
    attention.domain = "com.microsoft";
    attention.inputs = vec![
        Some(x.tensor(DType::U8)),
        Some(w.tensor(DType::I8)),
        Some(bias.tensor(DType::F32)),
        number(DType::F32, 1.0 / 64.0),
        Some(scales.tensor(DType::F32)),
        None,
        number(DType::U8, 125.0),
        Some(tensor(DType::I8, &[12], &[3.0; 12])),
    ];
    assert_close(&numbers(&attention.run().unwrap()[0]), &joined(&wanted).values, 1e-4);

    let (width, rows) = (8, 3);
    let ids = [
        Array::of(&[BATCH, rows], |at| ((at[0] * 3 + at[1] * 5) % 7) as f64),
        Array::of(&[BATCH, rows], |at| at[0] as f64),
    ];
    let tables = [[7, width], [4, width], [2, width], [1, width], [1, width]];
    let tables: Vec<Array> = tables.iter().zip(4..).map(|(shape, seed)| bytes(DType::I8, shape, seed)).collect();
    let of = |table: usize, row: usize, at: usize| {
        (tables[table].at(&[row, at]) - table as f64) * (table + 1) as f64 / 128.0
    };
    let sum = |b: usize, s: usize, at: usize| {
        let [word, segment] = [0, 1].map(|list: usize| ids[list].at(&[b, s]) as usize);
        of(0, word, at) + of(1, s, at) + of(2, segment, at)
    };
    let wanted = Array::of(&[BATCH, rows, width], |at| {
        let all: Vec<f64> = (0..width).map(|k| sum(at[0], at[1], k)).collect();
        let mean = all.iter().sum::<f64>() / width as f64;
        let variance = all.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / width as f64;
        (all[at[2]] - mean) / (variance + 1e-5).sqrt() * of(3, 0, at[2]) + of(4, 0, at[2])
    });
    let mut inputs = ids.map(|ids| Some(ids.tensor(DType::I32))).to_vec();
    for (at, table) in tables.iter().enumerate() {
        let shape = if at < 3 { table.shape.clone() } else { vec![width] };
        inputs.push(Some(tensor(DType::I8, &shape, &table.values)));
    }
    inputs.push(Some(tensor(DType::I32, &[BATCH, rows], &[1.0, 1.0, 0.0, 1.0, 0.0, 0.0])));
    inputs.extend((0..5).map(|table| number(DType::F32, f64::from(table + 1) / 128.0)));
    inputs.extend((0..5).map(|table| number(DType::I8, f64::from(table))));
    let mut embedding = Case::new("QEmbedLayerNormalization", 1, Vec::new(), &[DType::F32, DType::I32])
        .attribute("epsilon", Attribute::Float(1e-5));
    (embedding.domain, embedding.inputs) = ("com.microsoft", inputs);
    let found = embedding.run().unwrap();
    assert_close(&numbers(&found[0]), &wanted.values, 1e-4);
    assert_eq!(numbers(&found[1]), [2.0, 1.0]);
}

#[test]
fn a_position_without_angles_is_an_error() {
    let (x, angles) = (random(&[1, 2, 2, 4], 1), random(&[5, 2], 2));
    // A kernel's fault does not say which index.
    let which = if device::is_host() { "index 5 is out of range" } else { "an index is out of range" };
    for (position, tells) in [(5.0, which), (-1.0, "is out of range")] {
        let mut case = case("RotaryEmbedding", &[Some(&x), Some(&angles), Some(&angles)], 1);
        case.inputs.push(Some(tensor(DType::I64, &[1, 2], &[0.0, position])));
        let message = case.run().unwrap_err();
        assert!(message.contains(tells), "{message}");
    }
}
