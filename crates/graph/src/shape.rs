//! Concrete shapes, strides and broadcasting.
use smallvec::SmallVec;

use crate::DType;

/// Extents of a tensor, outermost first. A scalar has none.
pub type Shape = SmallVec<[usize; 6]>;
/// The distance in elements from one index to the next along each axis; 0 repeats, negative runs backwards.
pub type Strides = SmallVec<[isize; 6]>;

/// How many elements a shape has, or `None` if that overflows.
pub fn elems(shape: &[usize]) -> Option<usize> {
    // A zero extent makes the product zero, even if the product of the others would overflow.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent))
}

/// How many bytes a tensor has, or `None` if that is more than any memory can hold.
pub fn bytes(shape: &[usize], dtype: DType) -> Option<usize> {
    elems(shape)?.checked_mul(dtype.bytes()).filter(|&bytes| isize::try_from(bytes).is_ok())
}

/// The strides of a dense row-major tensor.
pub fn dense_strides(shape: &[usize]) -> Strides {
    let mut strides: Strides = SmallVec::from_elem(0, shape.len());
    let mut step = 1isize;
    for axis in (0..shape.len()).rev() {
        strides[axis] = step;
        step = step.wrapping_mul(shape[axis].max(1) as isize);
    }
    strides
}

/// The shape that two shapes broadcast to by NumPy's rules, or `None` if they are incompatible.
pub fn broadcast(a: &[usize], b: &[usize]) -> Option<Shape> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |at| shape[at]);
    (0..rank)
        .map(|axis| match (extent(a, axis), extent(b, axis)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// An axis as an index below `rank`; negative ones count from the end. `None` if out of range.
pub fn axis(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis + rank } else { axis };
    (0..rank).contains(&axis).then_some(axis as usize)
}

/// Several axes in the order given; negative ones count from the end. `None` if one is out of range or listed twice.
pub fn axes(list: &[i64], rank: usize) -> Option<SmallVec<[usize; 6]>> {
    let mut found = SmallVec::new();
    for &item in list {
        let item = axis(item, rank)?;
        if found.contains(&item) {
            return None;
        }
        found.push(item);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_by_numpy_rules() {
        for (a, b, want) in [
            (&[2, 3][..], &[3][..], Some(&[2, 3][..])),
            (&[2, 1], &[1, 4], Some(&[2, 4])),
            (&[], &[5], Some(&[5])),
            (&[0, 3], &[1, 3], Some(&[0, 3])),
            (&[2], &[3], None),
            (&[0], &[2], None),
        ] {
            assert_eq!(broadcast(a, b).as_deref(), want, "{a:?} {b:?}");
        }
    }

    #[test]
    fn counts_elements_without_overflow() {
        assert_eq!(elems(&[]), Some(1));
        assert_eq!(elems(&[usize::MAX, 2, 0]), Some(0));
        assert_eq!(elems(&[usize::MAX, 2]), None);
        assert_eq!(bytes(&[3], DType::F16), Some(6));
        assert_eq!(bytes(&[1 << 62], DType::U8), Some(1 << 62));
        assert_eq!((bytes(&[1 << 63], DType::U8), bytes(&[1 << 62], DType::F64)), (None, None));
    }

    #[test]
    fn axes_count_from_both_ends_and_may_not_repeat() {
        assert_eq!(axis(-1, 3), Some(2));
        assert_eq!(axis(3, 3), None);
        assert_eq!(axis(-4, 3), None);
        assert_eq!(axes(&[0, -1], 3).as_deref(), Some(&[0, 2][..]));
        assert_eq!(axes(&[2, -1], 3), None);
    }

    #[test]
    fn dense_strides_run_row_major() {
        assert_eq!(dense_strides(&[2, 3, 4]).as_slice(), [12, 4, 1]);
        assert!(dense_strides(&[]).is_empty());
    }
}
