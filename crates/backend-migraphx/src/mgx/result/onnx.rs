//! Parsing of ONNX models.

use std::ffi::CStr;
use std::ptr;

use super::{Created, Doing, check, created, need};
use crate::mgx::sys::{Handle, Loaded};
use crate::mgx::{Feature, MgxError};

/// Creates options.
pub fn create_options(library: &Loaded, doing: Doing<'_>) -> Result<Created, MgxError> {
    let table = &library.table;
    created("onnx_options_create", ("onnx_options_destroy", table.onnx_options_destroy), doing, |out| {
        // SAFETY: `out` is a valid out-pointer.
        unsafe { (table.onnx_options_create)(out) }
    })
}

/// Sets the shape of an input.
///
/// # Safety
/// The options are alive.
pub unsafe fn set_input_shape(
    library: &Loaded,
    options: Handle,
    name: &CStr,
    lengths: &[usize],
    doing: Doing<'_>,
) -> Result<(), MgxError> {
    let set = library.table.onnx_options_set_input_parameter_shape;
    // SAFETY: the name and lengths are copied during the call; the caller vouches for the options.
    let status = unsafe { set(options, name.as_ptr(), lengths.as_ptr(), lengths.len()) };
    check("onnx_options_set_input_parameter_shape", status, doing)
}

/// Sets the folder of external data.
///
/// # Safety
/// The options are alive.
pub unsafe fn set_external_data(
    library: &Loaded,
    options: Handle,
    folder: &CStr,
    doing: Doing<'_>,
) -> Result<(), MgxError> {
    let set = need(library, Feature::ExternalDataPath, library.table.onnx_options_set_external_data_path)?;
    // SAFETY: the path is copied during the call; the caller vouches for the options.
    let status = unsafe { set(options, folder.as_ptr()) };
    check("onnx_options_set_external_data_path", status, doing)
}

/// Parses a model into a program.
///
/// # Safety
/// The options are alive.
pub unsafe fn parse(library: &Loaded, model: &[u8], options: Handle, doing: Doing<'_>) -> Result<Created, MgxError> {
    let table = &library.table;
    created("parse_onnx_buffer", ("program_destroy", table.program_destroy), doing, |out| {
        // SAFETY: `out` is a valid out-pointer. The model is only read during the call. The caller vouches for the
        // options.
        unsafe { (table.parse_onnx_buffer)(out, model.as_ptr().cast(), model.len(), options) }
    })
}

/// The operators that the parser supports, by name without a domain.
pub fn operators(library: &Loaded, doing: Doing<'_>) -> Result<Vec<String>, MgxError> {
    let table = &library.table;
    let size = need(library, Feature::OperatorList, table.get_onnx_operators_size)?;
    let name_at = need(library, Feature::OperatorList, table.get_onnx_operator_name_at_index)?;
    let mut count = 0;
    // SAFETY: `count` is a valid out-pointer.
    check("get_onnx_operators_size", unsafe { size(&mut count) }, doing)?;
    let name = |index| {
        let mut text = ptr::null_mut();
        // SAFETY: `text` is a valid out-pointer, and `index` is below the count.
        check("get_onnx_operator_name_at_index", unsafe { name_at(&mut text, index) }, doing)?;
        if text.is_null() {
            return Err(MgxError::answer(format!("no name for operator {index}")));
        }
        // SAFETY: MIGraphX returns a NUL-terminated name from a static list.
        Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    (0..count).map(name).collect()
}
