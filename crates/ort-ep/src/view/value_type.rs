//! The types of graph values.
use std::ptr;

use ort_ep_sys as sys;

use crate::ffi::runtime::text;
use crate::{ElementType, Result, Runtime};

/// The length of one axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A number.
    Fixed(i64),
    /// A symbolic name; axes with the same name have the same length.
    Symbol(String),
    /// Unknown.
    Unknown,
}

impl Dim {
    /// The length, if it is a number.
    pub fn fixed(&self) -> Option<i64> {
        match self {
            Self::Fixed(length) => Some(*length),
            Self::Symbol(_) | Self::Unknown => None,
        }
    }

    fn new(length: i64, name: &str) -> Self {
        match (length, name) {
            (0.., _) => Self::Fixed(length),
            (_, "") => Self::Unknown,
            (_, name) => Self::Symbol(name.to_owned()),
        }
    }
}

/// The type of a tensor in a graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The element type.
    pub element: ElementType,
    /// The length of every axis, empty for a scalar; `None` if the rank is unknown.
    pub shape: Option<Vec<Dim>>,
}

/// The type of a value in a graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ValueType {
    /// A tensor.
    Tensor(TensorType),
    /// A sequence.
    Sequence,
    /// A map.
    Map,
    /// A value that may be missing.
    Optional,
    /// A sparse tensor.
    Sparse,
    /// A custom type.
    Opaque,
    /// The model does not say.
    Unknown,
}

impl ValueType {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Reads the runtime's description; null reads as unknown.
    ///
    /// # Safety
    /// `raw` is null or a live description of `runtime`.
    pub(super) unsafe fn from_raw(runtime: Runtime, raw: *const sys::OrtTypeInfo) -> Result<Self> {
        if raw.is_null() {
            return Ok(Self::Unknown);
        }
        let mut kind = sys::ONNX_TYPE_UNKNOWN;
        // SAFETY: the caller vouches for `raw`; the out-pointer is ours.
        unsafe { call!(runtime, GetOnnxTypeFromTypeInfo(raw, &mut kind))? };
        Ok(match kind {
            sys::ONNX_TYPE_TENSOR => {
                let mut tensor = ptr::null();
                // SAFETY: as above; the result is part of the description, or null.
                unsafe {
                    call!(runtime, CastTypeInfoToTensorInfo(raw, &mut tensor))?;
                    if tensor.is_null() { Self::Unknown } else { Self::Tensor(TensorType::from_raw(runtime, tensor)?) }
                }
            }
            sys::ONNX_TYPE_SEQUENCE => Self::Sequence,
            sys::ONNX_TYPE_MAP => Self::Map,
            sys::ONNX_TYPE_OPTIONAL => Self::Optional,
            sys::ONNX_TYPE_SPARSETENSOR => Self::Sparse,
            sys::ONNX_TYPE_OPAQUE => Self::Opaque,
            _ => Self::Unknown,
        })
    }
}

impl TensorType {
    /// # Safety
    /// `raw` is a live description of `runtime`.
    unsafe fn from_raw(runtime: Runtime, raw: *const sys::OrtTensorTypeAndShapeInfo) -> Result<Self> {
        let mut element = sys::ONNX_UNDEFINED;
        // SAFETY: the caller vouches for `raw`; the out-pointer is ours.
        let has_shape = unsafe {
            call!(runtime, GetTensorElementType(raw, &mut element))?;
            runtime.api.TensorTypeAndShape_HasShape(raw)
        };
        let element = ElementType::from_raw(element);
        if !has_shape {
            return Ok(Self { element, shape: None });
        }
        let mut rank = 0;
        // SAFETY: as above.
        unsafe { call!(runtime, GetDimensionsCount(raw, &mut rank))? };
        let (mut lengths, mut names) = (vec![0; rank], vec![ptr::null(); rank]);
        if rank > 0 {
            // SAFETY: as above; both lists have `rank` entries.
            unsafe {
                call!(runtime, GetDimensions(raw, lengths.as_mut_ptr(), rank))?;
                call!(runtime, GetSymbolicDimensions(raw, names.as_mut_ptr(), rank))?;
            }
        }
        // SAFETY: the names are parts of the description.
        let dims = lengths.into_iter().zip(names).map(|(length, name)| unsafe { Dim::new(length, &text(name)) });
        Ok(Self { element, shape: Some(dims.collect()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_wins_over_a_name_and_a_name_over_nothing() {
        assert_eq!(Dim::new(3, "batch"), Dim::Fixed(3));
        assert_eq!(Dim::new(0, ""), Dim::Fixed(0));
        assert_eq!(Dim::new(-1, "batch"), Dim::Symbol("batch".to_owned()));
        assert_eq!(Dim::new(-1, ""), Dim::Unknown);
    }
}
