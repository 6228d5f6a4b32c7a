//! The inputs and outputs of a running kernel.
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;
use std::ptr::NonNull;

use ort_ep_sys as sys;

use super::loans::{Loans, ReadRanges};
use super::logger::Logger;
use super::read::non_null;
use super::readable;
use super::tensor::Tensor;
use super::tensor_mut::TensorMut;
use crate::{Error, Result, Runtime};

/// A stream handle of the driver, as the execution provider's own stream returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawStream(*mut c_void);

// SAFETY: we never dereference the handle; only the driver that created it does, under its own rules.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Sync for RawStream {}

impl RawStream {
    /// Wraps a stream handle; null is the default stream of most drivers.
    pub fn new(handle: *mut c_void) -> Self {
        Self(handle)
    }

    /// The driver's handle.
    pub fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

/// Inputs, outputs and context of one call of a kernel or a compiled partition.
///
/// Unlike the other views it is not `Copy`: it remembers which outputs it handed out.
#[derive(Debug)]
pub struct KernelContext<'a> {
    pub(super) runtime: Runtime,
    pub(super) raw: *mut sys::OrtKernelContext,
    loans: Loans,
    life: PhantomData<&'a ()>,
}

impl<'a> KernelContext<'a> {
    /// Views the context of a call.
    ///
    /// # Safety
    /// `raw` is the context of a call that lasts for `'a`, and no other `KernelContext` is created from it.
    pub(crate) unsafe fn from_raw(runtime: Runtime, raw: *mut sys::OrtKernelContext) -> Self {
        Self { runtime, raw, loans: Loans::default(), life: PhantomData }
    }

    /// The runtime's own pointer.
    pub fn as_ptr(&self) -> *mut sys::OrtKernelContext {
        self.raw
    }

    /// How many inputs the node has, absent ones included.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn input_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: `from_raw`'s caller vouches for the context; the out-pointer is ours.
        unsafe { call!(self.runtime, KernelContext_GetInputCount(self.raw, &mut count))? };
        Ok(count)
    }

    /// How many outputs the node has, absent ones included.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn output_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelContext_GetOutputCount(self.raw, &mut count))? };
        Ok(count)
    }

    /// An input; `None` if an optional one is absent.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn input(&self, index: usize) -> Result<Option<Tensor<'a>>> {
        let mut value = ptr::null();
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelContext_GetInput(self.raw, index, &mut value))? };
        // SAFETY: inputs live as long as the call.
        Ok(non_null(value).map(|value| unsafe { Tensor::from_raw(self.runtime, value) }))
    }

    /// Allocates an output of the given shape; `None` if an optional output is unused.
    ///
    /// # Errors
    /// If there is no such output, no memory for it, or it was handed out before.
    pub fn output(&self, index: usize, shape: &[i64]) -> Result<Option<TensorMut<'_>>> {
        let loan = self.loans.take(index, self)?;
        let mut value = ptr::null_mut();
        // SAFETY: as above; the shape has the given length.
        unsafe {
            call!(self.runtime, KernelContext_GetOutput(self.raw, index, shape.as_ptr(), shape.len(), &mut value))?
        };
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: outputs live as long as the call; the loan proves that this is the only view of this one, and it
        // knows the inputs and the other outputs, which are all that the runtime lets share memory with it.
        let mut output = unsafe { TensorMut::lent(self.runtime, value, loan) };
        // If an allocator is out of memory, the runtime (seen in 1.31.1) hands out a tensor at address zero.
        if !shape.contains(&0) && output.address()?.is_null() {
            return Err(Error::fail(format!("could not allocate output {index} of shape {shape:?}")));
        }
        Ok(Some(output))
    }

    /// The buffer a caller bound to an output before the run, with its shape; `None` if there is none, and before API
    /// 30.
    ///
    /// # Errors
    /// If there is no such output, or it was handed out before.
    pub fn preallocated_output(&self, index: usize) -> Result<Option<TensorMut<'_>>> {
        let Some(function) = self.runtime.api.KernelContext_GetPreallocatedOutput() else {
            return Ok(None);
        };
        let mut value = ptr::null_mut();
        // SAFETY: as above.
        let status = unsafe { function(self.raw, index, &mut value) };
        self.runtime.check("KernelContext_GetPreallocatedOutput", status)?;
        if value.is_null() {
            return Ok(None);
        }
        let loan = self.loans.take(index, self)?;
        // SAFETY: as in `output`.
        Ok(Some(unsafe { TensorMut::lent(self.runtime, value, loan) }))
    }

    /// The stream of this run; `None` if the execution provider has no streams.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn stream(&self) -> Result<Option<RawStream>> {
        let mut handle = ptr::null_mut();
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelContext_GetGPUComputeStream(self.raw, &mut handle))? };
        Ok((!handle.is_null()).then_some(RawStream::new(handle)))
    }

    /// The runtime's own object around the stream of this run; `None` before API 28.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn sync_stream(&self) -> Result<Option<NonNull<sys::OrtSyncStream>>> {
        let Some(function) = self.runtime.api.KernelContext_GetSyncStream() else {
            return Ok(None);
        };
        let mut stream = ptr::null_mut();
        // SAFETY: as above.
        let status = unsafe { function(self.raw, &mut stream) };
        self.runtime.check("KernelContext_GetSyncStream", status)?;
        Ok(NonNull::new(stream))
    }

    /// The logger of this run.
    ///
    /// # Errors
    /// If the runtime has none.
    pub fn logger(&self) -> Result<Logger<'a>> {
        let mut logger = ptr::null();
        // SAFETY: as above; the logger lives as long as the run.
        unsafe {
            call!(self.runtime, KernelContext_GetLogger(self.raw, &mut logger))?;
            Ok(Logger::from_raw(self.runtime, logger))
        }
    }
}

impl ReadRanges for KernelContext<'_> {
    fn input_ranges(&self) -> Result<Vec<Range<usize>>> {
        let mut ranges = Vec::new();
        for index in 0..self.input_count()? {
            let Some(input) = self.input(index)? else { continue };
            if !readable::is_host_readable(input.memory()) {
                continue;
            }
            // A value that is not a tensor of plain elements cannot be read as bytes, so it cannot alias a slice
            // either.
            if let Ok((address, bytes)) = input.host_range()
                && bytes > 0
            {
                ranges.push(address.addr()..address.addr() + bytes);
            }
        }
        Ok(ranges)
    }
}
