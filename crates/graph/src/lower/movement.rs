//! Data movement: views where possible, copies otherwise.
use smallvec::SmallVec;

use crate::lower::{Lower, Val};
use crate::shape::{self, Strides, dense_strides};
use crate::{LowerError, Scalar, Shape, Tensor};

impl Val {
    /// Permutes the axes.
    pub fn permuted(&self, order: &[usize]) -> Self {
        let shape = order.iter().map(|&axis| self.shape()[axis]).collect();
        let strides = order.iter().map(|&axis| self.strides()[axis]).collect();
        self.with(shape, strides, self.offset())
    }

    /// The last two axes swapped.
    pub fn transposed(&self) -> Self {
        let mut order: SmallVec<[usize; 6]> = (0..self.rank()).collect();
        if self.rank() >= 2 {
            order.swap(self.rank() - 2, self.rank() - 1);
        }
        self.permuted(&order)
    }

    /// Broadcasts axes of extent 1, and adds leading axes; `None` if the shapes are incompatible.
    pub fn expanded(&self, to: &[usize]) -> Option<Self> {
        let missing = to.len().checked_sub(self.rank())?;
        shape::elems(to)?;
        let mut strides: Strides = SmallVec::from_elem(0, to.len());
        for (axis, (&extent, &stride)) in self.shape().iter().zip(self.strides()).enumerate() {
            let wanted = to[missing + axis];
            strides[missing + axis] = match extent {
                same if same == wanted => stride,
                1 => 0,
                _ => return None,
            };
        }
        Some(self.with(to.into(), strides, self.offset()))
    }

    /// `count` elements along an axis, from `start` in steps of `step`; the caller stays within the extent.
    pub fn sliced(&self, axis: usize, start: usize, step: isize, count: usize) -> Self {
        let (mut shape, mut strides): (Shape, Strides) = (self.shape().into(), self.strides().into());
        let offset = if count == 0 { self.offset() } else { self.offset() + start as isize * strides[axis] };
        strides[axis] *= step;
        shape[axis] = count;
        self.with(shape, strides, offset)
    }

    /// The same view with another extent along an axis; the caller stays within the storage.
    pub(crate) fn widened(&self, axis: usize, extent: usize) -> Self {
        let mut shape: Shape = self.shape().into();
        shape[axis] = extent;
        self.with(shape, self.strides().into(), self.offset())
    }

    /// A new axis of extent 1 in front of `axis`.
    pub fn unsqueezed(&self, axis: usize) -> Self {
        let (mut shape, mut strides): (Shape, Strides) = (self.shape().into(), self.strides().into());
        shape.insert(axis, 1);
        strides.insert(axis, 0);
        self.with(shape, strides, self.offset())
    }

    /// Removes an axis of extent 1.
    pub fn squeezed(&self, axis: usize) -> Self {
        let (mut shape, mut strides): (Shape, Strides) = (self.shape().into(), self.strides().into());
        shape.remove(axis);
        strides.remove(axis);
        self.with(shape, strides, self.offset())
    }

    /// The same elements with another shape, without moving any; `None` if that needs a copy.
    pub(crate) fn reshaped_in_place(&self, to: &[usize]) -> Option<Self> {
        if self.elems() == 0 || self.is_dense() {
            return Some(self.with(to.into(), dense_strides(to), self.offset()));
        }
        // Match runs of axes that hold the same number of elements; within a run the old axes must be contiguous.
        let old: Vec<(usize, isize)> = self
            .shape()
            .iter()
            .copied()
            .zip(self.strides().iter().copied())
            .filter(|&(extent, _)| extent != 1)
            .collect();
        let mut strides: Strides = SmallVec::from_elem(0, to.len());
        let (mut i, mut j) = (0, 0);
        while i < old.len() || j < to.len() {
            let (first_old, first_new) = (i, j);
            let (mut have, mut want) = (1usize, 1usize);
            while i < old.len() || j < to.len() {
                if have == want && i > first_old && j > first_new {
                    break;
                }
                if (have <= want || j == to.len()) && i < old.len() {
                    have *= old[i].0;
                    i += 1;
                } else if j < to.len() {
                    want *= to[j];
                    j += 1;
                } else {
                    break;
                }
            }
            if have != want {
                return None;
            }
            let run = &old[first_old..i];
            if run.windows(2).any(|pair| pair[0].1 != pair[1].1 * pair[1].0 as isize) {
                return None;
            }
            let mut step = run.last().map_or(0, |&(_, stride)| stride);
            for axis in (first_new..j).rev() {
                strides[axis] = step;
                step *= to[axis] as isize;
            }
        }
        Some(self.with(to.into(), strides, self.offset()))
    }
}

impl Lower<'_> {
    /// The same elements with another shape.
    ///
    /// # Errors
    /// The numbers of elements differ.
    pub fn reshape(&mut self, value: &Val, to: &[usize]) -> Result<Val, LowerError> {
        if shape::elems(to) != Some(value.elems()) {
            return Err(self.invalid(format!("shape {:?} cannot be reshaped to {to:?}", value.shape())));
        }
        if let Some(view) = value.reshaped_in_place(to) {
            return Ok(view);
        }
        let dense = self.dense(value)?;
        Ok(dense.with(to.into(), dense_strides(to), dense.offset()))
    }

    /// The value with contiguous elements: itself, or a copy.
    ///
    /// # Errors
    /// The copy is too large.
    pub fn dense(&mut self, value: &Val) -> Result<Val, LowerError> {
        if value.is_dense() { Ok(value.clone()) } else { self.copy(value) }
    }

    /// Broadcasts to a shape.
    ///
    /// # Errors
    /// The shapes are incompatible, or the result exceeds any memory.
    pub fn expand(&mut self, value: &Val, to: &[usize]) -> Result<Val, LowerError> {
        self.bytes(value.dtype(), to)?;
        value
            .expanded(to)
            .ok_or_else(|| self.invalid(format!("shape {:?} cannot be broadcast to {to:?}", value.shape())))
    }

    /// Concatenates values along an axis. All have the same type and, except for that axis, the same extents.
    ///
    /// # Errors
    /// They do not match.
    pub fn concat(&mut self, values: &[&Val], axis: usize) -> Result<Val, LowerError> {
        let first = *values.first().ok_or_else(|| self.invalid("there is nothing to concatenate"))?;
        let mut to: Shape = first.shape().into();
        to[axis] = 0;
        for value in values {
            let fits = value.rank() == to.len() && (0..to.len()).all(|at| at == axis || value.shape()[at] == to[at]);
            if !fits || value.dtype() != first.dtype() {
                return Err(self.invalid(format!(
                    "{}{:?} and {}{:?} cannot be concatenated along axis {axis}",
                    first.dtype(),
                    first.shape(),
                    value.dtype(),
                    value.shape()
                )));
            }
            // If the extent saturates, the tensor is rejected later, when it gets its buffer.
            to[axis] = to[axis].saturating_add(value.shape()[axis]);
        }
        if let [only] = values {
            return Ok((*only).clone());
        }
        let elems = shape::elems(&to).unwrap_or(usize::MAX);
        if elems <= self.known_limit() && values.iter().all(|value| value.is_known()) {
            return self.concat_known(values, axis, &to);
        }
        let whole = self.fresh(first.dtype(), &to)?;
        let mut start = 0;
        for value in values {
            let count = value.shape()[axis];
            self.copy_into(value, &whole.sliced(axis, start, 1, count))?;
            start += count;
        }
        Ok(whole)
    }

    fn concat_known(&mut self, values: &[&Val], axis: usize, to: &[usize]) -> Result<Val, LowerError> {
        let mut scalars = vec![Scalar::Int(0); shape::elems(to).unwrap_or(0)];
        let strides = dense_strides(to);
        let mut start = 0;
        for value in values {
            let Some(tensor) = value.to_tensor() else { return Err(self.invalid("a known value has no tensor")) };
            for (index, scalar) in super::val::Indices::new(value.shape()).zip(tensor.scalars()) {
                let place = index.iter().zip(&strides).map(|(&i, &stride)| i * stride as usize).sum::<usize>();
                scalars[place + start * strides[axis] as usize] = scalar;
            }
            start += value.shape()[axis];
        }
        let dtype = values.first().map_or(crate::DType::I64, |value| value.dtype());
        let tensor = Tensor::from_scalars(dtype, to, scalars)
            .ok_or_else(|| self.invalid("a known value does not match its shape"))?;
        Ok(Val::known(tensor))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::DType;

    fn counting(shape: &[usize]) -> Val {
        let elems = shape::elems(shape).unwrap() as i64;
        Val::known(Tensor::from_i64s(&(0..elems).collect::<Vec<_>>()).reshaped(shape).unwrap())
    }

    fn values(value: &Val) -> Vec<i64> {
        value.to_tensor().unwrap().to_i64s()
    }

    #[test]
    fn views_read_the_right_elements() {
        let value = counting(&[2, 3]);
        assert_eq!(values(&value.permuted(&[1, 0])), [0, 3, 1, 4, 2, 5]);
        assert_eq!(values(&value.sliced(1, 2, -1, 2)), [2, 1, 5, 4]);
        assert_eq!(values(&value.sliced(0, 1, 1, 1).squeezed(0)), [3, 4, 5]);
        assert_eq!(values(&value.unsqueezed(1).expanded(&[2, 2, 3]).unwrap()), [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
        assert!(value.expanded(&[4, 3]).is_none());
    }

    #[test]
    fn a_reshape_that_only_splits_an_axis_keeps_the_view() {
        let value = counting(&[4, 6]).permuted(&[1, 0]);
        let split = value.reshaped_in_place(&[2, 3, 4]).unwrap();
        assert_eq!(values(&split), values(&value));
        assert!(value.reshaped_in_place(&[24]).is_none());
    }

    proptest! {
        #[test]
        fn a_reshape_in_place_never_changes_the_order(
            extents in prop::collection::vec(1usize..4, 1..5),
            order in any::<prop::sample::Index>(),
            cut in 0usize..5,
        ) {
            let value = counting(&extents);
            let mut axes: Vec<usize> = (0..extents.len()).collect();
            axes.rotate_left(order.index(extents.len()));
            let value = value.permuted(&axes);
            // Merge two neighbours, or split off an axis of extent 1.
            let mut to: Vec<usize> = value.shape().to_vec();
            if cut + 1 < to.len() { let next = to.remove(cut + 1); to[cut] *= next } else { to.push(1) }
            if let Some(view) = value.reshaped_in_place(&to) {
                prop_assert_eq!(view.shape(), &to[..]);
                prop_assert_eq!(values(&view), values(&value));
            }
            prop_assert_eq!(value.dtype(), DType::I64);
        }
    }
}
