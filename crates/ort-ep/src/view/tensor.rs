//! Read-only tensors.
use std::ffi::c_void;
use std::ptr;

use ort_ep_sys as sys;

use super::element::Element;
use super::readable;
use crate::{ElementType, Error, MemoryDevice, Result, Runtime};

view! {
    /// A read-only tensor of the runtime.
    Tensor(OrtValue)
}

impl<'a> Tensor<'a> {
    /// The element type.
    ///
    /// # Errors
    /// If the value is not a tensor.
    pub fn element_type(self) -> Result<ElementType> {
        Ok(self.describe()?.0)
    }

    /// The length of every axis; empty for a scalar.
    ///
    /// # Errors
    /// If the value is not a tensor.
    pub fn shape(self) -> Result<&'a [i64]> {
        Ok(self.describe()?.1)
    }

    /// The number of elements.
    ///
    /// # Errors
    /// If the value is not a tensor, or its size does not fit in the address space.
    pub fn elems(self) -> Result<usize> {
        element_count(self.shape()?)
    }

    /// The size of the elements in bytes.
    ///
    /// # Errors
    /// If the value is not a tensor, or holds strings.
    pub fn size_bytes(self) -> Result<usize> {
        if self.element_type()? == ElementType::String {
            return Err(Error::invalid_argument("a tensor of strings has no size in bytes"));
        }
        let mut bytes = 0;
        // SAFETY: `from_raw`'s caller vouches for the value; the out-pointer is ours.
        unsafe { call!(self.runtime, GetTensorSizeInBytes(self.raw, &mut bytes))? };
        Ok(bytes)
    }

    /// The memory that holds the elements.
    pub fn memory(self) -> MemoryDevice {
        // SAFETY: as above; the description is part of the value.
        unsafe { MemoryDevice::from_raw(self.runtime, self.runtime.ep_api.Value_GetMemoryDevice(self.raw)) }
    }

    /// The address of the first element, in [`memory`](Self::memory); may be null if there are none.
    ///
    /// # Errors
    /// If the value is not a tensor, or has elements but no memory for them.
    pub fn address(self) -> Result<*const u8> {
        let mut address = ptr::null::<c_void>();
        // SAFETY: as above.
        unsafe { call!(self.runtime, GetTensorData(self.raw, &mut address))? };
        if address.is_null() {
            self.check_empty()?;
        }
        Ok(address.cast())
    }

    /// If an allocator is out of memory, ONNX Runtime hands out a tensor without memory.
    pub(super) fn check_empty(self) -> Result<()> {
        match self.size_bytes()? {
            0 => Ok(()),
            bytes => Err(Error::fail(format!("could not allocate a tensor of {bytes} bytes"))),
        }
    }

    /// The bytes of a host-readable tensor.
    ///
    /// # Errors
    /// If the tensor is not in host memory, or holds strings.
    pub fn bytes(self) -> Result<&'a [u8]> {
        let (address, bytes) = self.host_range()?;
        if bytes == 0 {
            return Ok(&[]);
        }
        // SAFETY: `host_range` checked that the host can read there; the runtime returned address and size of one
        // buffer, which lives as long as the value and is not written during `'a` (see `KernelContext::output` and
        // `TensorMut`).
        Ok(unsafe { std::slice::from_raw_parts(address, bytes) })
    }

    /// The elements of a host-readable tensor.
    ///
    /// # Errors
    /// If the tensor is not in host memory or has another element type.
    pub fn as_slice<T: Element>(self) -> Result<&'a [T]> {
        self.check_element::<T>()?;
        let bytes = self.bytes()?;
        check_aligned::<T>(bytes.as_ptr(), bytes.len())?;
        if bytes.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: `Element` is sealed over types for which all bit patterns are valid; alignment was checked, and the
        // length covers no more than the bytes.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) })
    }

    /// The strings of a string tensor.
    ///
    /// # Errors
    /// If the tensor has another element type, or a string is not UTF-8.
    pub fn strings(self) -> Result<Vec<String>> {
        let (element, shape) = self.describe()?;
        if element != ElementType::String {
            return Err(Error::invalid_argument(format!("the tensor holds {element:?}, not String")));
        }
        let elems = element_count(shape)?;
        if elems == 0 {
            return Ok(Vec::new());
        }
        let mut len = 0;
        // SAFETY: `from_raw`'s caller vouches for the value; the out-pointer is ours.
        unsafe { call!(self.runtime, GetStringTensorDataLength(self.raw, &mut len))? };
        let (mut content, mut starts) = (vec![0_u8; len], vec![0; elems]);
        // SAFETY: as above; both buffers have the given lengths.
        unsafe {
            call!(
                self.runtime,
                GetStringTensorContent(self.raw, content.as_mut_ptr().cast(), len, starts.as_mut_ptr(), elems)
            )?
        };
        split_strings(&content, &starts)
    }

    /// Address and size, if the host may access them.
    pub(super) fn host_range(self) -> Result<(*const u8, usize)> {
        let memory = self.memory();
        if !readable::is_host_readable(memory) {
            return Err(Error::invalid_argument(format!(
                "the tensor is in {memory:?}, which the host cannot access\n  help: copy it to host memory first"
            )));
        }
        Ok((self.address()?, self.size_bytes()?))
    }

    pub(super) fn check_element<T: Element>(self) -> Result<()> {
        let element = self.element_type()?;
        if T::reads(element) {
            Ok(())
        } else {
            Err(Error::invalid_argument(format!("the tensor holds {element:?}, which cannot be used as {}", T::NAME)))
        }
    }

    fn describe(self) -> Result<(ElementType, &'a [i64])> {
        let (mut element, mut dims, mut rank) = (sys::ONNX_UNDEFINED, ptr::null(), 0);
        // SAFETY: `from_raw`'s caller vouches for the value; the out-pointers are ours.
        unsafe {
            call!(
                self.runtime,
                GetTensorElementTypeAndShapeDataReference(self.raw, &mut element, &mut dims, &mut rank)
            )?
        };
        let shape = if rank == 0 || dims.is_null() {
            &[][..]
        } else {
            // SAFETY: the runtime returned `rank` dimensions that are part of the value, and values never change shape.
            unsafe { std::slice::from_raw_parts(dims, rank) }
        };
        Ok((ElementType::from_raw(element), shape))
    }
}

/// A tensor of our own, released on drop.
#[derive(Debug)]
pub struct OwnedTensor {
    runtime: Runtime,
    raw: *mut sys::OrtValue,
}

impl OwnedTensor {
    /// Takes ownership of a tensor from the runtime.
    ///
    /// # Safety
    /// `raw` is a live value of `runtime` that nobody else releases.
    pub(crate) unsafe fn from_raw(runtime: Runtime, raw: *mut sys::OrtValue) -> Self {
        Self { runtime, raw }
    }

    /// A view of the tensor.
    pub fn as_tensor(&self) -> Tensor<'_> {
        // SAFETY: the value is live while `self` is.
        unsafe { Tensor::from_raw(self.runtime, self.raw) }
    }
}

impl Drop for OwnedTensor {
    fn drop(&mut self) {
        // SAFETY: the value is ours alone (see `from_raw`).
        unsafe { self.runtime.api.ReleaseValue(self.raw) }
    }
}

pub(super) fn check_aligned<T: Element>(address: *const u8, bytes: usize) -> Result<()> {
    if bytes == 0 || (address.cast::<T>().is_aligned() && bytes.is_multiple_of(size_of::<T>())) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("{bytes} bytes at {address:p} cannot be read as {}", T::NAME)))
}

fn element_count(shape: &[i64]) -> Result<usize> {
    shape
        .iter()
        .try_fold(1_usize, |elems, &dim| elems.checked_mul(usize::try_from(dim).ok()?))
        .ok_or_else(|| Error::invalid_argument(format!("invalid tensor shape {shape:?}")))
}

/// Splits the runtime's concatenated strings, which have no terminators, at their start offsets.
fn split_strings(content: &[u8], starts: &[usize]) -> Result<Vec<String>> {
    let ends = starts.iter().skip(1).copied().chain([content.len()]);
    starts
        .iter()
        .zip(ends)
        .enumerate()
        .map(|(index, (&start, end))| {
            content
                .get(start..end)
                .and_then(|bytes| std::str::from_utf8(bytes).ok())
                .map(str::to_owned)
                .ok_or_else(|| Error::invalid_argument(format!("string {index} of the tensor is not UTF-8")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_elements_of_scalars_empties_and_ordinary_shapes() {
        assert_eq!(element_count(&[]).unwrap(), 1);
        assert_eq!(element_count(&[4, 0, 3]).unwrap(), 0);
        assert_eq!(element_count(&[2, 3, 4]).unwrap(), 24);
    }

    #[test]
    fn rejects_shapes_too_large_for_memory() {
        assert!(element_count(&[2, -1]).is_err());
        assert!(element_count(&[i64::MAX, 3]).is_err());
    }

    #[test]
    fn cuts_strings_at_their_starts() {
        assert_eq!(split_strings(b"abcd", &[0, 1, 1]).unwrap(), ["a", "", "bcd"]);
        assert!(split_strings(b"ab", &[0, 5]).is_err());
        assert!(split_strings(b"\xff", &[0]).unwrap_err().message().contains("string 0"));
    }

    #[test]
    fn refuses_misaligned_or_torn_elements() {
        let words = [0_u64; 2];
        let start = words.as_ptr().cast::<u8>();
        assert!(check_aligned::<f32>(start, 8).is_ok());
        assert!(check_aligned::<f32>(start.wrapping_add(1), 8).is_err());
        assert!(check_aligned::<f32>(start, 7).is_err());
        assert!(check_aligned::<f32>(ptr::null(), 0).is_ok());
    }
}
