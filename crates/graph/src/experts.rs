//! Products with the weights of experts that the data chooses.

/// Rows times the weights of an expert, which each row chooses.
///
/// The inputs are x `[rows / share, depth]` (f32, f16 or bf16), `experts [rows]`, i32 or i64, the weights, and the bias
/// `[count, columns]` of x's type if there is one. The output is `[rows, columns]`, f32 or of x's type: row `r` is row
/// `r / share` of x times the transpose of the weights of expert `experts[r]`, plus that expert's bias. An expert
/// outside `0..count` is an index out of range. Sums are in single precision. The rows of x and of the output are
/// contiguous; all weights and biases are dense.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExpertProduct {
    /// How many adjacent rows read the same row of x.
    pub share: usize,
    /// How the weights are stored.
    pub weights: ExpertWeights,
    /// Whether there is a bias.
    pub bias: bool,
}

/// The weights of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpertWeights {
    /// One operand of x's type, `[count, columns, depth]`.
    Floats,
    /// Two or three operands: the weights, u8 `[count, columns, depth · bits / 8]`, with the first number in the lowest
    /// bits of a byte; the scales, f32, f16 or bf16 `[count, columns, blocks]`; and with `zeros` the zero points, u8
    /// `[count, columns, ceil(blocks · bits / 8)]`, packed as the weights. A weight is `(q - zero) · scale`. Without
    /// zero points, zero is the middle of the range, `2^(bits-1)`.
    Packed {
        /// Bits per weight: 2, 4 or 8.
        bits: usize,
        /// How many weights along the depth share a scale: a power of two of at least 16, or the whole depth.
        block: usize,
        /// Whether there are zero points.
        zeros: bool,
    },
    /// Two operands: the weights, u8 `[count, columns, depth / 2]`, 4-bit floats (E2M1) with the first number in the lower
    /// bits of a byte; and the scales, f32 `[count, columns, blocks]`. A weight is its number times its scale.
    Float4 {
        /// How many weights along the depth share a scale: a power of two of at least 16.
        block: usize,
    },
}

impl ExpertWeights {
    /// How many operands hold them.
    pub const fn operands(&self) -> usize {
        match self {
            Self::Floats => 1,
            Self::Packed { zeros: false, .. } | Self::Float4 { .. } => 2,
            Self::Packed { zeros: true, .. } => 3,
        }
    }
}
