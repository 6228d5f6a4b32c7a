//! Walks several strided views of one shape at once.
use smallvec::SmallVec;

/// Axes of several views of one shape, merged and sorted so that the innermost one is as long and as close in memory as
/// the views allow. Elements are counted from 0 in this order.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    extents: SmallVec<[usize; 6]>,
    /// Strides of the first view, then of the second, and so on; one per axis each.
    strides: SmallVec<[isize; 32]>,
    /// The axis of the shape for each axis of the walk, if it was pinned.
    pinned: SmallVec<[Option<usize>; 6]>,
}

impl Walk {
    /// A walk in the memory order of the first view. Pinned axes are not merged with others.
    pub(crate) fn new(shape: &[usize], views: &[&[isize]], is_pinned: impl Fn(usize) -> bool) -> Self {
        let first = views.first().copied().unwrap_or(&[]);
        let mut order: SmallVec<[usize; 6]> = (0..shape.len()).filter(|&axis| shape[axis] != 1).collect();
        order.sort_by_key(|&axis| std::cmp::Reverse(first.get(axis).map_or(0, |stride| stride.unsigned_abs())));
        let mut axes: SmallVec<[usize; 6]> = SmallVec::new();
        let mut extents: SmallVec<[usize; 6]> = SmallVec::new();
        for axis in order {
            if let (Some(last), Some(extent)) = (axes.last_mut(), extents.last_mut()) {
                let inner = shape[axis] as isize;
                let merges = !is_pinned(*last)
                    && !is_pinned(axis)
                    && views.iter().all(|strides| strides[*last] == strides[axis].wrapping_mul(inner));
                if merges {
                    *extent *= shape[axis];
                    *last = axis;
                    continue;
                }
            }
            axes.push(axis);
            extents.push(shape[axis]);
        }
        if axes.is_empty() {
            let strides = SmallVec::from_elem(0, views.len());
            return Self { extents: SmallVec::from_slice(&[1]), strides, pinned: SmallVec::from_slice(&[None]) };
        }
        let strides = views.iter().flat_map(|strides| axes.iter().map(|&axis| strides[axis])).collect();
        let pinned = axes.iter().map(|&axis| is_pinned(axis).then_some(axis)).collect();
        Self { extents, strides, pinned }
    }

    /// How many axes are left, at least one.
    pub(crate) fn rank(&self) -> usize {
        self.extents.len()
    }

    /// The extents.
    pub(crate) fn extents(&self) -> &[usize] {
        &self.extents
    }

    /// The extent of the innermost axis.
    pub(crate) fn row(&self) -> usize {
        self.extents[self.rank() - 1]
    }

    /// How many elements there are.
    pub(crate) fn elems(&self) -> usize {
        self.extents.iter().product()
    }

    /// A view's strides.
    pub(crate) fn strides(&self, view: usize) -> &[isize] {
        &self.strides[view * self.rank()..][..self.rank()]
    }

    /// A view's stride along the innermost axis.
    pub(crate) fn row_stride(&self, view: usize) -> isize {
        self.strides[(view + 1) * self.rank() - 1]
    }

    /// True if all positions of a view are the same element.
    pub(crate) fn is_uniform(&self, view: usize) -> bool {
        self.strides(view).iter().zip(&self.extents).all(|(&stride, &extent)| stride == 0 || extent == 1)
    }

    /// The offset in a view at a position.
    pub(crate) fn offset(&self, view: usize, mut position: usize) -> isize {
        let mut offset = 0;
        for (&extent, &stride) in self.extents.iter().zip(self.strides(view)).rev() {
            offset += (position % extent) as isize * stride;
            position /= extent;
        }
        offset
    }

    /// Splits `count` elements starting at `position` into pieces of rows: `body(done, offset, length)` gets the number
    /// of elements before the piece, its offset in the view, and its length.
    pub(crate) fn pieces(&self, view: usize, position: usize, count: usize, mut body: impl FnMut(usize, isize, usize)) {
        self.pieces_of([view], position, count, |done, [offset], length| body(done, offset, length));
    }

    /// Same as [`pieces`](Self::pieces), for several views at once.
    pub(crate) fn pieces_of<const N: usize>(
        &self,
        views: [usize; N],
        position: usize,
        count: usize,
        mut body: impl FnMut(usize, [isize; N], usize),
    ) {
        let row = self.row();
        let start = position % row;
        if start + count <= row {
            return body(0, views.map(|view| self.offset(view, position)), count);
        }
        let strides = views.map(|view| self.strides(view));
        let outer = self.rank() - 1;
        let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, outer);
        let mut rest = position / row;
        let mut bases = [0; N];
        for axis in (0..outer).rev() {
            index[axis] = rest % self.extents[axis];
            rest /= self.extents[axis];
            for (base, strides) in bases.iter_mut().zip(&strides) {
                *base += index[axis] as isize * strides[axis];
            }
        }
        let (mut done, mut at) = (0, start);
        while done < count {
            let length = (row - at).min(count - done);
            let mut offsets = bases;
            for (offset, strides) in offsets.iter_mut().zip(&strides) {
                *offset += at as isize * strides[outer];
            }
            body(done, offsets, length);
            done += length;
            at = 0;
            for axis in (0..outer).rev() {
                index[axis] += 1;
                let wraps = index[axis] == self.extents[axis];
                let back = if wraps { self.extents[axis] as isize } else { 0 };
                for (base, strides) in bases.iter_mut().zip(&strides) {
                    *base += strides[axis] * (1 - back);
                }
                if !wraps {
                    break;
                }
                index[axis] = 0;
            }
        }
    }

    /// The indices along a pinned axis of the shape for `out.len()` elements starting at `position`.
    pub(crate) fn indices(&self, axis: usize, position: usize, out: &mut [i64]) {
        let Some(at) = self.pinned.iter().position(|&pinned| pinned == Some(axis)) else {
            // Only axes of extent 1 are dropped.
            return out.fill(0);
        };
        let inner: usize = self.extents[at + 1..].iter().product();
        let extent = self.extents[at];
        let (mut value, mut left) = (position / inner % extent, inner - position % inner);
        let mut rest = out;
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at_mut(left.min(rest.len()));
            if inner == 1 {
                piece[0] = value as i64;
            } else {
                piece.fill(value as i64);
            }
            rest = tail;
            left = inner;
            value = if value + 1 == extent { 0 } else { value + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(shape: &[usize], views: &[&[isize]]) -> Walk {
        Walk::new(shape, views, |_| false)
    }

    #[test]
    fn dense_views_are_one_row() {
        let walk = walk(&[2, 3, 4], &[&[12, 4, 1], &[12, 4, 1]]);
        assert_eq!((walk.extents(), walk.row_stride(1)), (&[24][..], 1));
    }

    #[test]
    fn axes_merge_only_where_every_view_agrees() {
        let walk = walk(&[2, 3, 4], &[&[12, 4, 1], &[0, 4, 1]]);
        assert_eq!(walk.extents(), [2, 12]);
        assert_eq!(walk.strides(1), [0, 1]);
    }

    #[test]
    fn the_first_view_orders_the_axes() {
        let walk = walk(&[3, 4], &[&[1, 3], &[4, 1]]);
        assert_eq!((walk.extents(), walk.strides(0), walk.strides(1)), (&[4, 3][..], &[3, 1][..], &[1, 4][..]));
    }

    #[test]
    fn pieces_visit_every_element_in_order() {
        let walk = walk(&[2, 3, 4], &[&[100, 10, 2]]);
        let mut seen = Vec::new();
        walk.pieces(0, 3, 18, |done, offset, length| {
            assert_eq!(done, seen.len());
            seen.extend((0..length as isize).map(|at| offset + at * 2));
        });
        let want: Vec<isize> = (3..21).map(|at| (at / 12) * 100 + (at / 4 % 3) * 10 + (at % 4) * 2).collect();
        assert_eq!(seen, want);
    }

    #[test]
    fn indices_follow_a_pinned_axis() {
        let walk = Walk::new(&[2, 3, 2], &[&[6, 2, 1]], |axis| axis == 1);
        let mut out = [0; 9];
        walk.indices(1, 1, &mut out);
        assert_eq!(out, [0, 1, 1, 2, 2, 0, 0, 1, 1]);
    }
}
