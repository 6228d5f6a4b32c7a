//! Compares GroupQueryAttention with loops in double precision, with caches of all kinds.
use std::sync::Arc;

use exec::{CompiledPartition, Input, Order, Run, Serial};
use graph::ops::Attribute;
use graph::{DType, Tensor};
use proptest::prelude::*;

use crate::array::Array;
use crate::common::{Case, assert_close, device, numbers, tensor};

/// A step of a decoder.
#[derive(Clone, Debug)]
struct Decoder {
    dtype: DType,
    heads: usize,
    shared: usize,
    size: usize,
    rows: usize,
    /// The number of rows in the past's buffers; `None` if there is no past.
    held: Option<usize>,
    total: usize,
    /// The length of each batch after this step.
    lengths: Vec<usize>,
    packed: bool,
    /// Half of the number of elements that are rotated.
    half: Option<usize>,
    interleaved: bool,
    positions: bool,
    norm: bool,
    window: Option<usize>,
    softcap: f32,
    smooth: bool,
    sinks: bool,
    bias: bool,
    scale: f32,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            dtype: DType::F32,
            heads: 4,
            shared: 2,
            size: 16,
            rows: 3,
            held: Some(12),
            total: 12,
            lengths: vec![8, 3],
            packed: true,
            half: Some(8),
            interleaved: false,
            positions: false,
            norm: false,
            window: None,
            softcap: 0.0,
            smooth: false,
            sinks: false,
            bias: false,
            scale: 0.0,
        }
    }
}

/// The number of positions with cosines and sines.
const POSITIONS: usize = 300;

/// The inputs of a decoder.
struct Given {
    /// Queries, keys and values `[batch, rows, heads, size]`.
    parts: [Array; 3],
    past: Option<[Array; 2]>,
    angles: Option<[Array; 2]>,
    positions: Option<Array>,
    bias: Option<Array>,
    sinks: Option<Array>,
    norms: Option<[Array; 2]>,
}

/// Concatenates the heads of several arrays `[…, heads, size]` to `[batch, rows, width]`.
fn joined(arrays: &[&Array]) -> Array {
    let (batch, rows) = (arrays[0].shape[0], arrays[0].shape[1]);
    let width = |array: &Array| array.shape[2] * array.shape[3];
    let mut values = Vec::new();
    for token in 0..batch * rows {
        arrays.iter().for_each(|array| values.extend(&array.values[token * width(array)..][..width(array)]));
    }
    Array { shape: vec![batch, rows, arrays.iter().map(|array| width(array)).sum()], values }
}

impl Decoder {
    fn batch(&self) -> usize {
        self.lengths.len()
    }

    /// The number of rows in the cache before the step.
    fn before(&self, batch: usize) -> usize {
        if self.rows == self.total { 0 } else { self.lengths[batch].saturating_sub(self.rows) }
    }

    fn extent(&self) -> usize {
        self.held.unwrap_or(0).max(self.total)
    }

    fn given(&self, seed: u64) -> Given {
        let random = |shape: &[usize], at: u64| Array::random(self.dtype, shape, seed * 31 + at);
        let (batch, rows, size) = (self.batch(), self.rows, self.size);
        let angle = |turn: fn(f64) -> f64| {
            let half = self.half.unwrap_or(0);
            let exact = Array::of(&[POSITIONS, half], |at| turn(at[0] as f64 / 30f64.powf(at[1] as f64 / half as f64)));
            Array::from(&exact.tensor(self.dtype))
        };
        let wide = |at: u64| random(&[batch, self.shared, self.held.unwrap_or(0), size], at);
        Given {
            parts: [
                random(&[batch, rows, self.heads, size], 1),
                random(&[batch, rows, self.shared, size], 2),
                random(&[batch, rows, self.shared, size], 3),
            ],
            past: self.held.map(|_| [wide(4), wide(5)]),
            angles: self.half.map(|_| [angle(f64::cos), angle(f64::sin)]),
            positions: self.positions.then(|| Array::of(&[batch, rows], |at| (7 * at[0] + 3 * at[1]) as f64)),
            bias: self.bias.then(|| random(&[1, self.heads, rows, self.total], 6)),
            sinks: self.sinks.then(|| random(&[self.heads], 7)),
            norms: self.norm.then(|| [random(&[size], 8), random(&[size], 9)]),
        }
    }

    fn case(&self, given: &Given) -> Case {
        let [q, k, v] = &given.parts;
        let dtype = self.dtype;
        let split = |array: &Array| Some(joined(&[array]).tensor(dtype));
        let lengths: Vec<f64> = self.lengths.iter().map(|&length| length as f64 - 1.0).collect();
        let opt = |array: Option<&Array>| array.map(|array| array.tensor(dtype));
        let pair = |pair: &Option<[Array; 2]>, at: usize| opt(pair.as_ref().map(|pair| &pair[at]));
        let mut case = Case::new("GroupQueryAttention", 1, Vec::new(), &[dtype; 3]);
        case.domain = "com.microsoft";
        case.inputs = vec![
            if self.packed { Some(joined(&[q, k, v]).tensor(dtype)) } else { split(q) },
            if self.packed { None } else { split(k) },
            if self.packed { None } else { split(v) },
            pair(&given.past, 0),
            pair(&given.past, 1),
            Some(tensor(DType::I32, &[self.batch()], &lengths)),
            Some(tensor(DType::I32, &[], &[self.total as f64])),
            pair(&given.angles, 0),
            pair(&given.angles, 1),
            given.positions.as_ref().map(|array| array.tensor(DType::I64)),
            opt(given.bias.as_ref()),
            opt(given.sinks.as_ref()),
            None,
            None,
            pair(&given.norms, 0),
            pair(&given.norms, 1),
        ];
        let flag = |value: bool| Attribute::Int(i64::from(value));
        case.attribute("num_heads", Attribute::Int(self.heads as i64))
            .attribute("kv_num_heads", Attribute::Int(self.shared as i64))
            .attribute("do_rotary", flag(self.half.is_some()))
            .attribute("rotary_interleaved", flag(self.interleaved))
            .attribute("local_window_size", Attribute::Int(self.window.map_or(-1, |window| window as i64)))
            .attribute("softcap", Attribute::Float(self.softcap))
            .attribute("smooth_softmax", flag(self.smooth))
            .attribute("scale", Attribute::Float(self.scale))
    }

    /// Queries or keys, normalised and rotated.
    fn ready(&self, given: &Given, part: usize) -> Array {
        let x = &given.parts[part];
        let normed = match &given.norms {
            None => x.clone(),
            Some(weights) => {
                let normed = Array::of(&x.shape, |at| {
                    let square = |d: usize| x.at(&[at[0], at[1], at[2], d]).powi(2);
                    let mean = (0..self.size).map(square).sum::<f64>() / self.size as f64;
                    x.at(at) / (mean + 1e-6).sqrt() * weights[part].at(&at[3..])
                });
                Array::from(&normed.tensor(self.dtype))
            }
        };
        let Some([cosines, sines]) = &given.angles else { return normed };
        let half = self.half.unwrap();
        Array::of(&x.shape, |at| {
            let (b, t, h, d) = (at[0], at[1], at[2], at[3]);
            if d >= 2 * half {
                return normed.at(at);
            }
            let position = given.positions.as_ref().map_or(self.before(b) + t, |array| array.at(&[b, t]) as usize);
            let (angle, second) = if self.interleaved { (d / 2, d % 2 == 1) } else { (d % half, d >= half) };
            let other = match (self.interleaved, second) {
                (true, false) => d + 1,
                (true, true) => d - 1,
                (false, false) => d + half,
                (false, true) => d - half,
            };
            let (c, s) = (cosines.at(&[position, angle]), sines.at(&[position, angle]));
            let across = normed.at(&[b, t, h, other]) * s;
            normed.at(at) * c + if second { across } else { -across }
        })
    }

    /// The result, followed by the updated keys and values.
    fn wanted(&self, given: &Given) -> [Array; 3] {
        let (q, k) = (self.ready(given, 0), self.ready(given, 1));
        let present = |new: &Array, which: usize| {
            Array::of(&[self.batch(), self.shared, self.extent(), self.size], |at| {
                let before = self.before(at[0]);
                match (at[2].checked_sub(before), &given.past) {
                    (None, Some(past)) => past[which].at(at),
                    (Some(row), _) if row < self.rows => new.at(&[at[0], row, at[1], at[3]]),
                    _ => 0.0,
                }
            })
        };
        let (keys, values) = (present(&k, 0), present(&given.parts[2], 1));
        let scale = if self.scale == 0.0 { 1.0 / (self.size as f64).sqrt() } else { f64::from(self.scale) };
        let cap = f64::from(self.softcap);
        let group = self.heads / self.shared;
        let mut out = Vec::new();
        for b in 0..self.batch() {
            for t in 0..self.rows {
                for h in 0..self.heads {
                    let own = self.before(b) + t;
                    let first = self.window.map_or(0, |window| (own + 1).saturating_sub(window));
                    let score = |j: usize| {
                        let dot: f64 =
                            (0..self.size).map(|d| q.at(&[b, t, h, d]) * keys.at(&[b, h / group, j, d])).sum();
                        let score = if cap > 0.0 { cap * (dot * scale / cap).tanh() } else { dot * scale };
                        score + given.bias.as_ref().map_or(0.0, |bias| bias.at(&[b, h, t, j]))
                    };
                    let scores: Vec<f64> = (first..=own).map(score).collect();
                    let sink = given.sinks.as_ref().map(|sinks| sinks.at(&[h])).or(self.smooth.then_some(0.0));
                    let top = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                    let rest = sink.map_or(0.0, |sink| (sink - top).exp());
                    let sum: f64 = scores.iter().map(|score| (score - top).exp()).sum::<f64>() + rest;
                    out.extend((0..self.size).map(|d| {
                        let of = |(at, score): (usize, &f64)| {
                            (score - top).exp() * values.at(&[b, h / group, first + at, d])
                        };
                        scores.iter().enumerate().map(of).sum::<f64>() / sum
                    }));
                }
            }
        }
        let out = Array { shape: vec![self.batch(), self.rows, self.heads * self.size], values: out };
        [out, keys, values]
    }

    fn tolerance(&self) -> f64 {
        match self.dtype {
            DType::F16 => 6e-3,
            DType::Bf16 => 5e-2,
            _ => 2e-5,
        }
    }

    fn check(&self, seed: u64) {
        let given = self.given(seed);
        let found = self.case(&given).run().unwrap();
        for (found, wanted) in found.iter().zip(self.wanted(&given)) {
            assert_eq!(found.shape(), wanted.shape);
            assert_close(&numbers(found), &wanted.values, self.tolerance());
        }
    }
}

#[test]
fn prompts_and_single_tokens_with_every_option() {
    let plain = Decoder::default();
    let cases = [
        plain.clone(),
        Decoder { packed: false, ..plain.clone() },
        Decoder { half: None, ..plain.clone() },
        Decoder { half: Some(4), interleaved: true, ..plain.clone() },
        Decoder { half: Some(6), packed: false, positions: true, ..plain.clone() },
        Decoder { window: Some(2), ..plain.clone() },
        Decoder { softcap: 1.5, scale: 0.7, ..plain.clone() },
        Decoder { smooth: true, ..plain.clone() },
        Decoder { sinks: true, bias: true, ..plain.clone() },
        Decoder { norm: true, ..plain.clone() },
        Decoder { held: None, rows: 5, total: 5, lengths: vec![5, 2, 4], ..plain.clone() },
        Decoder { held: Some(4), total: 7, lengths: vec![7, 5], ..plain.clone() },
        Decoder { held: Some(9), total: 6, lengths: vec![6, 4], ..plain.clone() },
        Decoder { held: Some(0), rows: 4, total: 4, lengths: vec![4, 1], ..plain.clone() },
        // A prompt on a mask as wide as the cache: shorter rows start at 0 too.
        Decoder { rows: 6, lengths: vec![6, 2], ..plain.clone() },
        Decoder { rows: 1, lengths: vec![12, 1, 7], ..plain.clone() },
    ];
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for (seed, case) in cases.iter().enumerate() {
            Decoder { dtype, ..case.clone() }.check(seed as u64);
        }
    }
}

#[test]
fn long_caches_are_processed_in_blocks() {
    for (rows, window) in [(1, None), (1, Some(130)), (70, None), (70, Some(33))] {
        let (held, total, lengths) = (Some(290), 290, vec![290, 200]);
        let case =
            Decoder { heads: 6, shared: 2, size: 40, half: Some(16), rows, held, total, lengths, ..Decoder::default() };
        Decoder { window, ..case }.check(3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_decoders_agree_with_the_loops(
        (shared, group, size, rows) in (1usize..4, 1usize..5, 1usize..5, 1usize..6),
        lengths in prop::collection::vec(0usize..20, 1..4),
        (held, spare) in (prop::option::of(0usize..24), 0usize..4),
        (packed, half, interleaved, positions) in (any::<bool>(), prop::option::of(1usize..5), any::<bool>(), any::<bool>()),
        (window, cap, smooth, sinks) in (prop::option::of(1usize..9), any::<bool>(), any::<bool>(), any::<bool>()),
        (bias, norm, first, seed) in (any::<bool>(), any::<bool>(), any::<bool>(), 1u64..1000),
    ) {
        let size = 8 * size;
        let lengths: Vec<usize> = lengths.into_iter().map(|length| length.max(1)).collect();
        // The past's buffers must hold the rows before the step, and the cache must hold all rows.
        let most = lengths.iter().map(|&length| length.saturating_sub(rows)).max().unwrap_or(0);
        let held = if first { held } else { Some(held.unwrap_or(0).max(most)) };
        let total = if first { rows } else { lengths.iter().copied().max().unwrap_or(0).max(rows) + spare };
        Decoder {
            heads: shared * group, shared, size, rows, held, total, lengths, packed,
            half: half.map(|half| half.min(size / 2)), interleaved, positions, norm, window,
            softcap: if cap { 2.0 } else { 0.0 }, smooth, sinks, bias, scale: 0.0, dtype: DType::F32,
        }.check(seed);
    }
}

#[test]
fn a_cache_is_updated_in_place() {
    let decoder = Decoder { rows: 2, lengths: vec![9, 5], ..Decoder::default() };
    let given = decoder.given(11);
    let wanted = decoder.wanted(&given);
    let (graph, inputs) = decoder.case(&given).graph().unwrap();
    let program = CompiledPartition::new(graph, device::get()).unwrap();
    let shapes: Vec<Input<'_>> = inputs
        .iter()
        .enumerate()
        .map(|(at, tensor)| Input { shape: tensor.shape(), value: program.needs_value(at).then(|| tensor.bytes()) })
        .collect();
    let prepared = program.plan(&shapes).unwrap();
    let floats = |tensor: &Tensor| numbers(tensor).iter().map(|&value| value as f32).collect::<Vec<f32>>();
    let mut caches = [floats(&inputs[1]), floats(&inputs[2])];
    let before = caches.clone();
    let mut out = vec![0f32; wanted[0].values.len()];
    let sources: Vec<*const u8> = inputs
        .iter()
        .enumerate()
        .map(|(at, tensor)| match at {
            1 | 2 => caches[at - 1].as_ptr().cast(),
            _ => tensor.bytes().as_ptr(),
        })
        .collect();
    let mut outputs = vec![out.as_mut_ptr().cast::<u8>()];
    outputs.extend(caches.iter_mut().map(|cache| cache.as_mut_ptr().cast::<u8>()));
    // Twice, because repeating a step writes the same rows again.
    for _ in 0..2 {
        let run = Run { inputs: &sources, outputs: &outputs, parallel: &Serial, observer: None };
        // SAFETY: complete tensors of the planned shapes; the caches are updated in place, as the primitive allows.
        unsafe { Arc::clone(&prepared).run(run, Order::Now).unwrap() };
    }
    assert_close(&out.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(), &wanted[0].values, 2e-5);
    let (shared, extent, size) = (decoder.shared, decoder.extent(), decoder.size);
    for (which, cache) in caches.iter().enumerate() {
        for (at, &found) in cache.iter().enumerate() {
            let (batch, row) = (at / (shared * extent * size), at / size % extent);
            let new = decoder.before(batch)..decoder.lengths[batch];
            let expected = if new.contains(&row) { wanted[which + 1].values[at] } else { f64::from(before[which][at]) };
            assert!((f64::from(found) - expected).abs() < 1e-5, "element {at} of {which}: {found} and not {expected}");
        }
    }
}

#[test]
fn short_caches_and_empty_prompts_are_errors() {
    let decoder = Decoder { rows: 3, lengths: vec![14, 4], ..Decoder::default() };
    let message = decoder.case(&decoder.given(1)).run().unwrap_err();
    let whole = "index 13 is out of range for an axis of 12 elements";
    let wanted = if device::is_host() { whole } else { "an index is out of range" };
    assert!(message.contains(wanted), "{message}");
    let narrow = Decoder { total: 2, held: Some(2), lengths: vec![3, 3], ..Decoder::default() };
    let message = narrow.case(&narrow.given(1)).run().unwrap_err();
    assert!(message.contains("total_sequence_length is 2, less than the 3 new tokens"), "{message}");
    let none = Decoder { rows: 0, ..Decoder::default() };
    let message = none.case(&none.given(1)).run().unwrap_err();
    assert!(message.contains("there are no new tokens"), "{message}");
}

#[test]
fn unsupported_forms_are_declined_with_a_reason() {
    let decoder = Decoder::default();
    let case = || decoder.case(&decoder.given(1));
    let reason = |case: Case| case.run().unwrap_err();
    let mut mixed = case();
    mixed.inputs[3] = Some(tensor(DType::F16, &[2, 2, 12, 16], &[0.0; 768]));
    assert!(reason(mixed).contains("input 3 has type f16, but the queries are f32"));
    let mut no_angles = case();
    (no_angles.inputs[7], no_angles.inputs[8]) = (None, None);
    assert!(reason(no_angles).contains("do_rotary needs cos_cache"));
}
