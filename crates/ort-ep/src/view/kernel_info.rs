//! The node that a registered kernel is created for.
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::ptr;

use ort_ep_sys as sys;

use super::key_values::OwnedKeyValues;
use super::logger::Logger;
use super::read::{self, non_null};
use super::tensor::Tensor;
use super::value_type::ValueType;
use crate::Result;
use crate::ffi::runtime::c_string;

view! {
    /// The node that a registered kernel is created for.
    KernelInfo(OrtKernelInfo)
}

macro_rules! text_of {
    ($self:ident, $function:ident($($argument:expr),*)) => {
        read::probed_text($self.runtime, stringify!($function), |buffer: *mut c_char, size: *mut usize| {
            // SAFETY: `from_raw`'s caller vouches for the info; `probed_text` passes null or `*size` bytes.
            unsafe { $self.runtime.api.$function($self.raw, $($argument,)* buffer, size) }
        })
    };
}

impl<'a> KernelInfo<'a> {
    /// The operator, such as `MatMul`.
    ///
    /// # Errors
    /// If the name is not UTF-8.
    pub fn op_type(self) -> Result<String> {
        text_of!(self, KernelInfo_GetOperatorType())
    }

    /// The operator's domain; empty for ONNX itself.
    ///
    /// # Errors
    /// If the name is not UTF-8.
    pub fn domain(self) -> Result<String> {
        text_of!(self, KernelInfo_GetOperatorDomain())
    }

    /// The opset version that introduced this version of the operator.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn since_version(self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: `from_raw`'s caller vouches for the info; the out-pointer is ours.
        unsafe { call!(self.runtime, KernelInfo_GetOperatorSinceVersion(self.raw, &mut version))? };
        Ok(version)
    }

    /// The node's name; may be empty.
    ///
    /// # Errors
    /// If the name is not UTF-8.
    pub fn node_name(self) -> Result<String> {
        text_of!(self, KernelInfo_GetNodeName())
    }

    /// How many inputs the node has.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn input_count(self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelInfo_GetInputCount(self.raw, &mut count))? };
        Ok(count)
    }

    /// How many outputs the node has.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn output_count(self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelInfo_GetOutputCount(self.raw, &mut count))? };
        Ok(count)
    }

    /// The name of an input; empty if an optional one is absent.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn input_name(self, index: usize) -> Result<String> {
        text_of!(self, KernelInfo_GetInputName(index))
    }

    /// The name of an output; empty if an optional one is absent.
    ///
    /// # Errors
    /// If there is no such output.
    pub fn output_name(self, index: usize) -> Result<String> {
        text_of!(self, KernelInfo_GetOutputName(index))
    }

    /// The type of an input.
    ///
    /// # Errors
    /// If there is no such input, or its type is not known.
    pub fn input_type(self, index: usize) -> Result<ValueType> {
        let mut info = ptr::null_mut();
        // SAFETY: as above; we own the description.
        unsafe { call!(self.runtime, KernelInfo_GetInputTypeInfo(self.raw, index, &mut info))? };
        self.take_type(info)
    }

    /// The type of an output.
    ///
    /// # Errors
    /// If there is no such output, or its type is not known.
    pub fn output_type(self, index: usize) -> Result<ValueType> {
        let mut info = ptr::null_mut();
        // SAFETY: as above; we own the description.
        unsafe { call!(self.runtime, KernelInfo_GetOutputTypeInfo(self.raw, index, &mut info))? };
        self.take_type(info)
    }

    /// An integer attribute.
    ///
    /// # Errors
    /// If it is not set or has another type.
    pub fn int(self, name: &str) -> Result<i64> {
        let (name, mut value) = (c_string(name), 0);
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelInfoGetAttribute_int64(self.raw, name.as_ptr(), &mut value))? };
        Ok(value)
    }

    /// A float attribute.
    ///
    /// # Errors
    /// If it is not set or has another type.
    pub fn float(self, name: &str) -> Result<f32> {
        let (name, mut value) = (c_string(name), 0.0);
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelInfoGetAttribute_float(self.raw, name.as_ptr(), &mut value))? };
        Ok(value)
    }

    /// A string attribute.
    ///
    /// # Errors
    /// If it is not set or has another type.
    pub fn string(self, name: &str) -> Result<String> {
        let name = c_string(name);
        text_of!(self, KernelInfoGetAttribute_string(CStr::as_ptr(&name)))
    }

    /// A list-of-integers attribute.
    ///
    /// # Errors
    /// If it is not set or has another type.
    pub fn ints(self, name: &str) -> Result<Vec<i64>> {
        let name = c_string(name);
        read::probed(self.runtime, "KernelInfoGetAttributeArray_int64", 0, |values, len| {
            // SAFETY: as above; `probed` passes null or room for `*len` values.
            unsafe { self.runtime.api.KernelInfoGetAttributeArray_int64(self.raw, name.as_ptr(), values, len) }
        })
    }

    /// A list-of-floats attribute.
    ///
    /// # Errors
    /// If it is not set or has another type.
    pub fn floats(self, name: &str) -> Result<Vec<f32>> {
        let name = c_string(name);
        read::probed(self.runtime, "KernelInfoGetAttributeArray_float", 0.0, |values, len| {
            // SAFETY: as above.
            unsafe { self.runtime.api.KernelInfoGetAttributeArray_float(self.raw, name.as_ptr(), values, len) }
        })
    }

    /// The data of an input that is a constant initializer; `None` for other inputs.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn constant_input(self, index: usize) -> Result<Option<Tensor<'a>>> {
        let (mut constant, mut value) = (0, ptr::null());
        // SAFETY: as above.
        unsafe { call!(self.runtime, KernelInfoGetConstantInput_tensor(self.raw, index, &mut constant, &mut value))? };
        let value = if constant == 0 { None } else { non_null(value) };
        // SAFETY: the runtime keeps constant inputs while it creates kernels.
        Ok(value.map(|value| unsafe { Tensor::from_raw(self.runtime, value) }))
    }

    /// Every configuration entry of the session.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn config_entries(self) -> Result<BTreeMap<String, String>> {
        let mut raw = ptr::null_mut();
        // SAFETY: as above; we own the pairs.
        let entries = unsafe {
            call!(self.runtime, KernelInfo_GetConfigEntries(self.raw, &mut raw))?;
            OwnedKeyValues::from_raw(self.runtime, raw)
        };
        Ok(entries.as_view().to_map())
    }

    /// The session's logger.
    ///
    /// # Errors
    /// If the runtime has none.
    pub fn logger(self) -> Result<Logger<'a>> {
        let mut logger = ptr::null();
        // SAFETY: as above; the logger lives as long as the session.
        unsafe {
            call!(self.runtime, KernelInfo_GetLogger(self.raw, &mut logger))?;
            Ok(Logger::from_raw(self.runtime, logger))
        }
    }

    fn take_type(self, info: *mut sys::OrtTypeInfo) -> Result<ValueType> {
        // SAFETY: the callers own `info`; it is read, then released, and never used again.
        unsafe {
            let value_type = ValueType::from_raw(self.runtime, info);
            self.runtime.api.ReleaseTypeInfo(info);
            value_type
        }
    }
}
