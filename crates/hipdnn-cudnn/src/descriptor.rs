//! An owned cuDNN descriptor with typed attributes, and cuDNN's failures translated to hipDNN's.

use std::ffi::c_void;
use std::ptr;

use hipdnn::sys as hipdnn_sys;
use hipdnn_abi::{Fault, Outcome};

use crate::sys::{self, AttributeName, AttributeType as T, Cudnn, DescriptorType, Status};

/// Turns cuDNN's status into a result with cuDNN's own message.
pub fn check(cudnn: &Cudnn, attempted: impl FnOnce() -> String, status: Status) -> Outcome {
    if status == Status::SUCCESS {
        return Ok(());
    }
    Err(Fault::new(status_of(status), format!("{}: {}", attempted(), cudnn.words(status))))
}

/// hipDNN's status for one of cuDNN's.
fn status_of(status: Status) -> hipdnn_sys::Status {
    match status.0 {
        0 => hipdnn_sys::Status::SUCCESS,
        1001 => hipdnn_sys::Status::NOT_INITIALIZED,
        2002 => hipdnn_sys::Status::BAD_PARAM_NULL_POINTER,
        2004 => hipdnn_sys::Status::BAD_PARAM_NOT_FINALIZED,
        2005 => hipdnn_sys::Status::BAD_PARAM_OUT_OF_BOUND,
        2006 => hipdnn_sys::Status::BAD_PARAM_SIZE_INSUFFICIENT,
        2007 => hipdnn_sys::Status::BAD_PARAM_STREAM_MISMATCH,
        2000..3000 => hipdnn_sys::Status::BAD_PARAM,
        3000..4000 => hipdnn_sys::Status::NOT_SUPPORTED,
        4003 => hipdnn_sys::Status::INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
        4004 => hipdnn_sys::Status::INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
        5000..6000 => hipdnn_sys::Status::EXECUTION_FAILED,
        _ => hipdnn_sys::Status::INTERNAL_ERROR,
    }
}

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
    raw: sys::Descriptor,
    kind: DescriptorType,
    cudnn: &'static Cudnn,
}

// SAFETY: cuDNN does not tie a descriptor to the thread that created it, and finalized ones are only read.
unsafe impl Send for Descriptor {}
// SAFETY: as above; attributes are set before a descriptor is shared.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    /// Creates a descriptor.
    pub fn new(cudnn: &'static Cudnn, kind: DescriptorType) -> Outcome<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let status = unsafe { (cudnn.create_descriptor)(kind, &mut raw) };
        check(cudnn, || format!("creating {kind:?}"), status)?;
        Ok(Self { raw, kind, cudnn })
    }

    /// cuDNN's pointer to it.
    pub fn raw(&self) -> sys::Descriptor {
        self.raw
    }

    /// Finalizes it.
    pub fn finalize(&self) -> Outcome {
        // SAFETY: the descriptor is alive.
        let status = unsafe { (self.cudnn.finalize)(self.raw) };
        check(self.cudnn, || format!("finalizing {:?}", self.kind), status)
    }

    /// Sets elements of the attribute type's C type.
    fn set_list<E>(&self, name: AttributeName, kind: T, elements: &[E]) -> Outcome {
        // SAFETY: the array has as many elements as given, and the callers in this module match type and elements.
        let status = unsafe {
            (self.cudnn.set_attribute)(self.raw, name, kind, elements.len() as i64, elements.as_ptr().cast())
        };
        check(self.cudnn, || format!("setting {name:?} of {:?}", self.kind), status)
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
        let raw: Vec<_> = values.iter().map(|value| value.raw).collect();
        self.set_list(name, T::BACKEND_DESCRIPTOR, &raw)
    }

    /// Sets a handle.
    pub fn set_handle(&self, name: AttributeName, handle: sys::Handle) -> Outcome {
        self.set_list(name, T::HANDLE, &[handle])
    }

    /// Reads an integer.
    pub fn i64(&self, name: AttributeName) -> Outcome<i64> {
        let (mut value, mut count) = (0i64, 0);
        let into: *mut c_void = (&raw mut value).cast();
        // SAFETY: there is room for the one element requested.
        let status = unsafe { (self.cudnn.get_attribute)(self.raw, name, T::INT64, 1, &mut count, into) };
        check(self.cudnn, || format!("reading {name:?} of {:?}", self.kind), status)?;
        Ok(value)
    }

    /// Reads a string.
    pub fn text(&self, name: AttributeName) -> Outcome<String> {
        let attempted = || format!("reading {name:?} of {:?}", self.kind);
        let mut count = 0;
        // SAFETY: without a buffer only the count is written.
        let status = unsafe { (self.cudnn.get_attribute)(self.raw, name, T::CHAR, 0, &mut count, ptr::null_mut()) };
        check(self.cudnn, attempted, status)?;
        let mut bytes = vec![0u8; usize::try_from(count).unwrap_or(0)];
        let (room, into) = (bytes.len() as i64, bytes.as_mut_ptr().cast());
        // SAFETY: there is room for the characters requested.
        let status = unsafe { (self.cudnn.get_attribute)(self.raw, name, T::CHAR, room, &mut count, into) };
        check(self.cudnn, attempted, status)?;
        bytes.truncate(usize::try_from(count).unwrap_or(0));
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        String::from_utf8(bytes).map_err(|_| Fault::bad(format!("{}: it is not UTF-8", attempted())))
    }

    /// Reads up to 64 values of an enumeration.
    pub fn codes(&self, name: AttributeName, kind: T) -> Outcome<Vec<i32>> {
        let (mut values, mut count) = ([0i32; 64], 0);
        // SAFETY: there is room for the elements requested.
        let status = unsafe {
            (self.cudnn.get_attribute)(
                self.raw,
                name,
                kind,
                values.len() as i64,
                &mut count,
                values.as_mut_ptr().cast(),
            )
        };
        check(self.cudnn, || format!("reading {name:?} of {:?}", self.kind), status)?;
        Ok(values[..usize::try_from(count).unwrap_or(0).min(values.len())].to_vec())
    }

    /// How many descriptors an attribute has.
    pub fn count(&self, name: AttributeName) -> Outcome<usize> {
        let mut count = 0;
        // SAFETY: without a buffer only the count is written.
        let status = unsafe {
            (self.cudnn.get_attribute)(self.raw, name, T::BACKEND_DESCRIPTOR, 0, &mut count, ptr::null_mut())
        };
        check(self.cudnn, || format!("counting {name:?} of {:?}", self.kind), status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Lets cuDNN fill descriptors that were created for it; returns how many it filled.
    pub fn fill(&self, name: AttributeName, into: &[Descriptor]) -> Outcome<usize> {
        let mut raw: Vec<_> = into.iter().map(|descriptor| descriptor.raw).collect();
        let mut count = 0;
        // SAFETY: the array has as many live descriptors as given.
        let status = unsafe {
            let (kind, room) = (T::BACKEND_DESCRIPTOR, raw.len() as i64);
            (self.cudnn.get_attribute)(self.raw, name, kind, room, &mut count, raw.as_mut_ptr().cast())
        };
        check(self.cudnn, || format!("reading {name:?} of {:?}", self.kind), status)?;
        Ok(usize::try_from(count).unwrap_or(0).min(into.len()))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made by `create_descriptor` and never handed out.
        let status = unsafe { (self.cudnn.destroy_descriptor)(self.raw) };
        if status != Status::SUCCESS {
            tracing::warn!(target: "hipdnn::cudnn", kind = ?self.kind, status = status.0, "a descriptor leaked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_of_cudnn_is_one_of_hipdnn() {
        for (cudnn, wanted) in [
            (1001, hipdnn_sys::Status::NOT_INITIALIZED),
            (2000, hipdnn_sys::Status::BAD_PARAM),
            (2010, hipdnn_sys::Status::BAD_PARAM),
            (2002, hipdnn_sys::Status::BAD_PARAM_NULL_POINTER),
            (2004, hipdnn_sys::Status::BAD_PARAM_NOT_FINALIZED),
            (2005, hipdnn_sys::Status::BAD_PARAM_OUT_OF_BOUND),
            (2006, hipdnn_sys::Status::BAD_PARAM_SIZE_INSUFFICIENT),
            (2007, hipdnn_sys::Status::BAD_PARAM_STREAM_MISMATCH),
            (3000, hipdnn_sys::Status::NOT_SUPPORTED),
            (3014, hipdnn_sys::Status::NOT_SUPPORTED),
            (4001, hipdnn_sys::Status::INTERNAL_ERROR),
            (4003, hipdnn_sys::Status::INTERNAL_ERROR_HOST_ALLOCATION_FAILED),
            (4004, hipdnn_sys::Status::INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED),
            (5001, hipdnn_sys::Status::EXECUTION_FAILED),
            (7777, hipdnn_sys::Status::INTERNAL_ERROR),
        ] {
            assert_eq!(status_of(Status(cudnn)), wanted, "{cudnn}");
        }
    }
}
