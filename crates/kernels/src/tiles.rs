//! Blocks of attention with matrix instructions: `hip/tiles.h`.
use crate::{Arch, Kernel, Matrix, gemm::matrix_number};

/// Sizes of heads, at most.
pub(crate) const MOST_SIZE: usize = 128;
/// Rows of a fragment.
const FRAGMENT: usize = 16;

/// How many rows a block has, how many waves, and how many keys it takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub rows: usize,
    pub waves: usize,
    pub keys: usize,
}

impl Tile {
    /// The block for `batches` of so many rows, with heads of `size` and `width`: the largest that leaves no compute unit
    /// without one.
    pub(crate) fn new(matrix: Matrix, arch: &Arch, batches: usize, rows: usize, [size, width]: [usize; 2]) -> Self {
        let is_small = size.max(width) <= 64;
        // Keys and values are read from LDS once for all fragments of a wave. What there is room for in registers, of keys in
        // flight too, was found by compiling.
        let (keys, sizes): (_, &[(usize, usize)]) = match matrix {
            Matrix::Wmma11 => (32, &[(1, 4)]),
            Matrix::Wmma12 if is_small => (32, &[(2, 4), (1, 4)]),
            Matrix::Wmma12 => (32, &[(1, 4)]),
            Matrix::Mma if !is_small => (64, &[(1, 4), (1, 2)]),
            _ => (64, &[(2, 4), (1, 4), (1, 2)]),
        };
        let tiles = sizes.iter().map(|&(fragments, waves)| Self { rows: FRAGMENT * fragments * waves, waves, keys });
        let is_enough = |tile: &Self| batches * rows.div_ceil(tile.rows) >= arch.compute_units as usize;
        let smallest = tiles.clone().next_back();
        tiles.clone().find(is_enough).or(smallest).unwrap_or(Self { rows: 4 * FRAGMENT, waves: 4, keys })
    }

    /// A kernel with the settings of `hip/tiles.h`. Plain scores are products times `alpha`.
    pub(crate) fn set(
        self,
        kernel: Kernel,
        matrix: Matrix,
        arch: &Arch,
        [size, width]: [usize; 2],
        is_plain: bool,
    ) -> Kernel {
        kernel
            .set("SIZE", size.next_multiple_of(FRAGMENT))
            .set("WIDTH", width.next_multiple_of(FRAGMENT))
            .set("MATRIX", matrix_number(matrix))
            .set("WAVE", arch.wave)
            .set("WAVES", self.waves)
            .set("BLOCK_ROWS", self.rows)
            .set("KEYS", self.keys)
            .set("PLAIN", u8::from(is_plain))
    }

    /// Threads of a block.
    pub(crate) fn threads(self, arch: &Arch) -> u32 {
        self.waves as u32 * arch.wave
    }
}

/// Whether a factor leaves the order of scores and makes nothing of none.
pub(crate) fn keeps_order(alpha: f32) -> bool {
    alpha > 0.0 && alpha.is_normal()
}
