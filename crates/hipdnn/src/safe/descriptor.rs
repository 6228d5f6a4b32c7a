//! An owned descriptor with typed attributes.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::Handle;
use crate::result::descriptor::{self as result, RawDescriptor};
use crate::result::until_nul;
use crate::sys::{self, AttributeName, AttributeType, Backend, DataType, DescriptorType};
use crate::{Error, Result};

/// A descriptor of any kind. The backend counts references: a descriptor that was set on another one may be dropped
/// here.
pub struct Descriptor {
    raw: RawDescriptor,
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
        Ok(Self { raw: result::create(&**backend, kind)?, backend: backend.clone() })
    }

    /// Takes ownership of a descriptor that the backend created for the caller.
    ///
    /// # Safety
    /// `raw` is a live descriptor of this backend that nothing else destroys.
    pub(crate) unsafe fn adopt(backend: &Arc<dyn Backend>, raw: RawDescriptor) -> Self {
        Self { raw, backend: backend.clone() }
    }

    /// The raw C descriptor, valid while this one lives.
    pub fn raw(&self) -> sys::Descriptor {
        self.raw.pointer
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

    fn set<T: Copy>(&self, name: AttributeName, element: AttributeType, values: &[T]) -> Result<()> {
        // SAFETY: the descriptor is alive; the methods above pair each type with the element of its width.
        unsafe { result::set(&*self.backend, self.raw, name, element, values) }
    }

    /// Finalizes the descriptor: no attribute can be set afterwards.
    ///
    /// # Errors
    /// An attribute is missing or contradicts another.
    pub fn finalize(&self) -> Result<()> {
        // SAFETY: the descriptor is alive.
        unsafe { result::finalize(&*self.backend, self.raw) }
    }

    /// Reads one integer.
    pub(crate) fn i64(&self, name: AttributeName) -> Result<i64> {
        let mut value = [0];
        if self.get(name, AttributeType::INT64, &mut value)? == 0 {
            return Err(Error::invalid(self.label(), format!("{name:?} has no value")));
        }
        Ok(value[0])
    }

    /// Reads all integers of an attribute; empty if it was not set.
    pub(crate) fn i64s(&self, name: AttributeName) -> Result<Vec<i64>> {
        self.list(name, AttributeType::INT64, 0)
    }

    /// Reads the numbers of an enumeration.
    pub(crate) fn modes(&self, name: AttributeName, element: AttributeType) -> Result<Vec<i32>> {
        self.list(name, element, 0)
    }

    /// Reads a string, without its NUL.
    pub(crate) fn text(&self, name: AttributeName) -> Result<String> {
        let bytes: Vec<u8> = self.list(name, AttributeType::CHAR, 0)?;
        Ok(until_nul(&bytes))
    }

    /// Reads the descriptors that an attribute refers to.
    pub(crate) fn descriptors(&self, name: AttributeName, kind: DescriptorType) -> Result<Vec<Descriptor>> {
        let found: Vec<sys::Descriptor> = self.list(name, AttributeType::BACKEND_DESCRIPTOR, ptr::null_mut())?;
        Ok(found.into_iter().filter(|raw| !raw.is_null()).map(|raw| self.created(raw, kind)).collect())
    }

    /// Reads the one descriptor that an attribute refers to.
    pub(crate) fn descriptor(&self, name: AttributeName, kind: DescriptorType) -> Result<Descriptor> {
        let mut found: [sys::Descriptor; 1] = [ptr::null_mut()];
        self.get(name, AttributeType::BACKEND_DESCRIPTOR, &mut found)?;
        if found[0].is_null() {
            return Err(Error::invalid(self.label(), format!("{name:?} is a null descriptor")));
        }
        Ok(self.created(found[0], kind))
    }

    /// Fills the caller's descriptors with an attribute's values; returns how many were filled.
    pub(crate) fn fill(&self, name: AttributeName, into: &[Descriptor]) -> Result<usize> {
        let mut raw: Vec<sys::Descriptor> = into.iter().map(Descriptor::raw).collect();
        self.get(name, AttributeType::BACKEND_DESCRIPTOR, &mut raw)
    }

    /// The number of elements of an attribute.
    pub(crate) fn count(&self, name: AttributeName, element: AttributeType) -> Result<usize> {
        // SAFETY: the descriptor is alive.
        unsafe { result::count(&*self.backend, self.raw, name, element) }
    }

    /// Reads all elements of an attribute, into copies of `empty`.
    fn list<T: Copy>(&self, name: AttributeName, element: AttributeType, empty: T) -> Result<Vec<T>> {
        let mut values = vec![empty; self.count(name, element)?];
        if !values.is_empty() {
            let count = self.get(name, element, &mut values)?;
            values.truncate(count);
        }
        Ok(values)
    }

    fn get<T: Copy>(&self, name: AttributeName, element: AttributeType, values: &mut [T]) -> Result<usize> {
        // SAFETY: the descriptor is alive; the methods above pair each type with the element of its width.
        unsafe { result::get(&*self.backend, self.raw, name, element, values) }
    }

    /// Takes ownership of a descriptor that the backend created to answer a question.
    fn created(&self, pointer: sys::Descriptor, kind: DescriptorType) -> Descriptor {
        // SAFETY: the backend creates a new descriptor for each result, which the caller destroys.
        unsafe { Descriptor::adopt(&self.backend, RawDescriptor { pointer, kind }) }
    }

    fn label(&self) -> String {
        format!("{:?}", self.raw.kind)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created by this backend and destroyed once.
        if let Err(error) = unsafe { result::destroy(&*self.backend, self.raw) } {
            tracing::warn!(target: "hipdnn::lifetime", %error, "a hipDNN descriptor leaked");
        }
    }
}
