//! Products with the weights of experts that the data chooses.

use graph::prim::{ExpertProduct, ExpertWeights};
use graph::{DType, Prim};

use super::{Sample, dense, ints, random, random_ints, strided};

/// Rows that choose experts.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The type of the rows.
    pub dtype: DType,
    /// The type of scales.
    pub scales: DType,
    /// The type of the result.
    pub made: DType,
    /// The expert of each row.
    pub experts: Vec<i64>,
    /// The number of experts.
    pub count: usize,
    /// The number of terms of each sum.
    pub depth: usize,
    /// The number of columns.
    pub columns: usize,
    /// How many rows of the result read one row.
    pub share: usize,
    /// How weights are stored.
    pub weights: ExpertWeights,
    /// Whether there is a bias.
    pub bias: bool,
    /// Elements between rows that are not read.
    pub gap: usize,
}

impl Chosen {
    /// The step.
    pub fn sample(&self) -> Sample {
        let Self { dtype, count, depth, columns, share, weights, bias, gap, .. } = *self;
        let rows = self.experts.len();
        let x = strided(0, dtype, &[rows / share, depth], &[(depth + gap) as isize, 1], 0);
        let mut inputs = vec![
            (x, random(dtype, rows / share * (depth + gap), 1)),
            (dense(1, DType::I64, &[rows]), ints(DType::I64, self.experts.iter().copied())),
        ];
        match self.packing() {
            None => {
                inputs.push((dense(2, dtype, &[count, columns, depth]), random(dtype, count * columns * depth, 2)));
            }
            Some((bits, block, zeros)) => {
                let (row, blocks) = (depth * bits / 8, depth / block);
                let bytes = |buffer: u32, each: usize| {
                    let packed = random_ints(DType::U8, count * columns * each, 256, u64::from(buffer));
                    (dense(buffer, DType::U8, &[count, columns, each]), packed)
                };
                inputs.push(bytes(2, row));
                let scales = random(self.scales, count * columns * blocks, 3);
                inputs.push((dense(3, self.scales, &[count, columns, blocks]), scales));
                inputs.extend(zeros.then(|| bytes(4, (blocks * bits).div_ceil(8))));
            }
        }
        inputs.extend(bias.then(|| (dense(5, dtype, &[count, columns]), random(dtype, count * columns, 5))));
        let prim = Prim::ExpertProduct(ExpertProduct { share, weights, bias });
        Sample::new(prim, inputs, vec![dense(6, self.made, &[rows, columns])])
    }

    /// Bits, block and zero points of packed weights.
    fn packing(&self) -> Option<(usize, usize, bool)> {
        match self.weights {
            ExpertWeights::Floats => None,
            ExpertWeights::Packed { bits, block, zeros } => Some((bits, block, zeros)),
            ExpertWeights::Float4 { block } => Some((4, block, false)),
        }
    }

    /// A weight of a column, counted over all experts, from the values of the sample's inputs.
    fn weight(&self, values: &[Vec<f64>], column: usize, at: usize) -> f64 {
        let Some((bits, block, zeros)) = self.packing() else { return values[2][column * self.depth + at] };
        let blocks = self.depth / block;
        let field = |bytes: &[f64], at: usize| {
            let byte = bytes[at * bits / 8] as u32;
            f64::from(byte >> (at * bits % 8) & ((1 << bits) - 1))
        };
        let scale = values[3][column * blocks + at / block];
        let code = field(&values[2][column * (self.depth * bits / 8)..], at);
        if let ExpertWeights::Float4 { .. } = self.weights {
            return float4(code as u32) * scale;
        }
        let middle = f64::from(1 << (bits - 1));
        let zero = if zeros { field(&values[4][column * (blocks * bits).div_ceil(8)..], at / block) } else { middle };
        (code - zero) * scale
    }

    /// The result, and for each element the sum of the magnitudes of its terms.
    pub fn expected(&self, values: &[Vec<f64>]) -> Vec<(f64, f64)> {
        let bias = self.bias.then(|| values.last().map_or(&[][..], Vec::as_slice));
        let of = |at: usize| {
            let (row, column) = (at / self.columns, at % self.columns);
            let own = self.experts[row] as usize * self.columns + column;
            let x = &values[0][row / self.share * self.depth..][..self.depth];
            let terms = x.iter().enumerate().map(|(k, x)| x * self.weight(values, own, k));
            let terms: Vec<f64> = terms.chain(bias.map(|bias| bias[own])).collect();
            (terms.iter().sum(), terms.iter().map(|term| term.abs()).sum())
        };
        (0..self.experts.len() * self.columns).map(of).collect()
    }

    /// The rounding error of the result, relative to the magnitudes of its terms.
    pub fn relative(&self) -> f64 {
        match self.made {
            DType::F16 => 1e-3,
            DType::Bf16 => 8e-3,
            _ => 1e-6,
        }
    }
}

/// The number of a 4-bit float, by its definition: a sign, two bits of exponent with a bias of 1, one of mantissa.
pub fn float4(code: u32) -> f64 {
    let (sign, exponent, mantissa) = (code >> 3 & 1, code >> 1 & 3, code & 1);
    let magnitude = match exponent {
        0 => 0.5 * f64::from(mantissa),
        _ => (1.0 + 0.5 * f64::from(mantissa)) * 2f64.powi(exponent as i32 - 1),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// Every kind of weights, with and without bias.
pub fn chosen() -> Vec<Chosen> {
    let plain = Chosen {
        dtype: DType::F16,
        scales: DType::F16,
        made: DType::F32,
        experts: vec![2, 0, 3, 2, 1, 0],
        count: 4,
        depth: 96,
        columns: 11,
        share: 2,
        weights: ExpertWeights::Floats,
        bias: true,
        gap: 0,
    };
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        cases.push(Chosen { dtype, ..plain.clone() });
        cases.push(Chosen { dtype, made: dtype, share: 1, bias: false, depth: 37, ..plain.clone() });
    }
    for bits in [2, 4, 8] {
        for (block, zeros) in [(16, false), (32, true), (96, false), (96, true)] {
            let weights = ExpertWeights::Packed { bits, block, zeros };
            cases.push(Chosen { weights, ..plain.clone() });
        }
    }
    let weights = ExpertWeights::Packed { bits: 4, block: 32, zeros: false };
    cases.push(Chosen { weights, dtype: DType::F32, scales: DType::F32, ..plain.clone() });
    cases.push(Chosen { weights, dtype: DType::Bf16, scales: DType::F32, gap: 5, ..plain.clone() });
    for (block, scales, dtype) in [(32, DType::F32, DType::F16), (16, DType::F32, DType::Bf16)] {
        cases.push(Chosen { weights: ExpertWeights::Float4 { block }, scales, dtype, ..plain.clone() });
    }
    let weights = ExpertWeights::Float4 { block: 32 };
    cases.push(Chosen { weights, dtype: DType::F32, scales: DType::F32, depth: 2048, gap: 3, ..plain.clone() });
    // A depth whose bytes are not a multiple of a word, in one block.
    let weights = ExpertWeights::Packed { bits: 4, block: 38, zeros: false };
    cases.push(Chosen { weights, depth: 38, experts: vec![3], share: 1, ..plain.clone() });
    cases.push(Chosen { experts: vec![1; 4], depth: 2048, share: 4, ..plain });
    cases
}

/// Rows with an expert that does not exist.
pub fn out_of_range() -> Vec<Chosen> {
    let with = |expert| Chosen { experts: vec![2, 0, 3, expert, 1, 0], ..chosen()[0].clone() };
    [4, -1, i64::MAX].map(with).to_vec()
}
