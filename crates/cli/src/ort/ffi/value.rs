//! Inputs and outputs of a run.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use ort_ep_sys::{self as sys, OrtValue};

use super::{Environment, Runtime, Session, port};
use crate::ort::{Array, Dim, Element};

/// An ONNX Runtime value; an output borrows the session, whose memory it may be in.
pub struct Value<'s> {
    runtime: Rc<Runtime>,
    raw: NonNull<OrtValue>,
    session: PhantomData<&'s Session>,
}

impl Value<'_> {
    /// A tensor with a copy of the array's content.
    ///
    /// # Errors
    /// When the memory cannot be allocated.
    pub fn from_array(environment: &Environment, array: &Array) -> Result<Self> {
        let runtime = &environment.runtime;
        let shape = array.shape().iter().map(|&extent| i64::try_from(extent)).collect::<Result<Vec<_>, _>>()?;
        let (allocator, element) = (runtime.allocator()?.as_ptr(), array.element().onnx());
        let mut raw = ptr::null_mut();
        // SAFETY: the default allocator is always alive; the shape is valid for the call and copied.
        let value = unsafe {
            let status = runtime.api.CreateTensorAsOrtValue(allocator, shape.as_ptr(), shape.len(), element, &mut raw);
            runtime.check(status)?;
            Self::from_raw(runtime, raw)?
        };
        if !array.bytes().is_empty() {
            // SAFETY: the tensor was just created in host memory, with exactly as many bytes as the array has.
            unsafe { ptr::copy_nonoverlapping(array.bytes().as_ptr(), value.data()?, array.bytes().len()) };
        }
        Ok(value)
    }

    /// # Safety
    /// `raw` is null or the caller's to release, and lives no longer than the session that the result borrows.
    pub(super) unsafe fn from_raw(runtime: &Rc<Runtime>, raw: *mut OrtValue) -> Result<Self> {
        let raw = NonNull::new(raw).context("ONNX Runtime gave no value")?;
        Ok(Self { runtime: Rc::clone(runtime), raw, session: PhantomData })
    }

    pub(super) fn as_ptr(&self) -> *const OrtValue {
        self.raw.as_ptr()
    }

    fn data(&self) -> Result<*mut u8> {
        let mut data = ptr::null_mut();
        // SAFETY: the value is alive and the out-pointer valid.
        self.runtime.check(unsafe { self.runtime.api.GetTensorMutableData(self.raw.as_ptr(), &mut data) })?;
        Ok(data.cast())
    }

    /// A copy of a tensor of numbers, or a description of any other value.
    ///
    /// # Errors
    /// When ONNX Runtime fails, or the tensor is not in host memory.
    pub fn to_array(&self) -> Result<Result<Array, String>> {
        let api = &self.runtime.api;
        let mut kind = 0;
        // SAFETY: the value is alive.
        self.runtime.check(unsafe { api.GetValueType(self.raw.as_ptr(), &mut kind) })?;
        if kind != sys::ONNX_TYPE_TENSOR {
            return Ok(Err(port::type_name(kind).to_owned()));
        }
        let mut info = ptr::null_mut();
        // SAFETY: the value is alive; the info is ours, read and then released once.
        let (element, dims) = unsafe {
            self.runtime.check(api.GetTensorTypeAndShape(self.raw.as_ptr(), &mut info))?;
            let read = (port::element(&self.runtime, info), port::dims(&self.runtime, info));
            api.ReleaseTensorTypeAndShapeInfo(info);
            (read.0?, read.1?)
        };
        let shape = dims.iter().map(|dim| if let Dim::Size(size) = dim { *size } else { 0 }).collect::<Vec<_>>();
        let Some(element) = Element::from_onnx(element) else {
            return Ok(Err(if element == sys::ONNX_STRING {
                format!("strings {shape:?}")
            } else {
                format!("a tensor of ONNX type {element} {shape:?}")
            }));
        };
        if !self.is_on_cpu()? {
            bail!("an output is in the memory of a device");
        }
        let bytes = shape.iter().product::<usize>() * element.bytes();
        let content = if bytes == 0 {
            Vec::new()
        } else {
            // SAFETY: a tensor in host memory holds its shape's elements, and nothing writes to it while `self` is
            // borrowed.
            unsafe { std::slice::from_raw_parts(self.data()?.cast_const(), bytes) }.to_vec()
        };
        Ok(Ok(Array::new(element, shape, content).context("a tensor does not fill its shape")?))
    }

    fn is_on_cpu(&self) -> Result<bool> {
        let (mut info, mut kind) = (ptr::null(), 0);
        // SAFETY: the value is alive; the info belongs to it.
        unsafe {
            self.runtime.check(self.runtime.api.GetTensorMemoryInfo(self.raw.as_ptr(), &mut info))?;
            self.runtime.api.MemoryInfoGetDeviceType(info, &mut kind);
        }
        Ok(kind == sys::ORT_DEVICE_CPU)
    }
}

impl Drop for Value<'_> {
    fn drop(&mut self) {
        // SAFETY: the value is ours, and no one else keeps a pointer to it.
        unsafe { self.runtime.api.ReleaseValue(self.raw.as_ptr()) }
    }
}
