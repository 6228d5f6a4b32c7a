//! Tests attention of a token whose key and value are appended to the cache in the same launch: in the simulator and on
//! the host, against loops in double precision.

use graph::prim::{Append, AppendAttention, CachedAttention, Filled, Positions, Rotary, Sinks};
use graph::{DType, Prim, Scalar, Step, Tensor, View};
use kernels::Arch;
use proptest::prelude::*;

use crate::common::{dense, due, left_by_host, on_host, random, simulate, step, strided};

/// Both wave widths without matrix instructions, then targets whose matrix instructions load keys directly into
/// fragments.
const TARGETS: [&str; 4] = ["gfx1030", "gfx906", "gfx942", "sm_90"];
const PLAIN: [&str; 2] = ["gfx1030", "gfx906"];
const MATRIX: [&str; 2] = ["gfx942", "sm_90"];
/// The number of positions with angles.
const COUNT: usize = 400;
const ALPHA: f32 = 0.37;

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    /// The length of each batch, including the token.
    lengths: Vec<i64>,
    shared: usize,
    group: usize,
    total: usize,
    size: usize,
    half: usize,
    interleaved: bool,
    /// Positions are given instead of derived from the lengths.
    given: bool,
    /// Queries, keys and values share one buffer.
    packed: bool,
    window: Option<usize>,
    softcap: Option<f32>,
    bias: bool,
    sinks: Sinks,
}

impl Default for Case {
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
            window: None,
            softcap: None,
            bias: false,
            sinks: Sinks::None,
        }
    }
}

fn list(tensor: &Tensor) -> Vec<f64> {
    tensor.scalars().map(Scalar::as_f64).collect()
}

fn ints(dtype: DType, numbers: &[i64]) -> Tensor {
    Tensor::from_scalars(dtype, &[numbers.len()], numbers.iter().map(|&n| Scalar::Int(n))).unwrap()
}

impl Case {
    fn heads(&self) -> usize {
        self.shared * self.group
    }

    fn before(&self, batch: usize) -> usize {
        (self.lengths[batch] - 1).max(0) as usize
    }

    fn position(&self, batch: usize) -> usize {
        if self.given { COUNT - 1 - 3 * batch } else { self.before(batch) }
    }

    /// Keys or values so far, followed by NaN: fresh memory may hold anything.
    fn past(&self, seed: u64) -> Tensor {
        let rows = self.shared * self.total;
        let numbers = random(self.dtype, self.lengths.len() * rows * self.size, seed);
        let filled = numbers.scalars().enumerate().map(|(at, value)| {
            let (batch, key) = (at / self.size / rows, at / self.size % self.total);
            if key < self.before(batch) { value } else { Scalar::Float(f64::NAN) }
        });
        Tensor::from_scalars(self.dtype, numbers.shape(), filled).unwrap()
    }

    /// The step, its inputs, and the number of elements of its outputs.
    fn step(&self, in_place: bool) -> (Step, Vec<Tensor>, Vec<usize>) {
        let &Self { dtype, shared, total, size, .. } = self;
        let (batch, heads) = (self.lengths.len(), self.heads());
        let all = heads + 2 * shared;
        let tokens = random(dtype, batch * all * size, 1);
        let part = |number: u32, first: usize, count: usize| -> (View, Tensor) {
            let (width, offset) = if self.packed { (all * size, first * size) } else { (count * size, 0) };
            // The stride of an axis with one row has no meaning.
            let strides = [width, size, 7, 1].map(|stride| stride as isize);
            let own: Vec<Scalar> = tokens.scalars().collect();
            let own = own.chunks(all * size).flat_map(|token| &token[first * size..][..count * size]).copied();
            let own = Tensor::from_scalars(dtype, &[batch * count * size], own).unwrap();
            let tensor = if self.packed { tokens.clone() } else { own };
            (strided(number, dtype, &[batch, count, 1, size], &strides, offset as isize), tensor)
        };
        let length = || (dense(0, DType::I32, &[batch]), ints(DType::I32, &self.lengths));
        let cache = [batch, shared, total, size];
        let mut parts = vec![length(), part(11, heads, shared), part(12, heads + shared, shared)];
        parts.extend([(3, 7), (4, 8)].map(|(buffer, seed)| (dense(buffer, dtype, &cache), self.past(seed))));
        parts.push(part(10, 0, heads));
        for (buffer, seed) in [(5, 3), (6, 4)] {
            parts.push((dense(buffer, dtype, &[COUNT, self.half]), random(dtype, COUNT * self.half, seed)));
        }
        let filled = Filled { shift: -1 };
        let positions = if self.given {
            let positions: Vec<i64> = (0..batch).map(|batch| self.position(batch) as i64).collect();
            parts.push((dense(7, DType::I64, &[batch, 1]), ints(DType::I64, &positions)));
            Positions::Given
        } else {
            parts.push(length());
            Positions::Behind(filled)
        };
        if self.bias {
            // The same for all batches.
            let strides = [0, total as isize, total as isize, 1];
            parts.push((strided(8, dtype, &[batch, heads, 1, total], &strides, 0), random(dtype, heads * total, 5)));
        }
        if self.sinks == Sinks::Given {
            parts.push((dense(9, dtype, &[heads]), random(dtype, heads, 6)));
        }
        let rotary = Some(Rotary { interleaved: self.interleaved, positions });
        let attention = CachedAttention {
            alpha: ALPHA,
            filled,
            causal: true,
            window: self.window,
            softcap: self.softcap,
            bias: self.bias,
            sinks: self.sinks,
        };
        let prim = Prim::AppendAttention(AppendAttention { append: Append { filled, past: true, rotary }, attention });
        let present = |at: u32| dense(if in_place { 3 } else { 20 } + at, dtype, &cache);
        let by_token = |buffer: u32| {
            let (size, row) = (size as isize, (heads * size) as isize);
            strided(buffer, dtype, &[batch, heads, 1, size as usize], &[row, size, row, 1], 0)
        };
        let elems = cache.iter().product();
        let (views, inputs) = parts.into_iter().unzip();
        let outputs = vec![present(0), present(1), by_token(30), by_token(31)];
        (step(prim, views, outputs), inputs, vec![elems, elems, batch * heads * size, batch * heads * size])
    }

    /// A head of a token, rotated and rounded as it is stored.
    fn turned(&self, tensors: [&[f64]; 3], batch: usize, number: usize) -> Vec<f64> {
        let [tokens, cosines, sines] = tensors;
        let all = self.heads() + 2 * self.shared;
        let x = &tokens[(batch * all + number) * self.size..][..self.size];
        let turned = (0..self.size).map(|d| {
            if d >= 2 * self.half {
                return x[d];
            }
            let (pair, first) = if self.interleaved { (d / 2, d % 2 == 0) } else { (d % self.half, d < self.half) };
            let distance = if self.interleaved { 1 } else { self.half };
            let angle = self.position(batch) * self.half + pair;
            if first {
                x[d] * cosines[angle] - x[d + distance] * sines[angle]
            } else {
                x[d] * cosines[angle] + x[d - distance] * sines[angle]
            }
        });
        list(&Tensor::from_scalars(self.dtype, &[self.size], turned.map(Scalar::Float)).unwrap())
    }

    /// The caches and the token's result; NaN where an in-place cache is left unchanged.
    fn wanted(&self, inputs: &[Tensor], in_place: bool) -> [Vec<f64>; 3] {
        let &Self { shared, group, total, size, .. } = self;
        let (heads, batches) = (self.heads(), self.lengths.len());
        let tokens = list(&random(self.dtype, batches * (heads + 2 * shared) * size, 1));
        let lists: Vec<Vec<f64>> = inputs.iter().map(list).collect();
        let tensors = [&tokens[..], &lists[6], &lists[7]];
        let of = |part: usize, batch: usize, head: usize, row: usize| -> Vec<f64> {
            let number = heads + part * shared + head;
            match row.cmp(&self.before(batch)) {
                std::cmp::Ordering::Less => {
                    lists[3 + part][((batch * shared + head) * total + row) * size..][..size].to_vec()
                }
                std::cmp::Ordering::Equal if part == 0 => self.turned(tensors, batch, number),
                std::cmp::Ordering::Equal => tokens[(batch * (heads + 2 * shared) + number) * size..][..size].to_vec(),
                std::cmp::Ordering::Greater if in_place => vec![f64::NAN; size],
                std::cmp::Ordering::Greater => vec![0.0; size],
            }
        };
        let cache = |part: usize| {
            let rows = (0..batches * shared * total).map(|at| (at / total / shared, at / total % shared, at % total));
            rows.flat_map(|(batch, head, row)| of(part, batch, head, row)).collect()
        };
        let mut out = Vec::new();
        for batch in 0..batches {
            for head in 0..heads {
                let own = self.before(batch);
                let keys = self.window.map_or(0, |window| (own + 1).saturating_sub(window))..own + 1;
                let q = self.turned(tensors, batch, head);
                let score = |j: usize| {
                    let k = of(0, batch, head / group, j);
                    let dot: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() * f64::from(ALPHA);
                    let score = self.softcap.map(f64::from).map_or(dot, |cap| cap * (dot / cap).tanh());
                    score + if self.bias { lists[9][head * total + j] } else { 0.0 }
                };
                let scores: Vec<f64> = keys.clone().map(score).collect();
                let sink = match self.sinks {
                    Sinks::None => f64::NEG_INFINITY,
                    Sinks::Zero => 0.0,
                    Sinks::Given => lists[lists.len() - 1][head],
                };
                let top = scores.iter().copied().fold(sink, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
                let sum = weights.iter().sum::<f64>() + (sink - top).exp();
                let mut row = vec![0.0; size];
                for (j, weight) in keys.zip(&weights) {
                    let v = of(1, batch, head / group, j);
                    row.iter_mut().zip(v).for_each(|(to, v)| *to += weight * v);
                }
                out.extend(row.iter().map(|value| value / sum));
            }
        }
        [cache(0), cache(1), out]
    }

    fn launches(&self, target: &str) -> usize {
        kernels::work(&self.step(false).0, &Arch::new(target, 4)).unwrap().launches.len()
    }

    fn check(&self, targets: &[&str]) {
        let relative = match self.dtype {
            DType::F32 => 2e-5,
            DType::F16 => 6e-3,
            _ => 4e-2,
        };
        for in_place in [true, false] {
            let (step, inputs, elems) = self.step(in_place);
            let wanted = self.wanted(&inputs, in_place);
            let compare = |found: &[Tensor], who: &str| {
                // Rotated queries may or may not be stored.
                for (number, wanted) in [0, 1, 3].into_iter().zip(&wanted) {
                    for (at, (f, w)) in list(&found[number]).into_iter().zip(wanted).enumerate() {
                        let is_close = (f - w).abs() <= relative * w.abs().max(1.0) || f.is_nan() && w.is_nan();
                        assert!(is_close, "{who}, in place {in_place}, {self:?}: {number}[{at}] is {f} instead of {w}");
                    }
                }
            };
            compare(&on_host(&step, &inputs, &elems).unwrap(), "host");
            for (target, order) in due(targets).flat_map(|target| (0..3).map(move |order| (target, order))) {
                let (found, fault) = simulate(&step, &inputs, &elems, target, order).unwrap();
                assert_eq!(fault, 0, "{target}: {self:?}");
                compare(&found, &format!("{target}, order {order}"));
            }
        }
    }
}

#[test]
fn a_token_joins_the_cache_and_sees_it_in_one_launch() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for interleaved in [false, true] {
            let case = Case { dtype, interleaved, ..Case::default() };
            // Single precision has no matrix instructions.
            let targets = if dtype == DType::F32 { &PLAIN[..] } else { &TARGETS };
            case.check(targets);
            assert!(targets.iter().all(|target| case.launches(target) == 1));
            // Some elements are not rotated.
            let target = targets[usize::from(interleaved)..].last().copied();
            Case { half: 16, given: true, packed: false, group: 1, ..case }.check(target.as_slice());
        }
    }
}

#[test]
fn all_sizes_of_heads_and_groups_can_be_in_one_launch() {
    let plain = Case { shared: 1, ..Case::default() };
    for (dtype, group, size, half, targets) in [
        (DType::F16, 16, 128, 64, MATRIX),
        (DType::Bf16, 7, 64, 24, MATRIX),
        (DType::F16, 5, 256, 128, PLAIN),
        (DType::Bf16, 3, 80, 16, PLAIN),
        (DType::F32, 8, 16, 8, PLAIN),
        (DType::F32, 2, 256, 128, PLAIN),
    ] {
        let case = Case { dtype, group, size, half, ..plain.clone() };
        case.check(&targets);
        assert!(TARGETS.iter().all(|target| case.launches(target) == 1), "{case:?}");
    }
}

#[test]
fn what_scores_and_windows_do_holds_for_the_newest_key() {
    let plain = Case { shared: 1, lengths: vec![330, 2, 130], total: 340, ..Case::default() };
    for case in [
        Case { window: Some(1), ..plain.clone() },
        Case { window: Some(65), sinks: Sinks::Zero, ..plain.clone() },
        Case { softcap: Some(1.5), bias: true, ..plain.clone() },
        Case { bias: true, sinks: Sinks::Given, interleaved: true, ..plain.clone() },
        // Full, and with exactly as many keys as a part takes at once.
        Case { lengths: vec![340, 65, 64], ..plain.clone() },
        // Negative lengths mean an empty cache.
        Case { lengths: vec![0, -3], ..plain.clone() },
    ] {
        case.check(&MATRIX);
        Case { dtype: DType::F32, size: 32, half: 16, ..case }.check(&PLAIN);
    }
}

#[test]
fn rows_without_packs_and_many_rows_of_a_head_are_two_launches() {
    let odd = Case { size: 20, half: 10, group: 2, ..Case::default() };
    odd.check(&MATRIX);
    assert!(TARGETS.iter().all(|target| odd.launches(target) == 2));
    // Queries with more heads than a fragment has rows.
    let many = Case { group: 20, shared: 1, ..Case::default() };
    many.check(&["gfx906", "gfx942"]);
    assert_eq!(TARGETS.map(|target| many.launches(target)), [1, 1, 2, 2]);
    // Angles where packs would not start at a multiple of a pack.
    let apart = Case { half: 20, ..Case::default() };
    apart.check(&PLAIN);
    assert!(TARGETS.iter().all(|target| apart.launches(target) == 2));
}

#[test]
fn tokens_that_do_not_fit_or_have_no_angles_are_faults() {
    for (length, shift) in [(81, -1), (i64::from(i32::MAX), -1), (20, 1000)] {
        for dtype in [DType::F32, DType::F16] {
            let case = Case { dtype, lengths: vec![length, 7], total: 80, ..Case::default() };
            let (mut step, inputs, elems) = case.step(true);
            let Prim::AppendAttention(both) = &mut step.prim else { panic!("{step:?}") };
            both.append.rotary.as_mut().unwrap().positions = Positions::Behind(Filled { shift });
            for target in due(&TARGETS) {
                let (found, fault) = simulate(&step, &inputs, &elems, target, 0).unwrap();
                assert_ne!(fault, 0, "{target}");
                for part in 0..2 {
                    let half = elems[part] / 2 * dtype.bytes();
                    assert_eq!(
                        found[part].bytes()[..half],
                        inputs[3 + part].bytes()[..half],
                        "{target}: stays as it was"
                    );
                }
            }
            assert!(left_by_host(&step, &inputs, &elems).1.is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn random_tokens_see_what_loops_say(
        lengths in prop::collection::vec(1i64..200, 1..4),
        (shared, group) in (1usize..4, 1usize..9),
        (sizes, halves) in (1usize..5, 1usize..5),
        (interleaved, given, packed) in any::<(bool, bool, bool)>(),
        window in prop::option::of(1usize..200),
        kind in 0usize..4,
    ) {
        // Few distinct kernel sources, because each is compiled.
        let size = [32, 64, 64, 128][sizes - 1];
        let half = (size / 2).min(halves * 8);
        let dtype = if kind == 0 { DType::F32 } else { DType::F16 };
        let case = Case { dtype, lengths, shared, group, total: 200, size, half, interleaved, given, packed, window, ..Case::default() };
        case.check(&[TARGETS[kind]]);
    }
}
