//! Weights of experts as 4-bit floats with a scale for each block: MXFP4 and NVFP4.
use crate::expr::Binary;
use crate::float8::{self, Format};
use crate::lower::Lower;
use crate::{DType, LowerError, Scalar, Val};

/// What the scales of blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scales {
    /// MXFP4: powers of two.
    Powers,
    /// NVFP4: 8-bit floats.
    Floats,
}

impl Scales {
    /// The scales for a `quant_type`, if it is one with 4-bit floats.
    pub(super) fn of(quant_type: &str) -> Option<Self> {
        match quant_type {
            "fp4" => Some(Self::Powers),
            "nvfp4" => Some(Self::Floats),
            _ => None,
        }
    }

    /// How many weights share a scale.
    pub(super) const fn block(self) -> usize {
        match self {
            Self::Powers => 32,
            Self::Floats => 16,
        }
    }

    pub(super) const fn dtype(self) -> DType {
        match self {
            Self::Powers => DType::F8E8M0,
            Self::Floats => DType::F8E4M3Fn,
        }
    }

    /// The scales `[experts, columns, blocks]` times that of each expert, in single precision. Those of a model are
    /// constants, so this is done once.
    pub(super) fn decoded(
        self,
        cx: &mut Lower<'_>,
        scales: &Val,
        of_expert: &Val,
        shape: [usize; 3],
    ) -> Result<Val, LowerError> {
        if scales.shape() != shape || of_expert.shape() != [shape[0]] {
            return Err(cx.invalid(format!(
                "scales of shape {:?}, expected {shape:?}, and global scales of shape {:?}",
                scales.shape(),
                of_expert.shape()
            )));
        }
        let of_expert = cx.reshape(of_expert, &[shape[0], 1, 1])?;
        cx.map_to(&[scales, &of_expert], DType::F32, &shape, |expr, operands| {
            let scale = match Format::of(self.dtype()) {
                Some(format) => format.decoded(expr, operands[0]),
                None => float8::power_of_two(expr, operands[0]),
            };
            expr.binary(Binary::Mul, scale, operands[1])
        })
    }
}

/// Weights `[experts, depth, columns / 2]`, with an even column in the lower bits of a byte, as
/// `[experts, columns, depth / 2]`, with an even row in the lower bits. This is done once, too.
pub(super) fn by_column(cx: &mut Lower<'_>, weights: &Val, depth: usize) -> Result<Val, LowerError> {
    let (experts, pairs) = match *weights.shape() {
        [experts, rows, pairs] if rows == depth && depth.is_multiple_of(2) => (experts, pairs),
        ref other => {
            return Err(cx.invalid(format!("4-bit floats of shape {other:?} for a depth of {depth}")));
        }
    };
    let split = cx.reshape(weights, &[experts, depth / 2, 2, pairs])?;
    let rows = |parity: usize| split.sliced(2, parity, 1, 1).squeezed(2).permuted(&[0, 2, 1]).unsqueezed(2);
    let to = [experts, pairs, 2, depth / 2];
    let moved = cx.map_to(&[&rows(0), &rows(1)], DType::U8, &to, |expr, operands| {
        let index = expr.index(2);
        let column = expr.cast(index, DType::U8);
        let [four, mask] = [4, 15].map(|value| expr.constant(Scalar::Uint(value), DType::U8));
        let shift = expr.binary(Binary::Mul, column, four);
        let [even, odd] = [0, 1].map(|parity| {
            let shifted = expr.binary(Binary::Shr, operands[parity], shift);
            expr.binary(Binary::And, shifted, mask)
        });
        let odd = expr.binary(Binary::Shl, odd, four);
        expr.binary(Binary::Or, even, odd)
    })?;
    cx.reshape(&moved, &[experts, 2 * pairs, depth / 2])
}
