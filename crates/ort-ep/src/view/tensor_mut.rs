//! Writable tensors.
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use ort_ep_sys as sys;

use super::element::Element;
use super::loans::Loan;
use super::tensor::{Tensor, check_aligned};
use crate::{ElementType, MemoryDevice, Result, Runtime};

/// A writable tensor of the runtime: an output, or the target of a copy.
#[derive(Debug)]
pub struct TensorMut<'a> {
    runtime: Runtime,
    raw: *mut sys::OrtValue,
    loan: Option<Loan<'a>>,
    life: PhantomData<&'a mut ()>,
}

impl<'a> TensorMut<'a> {
    /// Views a value that we may write.
    ///
    /// # Safety
    /// `raw` is a live value of `runtime` for `'a`, and nothing else reads or writes its elements during `'a`.
    pub(crate) unsafe fn from_raw(runtime: Runtime, raw: *mut sys::OrtValue) -> Self {
        Self { runtime, raw, loan: None, life: PhantomData }
    }

    /// Views an output whose memory may be that of another tensor of the same kernel: `loan` checks this.
    ///
    /// # Safety
    /// `raw` is a live value of `runtime` for `'a`, the only one made for this output, and nothing but the tensors
    /// `loan` knows uses its elements during `'a`.
    pub(super) unsafe fn lent(runtime: Runtime, raw: *mut sys::OrtValue, loan: Loan<'a>) -> Self {
        Self { runtime, raw, loan: Some(loan), life: PhantomData }
    }

    /// The runtime's own pointer.
    pub fn as_ptr(&mut self) -> *mut sys::OrtValue {
        self.raw
    }

    /// A read-only view.
    pub fn as_tensor(&self) -> Tensor<'_> {
        // SAFETY: the value is live for `'a`, and the borrow of `self` prevents writes while the view exists.
        unsafe { Tensor::from_raw(self.runtime, self.raw) }
    }

    /// The element type.
    ///
    /// # Errors
    /// If the value is not a tensor.
    pub fn element_type(&self) -> Result<ElementType> {
        self.as_tensor().element_type()
    }

    /// The length of every axis; empty for a scalar.
    ///
    /// # Errors
    /// If the value is not a tensor.
    pub fn shape(&self) -> Result<&'a [i64]> {
        // SAFETY: the value is live for `'a`, and writing elements does not touch its shape.
        let tensor: Tensor<'a> = unsafe { Tensor::from_raw(self.runtime, self.raw) };
        tensor.shape()
    }

    /// The number of elements.
    ///
    /// # Errors
    /// Same as for [`Tensor::elems`].
    pub fn elems(&self) -> Result<usize> {
        self.as_tensor().elems()
    }

    /// The size of the elements in bytes.
    ///
    /// # Errors
    /// Same as for [`Tensor::size_bytes`].
    pub fn size_bytes(&self) -> Result<usize> {
        self.as_tensor().size_bytes()
    }

    /// The memory that holds the elements.
    pub fn memory(&self) -> MemoryDevice {
        self.as_tensor().memory()
    }

    /// The address of the first element, in [`memory`](Self::memory); may be null if there are none.
    ///
    /// # Errors
    /// If the value is not a tensor, or has elements but no memory for them.
    pub fn address(&mut self) -> Result<*mut u8> {
        let mut address = ptr::null_mut::<c_void>();
        // SAFETY: the value is live for `'a`; the out-pointer is ours.
        unsafe { call!(self.runtime, GetTensorMutableData(self.raw, &mut address))? };
        if address.is_null() {
            self.as_tensor().check_empty()?;
        }
        Ok(address.cast())
    }

    /// The bytes of a host-writable tensor. A new output holds arbitrary values.
    ///
    /// # Errors
    /// If the tensor is not in host memory, holds strings, or shares its memory with an input or another output. A
    /// caller may bind one buffer to both: access such tensors through [`address`](Self::address) only.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let (_, bytes) = self.as_tensor().host_range()?;
        let address = self.address()?;
        if bytes == 0 || address.is_null() {
            return Ok(&mut []);
        }
        if let Some(loan) = &self.loan {
            loan.write(address.addr()..address.addr() + bytes)?;
        }
        // SAFETY: `host_range` checked that the host can access the buffer; the runtime returned its address and size;
        // it is ours alone during the borrow of `self`, by `from_raw`'s contract or by the loan just checked.
        // Allocators behind the C boundary wrote or left the bytes, so they are initialised, if with arbitrary values.
        Ok(unsafe { std::slice::from_raw_parts_mut(address, bytes) })
    }

    /// The elements of a host-writable tensor. A new output holds arbitrary values.
    ///
    /// # Errors
    /// Same as for [`bytes_mut`](Self::bytes_mut), and if the tensor has another element type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.as_tensor().check_element::<T>()?;
        let bytes = self.bytes_mut()?;
        check_aligned::<T>(bytes.as_ptr(), bytes.len())?;
        if bytes.is_empty() {
            return Ok(&mut []);
        }
        // SAFETY: `Element` is sealed over types for which all bit patterns are valid and which have no padding;
        // alignment was checked, and the length covers no more than the bytes, which are borrowed from `self`.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / size_of::<T>()) })
    }
}
