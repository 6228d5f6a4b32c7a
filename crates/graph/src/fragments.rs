//! Weights of `MatMulNBits` that the model builder packed for CUDA, put back in ONNX's order.
//!
//! CUDA's mixed-precision kernels read a column's weights from top to bottom. In each 16 bytes, every eighth row stands
//! side by side. In the layout for Ampere, a group of columns (four of 4 bits, two of 8) is also stored in tiles of 64
//! rows: those of one column, then those of the next. Scales stay as they are.
use crate::Tensor;
use crate::quant::{QuantWeights, WeightLayout};

/// Rows of a tile. CUDA's kernels need a depth that is a multiple of it.
pub(crate) const TILE: usize = 64;
/// Bytes in which rows change their places.
const RUN: usize = 16;

/// How many columns of weights of so many bits stand together.
pub(crate) const fn group(bits: usize, is_tiled: bool) -> usize {
    if is_tiled { 16 / bits } else { 1 }
}

/// The same weights in ONNX's layout; `None` if they are in another layout, or do not match the product.
pub(crate) fn unpacked(given: &QuantWeights) -> Option<QuantWeights> {
    let WeightLayout::Fragments { is_tiled } = given.product.layout else { return None };
    let bits = given.product.bits;
    let group = group(bits, is_tiled);
    let fits = matches!(bits, 4 | 8) && given.depth.is_multiple_of(TILE) && given.columns.is_multiple_of(group);
    let (weights, rest) = given.tensors.split_first()?;
    let (tile_bytes, column_bytes) = (TILE * bits / 8, given.depth * bits / 8);
    if !fits || Some(weights.len_bytes()) != given.columns.checked_mul(column_bytes) {
        return None;
    }
    let (packed, mut plain) = (weights.bytes(), vec![0; weights.len_bytes()]);
    let groups = packed.chunks_exact((group * column_bytes).max(1));
    for (from, to) in groups.zip(plain.chunks_exact_mut((group * column_bytes).max(1))) {
        for (column, to) in to.chunks_exact_mut(column_bytes).enumerate() {
            for (tile, to) in to.chunks_exact_mut(tile_bytes).enumerate() {
                let from = &from[(tile * group + column) * tile_bytes..][..tile_bytes];
                from.chunks_exact(RUN).zip(to.chunks_exact_mut(RUN)).for_each(|(from, to)| in_order(bits, from, to));
            }
        }
    }
    let shape = [given.columns, given.product.blocks(given.depth), given.product.block_bytes()];
    let tensors = [Tensor::from_bytes(weights.dtype(), &shape, &plain)?].into_iter().chain(rest.iter().cloned());
    let mut made = QuantWeights { tensors: tensors.collect(), ..given.clone() };
    made.product.layout = WeightLayout::Onnx;
    Some(made)
}

/// The rows of a run in order.
fn in_order(bits: usize, from: &[u8], to: &mut [u8]) {
    for (at, to) in to.iter_mut().enumerate() {
        *to = match bits {
            8 => from[2 * (at % 8) + at / 8],
            // An even row, and the next one two bytes further on, in the same half of its byte.
            _ => {
                let (first, shift) = (4 * (at % 4) + at / 8, at / 4 % 2 * 4);
                from[first] >> shift & 15 | (from[first + 2] >> shift & 15) << 4
            }
        };
    }
}
