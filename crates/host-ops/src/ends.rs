//! The two ends of a copy, shared by its tasks.
use crate::scratch::Plain;
use crate::{Tensor, TensorMut};

/// Where a copy reads and writes.
#[derive(Clone, Copy)]
pub(crate) struct Ends<T> {
    pub from: *const T,
    pub to: *mut T,
}

// SAFETY: tasks read memory that nothing else writes, and write disjoint elements.
unsafe impl<T> Sync for Ends<T> {}

impl<T: Plain> Ends<T> {
    /// The first elements of both tensors.
    pub(crate) fn of(from: &Tensor<'_>, to: &TensorMut<'_>) -> Self {
        Self { from: from.start().cast(), to: to.start().cast() }
    }

    /// Copies `count` elements with their strides.
    ///
    /// # Safety
    /// All of them are within the tensors. If the rows share memory, they are the same row.
    #[inline(always)]
    pub(crate) unsafe fn row(self, from: isize, to: isize, count: usize, from_stride: isize, to_stride: isize) {
        let (from, to) = (self.from.wrapping_offset(from), self.to.wrapping_offset(to));
        // SAFETY: guaranteed by the caller. A map may work in place: then both are the same row, which `copy` allows.
        unsafe {
            if from_stride == 1 && to_stride == 1 {
                std::ptr::copy(from, to, count);
            } else if from_stride == 0 && to_stride == 1 {
                std::slice::from_raw_parts_mut(to, count).fill(from.read());
            } else {
                for at in 0..count as isize {
                    to.wrapping_offset(at * to_stride).write(from.wrapping_offset(at * from_stride).read());
                }
            }
        }
    }
}
