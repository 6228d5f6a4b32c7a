//! Products with packed weights, by three loops.

use graph::prim::{QuantMatMul, WeightLayout, Zeros};
use graph::{DType, Tensor, View};

use super::{dense, random, random_ints};

/// Rows times a matrix of packed columns.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    /// The number of rows.
    pub rows: usize,
    /// The number of terms of each sum.
    pub depth: usize,
    /// The number of columns.
    pub columns: usize,
    /// The width of a weight.
    pub bits: usize,
    /// How many weights share a scale.
    pub block: usize,
    /// How zero points are given.
    pub zeros: Zeros,
}

impl Packed {
    /// The primitive.
    pub fn prim(&self) -> QuantMatMul {
        let Self { bits, block, zeros, .. } = *self;
        QuantMatMul { bits, block, zeros, rounds_activations: false, layout: WeightLayout::Onnx }
    }

    fn blocks(&self) -> usize {
        self.depth.div_ceil(self.block)
    }

    /// The operands after the rows, in the primitive's order: weights, scales of a type, and zero points if they are
    /// given.
    pub fn weights(&self, scales: DType) -> Vec<(View, Tensor)> {
        let (columns, blocks, prim) = (self.columns, self.blocks(), self.prim());
        let (block_bytes, zero_bytes) = (prim.block_bytes(), prim.zero_bytes(self.depth));
        let bytes = random_ints(DType::U8, columns * blocks * block_bytes, 256, 5);
        let mut operands = vec![
            (dense(1, DType::U8, &[columns, blocks, block_bytes]), bytes),
            (dense(2, scales, &[columns, blocks]), random(scales, columns * blocks, 7)),
        ];
        match self.zeros {
            Zeros::Middle => {}
            Zeros::Packed => {
                let packed = random_ints(DType::U8, columns * zero_bytes, 256, 9);
                operands.push((dense(3, DType::U8, &[columns, zero_bytes]), packed));
            }
            Zeros::Floats => {
                operands.push((dense(3, scales, &[columns, blocks]), random(scales, columns * blocks, 11)))
            }
        }
        operands
    }

    /// A weight, from the values of the operands with the rows first.
    fn weight(&self, values: &[Vec<f64>], column: usize, at: usize) -> f64 {
        let (blocks, prim) = (self.blocks(), self.prim());
        let (row_bytes, zero_bytes) = (blocks * prim.block_bytes(), prim.zero_bytes(self.depth));
        let zero = match self.zeros {
            Zeros::Middle => prim.middle() as f64,
            Zeros::Packed => field(&values[3][column * zero_bytes..], self.bits, at / self.block),
            Zeros::Floats => values[3][column * blocks + at / self.block],
        };
        let scale = values[2][column * blocks + at / self.block];
        (field(&values[1][column * row_bytes..], self.bits, at) - zero) * scale
    }

    /// The sums for dense rows and the operands after them, and for each the sum of the magnitudes of its terms.
    pub fn expected(&self, values: &[Vec<f64>]) -> Vec<(f64, f64)> {
        let columns: Vec<Vec<f64>> = (0..self.columns)
            .map(|column| (0..self.depth).map(|at| self.weight(values, column, at)).collect())
            .collect();
        let rows = values[0].chunks(self.depth).flat_map(|row| columns.iter().map(move |column| (row, column)));
        let sums = rows.map(|(row, column)| {
            let terms = row.iter().zip(column).map(|(x, weight)| x * weight);
            (terms.clone().sum(), terms.map(f64::abs).sum())
        });
        sums.collect()
    }
}

/// The number at an index in a row of packed numbers, lowest bits first.
fn field(bytes: &[f64], bits: usize, at: usize) -> f64 {
    let bit = at * bits;
    f64::from(bytes[bit / 8] as u8 >> (bit % 8) & (((1u32 << bits) - 1) as u8))
}

/// Every width, block and kind of zero point, with complete and partial last blocks.
pub fn forms(rows: usize, columns: usize) -> Vec<Packed> {
    let mut all = Vec::new();
    for bits in [2, 4, 8] {
        for block in [16, 32, 64, 128, 256] {
            for zeros in [Zeros::Middle, Zeros::Packed, Zeros::Floats] {
                let depths = [2 * block, 2 * block + 24, 3 * block - 1];
                all.extend(depths.map(|depth| Packed { rows, depth, columns, bits, block, zeros }));
            }
        }
    }
    all
}
