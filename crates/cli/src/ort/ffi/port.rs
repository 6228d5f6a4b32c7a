//! The names and types of a session's inputs and outputs.

use std::ptr::{self, NonNull};

use anyhow::Result;
use ort_ep_sys::{self as sys, OrtSession, OrtTensorTypeAndShapeInfo, OrtTypeInfo};

use super::{Runtime, text};
use crate::ort::{Dim, Element, Port, PortKind};

/// # Safety
/// The session is alive for the call.
pub(super) unsafe fn inputs(runtime: &Runtime, session: NonNull<OrtSession>) -> Result<Vec<Port>> {
    let (session, allocator) = (session.as_ptr().cast_const(), runtime.allocator()?.as_ptr());
    let mut count = 0;
    // SAFETY: the caller guarantees the session; names and types are ours, and `port` releases them.
    unsafe {
        runtime.check(runtime.api.SessionGetInputCount(session, &mut count))?;
        let read = |index| {
            let (mut name, mut info) = (ptr::null_mut(), ptr::null_mut());
            runtime.check(runtime.api.SessionGetInputTypeInfo(session, index, &mut info))?;
            let named = runtime.check(runtime.api.SessionGetInputName(session, index, allocator, &mut name));
            port(runtime, named, name, info)
        };
        (0..count).map(read).collect()
    }
}

/// # Safety
/// The session is alive for the call.
pub(super) unsafe fn outputs(runtime: &Runtime, session: NonNull<OrtSession>) -> Result<Vec<Port>> {
    let (session, allocator) = (session.as_ptr().cast_const(), runtime.allocator()?.as_ptr());
    let mut count = 0;
    // SAFETY: as in `inputs`.
    unsafe {
        runtime.check(runtime.api.SessionGetOutputCount(session, &mut count))?;
        let read = |index| {
            let (mut name, mut info) = (ptr::null_mut(), ptr::null_mut());
            runtime.check(runtime.api.SessionGetOutputTypeInfo(session, index, &mut info))?;
            let named = runtime.check(runtime.api.SessionGetOutputName(session, index, allocator, &mut name));
            port(runtime, named, name, info)
        };
        (0..count).map(read).collect()
    }
}

/// Copies one input or output and releases its parts.
///
/// # Safety
/// `info` is ours, and so is `name`, from the default allocator, if `named` is a success.
unsafe fn port(
    runtime: &Runtime,
    named: Result<()>,
    name: *mut std::ffi::c_char,
    info: *mut OrtTypeInfo,
) -> Result<Port> {
    // SAFETY: the caller hands over both; they are read before they are released, each once.
    unsafe {
        let kind = kind(runtime, info);
        runtime.api.ReleaseTypeInfo(info);
        named?;
        let copy = text(name);
        runtime.check(runtime.api.AllocatorFree(runtime.allocator()?.as_ptr(), name.cast()))?;
        Ok(Port { name: copy, kind: kind? })
    }
}

/// # Safety
/// `info` is alive for the call.
unsafe fn kind(runtime: &Runtime, info: *const OrtTypeInfo) -> Result<PortKind> {
    let (mut onnx_type, mut tensor) = (0, ptr::null());
    // SAFETY: the caller guarantees the info; the tensor info belongs to it.
    unsafe {
        runtime.check(runtime.api.GetOnnxTypeFromTypeInfo(info, &mut onnx_type))?;
        if onnx_type != sys::ONNX_TYPE_TENSOR {
            return Ok(PortKind::Other(type_name(onnx_type).to_owned()));
        }
        runtime.check(runtime.api.CastTypeInfoToTensorInfo(info, &mut tensor))?;
        let element = element(runtime, tensor)?;
        Ok(match Element::from_onnx(element) {
            Some(element) => PortKind::Tensor(element, dims(runtime, tensor)?),
            None if element == sys::ONNX_STRING => PortKind::Other("a tensor of strings".to_owned()),
            None => PortKind::Other(format!("a tensor of ONNX type {element}")),
        })
    }
}

/// A description of a type of value.
pub(super) fn type_name(onnx_type: i32) -> &'static str {
    match onnx_type {
        sys::ONNX_TYPE_TENSOR => "a tensor",
        sys::ONNX_TYPE_SEQUENCE => "a sequence",
        sys::ONNX_TYPE_MAP => "a map",
        sys::ONNX_TYPE_SPARSETENSOR => "a sparse tensor",
        sys::ONNX_TYPE_OPTIONAL => "an optional value",
        _ => "an opaque value",
    }
}

/// # Safety
/// `info` is alive for the call.
pub(super) unsafe fn element(runtime: &Runtime, info: *const OrtTensorTypeAndShapeInfo) -> Result<i32> {
    let mut element = 0;
    // SAFETY: the caller guarantees the info.
    runtime.check(unsafe { runtime.api.GetTensorElementType(info, &mut element) })?;
    Ok(element)
}

/// # Safety
/// `info` is alive for the call.
pub(super) unsafe fn dims(runtime: &Runtime, info: *const OrtTensorTypeAndShapeInfo) -> Result<Vec<Dim>> {
    let mut rank = 0;
    // SAFETY: the caller guarantees the info; both arrays have the given number of entries, and the names belong to the
    // info.
    unsafe {
        runtime.check(runtime.api.GetDimensionsCount(info, &mut rank))?;
        let (mut sizes, mut names) = (vec![0; rank], vec![ptr::null(); rank]);
        runtime.check(runtime.api.GetDimensions(info, sizes.as_mut_ptr(), rank))?;
        runtime.check(runtime.api.GetSymbolicDimensions(info, names.as_mut_ptr(), rank))?;
        let dim = |(&size, &name): (&i64, &*const std::ffi::c_char)| match (usize::try_from(size), text(name)) {
            (Ok(size), _) => Dim::Size(size),
            (Err(_), name) if name.is_empty() => Dim::Any,
            (Err(_), name) => Dim::Named(name),
        };
        Ok(sizes.iter().zip(&names).map(dim).collect())
    }
}
