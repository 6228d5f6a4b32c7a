//! Tensors: initializers and attribute values.

use super::wire::Message;

/// An element type, by ONNX's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ElementType {
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Double = 11,
    Uint32 = 12,
    Uint64 = 13,
    Bfloat16 = 16,
    Uint4 = 21,
    Int4 = 22,
}

/// A tensor with a name and content.
#[derive(Debug, Clone)]
pub struct Tensor {
    name: String,
    element_type: ElementType,
    dims: Vec<i64>,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Raw(Vec<u8>),
    Strings(Vec<Vec<u8>>),
    External { location: String, offset: u64, length: u64 },
}

impl Tensor {
    /// A tensor from its elements in little-endian order, as in ONNX's `raw_data`.
    pub fn raw(name: &str, element_type: ElementType, dims: impl Into<Vec<i64>>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), element_type, dims: dims.into(), content: Content::Raw(bytes.into()) }
    }

    /// A tensor of `float`.
    pub fn floats(name: &str, dims: impl Into<Vec<i64>>, values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::raw(name, ElementType::Float, dims, bytes)
    }

    /// A tensor of `int64`.
    pub fn int64s(name: &str, dims: impl Into<Vec<i64>>, values: &[i64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::raw(name, ElementType::Int64, dims, bytes)
    }

    /// A tensor of strings.
    pub fn strings(name: &str, dims: impl Into<Vec<i64>>, values: &[&str]) -> Self {
        let content = Content::Strings(values.iter().map(|value| value.as_bytes().to_vec()).collect());
        Self { name: name.into(), element_type: ElementType::String, dims: dims.into(), content }
    }

    /// A tensor whose bytes are in the file `location`, relative to the model's own.
    pub fn external(
        name: &str,
        element_type: ElementType,
        dims: impl Into<Vec<i64>>,
        location: &str,
        offset: u64,
        length: u64,
    ) -> Self {
        let content = Content::External { location: location.into(), offset, length };
        Self { name: name.into(), element_type, dims: dims.into(), content }
    }

    pub(super) fn to_message(&self) -> Message {
        let mut message = Message::default();
        for &dim in &self.dims {
            message.int(1, dim);
        }
        message.int(2, self.element_type as i64);
        message.text_unless_empty(8, &self.name);
        match &self.content {
            Content::Raw(bytes) => message.bytes(9, bytes),
            Content::Strings(strings) => strings.iter().for_each(|string| message.bytes(6, string)),
            Content::External { location, offset, length } => {
                message.message(13, entry("location", location));
                message.message(13, entry("offset", &offset.to_string()));
                message.message(13, entry("length", &length.to_string()));
                message.int(14, 1);
            }
        }
        message
    }
}

/// A key and a value, as in external data and model metadata.
pub(super) fn entry(key: &str, value: &str) -> Message {
    let mut message = Message::default();
    message.text(1, key);
    message.text(2, value);
    message
}
