//! Rows of tensors: the last axes of several views of one shape, for each index of the others.
use std::ops::Range;

use crate::number::Number;
use crate::scratch::Plain;
use crate::walk::Walk;
use crate::{Context, Element, Tensor, TensorMut};

/// The rows of several views. Their axes may be strided in any way.
pub(crate) struct Rows {
    outer: Walk,
    inner: Walk,
}

impl Rows {
    /// Rows that run over the last `axes` axes.
    pub(crate) fn new(shape: &[usize], axes: usize, views: &[&[isize]]) -> Self {
        let kept = shape.len() - axes;
        let outer: smallvec::SmallVec<[&[isize]; 8]> = views.iter().map(|strides| &strides[..kept]).collect();
        let inner: smallvec::SmallVec<[&[isize]; 8]> = views.iter().map(|strides| &strides[kept..]).collect();
        Self {
            outer: Walk::new(&shape[..kept], &outer, |_| false),
            inner: Walk::new(&shape[kept..], &inner, |_| false),
        }
    }

    /// How many rows there are.
    pub(crate) fn count(&self) -> usize {
        self.outer.elems()
    }

    /// How many elements a row has.
    pub(crate) fn length(&self) -> usize {
        self.inner.elems()
    }

    /// Where a row of a view starts.
    pub(crate) fn offset(&self, view: usize, row: usize) -> isize {
        self.outer.offset(view, row)
    }

    /// The stride of a view within a row, if it is uniform.
    pub(crate) fn stride(&self, view: usize) -> Option<isize> {
        (self.inner.rank() == 1).then(|| self.inner.row_stride(view))
    }

    /// A row in place, if its elements have type `T` and are contiguous.
    pub(crate) fn slice<'a, T: Element>(&self, view: usize, tensor: &Tensor<'a>, row: usize) -> Option<&'a [T]> {
        let fits = T::DTYPES.contains(&tensor.dtype()) && self.stride(view) == Some(1);
        // SAFETY: the row is within the view, whose memory can be read for `'a`.
        fits.then(|| unsafe {
            std::slice::from_raw_parts(tensor.as_ptr::<T>().wrapping_offset(self.offset(view, row)), self.length())
        })
    }

    /// Same as [`slice`](Self::slice), but writable.
    ///
    /// # Safety
    /// Nothing else uses the row while the slice exists.
    pub(crate) unsafe fn slice_mut<'a, T: Element>(
        &self,
        view: usize,
        tensor: &TensorMut<'a>,
        row: usize,
    ) -> Option<&'a mut [T]> {
        let fits = T::DTYPES.contains(&tensor.dtype()) && self.stride(view) == Some(1);
        // SAFETY: the row is within the view, and the caller has exclusive access.
        fits.then(|| unsafe {
            std::slice::from_raw_parts_mut(tensor.as_ptr::<T>().wrapping_offset(self.offset(view, row)), self.length())
        })
    }

    /// Reads `out.len()` elements of a row, starting at element `at`.
    pub(crate) fn load<N: Number>(&self, view: usize, tensor: &Tensor<'_>, row: usize, at: usize, out: &mut [N]) {
        let (dtype, base) = (tensor.dtype(), self.offset(view, row));
        self.inner.pieces(view, at, out.len(), |done, offset, count| {
            let from = tensor.start().wrapping_offset((base + offset) * dtype.bytes() as isize);
            // SAFETY: the row is within the view.
            unsafe { N::load(dtype, from, self.inner.row_stride(view), &mut out[done..done + count]) };
        });
    }

    /// Writes elements of a row, starting at element `at`. Each task uses its own rows.
    pub(crate) fn store<N: Number>(&self, view: usize, tensor: &TensorMut<'_>, row: usize, at: usize, values: &[N]) {
        let (dtype, base) = (tensor.dtype(), self.offset(view, row));
        self.inner.pieces(view, at, values.len(), |done, offset, count| {
            let to = tensor.start().wrapping_offset((base + offset) * dtype.bytes() as isize);
            // SAFETY: the row is within the view.
            unsafe { N::store(dtype, to, self.inner.row_stride(view), &values[done..done + count]) };
        });
    }
}

/// Splits `0..count` into ranges of at least `grain` and runs them, each with its own `each` numbers of scratch memory.
pub(crate) fn ranges_with<N: Plain>(
    cx: &mut Context<'_>,
    count: usize,
    grain: usize,
    each: usize,
    body: impl Fn(Range<usize>, &mut [N]) + Sync,
) {
    struct Shared<N>(*mut N);
    // SAFETY: each task uses its own part.
    unsafe impl<N> Sync for Shared<N> {}

    let tasks = count.div_ceil(grain.max(1)).clamp(1, cx.parallel.threads() * 4);
    let length = count.div_ceil(tasks);
    let memory = Shared(cx.scratch.get::<N>(tasks * each).as_mut_ptr());
    let task = |task: usize| {
        let memory = &memory;
        let start = (task * length).min(count);
        // SAFETY: the scratch memory holds `tasks` parts, and every task runs once.
        let part = unsafe { std::slice::from_raw_parts_mut(memory.0.wrapping_add(task * each), each) };
        body(start..(start + length).min(count), part);
    };
    if tasks == 1 { task(0) } else { cx.parallel.run(tasks, &task) }
}
