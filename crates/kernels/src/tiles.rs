//! Blocks of attention with matrix instructions: `hip/tiles.h`.
use crate::gemm::matrix_number;
use crate::{Arch, Kernel, Matrix};

/// Above this head size, a wave has room for half of the elements.
const MAX_SIZE: usize = 128;
/// Rows per fragment.
const FRAGMENT: usize = 16;
/// Up to this many keys, more blocks at a time are better than larger steps.
const FEW_KEYS: usize = 256;

/// Rows and waves per block, and the keys it processes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub rows: usize,
    pub waves: usize,
    pub keys: usize,
    /// Waves that share their rows.
    pub split: usize,
    /// Scores are computed before the values of the previous keys are added.
    pub ahead: bool,
}

impl Tile {
    /// The block for `batches` of this many rows over `total` keys, with heads of `size` and `width`: the largest that
    /// still gives every compute unit a block. Plain scores are products times `alpha`.
    pub(crate) fn new(
        matrix: Matrix,
        arch: &Arch,
        extents: [usize; 3],
        [size, width]: [usize; 2],
        is_plain: bool,
    ) -> Self {
        let [batches, rows, total] = extents;
        let (is_small, is_large) = (size.max(width) <= 64, size.max(width) > MAX_SIZE);
        // The twin has room for whole heads.
        let split = if is_large && matrix != Matrix::Mma { 2 } else { 1 };
        // Fragments per wave, waves and keys. Keys and values are read from LDS once for all fragments of a wave. What
        // fits in registers, including keys being loaded, was found by compiling, and for the twin by measuring.
        let sizes: &[(usize, usize, usize)] = match matrix {
            Matrix::Mma if is_large && !is_plain => &[(1, 4, 16)],
            Matrix::Mma if is_large => &[(1, 4, 32)],
            _ if is_large => &[(1, 8, 32)],
            Matrix::Wmma12 if is_small => &[(2, 4, 32), (1, 4, 32)],
            Matrix::Wmma11 | Matrix::Wmma12 => &[(1, 4, 32)],
            // Two waves per SIMD: with two of these fragments, only one would fit.
            Matrix::Mfma if !is_small => &[(1, 4, 32), (1, 2, 32)],
            Matrix::Mma if !is_small || total <= FEW_KEYS => &[(2, 4, 32), (1, 4, 64), (1, 2, 64)],
            _ => &[(2, 4, 64), (1, 4, 64), (1, 2, 64)],
        };
        let tile = |&(fragments, waves, keys)| Self {
            rows: FRAGMENT * fragments * waves / split,
            waves,
            keys,
            split,
            // Only if the twin's registers have room for scores besides weights; with fewer waves there is no gain.
            ahead: matrix == Matrix::Mma && is_small && is_plain && (fragments, keys) == (2, 64),
        };
        let is_enough = |tile: &Self| batches * rows.div_ceil(tile.rows) >= arch.compute_units as usize;
        let smallest = sizes.last().map_or(tile(&(1, 4, 32)), tile);
        sizes.iter().map(tile).find(is_enough).unwrap_or(smallest)
    }

    /// A kernel with the settings of `hip/tiles.h`.
    pub(crate) fn set(
        self,
        kernel: Kernel,
        matrix: Matrix,
        arch: &Arch,
        [size, width]: [usize; 2],
        is_plain: bool,
    ) -> Kernel {
        let step = if size.max(width) > MAX_SIZE { 2 * FRAGMENT } else { FRAGMENT };
        kernel
            .set("SIZE", size.next_multiple_of(step))
            .set("WIDTH", width.next_multiple_of(step))
            .set("SPLIT", self.split)
            .set("MATRIX", matrix_number(matrix))
            .set("WAVE", arch.wave)
            .set("WAVES", self.waves)
            .set("BLOCK_ROWS", self.rows)
            .set("KEYS", self.keys)
            .set("AHEAD", u8::from(self.ahead))
            .set("PLAIN", u8::from(is_plain))
    }

    /// Threads of a block.
    pub(crate) fn threads(self, arch: &Arch) -> u32 {
        self.waves as u32 * arch.wave
    }
}

/// Whether a factor preserves the order of scores and does not turn a masked score into something else.
pub(crate) fn keeps_order(alpha: f32) -> bool {
    alpha > 0.0 && alpha.is_normal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_get_smaller_until_every_compute_unit_has_one() {
        let arch = Arch::new("sm_90", 132);
        let rows = |batches, rows| Tile::new(Matrix::Mma, &arch, [batches, rows, 2048], [64, 64], true).rows;
        assert_eq!([rows(32, 2048), rows(12, 1024), rows(12, 128)], [128, 64, 32]);
        let ahead = |sizes, is_plain| Tile::new(Matrix::Mma, &arch, [32, 2048, 2048], sizes, is_plain).ahead;
        assert_eq!([ahead([64, 64], true), ahead([64, 64], false), ahead([128, 128], true)], [true, false, false]);
        let arch = Arch::new("gfx1100", 96);
        let tile = |sizes| Tile::new(Matrix::Wmma11, &arch, [1, 17, 17], sizes, true);
        assert_eq!(tile([128, 128]), Tile { rows: 64, waves: 4, keys: 32, split: 1, ahead: false });
        assert_eq!(tile([64, 192]), Tile { rows: 64, waves: 8, keys: 32, split: 2, ahead: false });
    }
}
