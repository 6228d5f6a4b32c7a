//! Caches that grow by the keys and values of new tokens, which may be rotated together with the queries.

use graph::prim::{Append, Filled, Positions, Rotary};
use graph::{DType, Prim, Tensor, View};

use super::rotary::turned;
use super::{Sample, dense, ints, list, random, strided, tensor};

/// The queries of the new tokens. They are rotated, and so are the keys.
#[derive(Clone, Copy, Debug)]
pub struct Queries {
    /// The number of heads.
    pub heads: usize,
    /// The number of angles of a position.
    pub half: usize,
    /// The number of positions with angles.
    pub count: usize,
    /// Whether neighbours are rotated, instead of elements `half` apart.
    pub interleaved: bool,
    /// Positions are given, in reverse, instead of derived from the lengths.
    pub given: bool,
}

/// A cache and new tokens.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The type of all numbers.
    pub dtype: DType,
    /// The length of each sequence after the step.
    pub lengths: Vec<i64>,
    /// The number of heads.
    pub heads: usize,
    /// The number of new tokens.
    pub rows: usize,
    /// The rows of the past; none if there is no past.
    pub held: Option<usize>,
    /// The rows of the grown cache.
    pub total: usize,
    /// The sizes of a key and a value.
    pub sizes: [usize; 2],
    /// The queries.
    pub queries: Option<Queries>,
    /// Queries, keys and values share one buffer.
    pub packed: bool,
}

impl Growth {
    /// How many rows are filled before the step.
    pub fn filled(&self) -> Filled {
        Filled { shift: -(self.rows as i64) }
    }

    fn heads_of_queries(&self) -> usize {
        self.queries.map_or(0, |queries| queries.heads)
    }

    fn position(&self, batch: usize, row: usize) -> usize {
        match self.queries {
            Some(queries) if queries.given => queries.count - 1 - 3 * batch - row,
            _ => self.filled().before(self.lengths[batch]) + row,
        }
    }

    /// Heads of the new tokens, which have all their heads side by side.
    fn tokens(&self, buffer: u32, first: usize, heads: usize, size: usize) -> (View, Tensor) {
        let batch = self.lengths.len();
        let all = if self.packed { self.heads_of_queries() + 2 * self.heads } else { heads };
        let (width, offset) = (all * size, if self.packed { first * size } else { 0 });
        // The stride of an axis with one row has no meaning.
        let row = if self.rows == 1 { 7 } else { width };
        let strides = [self.rows * width, size, row, 1].map(|stride| stride as isize);
        let view = strided(buffer, self.dtype, &[batch, heads, self.rows, size], &strides, offset as isize);
        let seed = if self.packed { 1 } else { u64::from(buffer) };
        (view, random(self.dtype, batch * self.rows * width, seed))
    }

    /// The primitive, and the inputs of a step.
    pub fn parts(&self) -> (Append, Vec<(View, Tensor)>) {
        let batch = self.lengths.len();
        let of = if self.queries.is_some() { DType::I32 } else { DType::I64 };
        let lengths = || (dense(0, of, &[batch]), ints(of, self.lengths.iter().copied()));
        let first = self.heads_of_queries();
        let keys = self.tokens(11, first, self.heads, self.sizes[0]);
        let mut parts = vec![lengths(), keys, self.tokens(12, first + self.heads, self.heads, self.sizes[1])];
        if let Some(held) = self.held {
            for (buffer, size) in (3..).zip(self.sizes) {
                let shape = [batch, self.heads, held, size];
                let past = random(self.dtype, shape.iter().product(), u64::from(buffer) + 4);
                parts.push((dense(buffer, self.dtype, &shape), past));
            }
        }
        let rotary = self.queries.map(|queries| {
            parts.push(self.tokens(10, 0, queries.heads, self.sizes[0]));
            for (buffer, seed) in [(5, 3), (6, 4)] {
                let angles = random(self.dtype, queries.count * queries.half, seed);
                parts.push((dense(buffer, self.dtype, &[queries.count, queries.half]), angles));
            }
            let positions = if queries.given {
                let each = (0..batch).flat_map(|batch| (0..self.rows).map(move |row| (batch, row)));
                let positions = each.map(|(batch, row)| self.position(batch, row) as i64);
                parts.push((dense(7, DType::I64, &[batch, self.rows]), ints(DType::I64, positions)));
                Positions::Given
            } else {
                parts.push(lengths());
                Positions::Behind(self.filled())
            };
            Rotary { interleaved: queries.interleaved, positions }
        });
        (Append { filled: self.filled(), past: self.held.is_some(), rotary }, parts)
    }

    /// The grown caches, in the buffers of the past if they grow in place, and the rotated queries.
    pub fn outputs(&self, in_place: bool) -> Vec<View> {
        let batch = self.lengths.len();
        let cache = |(at, size): (u32, usize)| {
            dense(if in_place { 3 } else { 20 } + at, self.dtype, &[batch, self.heads, self.total, size])
        };
        let mut outputs: Vec<View> = (0..).zip(self.sizes).map(cache).collect();
        outputs.extend(self.queries.map(|queries| self.by_token(30, queries.heads, self.sizes[0])));
        outputs
    }

    /// A tensor of heads that are stored token by token.
    pub fn by_token(&self, buffer: u32, heads: usize, size: usize) -> View {
        let width = (heads * size) as isize;
        let strides = [self.rows as isize * width, size as isize, width, 1];
        strided(buffer, self.dtype, &[self.lengths.len(), heads, self.rows, size], &strides, 0)
    }

    /// The step.
    pub fn sample(&self, in_place: bool) -> Sample {
        let (append, inputs) = self.parts();
        Sample::new(Prim::Append(append), inputs, self.outputs(in_place))
    }

    /// Heads of tokens `[batch, heads, rows, size]`, rotated and rounded.
    fn turned(&self, values: &[Vec<f64>], heads: &[f64]) -> Vec<f64> {
        let Some(queries) = self.queries else { return heads.to_vec() };
        let (half, size) = (queries.half, self.sizes[0]);
        let angles = if self.held.is_some() { 6 } else { 4 };
        let per_batch = heads.len() / size / self.lengths.len();
        let turned = heads.chunks(size).enumerate().flat_map(|(at, head)| {
            let position = self.position(at / per_batch, at % self.rows);
            let [cosines, sines] = [angles, angles + 1].map(|angles| &values[angles][position * half..][..half]);
            turned(head, cosines, sines, queries.interleaved)
        });
        list(&tensor(self.dtype, turned))
    }

    /// The outputs for the values of the sample's inputs.
    pub fn expected(&self, values: &[Vec<f64>], in_place: bool) -> Vec<Vec<f64>> {
        let fresh = [self.turned(values, &values[1]), values[2].clone()];
        let cache = |part: usize| {
            let size = self.sizes[part];
            let row_of = |tensor: &[f64], at: usize| tensor[at * size..][..size].to_vec();
            let rows = (0..self.lengths.len() * self.heads * self.total).flat_map(|at| {
                let (head, row) = (at / self.total, at % self.total);
                let before = self.filled().before(self.lengths[head / self.heads]);
                match self.held {
                    _ if (before..before + self.rows).contains(&row) => {
                        row_of(&fresh[part], head * self.rows + row - before)
                    }
                    Some(held) if row < before || in_place => row_of(&values[3 + part], head * held + row),
                    _ => vec![0.0; size],
                }
            });
            rows.collect()
        };
        let mut outputs = vec![cache(0), cache(1)];
        if self.queries.is_some() {
            let queries = &values[if self.held.is_some() { 5 } else { 3 }];
            outputs.push(self.turned(values, queries));
        }
        outputs
    }
}

/// New rows after the past, in a new cache. None of the rows are rotated.
pub fn copied() -> Vec<Growth> {
    let of = |dtype| {
        let plain = Growth {
            dtype,
            lengths: vec![11, 1],
            heads: 3,
            rows: 2,
            held: Some(9),
            total: 11,
            sizes: [16, 16],
            queries: None,
            packed: false,
        };
        [
            plain.clone(),
            Growth { lengths: vec![2, 1], held: None, rows: 4, total: 6, ..plain.clone() },
            Growth { sizes: [7, 10], ..plain.clone() },
            Growth { held: Some(11), ..plain.clone() },
            Growth { lengths: vec![2, 1], held: Some(0), rows: 5, ..plain },
        ]
    };
    [DType::F32, DType::F16, DType::Bf16].into_iter().flat_map(of).collect()
}

/// Caches that grow in place. None of the rows are rotated.
pub fn in_place() -> Vec<Growth> {
    let plain = Growth {
        dtype: DType::F16,
        lengths: vec![40, 3],
        heads: 2,
        rows: 3,
        held: Some(40),
        total: 40,
        sizes: [64, 64],
        queries: None,
        packed: false,
    };
    let cases = [plain.clone(), Growth { sizes: [5, 12], ..plain.clone() }, Growth { rows: 1, ..plain }];
    cases.into_iter().flat_map(|case| [case.clone(), Growth { lengths: vec![20, 1], ..case }]).collect()
}

/// Keys that are rotated on their way into the cache, together with the queries.
pub fn rotated() -> Vec<Growth> {
    let queries = Queries { heads: 6, half: 16, count: 40, interleaved: false, given: false };
    let plain = Growth {
        dtype: DType::F16,
        lengths: vec![24, 3],
        heads: 2,
        rows: 3,
        held: Some(24),
        total: 24,
        sizes: [32, 32],
        queries: Some(queries),
        packed: true,
    };
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for interleaved in [false, true] {
            let with = |queries| Growth { dtype, queries: Some(queries), ..plain.clone() };
            let queries = Queries { interleaved, ..queries };
            cases.push(with(queries));
            // Heads with some elements that are not rotated, and sizes without packs.
            let some = with(Queries { half: 8, given: true, ..queries });
            cases.push(Growth { lengths: vec![20, 9], packed: false, ..some });
            let odd = with(Queries { half: 3, ..queries });
            cases.push(Growth { lengths: vec![5, 23], sizes: [10, 10], held: Some(20), ..odd });
        }
    }
    cases.push(Growth { lengths: vec![24, 1], rows: 1, ..plain.clone() });
    let one = Some(Queries { heads: 1, ..queries });
    cases.push(Growth { lengths: vec![24, 1], rows: 1, heads: 1, queries: one, packed: false, ..plain.clone() });
    cases.push(Growth { lengths: vec![24, 24], rows: 24, held: None, ..plain });
    cases
}
