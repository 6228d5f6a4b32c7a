//! Caches that keep their newest rows.

use graph::{DType, Prim};

use super::{Sample, dense, ints, random, strided};

/// A cache that has become too long.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The type of all numbers.
    pub dtype: DType,
    /// The first row that each sequence keeps.
    pub starts: Vec<i64>,
    /// The number of heads.
    pub heads: usize,
    /// The rows before.
    pub rows: usize,
    /// The rows after.
    pub total: usize,
    /// The sizes of a key and a value.
    pub sizes: [usize; 2],
    /// The heads of a row are adjacent, instead of the rows of a head.
    pub by_row: bool,
}

impl Kept {
    /// The step. The outputs may be in the buffers of the cache that they replace.
    pub fn sample(&self, in_place: bool) -> Sample {
        let batch = self.starts.len();
        let mut inputs = vec![(dense(0, DType::I64, &[batch]), ints(DType::I64, self.starts.iter().copied()))];
        for (buffer, size) in (1..).zip(self.sizes) {
            let shape = [batch, self.heads, self.rows, size];
            let [head, row] = if self.by_row { [size, self.heads * size] } else { [self.rows * size, size] };
            let strides = [self.heads * self.rows * size, head, row, 1].map(|stride| stride as isize);
            let source = random(self.dtype, shape.iter().product(), u64::from(buffer));
            inputs.push((strided(buffer, self.dtype, &shape, &strides, 0), source));
        }
        let cache = |(buffer, size): (u32, usize)| dense(buffer, self.dtype, &[batch, self.heads, self.total, size]);
        for (buffer, size) in (3..).zip(self.sizes) {
            let view = cache((buffer, size));
            let replaced = random(self.dtype, view.elems(), u64::from(buffer));
            inputs.push((view, replaced));
        }
        let outputs = (if in_place { 3 } else { 5 }..).zip(self.sizes).map(cache).collect();
        Sample::new(Prim::Retain, inputs, outputs)
    }

    /// The outputs for the values of the sample's inputs.
    pub fn expected(&self, values: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let part = |(number, size): (usize, usize)| {
            let rows = (0..self.starts.len() * self.heads * self.total).flat_map(|at| {
                let (head, row) = (at / self.total, at % self.total);
                let from = self.starts[head / self.heads] as usize + row;
                let source = &values[number][head * self.rows * size..][..self.rows * size];
                source.get(from * size..(from + 1) * size).map_or_else(|| vec![0.0; size], <[f64]>::to_vec)
            });
            rows.collect()
        };
        (1..).zip(self.sizes).map(part).collect()
    }
}

/// Caches of all types that keep some, all or none of their rows.
pub fn kept() -> Vec<Kept> {
    let of = |dtype| {
        let plain =
            Kept { dtype, starts: vec![3, 0, 11], heads: 2, rows: 11, total: 8, sizes: [16, 16], by_row: false };
        [
            plain.clone(),
            Kept { sizes: [7, 10], ..plain.clone() },
            Kept { by_row: true, ..plain.clone() },
            Kept { starts: vec![60], heads: 3, rows: 300, total: 240, sizes: [64, 32], ..plain },
        ]
    };
    [DType::F32, DType::F16, DType::Bf16].into_iter().flat_map(of).collect()
}

/// Caches with a start outside their rows.
pub fn out_of_range() -> Vec<Kept> {
    let with = |start| Kept { starts: vec![1, start], ..kept()[0].clone() };
    [12, -1, i64::MAX, i64::MIN].map(with).to_vec()
}
