//! Shapes of parameters and outputs.

use ort_ep::ElementType;

use super::library::Library;
use crate::mgx::MgxError;
use crate::mgx::result::shape as result;
use crate::mgx::sys::Handle;

/// Element type, lengths and strides of a tensor. A scalar has one axis of length 1 and stride 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The element type.
    pub element: ElementType,
    /// The size of each axis.
    pub lengths: Vec<usize>,
    /// The distance between neighbours along each axis, in elements.
    pub strides: Vec<usize>,
    /// Bytes from the first element to the end of the last.
    pub bytes: usize,
}

impl Shape {
    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.lengths.iter().product()
    }

    /// Whether the tensor is dense and row-major, as in ONNX Runtime.
    pub fn is_row_major(&self) -> bool {
        let mut stride = 1;
        let axes = self.lengths.iter().zip(&self.strides).rev();
        self.elements() == 0
            || axes.into_iter().all(|(&length, &found)| {
                let wanted = stride;
                stride *= length;
                length == 1 || found == wanted
            })
    }

    /// Reads a shape that MIGraphX owns. `whose` names the tensor in errors.
    ///
    /// # Safety
    /// `raw` is a shape handle of this library, alive for the call.
    pub(super) unsafe fn read(library: &Library, raw: Handle, whose: &str) -> Result<Shape, MgxError> {
        let (loaded, doing) = (library.loaded(), || format!("reading the shape of {whose}"));
        // SAFETY: the caller vouches for the handle.
        let number = unsafe { result::element(loaded, raw, &doing)? };
        let element = library
            .element(number)
            .ok_or_else(|| MgxError::answer(format!("{whose} with an element type numbered {number}")))?;
        // SAFETY: as above.
        let bytes = unsafe { result::bytes(loaded, raw, &doing)? };
        // SAFETY: as above.
        let (lengths, strides) =
            unsafe { (result::lengths(loaded, raw, &doing)?, result::strides(loaded, raw, &doing)?) };
        if lengths.len() != strides.len() {
            return Err(MgxError::answer(format!("{whose} with {lengths:?} lengths and {strides:?} strides")));
        }
        Ok(Shape { element, lengths, strides, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(lengths: &[usize], strides: &[usize]) -> Shape {
        Shape { element: ElementType::F32, lengths: lengths.into(), strides: strides.into(), bytes: 0 }
    }

    #[test]
    fn row_major_differs_from_every_other_layout() {
        assert!(shape(&[2, 3], &[3, 1]).is_row_major());
        assert!(!shape(&[2, 3], &[1, 2]).is_row_major(), "transposed");
        assert!(!shape(&[2, 3], &[4, 1]).is_row_major(), "padded");
        assert!(!shape(&[2, 3], &[0, 1]).is_row_major(), "broadcast");
        assert!(shape(&[1, 3], &[0, 1]).is_row_major(), "the stride of a single row does not matter");
        assert!(shape(&[1], &[0]).is_row_major(), "a scalar");
        assert!(shape(&[], &[]).is_row_major());
        assert!(shape(&[0, 3], &[7, 7]).is_row_major(), "an empty tensor fits any strides");
    }
}
