//! Weights of experts in the layout of CUDA's mixed-precision kernels, which the model builder writes for "cuda".
//!
//! A group of columns (four of 4 bits, two of 8) is stored in tiles of 64 rows: the rows of one column, then those of the
//! next. Within a tile, every eighth row of 32 (4 bits) or 16 (8 bits) stands side by side.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::{DType, LowerError, Scalar, Val};

/// Rows of a tile.
const TILE: usize = 64;

/// Weights `[experts, depth, columns · bits / 8]` of that layout as `[experts, columns, depth · bits / 8]`. The weights are
/// constants, so this is done once.
pub(super) fn unpacked(cx: &mut Lower<'_>, weights: &Val, bits: usize, depth: usize) -> Result<Val, LowerError> {
    let &[experts, rows, bytes] = weights.shape() else {
        return Err(cx.invalid(format!("weights of shape {:?}", weights.shape())));
    };
    let (columns, group) = (bytes * 8 / bits, 16 / bits);
    if rows != depth || !depth.is_multiple_of(TILE) || !columns.is_multiple_of(group) || !matches!(bits, 4 | 8) {
        return Err(cx.invalid(format!(
            "weights of shape {:?} and {bits} bits in CUDA's layout for a depth of {depth}",
            weights.shape()
        )));
    }
    let (groups, tiles) = (columns / group, depth / TILE);
    if bits == 8 {
        // A tile has four times 16 rows: eight pairs of rows that are eight apart.
        let split = cx.reshape(weights, &[experts, groups, tiles, group, 4, 8, 2])?;
        let rows = cx.dense(&split.permuted(&[0, 1, 3, 2, 4, 6, 5]))?;
        return cx.reshape(&rows, &[experts, columns, depth]);
    }
    // A tile has two times 32 rows: four times an even and an odd row, each with those 8, 16 and 24 rows further on in two
    // bytes. In the result, a byte holds an even row and the next one.
    let split = cx.reshape(weights, &[experts, groups, tiles, group, 2, 4, 2, 2])?;
    let of = |parity: usize| split.sliced(6, parity, 1, 1).squeezed(6).permuted(&[0, 1, 3, 2, 4, 6, 5]).unsqueezed(6);
    let to = [experts, groups, group, tiles, 2, 2, 2, 4];
    let rows = cx.map_to(&[&of(0), &of(1)], DType::U8, &to, |expr, operands| {
        let index = expr.index(6);
        let half = expr.cast(index, DType::U8);
        let [four, mask] = [4, 15].map(|value| expr.constant(Scalar::Uint(value), DType::U8));
        let shift = expr.binary(Binary::Mul, half, four);
        let [even, odd] = [0, 1].map(|parity| {
            let moved = expr.binary(Binary::Shr, operands[parity], shift);
            expr.binary(Binary::And, moved, mask)
        });
        let odd = expr.binary(Binary::Shl, odd, four);
        expr.binary(Binary::Or, even, odd)
    })?;
    cx.reshape(&rows, &[experts, columns, depth / 2])
}
