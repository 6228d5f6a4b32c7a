//! Values during lowering.
use crate::lower::NEEDED_ELEMS;
use crate::prim::BufferId;
use crate::shape::{self, Strides, dense_strides};
use crate::{DType, Scalar, Shape, Tensor, View};

/// What a value is a view of.
#[derive(Clone, Debug)]
pub enum Storage {
    /// A buffer of the plan.
    Buffer(BufferId),
    /// A tensor whose value is known.
    Known(Tensor),
}

/// A tensor during lowering: a view of a buffer or of a known tensor. Changing the view costs nothing.
#[derive(Clone, Debug)]
pub struct Val {
    dtype: DType,
    shape: Shape,
    strides: Strides,
    offset: isize,
    storage: Storage,
}

impl From<&View> for Val {
    fn from(view: &View) -> Self {
        let storage = Storage::Buffer(view.buffer);
        Self::new(view.dtype, view.shape.clone(), view.strides.clone(), view.offset, storage)
    }
}

impl Val {
    /// A view. The constructors in [`crate::lower`] keep strides and offset within the storage.
    pub(crate) fn new(dtype: DType, shape: Shape, strides: Strides, offset: isize, storage: Storage) -> Self {
        Self { dtype, shape, strides, offset, storage }
    }

    /// A tensor whose value is known.
    pub fn known(tensor: Tensor) -> Self {
        let shape: Shape = tensor.shape().into();
        Self {
            dtype: tensor.dtype(),
            strides: dense_strides(&shape),
            shape,
            offset: 0,
            storage: Storage::Known(tensor),
        }
    }

    /// A known scalar.
    pub fn scalar(dtype: DType, value: Scalar) -> Self {
        Self::known(Tensor::scalar(dtype, value))
    }

    /// A known vector of 64-bit integers.
    pub fn i64s(values: &[i64]) -> Self {
        Self::known(Tensor::from_i64s(values))
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many axes it has.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The distance in elements between neighbours along each axis.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The number of elements before the first one.
    pub fn offset(&self) -> isize {
        self.offset
    }

    /// How many elements it shows.
    pub fn elems(&self) -> usize {
        // Checked when the storage was created; broadcasts are checked where they are done.
        shape::elems(&self.shape).unwrap_or(usize::MAX)
    }

    /// What it is a view of.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// True if the planner knows the value.
    pub fn is_known(&self) -> bool {
        matches!(self.storage, Storage::Known(_))
    }

    /// The known value, dense; `None` also if it repeats so often that the planner does not materialise it.
    pub fn to_tensor(&self) -> Option<Tensor> {
        let Storage::Known(tensor) = &self.storage else { return None };
        let whole = self.offset == 0 && self.elems() == tensor.elems() && self.strides == dense_strides(&self.shape);
        if whole {
            return tensor.reshaped(&self.shape);
        }
        if self.elems() > NEEDED_ELEMS {
            return None;
        }
        Tensor::from_scalars(
            self.dtype,
            &self.shape,
            Indices::new(&self.shape).map(|index| tensor.get(self.at(&index))),
        )
    }

    /// The single element, if it is known.
    pub(crate) fn to_number(&self) -> Option<Scalar> {
        let Storage::Known(tensor) = &self.storage else { return None };
        let one =
            self.shape.iter().zip(&self.strides).all(|(&extent, &stride)| extent == 1 || extent > 0 && stride == 0);
        one.then(|| tensor.get(self.offset as usize))
    }

    /// The position in the storage of the element at an index.
    pub(crate) fn at(&self, index: &[usize]) -> usize {
        let moved = index.iter().zip(&self.strides).map(|(&index, &stride)| index as isize * stride).sum::<isize>();
        (self.offset + moved) as usize
    }

    /// This value as a view of a buffer.
    pub(crate) fn view_of(&self, buffer: BufferId) -> View {
        View {
            buffer,
            dtype: self.dtype,
            shape: self.shape.clone(),
            strides: self.strides.clone(),
            offset: self.offset,
        }
    }

    /// The same storage with another view.
    pub(crate) fn with(&self, shape: Shape, strides: Strides, offset: isize) -> Self {
        Self { dtype: self.dtype, shape, strides, offset, storage: self.storage.clone() }
    }

    /// True if its elements are contiguous.
    pub fn is_dense(&self) -> bool {
        self.view_of(BufferId(0)).is_dense()
    }
}

/// All indices of a shape in row-major order.
pub(crate) struct Indices<'s> {
    shape: &'s [usize],
    next: Option<Shape>,
}

impl<'s> Indices<'s> {
    pub fn new(shape: &'s [usize]) -> Self {
        let next = (!shape.contains(&0)).then(|| Shape::from_elem(0, shape.len()));
        Self { shape, next }
    }
}

impl Iterator for Indices<'_> {
    type Item = Shape;

    fn next(&mut self) -> Option<Shape> {
        let current = self.next.clone()?;
        self.next = (0..self.shape.len()).rev().find(|&axis| current[axis] + 1 < self.shape[axis]).map(|axis| {
            let mut next = current.clone();
            next[axis] += 1;
            next[axis + 1..].fill(0);
            next
        });
        Some(current)
    }
}
