//! Rows that do not begin at multiples of a pack: `hip/ragged.h`.
use graph::DType;

use crate::walk::pack;

/// Elements per pack for this many contiguous rows of `extent` elements at these offsets, if packs are possible. Packs
/// of short rows are short, because those at a row's ends are half wasted.
pub(crate) fn ragged_pack<const V: usize>(dtype: DType, rows: u32, extent: u32, offsets: [isize; V]) -> Option<u32> {
    let mut vec = pack(dtype, 8, offsets.map(|offset| offset as i64));
    while vec > 2 && extent < 4 * vec {
        vec /= 2;
    }
    (vec > 1 && extent > 1 && u64::from(rows) * u64::from(extent) >= u64::from(vec)).then_some(vec)
}

/// The maximum number of packs that overlap a row.
pub(crate) fn ragged_packs(extent: u32, pack: u32) -> u32 {
    (extent + pack - 1).div_ceil(pack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_of_short_rows_are_short() {
        let of = |dtype, extent| ragged_pack(dtype, 7, extent, [0, 64]);
        assert_eq!([197, 49, 20, 3].map(|extent| of(DType::F16, extent)), [Some(8), Some(8), Some(4), Some(2)]);
        assert_eq!([of(DType::F32, 197), of(DType::F64, 197), of(DType::F16, 1)], [Some(4), Some(2), None]);
        assert_eq!(ragged_pack(DType::F16, 7, 197, [3]), None);
        assert_eq!(ragged_pack(DType::F16, 1, 3, [0]), Some(2));
    }

    #[test]
    fn a_row_overlaps_no_more_packs_than_computed() {
        for (extent, pack) in [(197u32, 8u32), (49, 8), (3, 2), (9, 4)] {
            let reached = (0..100).map(|row| (row * extent % pack + extent).div_ceil(pack)).max();
            assert_eq!(reached, Some(ragged_packs(extent, pack)));
        }
    }
}
