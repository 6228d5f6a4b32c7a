//! What a kernel sees while it runs.
use std::{ffi::c_void, marker::PhantomData, ops::Range, ptr, ptr::NonNull};

use ort_ep_sys as sys;

use super::{
    loans::{Loans, ReadRanges},
    logger::Logger,
    read::non_null,
    readable,
    tensor::Tensor,
    tensor_mut::TensorMut,
};
use crate::{Error, Result, Runtime};

/// A stream as its driver knows it: what the execution provider's own stream gave as its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawStream(*mut c_void);

// SAFETY: the handle is a number to us; only the driver that made it looks behind it, under its own rules.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Sync for RawStream {}

impl RawStream {
    /// Names a stream by its handle; null is the default stream of most drivers.
    pub fn new(handle: *mut c_void) -> Self {
        Self(handle)
    }

    /// The driver's handle.
    pub fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

/// Inputs, outputs and surroundings of one call of a kernel or of a compiled partition.
///
/// Unlike the other views this one is not `Copy`: it remembers which outputs it handed out.
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
    /// `raw` is the context of a call that lasts for `'a`, and no other `KernelContext` is made of it.
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
    /// When the runtime can't tell.
    pub fn input_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: `from_raw`'s caller vouches for the context; the out-pointer is ours.
        unsafe { call!(self.runtime, KernelContext_GetInputCount(self.raw, &mut count))? };
        Ok(count)
    }

    /// How many outputs the node has, absent ones included.
    ///
    /// # Errors
    /// When the runtime can't tell.
    pub fn output_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelContext_GetOutputCount(self.raw, &mut count))? };
        Ok(count)
    }

    /// An input; none where an optional one is absent.
    ///
    /// # Errors
    /// When there is no such input.
    pub fn input(&self, index: usize) -> Result<Option<Tensor<'a>>> {
        let mut value = ptr::null();
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelContext_GetInput(self.raw, index, &mut value))? };
        // SAFETY: inputs live as long as the call.
        Ok(non_null(value).map(|value| unsafe { Tensor::from_raw(self.runtime, value) }))
    }

    /// Makes an output of the given shape; none where nobody uses an optional one.
    ///
    /// # Errors
    /// When there is no such output, no memory for it, or it was handed out before.
    pub fn output(&self, index: usize, shape: &[i64]) -> Result<Option<TensorMut<'_>>> {
        let loan = self.loans.take(index, self)?;
        let mut value = ptr::null_mut();
        // SAFETY: as above; the shape is as long as said.
        unsafe {
            call!(self.runtime, KernelContext_GetOutput(self.raw, index, shape.as_ptr(), shape.len(), &mut value))?
        };
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: outputs live as long as the call; the loan proves that this is the only view of this one, and it knows
        // the inputs and the other outputs, which are all that the runtime lets share memory with it.
        let mut output = unsafe { TensorMut::lent(self.runtime, value, loan) };
        // Where an allocator has nothing left, the runtime (seen in 1.31.1) hands out a tensor at address zero.
        if !shape.contains(&0) && output.address()?.is_null() {
            return Err(Error::fail(format!("there is no memory for output {index} of shape {shape:?}")));
        }
        Ok(Some(output))
    }

    /// The buffer a caller bound to an output before the run, with its shape; none without one, and before API 30.
    ///
    /// # Errors
    /// When there is no such output, or it was handed out before.
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

    /// The stream of this run; none if the execution provider has no streams.
    ///
    /// # Errors
    /// When the runtime can't tell.
    pub fn stream(&self) -> Result<Option<RawStream>> {
        let mut handle = ptr::null_mut();
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelContext_GetGPUComputeStream(self.raw, &mut handle))? };
        Ok((!handle.is_null()).then_some(RawStream::new(handle)))
    }

    /// The runtime's own object around the stream of this run; none before API 28.
    ///
    /// # Errors
    /// When the runtime can't tell.
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

    /// The log of this run.
    ///
    /// # Errors
    /// When the runtime has none.
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
            // What is no tensor of plain elements can't be read as bytes, so it can't be torn either.
            if let Ok((address, bytes)) = input.host_range()
                && bytes > 0
            {
                ranges.push(address.addr()..address.addr() + bytes);
            }
        }
        Ok(ranges)
    }
}
