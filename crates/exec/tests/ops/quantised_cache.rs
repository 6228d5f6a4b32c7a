//! Compares GroupQueryAttention on quantised caches with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, tensor};

const HEADS: usize = 4;
const SHARED: usize = 2;
const SIZE: usize = 16;
const HELD: usize = 12;

/// A step on a quantised cache.
#[derive(Clone)]
struct Step {
    dtype: DType,
    bits: usize,
    /// The cache holds 8-bit floats instead of integers.
    floats: bool,
    by_channel: bool,
    rows: usize,
    /// The length of each sequence after the step.
    lengths: Vec<usize>,
}

impl Step {
    fn before(&self, batch: usize) -> usize {
        self.lengths[batch] - self.rows
    }

    /// The integers of a cache, or the codes of floats.
    fn integers(&self, seed: u64) -> Array {
        let top = 1i64 << self.bits;
        let numbers = Array::random(DType::F32, &[self.lengths.len(), SHARED, HELD, SIZE], seed);
        if self.floats {
            return Array::of(&numbers.shape, |at| nearest_code(60.0 * numbers.at(at)));
        }
        Array::of(&numbers.shape, |at| ((numbers.at(at) * 1e4) as i64).rem_euclid(top) as f64 - (top / 2) as f64)
    }

    /// How the operator stores integers.
    fn packed(&self, integers: &Array) -> Array {
        if self.bits == 8 {
            return integers.clone();
        }
        let mut shape = integers.shape.clone();
        shape[3] /= 2;
        Array::of(&shape, |at| {
            let number = |part: usize| integers.at(&[at[0], at[1], at[2], 2 * at[3] + part]) + 8.0;
            number(0) + 16.0 * number(1)
        })
    }

    fn scales(&self, seed: u64) -> Array {
        let shape = if self.by_channel { vec![1, SHARED, 1, SIZE] } else { vec![1] };
        let step = 2.5 / f64::from((1 << (self.bits - 1)) - 1);
        let exact = Array::of(&shape, |at| step * (1.0 + (at.iter().sum::<usize>() + seed as usize) as f64 / 64.0));
        Array::from(&exact.tensor(DType::F32))
    }

    fn check(&self) {
        let batch = self.lengths.len();
        let part = |heads: usize, seed: u64| Array::random(self.dtype, &[batch, self.rows, heads * SIZE], seed);
        let (q, new) = (part(HEADS, 1), [part(SHARED, 2), part(SHARED, 3)]);
        let (old, scales) = ([self.integers(4), self.integers(5)], [self.scales(6), self.scales(7)]);
        let scale = |which: usize, h: usize, d: usize| {
            if self.by_channel { scales[which].at(&[0, h, 0, d]) } else { scales[which].at(&[0]) }
        };
        let half = f64::from(1 << (self.bits - 1));
        let present = [0, 1].map(|which| {
            Array::of(&old[which].shape, |at| {
                let (b, h, row, d) = (at[0], at[1], at[2], at[3]);
                match row.checked_sub(self.before(b)) {
                    Some(row) if row < self.rows => {
                        let number = new[which].at(&[b, row, h * SIZE + d]) as f32 / scale(which, h, d) as f32;
                        if self.floats {
                            return nearest_code(f64::from(number));
                        }
                        f64::from(number.round_ties_even()).clamp(-half, half - 1.0)
                    }
                    _ => old[which].at(at),
                }
            })
        });
        let value = |which: usize, b: usize, h: usize, row: usize, d: usize| {
            let number = present[which].at(&[b, h, row, d]);
            scale(which, h, d) * if self.floats { number_of(number as usize) } else { number }
        };
        let out = Array::of(&[batch, self.rows, HEADS * SIZE], |at| {
            let (b, t, h, d) = (at[0], at[1], at[2] / SIZE, at[2] % SIZE);
            let shared = h / (HEADS / SHARED);
            let weight = |row: usize| {
                let dot: f64 = (0..SIZE).map(|d| q.at(&[b, t, h * SIZE + d]) * value(0, b, shared, row, d)).sum();
                (dot / (SIZE as f64).sqrt()).exp()
            };
            let seen = 0..=self.before(b) + t;
            let sum: f64 = seen.clone().map(weight).sum();
            seen.map(|row| weight(row) * value(1, b, shared, row, d)).sum::<f64>() / sum
        });
        let kind = match self.bits {
            8 if self.floats => DType::F8E4M3Fn,
            8 => DType::I8,
            _ => DType::U8,
        };
        let ends: Vec<f64> = self.lengths.iter().map(|&length| length as f64 - 1.0).collect();
        let mut case = Case::new("GroupQueryAttention", 1, Vec::new(), &[self.dtype, kind, kind]);
        case.domain = "com.microsoft";
        case.inputs = [&q, &new[0], &new[1]].map(|array| Some(array.tensor(self.dtype))).to_vec();
        case.inputs.extend(old.iter().map(|cache| Some(self.packed(cache).tensor(kind))));
        case.inputs.push(Some(tensor(DType::I32, &[batch], &ends)));
        case.inputs.push(Some(tensor(DType::I32, &[], &[HELD as f64])));
        case.inputs.extend([None, None, None, None, None]);
        // The model builder writes the scales of channels as a vector.
        let [k_scale, v_scale] = &scales;
        let v_scale = tensor(DType::F32, &[v_scale.values.len()], &v_scale.values);
        case.inputs.extend([Some(k_scale.tensor(DType::F32)), Some(v_scale)]);
        let name = || Attribute::Text(if self.by_channel { "PER_CHANNEL" } else { "PER_TENSOR" }.to_owned());
        let case = case
            .attribute("num_heads", Attribute::Int(HEADS as i64))
            .attribute("kv_num_heads", Attribute::Int(SHARED as i64))
            .attribute("k_quant_type", name())
            .attribute("v_quant_type", name())
            .attribute("kv_cache_bit_width", Attribute::Int(self.bits as i64));
        let found = case.run().unwrap();
        assert_close(&numbers(&found[0]), &out.values, if self.dtype == DType::F32 { 2e-5 } else { 1e-2 });
        for (found, wanted) in found[1..].iter().zip(&present) {
            let (found, wanted) = (Array::from(found), self.packed(wanted));
            for b in 0..batch {
                for (h, row, d) in (0..SHARED * self.lengths[b] * found.shape[3]).map(|at| {
                    let rest = at / found.shape[3];
                    (rest / self.lengths[b], rest % self.lengths[b], at % found.shape[3])
                }) {
                    assert_eq!(found.at(&[b, h, row, d]), wanted.at(&[b, h, row, d]), "row {row} of batch {b}");
                }
            }
        }
    }
}

#[test]
fn caches_of_eight_and_four_bits() {
    for dtype in [DType::F32, DType::F16] {
        for (bits, by_channel) in [(8, false), (8, true), (4, false), (4, true)] {
            let step = Step { dtype, bits, floats: false, by_channel, rows: 1, lengths: vec![6, 12, 1] };
            step.check();
            Step { rows: 4, lengths: vec![4, 9], ..step }.check();
        }
    }
}

#[test]
fn caches_of_eight_bit_floats() {
    for (dtype, by_channel) in [(DType::F32, false), (DType::F16, true)] {
        let step = Step { dtype, bits: 8, floats: true, by_channel, rows: 1, lengths: vec![6, 12, 1] };
        step.check();
        Step { rows: 4, lengths: vec![4, 9], ..step }.check();
    }
}

/// The number of a code of the format E4M3FN.
fn number_of(code: usize) -> f64 {
    let (sign, exponent, rest) = (if code < 128 { 1.0 } else { -1.0 }, code / 8 % 16, (code % 8) as f64 / 8.0);
    if exponent == 0 { sign * rest * 2f64.powi(-6) } else { sign * (1.0 + rest) * 2f64.powi(exponent as i32 - 7) }
}

/// The code whose number is nearest; the numbers here are not halfway between two.
fn nearest_code(number: f64) -> f64 {
    let codes = (0..256).filter(|code| code % 128 != 127 && *code != 128);
    let distance = |code: &usize| (number_of(*code) - number).abs();
    codes.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap() as f64
}

#[test]
fn unsupported_caches_are_declined_with_a_reason() {
    let queries = Array::random(DType::F32, &[1, 1, 8 * SIZE], 1).tensor(DType::F32);
    let reason = |kinds: [&str; 2], bits: i64, scale: Option<DType>| {
        let cache = || Some(Array::of(&[1, 2, 4, SIZE], |_| 0.0).tensor(DType::I8));
        let scale = || scale.map(|dtype| tensor(dtype, &[1], &[0.5]));
        let mut case = Case::new("GroupQueryAttention", 1, Vec::new(), &[DType::F32, DType::I8, DType::I8]);
        case.domain = "com.microsoft";
        let number = |value: f64| Some(tensor(DType::I32, &[1], &[value]));
        case.inputs = vec![Some(queries.clone()), None, None, cache(), cache(), number(0.0), number(1.0)];
        case.inputs.extend([None, None, None, None, None, scale(), scale()]);
        let case = case
            .attribute("num_heads", Attribute::Int(4))
            .attribute("kv_num_heads", Attribute::Int(2))
            .attribute("k_quant_type", Attribute::Text(kinds[0].to_owned()))
            .attribute("v_quant_type", Attribute::Text(kinds[1].to_owned()));
        case.attribute("kv_cache_bit_width", Attribute::Int(bits)).run().unwrap_err()
    };
    let tensors = ["PER_TENSOR"; 2];
    assert!(reason(["PER_TENSOR", "NONE"], 8, Some(DType::F32)).contains("quantised as \"NONE\""));
    assert!(reason(tensors, 8, None).contains("needs k_scale and v_scale"));
    assert!(reason(tensors, 2, Some(DType::F32)).contains("a cache of 2 bits"));
    assert!(reason(tensors, 4, Some(DType::F32)).contains("input 3 has type i8, the attributes ask for u8"));
}
