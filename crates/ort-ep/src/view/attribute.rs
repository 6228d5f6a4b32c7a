//! Attributes of nodes.
use std::{fmt, ptr};

use ort_ep_sys as sys;

use super::read::utf8;
use super::tensor::OwnedTensor;
use crate::{Error, Result};

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttributeKind {
    /// Not readable.
    Undefined,
    /// One integer.
    Int,
    /// A list of integers.
    Ints,
    /// One float.
    Float,
    /// A list of floats.
    Floats,
    /// Bytes, mostly text.
    String,
    /// A list of byte strings, mostly texts.
    Strings,
    /// A graph; read it with [`Node::subgraphs`](super::Node::subgraphs).
    Graph,
    /// A tensor.
    Tensor,
    /// Any other number of the runtime.
    Other(i32),
}

impl AttributeKind {
    fn from_raw(raw: sys::OrtOpAttrType) -> Self {
        match raw {
            sys::ORT_OP_ATTR_UNDEFINED => Self::Undefined,
            sys::ORT_OP_ATTR_INT => Self::Int,
            sys::ORT_OP_ATTR_INTS => Self::Ints,
            sys::ORT_OP_ATTR_FLOAT => Self::Float,
            sys::ORT_OP_ATTR_FLOATS => Self::Floats,
            sys::ORT_OP_ATTR_STRING => Self::String,
            sys::ORT_OP_ATTR_STRINGS => Self::Strings,
            sys::ORT_OP_ATTR_GRAPH => Self::Graph,
            sys::ORT_OP_ATTR_TENSOR => Self::Tensor,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for AttributeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undefined => "undefined",
            Self::Int => "int",
            Self::Ints => "ints",
            Self::Float => "float",
            Self::Floats => "floats",
            Self::String => "string",
            Self::Strings => "strings",
            Self::Graph => "graph",
            Self::Tensor => "tensor",
            Self::Other(raw) => return write!(f, "kind {raw}"),
        })
    }
}

/// The value of an attribute.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttributeValue {
    /// One integer.
    Int(i64),
    /// A list of integers.
    Ints(Vec<i64>),
    /// One float.
    Float(f32),
    /// A list of floats.
    Floats(Vec<f32>),
    /// Bytes, mostly text.
    String(Vec<u8>),
    /// A list of byte strings, mostly texts.
    Strings(Vec<Vec<u8>>),
    /// A tensor in host memory.
    Tensor(OwnedTensor),
    /// A graph; read it with [`Node::subgraphs`](super::Node::subgraphs).
    Graph,
    /// Not readable.
    Undefined,
}

view! {
    /// One attribute of a node.
    Attribute(OrtOpAttr)
}

impl<'a> Attribute<'a> {
    /// The attribute's name.
    ///
    /// # Errors
    /// If the name is not UTF-8.
    pub fn name(self) -> Result<&'a str> {
        let mut name = ptr::null();
        // SAFETY: `from_raw`'s caller vouches for the attribute, of which the name is a part.
        unsafe {
            call!(self.runtime, OpAttr_GetName(self.raw, &mut name))?;
            utf8("OpAttr_GetName", name)
        }
    }

    /// The attribute's type.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn kind(self) -> Result<AttributeKind> {
        let mut kind = sys::ORT_OP_ATTR_UNDEFINED;
        // SAFETY: as above; the out-pointer is ours.
        unsafe { call!(self.runtime, OpAttr_GetType(self.raw, &mut kind))? };
        Ok(AttributeKind::from_raw(kind))
    }

    /// A copy of the attribute's value.
    ///
    /// # Errors
    /// If the runtime cannot read it.
    pub fn value(self) -> Result<AttributeValue> {
        Ok(match self.kind()? {
            AttributeKind::Int => AttributeValue::Int(self.scalar(sys::ORT_OP_ATTR_INT, 0)?),
            AttributeKind::Ints => AttributeValue::Ints(self.list(sys::ORT_OP_ATTR_INTS, 0)?),
            AttributeKind::Float => AttributeValue::Float(self.scalar(sys::ORT_OP_ATTR_FLOAT, 0.0)?),
            AttributeKind::Floats => AttributeValue::Floats(self.list(sys::ORT_OP_ATTR_FLOATS, 0.0)?),
            AttributeKind::String => AttributeValue::String(self.list(sys::ORT_OP_ATTR_STRING, 0)?),
            AttributeKind::Strings => {
                AttributeValue::Strings(split_terminated(&self.list(sys::ORT_OP_ATTR_STRINGS, 0)?))
            }
            AttributeKind::Tensor => AttributeValue::Tensor(self.tensor()?),
            AttributeKind::Graph => AttributeValue::Graph,
            AttributeKind::Undefined | AttributeKind::Other(_) => AttributeValue::Undefined,
        })
    }

    /// `T` is the element the runtime stores for `kind`: i64 or f32.
    fn scalar<T: Copy>(self, kind: sys::OrtOpAttrType, blank: T) -> Result<T> {
        let (mut value, mut bytes) = (blank, 0);
        // SAFETY: as above; the runtime writes one plain element of the size given.
        unsafe {
            call!(self.runtime, ReadOpAttr(self.raw, kind, (&raw mut value).cast(), size_of::<T>(), &mut bytes))?
        };
        Ok(value)
    }

    /// `T` is the element the runtime stores for `kind`: i64, f32 or a byte.
    fn list<T: Copy>(self, kind: sys::OrtOpAttrType, blank: T) -> Result<Vec<T>> {
        let mut bytes = 0;
        // SAFETY: as above; without a buffer, only the required size is written.
        let probe = unsafe { call!(self.runtime, ReadOpAttr(self.raw, kind, ptr::null_mut(), 0, &mut bytes)) };
        // The runtime reports a missing buffer as an error even for this query, so only a size of zero counts as one.
        if bytes == 0 {
            return probe.map(|()| Vec::new());
        }
        if !bytes.is_multiple_of(size_of::<T>()) {
            return Err(Error::fail(format!("ReadOpAttr: {bytes} bytes are not a whole number of elements")));
        }
        let mut values = vec![blank; bytes / size_of::<T>()];
        // SAFETY: as above; the list has room for `bytes` bytes of plain elements.
        unsafe { call!(self.runtime, ReadOpAttr(self.raw, kind, values.as_mut_ptr().cast(), bytes, &mut bytes))? };
        values.truncate(bytes / size_of::<T>());
        Ok(values)
    }

    fn tensor(self) -> Result<OwnedTensor> {
        let mut value = ptr::null_mut();
        // SAFETY: as above; we own the tensor.
        unsafe {
            call!(self.runtime, OpAttr_GetTensorAttributeAsOrtValue(self.raw, &mut value))?;
            Ok(OwnedTensor::from_raw(self.runtime, value))
        }
    }
}

/// Splits a buffer of NUL-terminated strings.
fn split_terminated(buffer: &[u8]) -> Vec<Vec<u8>> {
    let mut strings: Vec<Vec<u8>> = buffer.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    // The part after the last NUL is not a string, unless the last one is not terminated.
    if strings.last().is_some_and(Vec::is_empty) {
        strings.pop();
    }
    strings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_their_nul_and_may_be_empty() {
        assert_eq!(split_terminated(b""), Vec::<Vec<u8>>::new());
        assert_eq!(split_terminated(b"\0"), [b""]);
        assert_eq!(split_terminated(b"a\0\0bc\0"), [&b"a"[..], b"", b"bc"]);
        assert_eq!(split_terminated(b"a\0bc"), [&b"a"[..], b"bc"]);
    }

    #[test]
    fn kinds_are_named_as_onnx_names_them() {
        let names: Vec<_> = (0..10).map(|raw| AttributeKind::from_raw(raw).to_string()).collect();
        let onnx = ["undefined", "int", "ints", "float", "floats", "string", "strings", "graph", "tensor", "kind 9"];
        assert_eq!(names, onnx);
    }
}
