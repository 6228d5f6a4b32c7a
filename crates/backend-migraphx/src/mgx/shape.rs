//! Shapes of parameters and outputs.

use ort_ep::ElementType;

use super::MgxError;
use super::handle::check;
use super::library::Library;
use super::sys::Handle;

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
        let table = library.table();
        let doing = || format!("reading the shape of {whose}");
        let mut number = 0;
        let mut bytes = 0;
        // SAFETY: the out-pointers are valid, and the caller vouches for the handle.
        check("shape_type", unsafe { (table.shape_type)(&mut number, raw) }, doing)?;
        let element = library
            .element(number)
            .ok_or_else(|| MgxError::answer(format!("{whose} with an element type numbered {number}")))?;
        // SAFETY: as above.
        check("shape_bytes", unsafe { (table.shape_bytes)(&mut bytes, raw) }, doing)?;
        let list = |call, function: unsafe extern "C" fn(*mut *const usize, *mut usize, Handle) -> _| {
            let (mut first, mut count) = (std::ptr::null(), 0);
            // SAFETY: as above.
            check(call, unsafe { function(&mut first, &mut count, raw) }, doing)?;
            if count == 0 || first.is_null() {
                return Ok(Vec::new());
            }
            // SAFETY: MIGraphX returned the list and its length. It lives as long as the shape, which the caller keeps
            // alive.
            Ok(unsafe { std::slice::from_raw_parts(first, count) }.to_vec())
        };
        let (lengths, strides) =
            (list("shape_lengths", table.shape_lengths)?, list("shape_strides", table.shape_strides)?);
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
