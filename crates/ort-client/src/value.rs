//! Values that are passed to runs and come out of them.

use std::ptr::{self, NonNull};

use ort_ep_sys::{self as sys, Api, OrtAllocator, OrtValue};

use crate::error::check;
use crate::runtime::default_allocator;
use crate::{Allocator, Dim, Element, Error, Kind, Number, Result, Runtime, Session, port};

/// A value that this process owns alone.
#[derive(Debug)]
pub struct Value {
    raw: NonNull<OrtValue>,
    api: Api,
    memory: Memory,
}

/// What owns the memory of a value, which must outlive it.
#[derive(Debug)]
enum Memory {
    /// ONNX Runtime's default allocator.
    Host,
    /// An output: the session or one of its providers.
    Session { _session: Session },
    /// A shared allocator of a device.
    Device { _allocator: Allocator },
}

// SAFETY: the value is owned, and only changed through `&mut`.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    /// A tensor in host memory with a copy of these numbers.
    ///
    /// # Errors
    /// When there are more or fewer than the shape says, or the allocation fails.
    pub fn from_slice<T: Number>(runtime: &Runtime, shape: &[i64], values: &[T]) -> Result<Value> {
        Value::from_bytes(runtime, T::ELEMENT, shape, bytemuck::cast_slice(values))
    }

    /// A tensor in host memory with a copy of these elements.
    ///
    /// # Errors
    /// See [`from_slice`](Self::from_slice).
    pub fn from_bytes(runtime: &Runtime, element: Element, shape: &[i64], bytes: &[u8]) -> Result<Value> {
        if element.bytes_of(shape) != Some(bytes.len()) {
            return Err(Error::Mismatch { values: bytes.len() / element.bytes(), shape: shape.to_vec() });
        }
        let api = &runtime.api;
        // SAFETY: the default allocator is always alive.
        let raw = unsafe { allocate(api, default_allocator(api)?.as_ptr(), element, shape) }?;
        let value = Value { raw, api: *api, memory: Memory::Host };
        if !bytes.is_empty() {
            // SAFETY: the tensor was just created in host memory, with exactly as many bytes.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data(api, raw)?, bytes.len()) };
        }
        Ok(value)
    }

    /// A tensor in a device's memory, with undefined elements: copy data to it before you use it as an input.
    ///
    /// # Errors
    /// When the allocation fails.
    pub fn on_device(allocator: &Allocator, element: Element, shape: &[i64]) -> Result<Value> {
        let api = *allocator.api();
        // SAFETY: the allocator is alive.
        let raw = unsafe { allocate(&api, allocator.as_ptr(), element, shape) }?;
        Ok(Value { raw, api, memory: Memory::Device { _allocator: allocator.clone() } })
    }

    /// The output of a run; `None` for null.
    ///
    /// # Safety
    /// `raw` is null or an output of the session that has no other owner.
    pub(crate) unsafe fn from_run(session: &Session, raw: *mut OrtValue) -> Option<Value> {
        let memory = Memory::Session { _session: session.clone() };
        NonNull::new(raw).map(|raw| Value { raw, api: *session.api(), memory })
    }

    /// The type of the value. Tensors have fixed extents.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn kind(&self) -> Result<Kind> {
        let mut info = ptr::null_mut();
        // SAFETY: the value is alive; the info is ours, read and then released once.
        unsafe {
            check(&self.api, self.api.GetTypeInfo(self.as_ptr(), &mut info))?;
            let kind = port::kind(&self.api, info);
            self.api.ReleaseTypeInfo(info);
            kind
        }
    }

    /// The shape of a tensor of numbers.
    ///
    /// # Errors
    /// When the value is not one.
    pub fn shape(&self) -> Result<Vec<i64>> {
        self.tensor().map(|(_, shape)| shape)
    }

    /// The elements of a tensor in host memory, as bytes.
    ///
    /// # Errors
    /// When the value is not a tensor of numbers, or in a device's memory.
    pub fn bytes(&self) -> Result<&[u8]> {
        let (element, shape) = self.tensor()?;
        let (data, bytes) = self.host_data(element, &shape)?;
        if bytes == 0 {
            return Ok(&[]);
        }
        // SAFETY: a tensor in host memory holds its shape's elements, and nothing writes to it while `self` is
        // borrowed.
        Ok(unsafe { std::slice::from_raw_parts(data.cast_const(), bytes) })
    }

    /// A copy of the numbers of a tensor in host memory.
    ///
    /// # Errors
    /// When the value is not a tensor of this type, or in a device's memory.
    pub fn to_vec<T: Number>(&self) -> Result<Vec<T>> {
        match self.tensor()?.0 {
            found if found == T::ELEMENT => {
                let elements = self.bytes()?.chunks_exact(size_of::<T>());
                Ok(elements.map(bytemuck::pod_read_unaligned).collect())
            }
            found => {
                Err(Error::Type { expected: T::ELEMENT.name(), found: Kind::Tensor(found, Vec::new()).to_string() })
            }
        }
    }

    /// The element type and shape of a tensor of numbers.
    pub(crate) fn tensor(&self) -> Result<(Element, Vec<i64>)> {
        match self.kind()? {
            Kind::Tensor(element, dims) => {
                let extents = dims.into_iter().map(|dim| if let Dim::Size(size) = dim { size as i64 } else { 0 });
                Ok((element, extents.collect()))
            }
            other => Err(Error::Type { expected: "numbers", found: other.to_string() }),
        }
    }

    /// The address and size of the elements in host memory.
    pub(crate) fn host_data(&self, element: Element, shape: &[i64]) -> Result<(*mut u8, usize)> {
        let bytes = element.bytes_of(shape).ok_or_else(|| Error::TooLarge { shape: shape.to_vec() })?;
        // Device memory may never have been written.
        if matches!(self.memory, Memory::Device { .. }) || !self.is_on_host()? {
            return Err(Error::OnDevice);
        }
        // SAFETY: the value is a live tensor.
        Ok((unsafe { data(&self.api, self.raw) }?, bytes))
    }

    fn is_on_host(&self) -> Result<bool> {
        let (mut info, mut kind) = (ptr::null(), 0);
        // SAFETY: the value is alive; the info belongs to it.
        unsafe {
            check(&self.api, self.api.GetTensorMemoryInfo(self.as_ptr(), &mut info))?;
            self.api.MemoryInfoGetDeviceType(info, &mut kind);
        }
        Ok(kind == sys::ORT_DEVICE_CPU)
    }

    pub(crate) fn as_ptr(&self) -> *const OrtValue {
        self.raw.as_ptr()
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: the value is ours, and what owns its memory is still alive.
        unsafe { self.api.ReleaseValue(self.raw.as_ptr()) }
    }
}

/// # Safety
/// The allocator is alive.
unsafe fn allocate(
    api: &Api,
    allocator: *mut OrtAllocator,
    element: Element,
    shape: &[i64],
) -> Result<NonNull<OrtValue>> {
    let mut raw = ptr::null_mut();
    // SAFETY: the caller guarantees the allocator; the shape is valid for the call and copied.
    let status =
        unsafe { api.CreateTensorAsOrtValue(allocator, shape.as_ptr(), shape.len(), element.onnx(), &mut raw) };
    check(api, status)?;
    NonNull::new(raw).ok_or(Error::Nothing("tensor"))
}

/// # Safety
/// The value is a live tensor.
unsafe fn data(api: &Api, value: NonNull<OrtValue>) -> Result<*mut u8> {
    let mut data = ptr::null_mut();
    // SAFETY: the caller guarantees the value; the out-pointer is valid.
    check(api, unsafe { api.GetTensorMutableData(value.as_ptr(), &mut data) })?;
    Ok(data.cast())
}
