//! An owned cuDNN descriptor with typed attributes.

use hipdnn_abi::{Fault, Outcome};

use super::Handle;
use crate::result::descriptor::{self as result, RawDescriptor};
use crate::sys::{self, AttributeName, AttributeType as T, Cudnn, DescriptorType};

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// Integers.
    I64s(Vec<i64>),
    /// A value of an enumeration.
    Code(T, i32),
    /// A number in single precision.
    F32(f32),
    /// A number in double precision.
    F64(f64),
    /// A flag.
    Flag(bool),
}

/// A descriptor.
pub struct Descriptor {
    raw: RawDescriptor,
    cudnn: &'static Cudnn,
}

// SAFETY: cuDNN does not tie a descriptor to the thread that created it, and finalized ones are only read.
unsafe impl Send for Descriptor {}
// SAFETY: as above; attributes are set before a descriptor is shared.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    /// Creates a descriptor.
    pub fn new(cudnn: &'static Cudnn, kind: DescriptorType) -> Outcome<Self> {
        Ok(Self { raw: result::create(cudnn, kind)?, cudnn })
    }

    /// cuDNN's pointer to it.
    pub(super) fn raw(&self) -> sys::Descriptor {
        self.raw.pointer
    }

    /// Finalizes it.
    pub fn finalize(&self) -> Outcome {
        // SAFETY: the descriptor is alive.
        unsafe { result::finalize(self.cudnn, self.raw) }
    }

    /// Sets elements of the attribute type's C type.
    fn set_list<E: Copy>(&self, name: AttributeName, element: T, values: &[E]) -> Outcome {
        // SAFETY: the descriptor is alive, and the methods below match type and elements.
        unsafe { result::set(self.cudnn, self.raw, name, element, values) }
    }

    /// Reads elements of the attribute type's C type; returns how many there are, at most as many as fit.
    fn get<E: Copy>(&self, name: AttributeName, element: T, values: &mut [E]) -> Outcome<usize> {
        // SAFETY: the descriptor is alive, and the methods below match type and elements.
        unsafe { result::get(self.cudnn, self.raw, name, element, values) }
    }

    /// Sets a parameter.
    pub fn set(&self, name: AttributeName, value: &Setting) -> Outcome {
        match value {
            Setting::I64s(values) => self.set_list(name, T::INT64, values),
            Setting::Code(kind, value) => self.set_list(name, *kind, &[*value]),
            Setting::F32(value) => self.set_list(name, T::FLOAT, &[*value]),
            Setting::F64(value) => self.set_list(name, T::DOUBLE, &[*value]),
            Setting::Flag(value) => self.set_list(name, T::BOOLEAN, &[u8::from(*value)]),
        }
    }

    /// Sets integers.
    pub fn set_i64s(&self, name: AttributeName, values: &[i64]) -> Outcome {
        self.set_list(name, T::INT64, values)
    }

    /// Sets a string.
    pub fn set_text(&self, name: AttributeName, text: &str) -> Outcome {
        self.set_list(name, T::CHAR, text.as_bytes())
    }

    /// Sets addresses, which cuDNN only stores.
    pub fn set_addresses(&self, name: AttributeName, values: &[usize]) -> Outcome {
        self.set_list(name, T::VOID_PTR, values)
    }

    /// Sets other descriptors.
    pub fn set_descriptors(&self, name: AttributeName, values: &[&Descriptor]) -> Outcome {
        let raw: Vec<_> = values.iter().map(|value| value.raw()).collect();
        self.set_list(name, T::BACKEND_DESCRIPTOR, &raw)
    }

    /// Sets a handle.
    pub fn set_handle(&self, name: AttributeName, handle: &Handle) -> Outcome {
        self.set_list(name, T::HANDLE, &[handle.raw()])
    }

    /// Reads an integer.
    pub fn i64(&self, name: AttributeName) -> Outcome<i64> {
        let mut value = [0];
        self.get(name, T::INT64, &mut value)?;
        Ok(value[0])
    }

    /// Reads a string.
    pub fn text(&self, name: AttributeName) -> Outcome<String> {
        // SAFETY: the descriptor is alive.
        let mut bytes = vec![0u8; unsafe { result::count(self.cudnn, self.raw, name, T::CHAR)? }];
        let count = self.get(name, T::CHAR, &mut bytes)?;
        bytes.truncate(count);
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        String::from_utf8(bytes)
            .map_err(|_| Fault::bad(format!("reading {name:?} of {:?}: it is not UTF-8", self.raw.kind)))
    }

    /// Reads up to 64 values of an enumeration.
    pub fn codes(&self, name: AttributeName, element: T) -> Outcome<Vec<i32>> {
        let mut values = [0; 64];
        let count = self.get(name, element, &mut values)?;
        Ok(values[..count].to_vec())
    }

    /// How many descriptors an attribute has.
    pub fn count(&self, name: AttributeName) -> Outcome<usize> {
        // SAFETY: the descriptor is alive.
        unsafe { result::count(self.cudnn, self.raw, name, T::BACKEND_DESCRIPTOR) }
    }

    /// Lets cuDNN fill descriptors that were created for it; returns how many it filled.
    pub fn fill(&self, name: AttributeName, into: &[Descriptor]) -> Outcome<usize> {
        let mut raw: Vec<_> = into.iter().map(Descriptor::raw).collect();
        self.get(name, T::BACKEND_DESCRIPTOR, &mut raw)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made by `create` and never handed out.
        if let Err(fault) = unsafe { result::destroy(self.cudnn, self.raw) } {
            tracing::warn!(target: "hipdnn::cudnn", "a descriptor leaked: {}", fault.text);
        }
    }
}
