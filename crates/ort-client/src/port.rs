//! The names and types of a session's inputs and outputs.

use std::ffi::c_char;
use std::fmt;
use std::ptr;

use ort_ep_sys::{self as sys, Api, OrtSession, OrtTensorTypeAndShapeInfo, OrtTypeInfo, Status};

use crate::error::check;
use crate::runtime::default_allocator;
use crate::text::text;
use crate::{Element, Result};

/// An input or output of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// The name.
    pub name: String,
    /// The type.
    pub kind: Kind,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A tensor of numbers.
    Tensor(Element, Vec<Dim>),
    /// A tensor of strings.
    Strings(Vec<Dim>),
    /// A tensor whose elements are smaller than a byte, or of a type that this crate does not know: ONNX's number of
    /// the type.
    OtherTensor(i32, Vec<Dim>),
    /// Any other type, as a description.
    Other(&'static str),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Tensor(element, _) => write!(f, "a tensor of {}", element.name()),
            Kind::Strings(_) => f.write_str("a tensor of strings"),
            Kind::OtherTensor(number, _) => write!(f, "a tensor of ONNX type {number}"),
            Kind::Other(what) => f.write_str(what),
        }
    }
}

/// A dimension of a tensor type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// A fixed extent.
    Size(usize),
    /// A named extent: equal names mean equal extents.
    Named(String),
    /// Any extent.
    Any,
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Size(size) => size.fmt(f),
            Dim::Named(name) => name.fmt(f),
            Dim::Any => f.write_str("?"),
        }
    }
}

type Count = unsafe fn(&Api, *const OrtSession, *mut usize) -> Status;
type TypeOf = unsafe fn(&Api, *const OrtSession, usize, *mut *mut OrtTypeInfo) -> Status;
type NameOf = unsafe fn(&Api, *const OrtSession, usize, *mut sys::OrtAllocator, *mut *mut c_char) -> Status;

/// The inputs, without those that have a default value in the model, and the outputs.
///
/// # Safety
/// The session is alive for the call.
pub(crate) unsafe fn read(api: &Api, session: *const OrtSession) -> Result<(Vec<Port>, Vec<Port>)> {
    let (count, type_of, name_of): (Count, TypeOf, NameOf) =
        (Api::SessionGetInputCount, Api::SessionGetInputTypeInfo, Api::SessionGetInputName);
    // SAFETY: the caller guarantees the session.
    let inputs = unsafe { ports(api, session, count, type_of, name_of) }?;
    let (count, type_of, name_of): (Count, TypeOf, NameOf) =
        (Api::SessionGetOutputCount, Api::SessionGetOutputTypeInfo, Api::SessionGetOutputName);
    // SAFETY: the caller guarantees the session.
    let outputs = unsafe { ports(api, session, count, type_of, name_of) }?;
    Ok((inputs, outputs))
}

/// # Safety
/// The session is alive for the call, and the functions are those of inputs or of outputs.
unsafe fn ports(
    api: &Api,
    session: *const OrtSession,
    count: Count,
    type_of: TypeOf,
    name_of: NameOf,
) -> Result<Vec<Port>> {
    let allocator = default_allocator(api)?.as_ptr();
    let mut total = 0;
    // SAFETY: the caller guarantees the session. Types and names are ours: each is read and then released once.
    unsafe {
        check(api, count(api, session, &mut total))?;
        let read = |index| {
            let (mut name, mut info) = (ptr::null_mut(), ptr::null_mut());
            check(api, type_of(api, session, index, &mut info))?;
            let kind = kind(api, info);
            api.ReleaseTypeInfo(info);
            check(api, name_of(api, session, index, allocator, &mut name))?;
            let copy = text(name);
            check(api, api.AllocatorFree(allocator, name.cast()))?;
            Ok(Port { name: copy, kind: kind? })
        };
        (0..total).map(read).collect()
    }
}

/// # Safety
/// `info` is null or alive for the call.
pub(crate) unsafe fn kind(api: &Api, info: *const OrtTypeInfo) -> Result<Kind> {
    // An empty optional value has no type.
    if info.is_null() {
        return Ok(Kind::Other(type_name(sys::ONNX_TYPE_UNKNOWN)));
    }
    let (mut onnx_type, mut tensor) = (0, ptr::null());
    // SAFETY: the caller guarantees the info; the tensor info belongs to it.
    unsafe {
        check(api, api.GetOnnxTypeFromTypeInfo(info, &mut onnx_type))?;
        if onnx_type != sys::ONNX_TYPE_TENSOR {
            return Ok(Kind::Other(type_name(onnx_type)));
        }
        check(api, api.CastTypeInfoToTensorInfo(info, &mut tensor))?;
        let (number, dims) = (element(api, tensor)?, dims(api, tensor)?);
        Ok(match Element::from_onnx(number) {
            Some(element) => Kind::Tensor(element, dims),
            None if number == sys::ONNX_STRING => Kind::Strings(dims),
            None => Kind::OtherTensor(number, dims),
        })
    }
}

/// A description of a type of value.
fn type_name(onnx_type: i32) -> &'static str {
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
unsafe fn element(api: &Api, info: *const OrtTensorTypeAndShapeInfo) -> Result<i32> {
    let mut element = 0;
    // SAFETY: the caller guarantees the info.
    check(api, unsafe { api.GetTensorElementType(info, &mut element) })?;
    Ok(element)
}

/// # Safety
/// `info` is alive for the call.
unsafe fn dims(api: &Api, info: *const OrtTensorTypeAndShapeInfo) -> Result<Vec<Dim>> {
    let mut rank = 0;
    // SAFETY: the caller guarantees the info; both arrays have the given number of entries, and the names belong to the
    // info.
    unsafe {
        check(api, api.GetDimensionsCount(info, &mut rank))?;
        let (mut sizes, mut names) = (vec![0; rank], vec![ptr::null(); rank]);
        check(api, api.GetDimensions(info, sizes.as_mut_ptr(), rank))?;
        check(api, api.GetSymbolicDimensions(info, names.as_mut_ptr(), rank))?;
        let dim = |(&size, &name): (&i64, &*const c_char)| match (usize::try_from(size), text(name)) {
            (Ok(size), _) => Dim::Size(size),
            (Err(_), name) if name.is_empty() => Dim::Any,
            (Err(_), name) => Dim::Named(name),
        };
        Ok(sizes.iter().zip(&names).map(dim).collect())
    }
}
