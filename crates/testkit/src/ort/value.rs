//! Tensors.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ort_ep_sys::{ONNX_FLOAT, OrtValue};

use super::{Allocator, Environment, Runtime};

/// A tensor, on the CPU or on a device.
pub struct Value<'e> {
    runtime: Arc<Runtime>,
    pub(super) raw: NonNull<OrtValue>,
    environment: PhantomData<&'e Environment>,
}

impl<'e> Value<'e> {
    /// A CPU tensor of floats; the numbers are copied.
    ///
    /// # Errors
    /// When `dims` and `values` do not match, or ONNX Runtime reports an error.
    pub fn from_floats(environment: &'e Environment, dims: &[i64], values: &[f32]) -> Result<Self> {
        if usize::try_from(dims.iter().product::<i64>())? != values.len() {
            bail!("{} values do not match shape {dims:?}", values.len());
        }
        let runtime = &environment.runtime;
        let mut allocator = ptr::null_mut();
        // SAFETY: the out-pointer is valid; the default allocator lives as long as the library.
        runtime.check(unsafe { runtime.api.GetAllocatorWithDefaultOptions(&mut allocator) })?;
        let allocator = NonNull::new(allocator).context("there is no default allocator")?;
        let value = Self::allocate(runtime, allocator.as_ptr(), dims)?;
        // SAFETY: the tensor was just made for as many floats as `values` has, in CPU memory.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), value.data()?.cast(), values.len()) };
        Ok(value)
    }

    /// A tensor of floats in the allocator's memory, with undefined contents.
    ///
    /// # Errors
    /// When the allocation fails.
    pub fn empty(allocator: &Allocator<'e>, dims: &[i64]) -> Result<Self> {
        Self::allocate(allocator.runtime, allocator.raw.as_ptr(), dims)
    }

    fn allocate(runtime: &Arc<Runtime>, allocator: *mut ort_ep_sys::OrtAllocator, dims: &[i64]) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the allocator is alive, by the callers; the shape is valid for the call and copied.
        let status =
            unsafe { runtime.api.CreateTensorAsOrtValue(allocator, dims.as_ptr(), dims.len(), ONNX_FLOAT, &mut raw) };
        runtime.check(status)?;
        Self::from_raw(runtime, raw)
    }

    pub(super) fn from_raw(runtime: &Arc<Runtime>, raw: *mut OrtValue) -> Result<Self> {
        let raw = NonNull::new(raw).context("ONNX Runtime returned no value")?;
        Ok(Self { runtime: Arc::clone(runtime), raw, environment: PhantomData })
    }

    /// The numbers of a CPU tensor.
    ///
    /// # Errors
    /// When the tensor is on a device or not of floats.
    pub fn floats(&self) -> Result<Vec<f32>> {
        let api = &self.runtime.api;
        let mut info = ptr::null_mut();
        // SAFETY: the value is alive; the info is ours to release.
        self.runtime.check(unsafe { api.GetTensorTypeAndShape(self.raw.as_ptr(), &mut info) })?;
        let (mut count, mut element_type) = (0, 0);
        // SAFETY: the info was just made; it is read and then released once.
        let (read_count, read_type) = unsafe {
            let read =
                (api.GetTensorShapeElementCount(info, &mut count), api.GetTensorElementType(info, &mut element_type));
            api.ReleaseTensorTypeAndShapeInfo(info);
            read
        };
        self.runtime.check(read_count)?;
        self.runtime.check(read_type)?;
        if element_type != ONNX_FLOAT || !self.is_on_cpu()? {
            bail!("not a CPU tensor of floats");
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: a CPU tensor of `count` floats, alive and not written while `self` is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(self.data()?.cast_const().cast::<f32>(), count) }.to_vec())
    }

    /// Whether the CPU can read the tensor by its address.
    ///
    /// # Errors
    /// When ONNX Runtime reports an error.
    pub fn is_on_cpu(&self) -> Result<bool> {
        let mut info = ptr::null();
        let api = &self.runtime.api;
        // SAFETY: the value is alive; the info belongs to it.
        self.runtime.check(unsafe { api.GetTensorMemoryInfo(self.raw.as_ptr(), &mut info) })?;
        let mut kind = 0;
        // SAFETY: as above.
        unsafe { api.MemoryInfoGetDeviceType(info, &mut kind) };
        Ok(kind == ort_ep_sys::ORT_DEVICE_CPU)
    }

    fn data(&self) -> Result<*mut c_void> {
        let mut data = ptr::null_mut();
        // SAFETY: the value is alive and the out-pointer valid.
        self.runtime.check(unsafe { self.runtime.api.GetTensorMutableData(self.raw.as_ptr(), &mut data) })?;
        Ok(data)
    }
}

impl Drop for Value<'_> {
    fn drop(&mut self) {
        // SAFETY: the value is ours, and nothing else keeps it.
        unsafe { self.runtime.api.ReleaseValue(self.raw.as_ptr()) }
    }
}
