//! Tests caches that grow by keys that are rotated on the way, together with the queries: in the simulator and on the
//! host, against loops in double precision.

use graph::prim::{Append, Filled, Positions, Rotary};
use graph::{DType, Prim, Scalar, Step, Tensor, View};

use crate::common::{check_numbers, dense, left_by_host, on_host, random, simulate, step, strided};

const TARGETS: [&str; 2] = ["gfx1030", "gfx906"];
/// The number of positions with angles.
const COUNT: usize = 40;
/// The number of rows in the cache.
const TOTAL: usize = 24;

#[derive(Clone, Copy)]
struct Case {
    dtype: DType,
    heads: usize,
    shared: usize,
    rows: usize,
    held: Option<usize>,
    size: usize,
    half: usize,
    interleaved: bool,
    /// Positions are given, in reverse, instead of derived from the lengths.
    given: bool,
    /// Queries, keys and values share one buffer.
    packed: bool,
}

const PLAIN: Case = Case {
    dtype: DType::F16,
    heads: 6,
    shared: 2,
    rows: 3,
    held: Some(TOTAL),
    size: 32,
    half: 16,
    interleaved: false,
    given: false,
    packed: true,
};

fn ints(dtype: DType, numbers: &[i64]) -> Tensor {
    Tensor::from_scalars(dtype, &[numbers.len()], numbers.iter().map(|&n| Scalar::Int(n))).unwrap()
}

fn list(tensor: &Tensor) -> Vec<f64> {
    tensor.scalars().map(Scalar::as_f64).collect()
}

impl Case {
    fn filled(&self) -> Filled {
        Filled { shift: -(self.rows as i64) }
    }

    fn positions(&self, lengths: [i64; 2]) -> Vec<i64> {
        let of = |(batch, row): (usize, usize)| {
            if self.given {
                (COUNT - 1 - batch - row) as i64
            } else {
                (self.filled().before(lengths[batch]) + row) as i64
            }
        };
        (0..2).flat_map(|batch| (0..self.rows).map(move |row| (batch, row))).map(of).collect()
    }

    /// The step and its inputs.
    fn step(&self, lengths: [i64; 2], in_place: bool) -> (Step, Vec<Tensor>) {
        let Self { dtype, heads, shared, rows, size, .. } = *self;
        let all = heads + 2 * shared;
        let tokens = random(dtype, 2 * rows * all * size, 1);
        let mut number = 10;
        // Heads of tokens from the packed buffer, or in separate buffers.
        let mut part = |first: usize, count: usize| -> (View, Tensor) {
            let shape = [2, count, rows, size];
            number += 1;
            let (width, offset) = if self.packed { (all * size, first * size) } else { (count * size, 0) };
            let strides = [rows * width, size, width, 1].map(|stride| stride as isize);
            let own = tokens.scalars().collect::<Vec<_>>();
            let own = own.chunks(all * size).flat_map(|token| &token[first * size..][..count * size]).copied();
            let own = Tensor::from_scalars(dtype, &[2 * rows * count * size], own).unwrap();
            let tensor = if self.packed { tokens.clone() } else { own };
            (strided(number, dtype, &shape, &strides, offset as isize), tensor)
        };
        let (queries, keys, values) = (part(0, heads), part(heads, shared), part(heads + shared, shared));
        let mut parts = vec![(dense(0, DType::I32, &[2]), ints(DType::I32, &lengths)), keys, values];
        if let Some(held) = self.held {
            for at in 0..2 {
                let shape = [2, shared, held, size];
                parts.push((dense(3 + at, dtype, &shape), random(dtype, shape.iter().product(), 7 + u64::from(at))));
            }
        }
        parts.push(queries);
        for (buffer, seed) in [(5, 3), (6, 4)] {
            parts.push((dense(buffer, dtype, &[COUNT, self.half]), random(dtype, COUNT * self.half, seed)));
        }
        let positions = if self.given {
            parts.push((dense(7, DType::I64, &[2, rows]), ints(DType::I64, &self.positions(lengths))));
            Positions::Given
        } else {
            parts.push((dense(0, DType::I32, &[2]), ints(DType::I32, &lengths)));
            Positions::Behind(self.filled())
        };
        let rotary = Some(Rotary { interleaved: self.interleaved, positions });
        let prim = Prim::Append(Append { filled: self.filled(), past: self.held.is_some(), rotary });
        let cache = |at: u32| dense(if in_place { 3 } else { 8 } + at, dtype, &[2, shared, TOTAL, size]);
        let width = (heads * size) as isize;
        let strides = [rows as isize * width, size as isize, width, 1];
        let turned = strided(20, dtype, &[2, heads, rows, size], &strides, 0);
        let (views, inputs) = parts.into_iter().unzip();
        (step(prim, views, vec![cache(0), cache(1), turned]), inputs)
    }

    /// A head of one token, rotated or not.
    fn head(&self, tensors: [&[f64]; 3], token: usize, number: usize, position: Option<i64>) -> Vec<f64> {
        let [tokens, cosines, sines] = tensors;
        let all = self.heads + 2 * self.shared;
        let x = &tokens[(token * all + number) * self.size..][..self.size];
        let Some(position) = position else { return x.to_vec() };
        let turned = (0..self.size).map(|d| {
            if d >= 2 * self.half {
                return x[d];
            }
            let (pair, first) = if self.interleaved { (d / 2, d % 2 == 0) } else { (d % self.half, d < self.half) };
            let distance = if self.interleaved { 1 } else { self.half };
            let angle = position as usize * self.half + pair;
            if first {
                x[d] * cosines[angle] - x[d + distance] * sines[angle]
            } else {
                x[d] * cosines[angle] + x[d - distance] * sines[angle]
            }
        });
        turned.collect()
    }

    fn wanted(&self, inputs: &[Tensor], lengths: [i64; 2], in_place: bool) -> [Vec<f64>; 3] {
        let Self { heads, shared, rows, size, .. } = *self;
        let tokens = list(&random(self.dtype, 2 * rows * (heads + 2 * shared) * size, 1));
        let at = inputs.len() - 3;
        let (cosines, sines) = (list(&inputs[at]), list(&inputs[at + 1]));
        let tensors = [&tokens[..], &cosines, &sines];
        let positions = self.positions(lengths);
        let cache = |part: usize| {
            let past = self.held.map(|held| (held, list(&inputs[3 + part])));
            let mut out = Vec::new();
            for (b, length) in lengths.into_iter().enumerate() {
                let before = self.filled().before(length);
                for h in 0..shared {
                    for row in 0..TOTAL {
                        if (before..before + rows).contains(&row) {
                            let token = b * rows + row - before;
                            let position = (part == 0).then_some(positions[token]);
                            out.extend(self.head(tensors, token, heads + part * shared + h, position));
                        } else if let Some((held, past)) = past.as_ref().filter(|_| row < before || in_place) {
                            out.extend(&past[((b * shared + h) * held + row) * size..][..size]);
                        } else {
                            out.extend(std::iter::repeat_n(0.0, size));
                        }
                    }
                }
            }
            out
        };
        let all_heads = (0..2 * rows).flat_map(|token| (0..heads).map(move |h| (token, h)));
        let turned = all_heads.flat_map(|(token, h)| self.head(tensors, token, h, Some(positions[token])));
        [cache(0), cache(1), turned.collect()]
    }

    fn check(&self, lengths: [i64; 2]) {
        let relative = if self.dtype == DType::F32 { 1e-6 } else { 8e-3 };
        for in_place in [false, true] {
            if in_place && self.held != Some(TOTAL) {
                continue;
            }
            let (step, inputs) = self.step(lengths, in_place);
            let wanted = self.wanted(&inputs, lengths, in_place);
            check_numbers(&TARGETS, &step, &inputs, &wanted, relative);
            let elems: Vec<usize> = wanted.iter().map(Vec::len).collect();
            for (found, wanted) in on_host(&step, &inputs, &elems).unwrap().iter().zip(&wanted) {
                for (found, wanted) in list(found).iter().zip(wanted) {
                    let is_close = (found - wanted).abs() <= relative * wanted.abs().max(1.0);
                    assert!(is_close, "on the host: {found} instead of {wanted}");
                }
            }
        }
    }
}

#[test]
fn keys_turn_on_their_way_into_the_cache_and_queries_beside_them() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for interleaved in [false, true] {
            let plain = Case { dtype, interleaved, ..PLAIN };
            plain.check([24, 3]);
            // Heads with some elements that are not rotated, and sizes without packs.
            Case { half: 8, given: true, packed: false, ..plain }.check([20, 9]);
            Case { size: 10, half: 3, held: Some(20), ..plain }.check([5, 23]);
        }
    }
}

#[test]
fn one_token_and_prompts_without_a_past_turn_too() {
    for case in [
        Case { rows: 1, ..PLAIN },
        Case { rows: 1, shared: 1, heads: 1, packed: false, ..PLAIN },
        Case { rows: 24, held: None, ..PLAIN },
    ] {
        case.check(if case.held.is_some() { [24, 1] } else { [24, 24] });
    }
}

#[test]
fn tokens_that_do_not_fit_or_have_no_angles_are_faults() {
    let case = Case { dtype: DType::F32, ..PLAIN };
    let elems = [2 * 2 * TOTAL * 32, 2 * 2 * TOTAL * 32, 2 * 6 * 3 * 32];
    for (length, shift) in [(TOTAL as i64 + 1, 0), (i64::from(i32::MAX), 0), (20, 30)] {
        let (mut step, inputs) = case.step([length, 7], true);
        let Prim::Append(append) = &mut step.prim else { panic!("{step:?}") };
        append.rotary.as_mut().unwrap().positions = Positions::Behind(Filled { shift });
        let (found, fault) = simulate(&step, &inputs, &elems, "gfx1100", 0).unwrap();
        assert_ne!(fault, 0);
        let (found, past) = (list(&found[0]), list(&inputs[3]));
        // The first batch is unchanged, and the other has its new rows.
        let half = found.len() / 2;
        assert_eq!(found[..half], past[..half]);
        assert_ne!(found[half..], past[half..]);
        let (left, done) = left_by_host(&step, &inputs, &elems);
        assert!(done.is_err());
        assert_eq!(list(&left[0]), past, "nothing is written on the host");
    }
}
