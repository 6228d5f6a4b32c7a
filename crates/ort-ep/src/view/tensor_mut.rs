//! Tensors that are written.
use std::{ffi::c_void, marker::PhantomData, ptr};

use ort_ep_sys as sys;

use super::{
    element::Element,
    loans::Loan,
    tensor::{Tensor, check_aligned},
};
use crate::{ElementType, MemoryDevice, Result, Runtime};

/// A tensor of the runtime that is written: an output, or the target of a copy.
#[derive(Debug)]
pub struct TensorMut<'a> {
    runtime: Runtime,
    raw: *mut sys::OrtValue,
    loan: Option<Loan<'a>>,
    life: PhantomData<&'a mut ()>,
}

impl<'a> TensorMut<'a> {
    /// Views a value that is ours to write.
    ///
    /// # Safety
    /// `raw` is a live value of `runtime` for `'a`, and nothing else reads or writes its elements during `'a`.
    pub(crate) unsafe fn from_raw(runtime: Runtime, raw: *mut sys::OrtValue) -> Self {
        Self { runtime, raw, loan: None, life: PhantomData }
    }

    /// Views an output whose memory may be that of another tensor of the same kernel: `loan` finds out.
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

    /// A view for reading.
    pub fn as_tensor(&self) -> Tensor<'_> {
        // SAFETY: the value is live for `'a`, and the borrow of `self` keeps it from being written meanwhile.
        unsafe { Tensor::from_raw(self.runtime, self.raw) }
    }

    /// What one element is.
    ///
    /// # Errors
    /// When the value is no tensor.
    pub fn element_type(&self) -> Result<ElementType> {
        self.as_tensor().element_type()
    }

    /// The length of every axis; empty for a scalar.
    ///
    /// # Errors
    /// When the value is no tensor.
    pub fn shape(&self) -> Result<&'a [i64]> {
        // SAFETY: the value is live for `'a`, and writing elements does not touch its shape.
        let tensor: Tensor<'a> = unsafe { Tensor::from_raw(self.runtime, self.raw) };
        tensor.shape()
    }

    /// How many elements there are.
    ///
    /// # Errors
    /// As for [`Tensor::elems`].
    pub fn elems(&self) -> Result<usize> {
        self.as_tensor().elems()
    }

    /// How many bytes the elements take.
    ///
    /// # Errors
    /// As for [`Tensor::size_bytes`].
    pub fn size_bytes(&self) -> Result<usize> {
        self.as_tensor().size_bytes()
    }

    /// Where the elements lie.
    pub fn memory(&self) -> MemoryDevice {
        self.as_tensor().memory()
    }

    /// The address of the first element, in [`memory`](Self::memory); may be null if there are none.
    ///
    /// # Errors
    /// When the value is no tensor, or has elements and no memory for them.
    pub fn address(&mut self) -> Result<*mut u8> {
        let mut address = ptr::null_mut::<c_void>();
        // SAFETY: the value is live for `'a`; the out-pointer is ours.
        unsafe { call!(self.runtime, GetTensorMutableData(self.raw, &mut address))? };
        if address.is_null() {
            self.as_tensor().check_empty()?;
        }
        Ok(address.cast())
    }

    /// The bytes of a tensor the host can write. A fresh output holds arbitrary values.
    ///
    /// # Errors
    /// When the tensor lies elsewhere, holds strings, or shares its memory with an input or another output (a caller
    /// may bind one buffer to both: such tensors are reached by [`address`](Self::address) only).
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let (_, bytes) = self.as_tensor().host_range()?;
        let address = self.address()?;
        if bytes == 0 || address.is_null() {
            return Ok(&mut []);
        }
        if let Some(loan) = &self.loan {
            loan.write(address.addr()..address.addr() + bytes)?;
        }
        // SAFETY: `host_range` checked that the host can reach the buffer; the runtime gave its address and size; it is
        // ours alone during the borrow of `self`, by `from_raw`'s contract or by the loan just checked. The bytes were
        // written or left by allocators behind the C border, so they hold values, if arbitrary ones.
        Ok(unsafe { std::slice::from_raw_parts_mut(address, bytes) })
    }

    /// The elements of a tensor the host can write. A fresh output holds arbitrary values.
    ///
    /// # Errors
    /// As for [`bytes_mut`](Self::bytes_mut), and when the tensor holds other elements.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.as_tensor().check_element::<T>()?;
        let bytes = self.bytes_mut()?;
        check_aligned::<T>(bytes.as_ptr(), bytes.len())?;
        if bytes.is_empty() {
            return Ok(&mut []);
        }
        // SAFETY: `Element` is sealed over types for which all bit patterns are values and which have no padding;
        // alignment was checked, and the length covers no more than the bytes, which are borrowed from `self`.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / size_of::<T>()) })
    }
}
