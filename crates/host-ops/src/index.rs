//! Indices that are part of the data.
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use graph::DType;

use crate::number::Number;
use crate::{OpError, Tensor};

/// Checks indices on any thread and remembers one that is out of range.
#[derive(Default)]
pub(crate) struct Bounds {
    is_broken: AtomicBool,
    index: AtomicI64,
    extent: AtomicUsize,
}

impl Bounds {
    /// Converts an index, which may count from the end, to a position below `extent`.
    #[inline]
    pub(crate) fn position(&self, index: i64, extent: usize) -> Option<usize> {
        let from_start = if index < 0 { index.wrapping_add(extent as i64) } else { index };
        if (from_start as u64) < extent as u64 {
            return Some(from_start as usize);
        }
        self.index.store(index, Ordering::Relaxed);
        self.extent.store(extent, Ordering::Relaxed);
        self.is_broken.store(true, Ordering::Relaxed);
        None
    }

    /// The error, if an index was out of range; call it once all tasks are done.
    pub(crate) fn result(&self) -> Result<(), OpError> {
        if self.is_broken.load(Ordering::Relaxed) {
            let (index, extent) = (self.index.load(Ordering::Relaxed), self.extent.load(Ordering::Relaxed));
            return Err(OpError::IndexOutOfRange { index, extent });
        }
        Ok(())
    }
}

/// Reads i32 or i64 indices.
#[derive(Clone, Copy)]
pub(crate) struct Indices<'a>(Tensor<'a>);

impl<'a> Indices<'a> {
    pub(crate) fn new(tensor: Tensor<'a>, prim: &'static str) -> Result<Self, OpError> {
        match tensor.dtype() {
            DType::I32 | DType::I64 => Ok(Self(tensor)),
            dtype => Err(OpError::Unsupported { prim, dtype }),
        }
    }

    /// # Safety
    /// The view has as many elements as `out`, starting at `offset` with this stride.
    #[inline]
    pub(crate) unsafe fn load(self, offset: isize, stride: isize, out: &mut [i64]) {
        let dtype = self.0.dtype();
        // SAFETY: guaranteed by the caller.
        unsafe { i64::load(dtype, self.0.start().wrapping_offset(offset * dtype.bytes() as isize), stride, out) }
    }

    /// # Safety
    /// The view has an element at `offset`.
    #[inline]
    pub(crate) unsafe fn at(self, offset: isize) -> i64 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.0.dtype() {
                DType::I32 => i64::from(self.0.as_ptr::<i32>().wrapping_offset(offset).read()),
                _ => self.0.as_ptr::<i64>().wrapping_offset(offset).read(),
            }
        }
    }
}

/// Expands `$body` with `$type` as a plain type of the element's size.
macro_rules! with_width {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype.bytes() {
            1 => {
                type $type = u8;
                $body
            }
            2 => {
                type $type = u16;
                $body
            }
            4 => {
                type $type = u32;
                $body
            }
            _ => {
                type $type = u64;
                $body
            }
        }
    };
}

pub(crate) use with_width;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_indices_count_from_the_end_and_all_are_checked() {
        let bounds = Bounds::default();
        assert_eq!(bounds.position(-1, 4), Some(3));
        assert_eq!(bounds.position(3, 4), Some(3));
        assert!(bounds.result().is_ok());
        for index in [4, -5, i64::MIN, i64::MAX] {
            assert_eq!(bounds.position(index, 4), None);
            assert_eq!(bounds.result(), Err(OpError::IndexOutOfRange { index, extent: 4 }));
        }
        assert_eq!(Bounds::default().position(0, 0), None);
    }
}
