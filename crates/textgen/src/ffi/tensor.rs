//! Tensors over memory that this crate owns.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use ort::sys::{ONNXTensorElementDataType as Raw, OrtValue};
use ort::value::TensorElementType;

use super::{Memory, Place, check};
use crate::error::Doing;
use crate::{Error, Result};

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 8-bit unsigned integers.
    Byte,
    /// 8-bit signed integers.
    Int8,
    /// 32-bit integers.
    Int32,
    /// 64-bit integers.
    Int64,
    /// 16-bit floats.
    Half,
    /// 16-bit floats with the range of 32-bit ones.
    Bfloat,
    /// 32-bit floats.
    Float,
}

impl Kind {
    /// The kind for an ONNX element type, if supported.
    pub fn of(element: TensorElementType) -> Option<Kind> {
        Some(match element {
            TensorElementType::Uint8 => Kind::Byte,
            TensorElementType::Int8 => Kind::Int8,
            TensorElementType::Int32 => Kind::Int32,
            TensorElementType::Int64 => Kind::Int64,
            TensorElementType::Float16 => Kind::Half,
            TensorElementType::Bfloat16 => Kind::Bfloat,
            TensorElementType::Float32 => Kind::Float,
            _ => return None,
        })
    }

    /// Size of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Kind::Byte | Kind::Int8 => 1,
            Kind::Half | Kind::Bfloat => 2,
            Kind::Int32 | Kind::Float => 4,
            Kind::Int64 => 8,
        }
    }

    fn raw(self) -> Raw {
        match self {
            Kind::Byte => Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
            Kind::Int8 => Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
            Kind::Int32 => Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
            Kind::Int64 => Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
            Kind::Half => Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
            Kind::Bfloat => Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
            Kind::Float => Raw::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        }
    }
}

/// A tensor over the beginning of a block of memory, which it keeps alive.
#[derive(Debug)]
pub(crate) struct Tensor {
    value: NonNull<OrtValue>,
    memory: Arc<Memory>,
}

// SAFETY: the value is owned and only describes memory, which may also move between threads.
unsafe impl Send for Tensor {}
// SAFETY: `&Tensor` only passes the pointer to ONNX Runtime, which does not change a tensor's description during a run.
unsafe impl Sync for Tensor {}

impl Tensor {
    /// A view of a block.
    pub fn new(memory: &Arc<Memory>, kind: Kind, shape: &[i64]) -> Result<Tensor> {
        let bytes = bytes_of(kind, shape).filter(|&bytes| bytes <= memory.bytes()).ok_or_else(|| {
            Error::request(
                format!("a tensor of shape {shape:?} is larger than its memory ({} bytes)", memory.bytes()),
                "this is a mistake in textgen",
            )
        })?;
        let mut value = ptr::null_mut();
        // SAFETY: the block has at least `bytes` bytes and outlives the value, which holds it; the place's info is alive.
        check(unsafe {
            (ort::api().CreateTensorWithDataAsOrtValue)(
                memory.place().info(),
                memory.data(),
                bytes,
                shape.as_ptr(),
                shape.len(),
                kind.raw(),
                &mut value,
            )
        })
        .and_then(|()| NonNull::new(value).ok_or_else(|| ort::Error::new("ONNX Runtime returned nothing")))
        .doing("describing a tensor")
        .map(|value| Tensor { value, memory: Arc::clone(memory) })
    }

    pub(super) fn as_ptr(&self) -> *const OrtValue {
        self.value.as_ptr()
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: created in `new`, and no run is using it: runs borrow their tensors.
        unsafe { (ort::api().ReleaseValue)(self.value.as_ptr()) };
    }
}

/// A tensor in host memory that it shares with no other tensor, so that its elements can be read and written.
#[derive(Debug)]
pub(crate) struct HostTensor {
    tensor: Tensor,
    kind: Kind,
    elems: usize,
}

impl HostTensor {
    /// A tensor of zeros.
    pub fn new(kind: Kind, shape: &[i64]) -> Result<HostTensor> {
        let bytes = bytes_of(kind, shape).ok_or_else(|| too_large(shape))?;
        let memory = Arc::new(Memory::zeroed(&Place::host()?, bytes)?);
        Ok(HostTensor { tensor: Tensor::new(&memory, kind, shape)?, kind, elems: bytes / kind.bytes() })
    }

    /// Changes the shape. Elements keep their address if they still fit; their values are unspecified afterwards.
    pub fn reshape(&mut self, shape: &[i64]) -> Result<()> {
        let bytes = bytes_of(self.kind, shape).ok_or_else(|| too_large(shape))?;
        if bytes <= self.tensor.memory.bytes() {
            self.tensor = Tensor::new(&self.tensor.memory, self.kind, shape)?;
            self.elems = bytes / self.kind.bytes();
        } else {
            *self = HostTensor::new(self.kind, shape)?;
        }
        Ok(())
    }

    /// The tensor to pass to ONNX Runtime.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The elements as bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let memory = &self.tensor.memory;
        // SAFETY: the block is host memory, was zeroed, has at least this many bytes and is not shared; runs that write
        // it borrow this tensor mutably (`Call::run`), and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(memory.data().cast(), self.elems * self.kind.bytes()) }
    }
}

fn too_large(shape: &[i64]) -> Error {
    Error::request(format!("a tensor of shape {shape:?} is too large"), "ask for a shorter prompt or a smaller batch")
}

/// Size of a tensor in bytes, or `None` on overflow.
pub(crate) fn bytes_of(kind: Kind, shape: &[i64]) -> Option<usize> {
    shape.iter().try_fold(kind.bytes(), |bytes, &extent| bytes.checked_mul(usize::try_from(extent).ok()?))
}
