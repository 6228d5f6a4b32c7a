//! An owned descriptor with typed attributes.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::handle::{Handle, check};
use crate::sys::{self, AttributeName, AttributeType, Backend, DataType, DescriptorType};
use crate::{Error, Result};

/// A descriptor of any kind. The backend counts references: a descriptor that was set on another one may be dropped
/// here.
pub struct Descriptor {
    raw: sys::Descriptor,
    kind: DescriptorType,
    backend: Arc<dyn Backend>,
}

// SAFETY: the library does not tie descriptors to threads; `&Descriptor` does not leave its thread.
unsafe impl Send for Descriptor {}

impl Descriptor {
    /// Creates a descriptor.
    ///
    /// # Errors
    /// The backend does not know the kind.
    pub fn new(backend: &Arc<dyn Backend>, kind: DescriptorType) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let status = unsafe { backend.create_descriptor(kind, &mut raw) };
        check(&**backend, || format!("creating a {kind}"), status)?;
        Ok(Self { raw, kind, backend: backend.clone() })
    }

    /// Takes ownership of a descriptor that the backend created for the caller.
    ///
    /// # Safety
    /// `raw` is a live descriptor of this backend that nothing else destroys.
    pub(crate) unsafe fn adopt(backend: &Arc<dyn Backend>, kind: DescriptorType, raw: sys::Descriptor) -> Self {
        Self { raw, kind, backend: backend.clone() }
    }

    /// The raw C descriptor, valid while this one lives.
    pub fn raw(&self) -> sys::Descriptor {
        self.raw
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Sets 64-bit integers.
    pub(crate) fn set_i64s(&self, name: AttributeName, values: &[i64]) -> Result<()> {
        self.set(name, AttributeType::INT64, values)
    }

    /// Sets 32-bit integers.
    pub(crate) fn set_i32s(&self, name: AttributeName, values: &[i32]) -> Result<()> {
        self.set(name, AttributeType::INT32, values)
    }

    /// Sets a single-precision number.
    pub(crate) fn set_f32(&self, name: AttributeName, value: f32) -> Result<()> {
        self.set(name, AttributeType::FLOAT, &[value])
    }

    /// Sets a double-precision number.
    pub(crate) fn set_f64(&self, name: AttributeName, value: f64) -> Result<()> {
        self.set(name, AttributeType::DOUBLE, &[value])
    }

    /// Sets a flag.
    pub(crate) fn set_bool(&self, name: AttributeName, value: bool) -> Result<()> {
        self.set(name, AttributeType::BOOLEAN, &[u8::from(value)])
    }

    /// Sets an element type.
    pub(crate) fn set_data_type(&self, name: AttributeName, value: DataType) -> Result<()> {
        self.set(name, AttributeType::DATA_TYPE, &[value])
    }

    /// Sets a value of another enumeration.
    pub(crate) fn set_mode(&self, name: AttributeName, kind: AttributeType, value: i32) -> Result<()> {
        self.set(name, kind, &[value])
    }

    /// Sets bytes or a string.
    pub(crate) fn set_bytes(&self, name: AttributeName, bytes: &[u8]) -> Result<()> {
        self.set(name, AttributeType::CHAR, bytes)
    }

    /// Sets addresses.
    pub(crate) fn set_addresses(&self, name: AttributeName, addresses: &[*mut c_void]) -> Result<()> {
        self.set(name, AttributeType::VOID_PTR, addresses)
    }

    /// Sets the handle.
    pub(crate) fn set_handle(&self, name: AttributeName, handle: &Handle) -> Result<()> {
        self.set(name, AttributeType::HANDLE, &[handle.raw()])
    }

    /// Sets references to finalized descriptors.
    pub(crate) fn set_descriptors<'a>(
        &self,
        name: AttributeName,
        descriptors: impl IntoIterator<Item = &'a Descriptor>,
    ) -> Result<()> {
        let raw: Vec<sys::Descriptor> = descriptors.into_iter().map(Descriptor::raw).collect();
        self.set(name, AttributeType::BACKEND_DESCRIPTOR, &raw)
    }

    fn set<T: Copy>(&self, name: AttributeName, kind: AttributeType, values: &[T]) -> Result<()> {
        // SAFETY: the array has as many elements as given, of the attribute type's width.
        let status =
            unsafe { self.backend.set_attribute(self.raw, name, kind, values.len() as i64, values.as_ptr().cast()) };
        check(&*self.backend, || format!("setting {name:?} of a {:?}", self.kind), status)
    }

    /// Finalizes the descriptor: no attribute can be set afterwards.
    ///
    /// # Errors
    /// An attribute is missing or contradicts another.
    pub fn finalize(&self) -> Result<()> {
        // SAFETY: the descriptor is alive.
        let status = unsafe { self.backend.finalize(self.raw) };
        check(&*self.backend, || format!("finalizing a {:?}", self.kind), status)
    }

    /// Reads one integer.
    pub(crate) fn i64(&self, name: AttributeName) -> Result<i64> {
        let (mut value, mut count) = (0i64, 0);
        // SAFETY: there is space for the one element requested.
        let status = unsafe {
            self.backend.get_attribute(self.raw, name, AttributeType::INT64, 1, &mut count, (&raw mut value).cast())
        };
        check(&*self.backend, || format!("reading {name:?} of a {:?}", self.kind), status)?;
        if count == 0 {
            return Err(Error::invalid(format!("{:?}", self.kind), format!("{name:?} has no value")));
        }
        Ok(value)
    }

    /// Reads all integers of an attribute; empty if it was not set.
    pub(crate) fn i64s(&self, name: AttributeName) -> Result<Vec<i64>> {
        self.list(name, AttributeType::INT64)
    }

    /// Reads a string, without its NUL.
    pub(crate) fn text(&self, name: AttributeName) -> Result<String> {
        let bytes: Vec<u8> = self.list(name, AttributeType::CHAR)?;
        Ok(crate::handle::until_nul(&bytes))
    }

    /// Reads all elements of an attribute.
    pub(crate) fn list<T: Copy + Default>(&self, name: AttributeName, kind: AttributeType) -> Result<Vec<T>> {
        let mut values = vec![T::default(); self.count(name, kind)?];
        if values.is_empty() {
            return Ok(values);
        }
        let (room, mut count) = (values.len() as i64, 0);
        // SAFETY: the array has as many elements as given, of the attribute type's width.
        let status =
            unsafe { self.backend.get_attribute(self.raw, name, kind, room, &mut count, values.as_mut_ptr().cast()) };
        check(&*self.backend, || format!("reading {name:?} of a {:?}", self.kind), status)?;
        values.truncate(usize::try_from(count).unwrap_or(0));
        Ok(values)
    }

    /// Reads the descriptors that an attribute refers to.
    pub(crate) fn descriptors(&self, name: AttributeName, kind: DescriptorType) -> Result<Vec<Descriptor>> {
        let mut raw = vec![ptr::null_mut::<c_void>(); self.count(name, AttributeType::BACKEND_DESCRIPTOR)?];
        if raw.is_empty() {
            return Ok(Vec::new());
        }
        let (room, mut count) = (raw.len() as i64, 0);
        let element = AttributeType::BACKEND_DESCRIPTOR;
        // SAFETY: the array has space for as many descriptors as given.
        let status =
            unsafe { self.backend.get_attribute(self.raw, name, element, room, &mut count, raw.as_mut_ptr().cast()) };
        check(&*self.backend, || format!("reading {name:?} of a {:?}", self.kind), status)?;
        let made = raw.into_iter().filter(|raw| !raw.is_null());
        // SAFETY: the backend creates a new descriptor for each result, which the caller destroys.
        Ok(made.map(|raw| unsafe { Descriptor::adopt(&self.backend, kind, raw) }).collect())
    }

    /// The number of elements of an attribute.
    pub(crate) fn count(&self, name: AttributeName, kind: AttributeType) -> Result<usize> {
        let mut count = 0;
        // SAFETY: a null array only asks for the count.
        let status = unsafe { self.backend.get_attribute(self.raw, name, kind, 0, &mut count, ptr::null_mut()) };
        check(&*self.backend, || format!("counting {name:?} of a {:?}", self.kind), status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Reads the one descriptor that an attribute refers to.
    pub(crate) fn descriptor(&self, name: AttributeName, kind: DescriptorType) -> Result<Descriptor> {
        let (mut raw, mut count) = (ptr::null_mut::<c_void>(), 0);
        let element = AttributeType::BACKEND_DESCRIPTOR;
        // SAFETY: there is space for the one element requested.
        let status =
            unsafe { self.backend.get_attribute(self.raw, name, element, 1, &mut count, (&raw mut raw).cast()) };
        check(&*self.backend, || format!("reading {name:?} of a {:?}", self.kind), status)?;
        if raw.is_null() {
            return Err(Error::invalid(format!("{:?}", self.kind), format!("{name:?} is a null descriptor")));
        }
        // SAFETY: the backend creates a new descriptor for each result, which the caller destroys.
        Ok(unsafe { Descriptor::adopt(&self.backend, kind, raw) })
    }

    /// Fills the caller's descriptors with an attribute's values; returns how many were filled.
    pub(crate) fn fill(&self, name: AttributeName, into: &[Descriptor]) -> Result<usize> {
        let mut raw: Vec<sys::Descriptor> = into.iter().map(Descriptor::raw).collect();
        let (room, mut count) = (raw.len() as i64, 0);
        let element = AttributeType::BACKEND_DESCRIPTOR;
        // SAFETY: the array has as many descriptors as given, all alive.
        let status =
            unsafe { self.backend.get_attribute(self.raw, name, element, room, &mut count, raw.as_mut_ptr().cast()) };
        check(&*self.backend, || format!("reading {name:?} of a {:?}", self.kind), status)?;
        Ok(usize::try_from(count).unwrap_or(0).min(into.len()))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created by this backend and destroyed once.
        let status = unsafe { self.backend.destroy_descriptor(self.raw) };
        if let Err(error) = check(&*self.backend, || format!("destroying a {:?}", self.kind), status) {
            tracing::warn!(target: "hipdnn::lifetime", %error, "a hipDNN descriptor leaked");
        }
    }
}
