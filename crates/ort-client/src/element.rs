//! Element types of tensors.

use ort_ep_sys as sys;

/// An element type whose size is a whole number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Element {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    /// 8-bit floats: 4 bits of exponent, 3 of mantissa, no infinities.
    F8E4M3Fn,
}

/// All types: ONNX's number, the name, and the size.
const TABLE: [(Element, i32, &str, usize); 14] = [
    (Element::F32, sys::ONNX_FLOAT, "float32", 4),
    (Element::F64, sys::ONNX_DOUBLE, "float64", 8),
    (Element::F16, sys::ONNX_FLOAT16, "float16", 2),
    (Element::Bf16, sys::ONNX_BFLOAT16, "bfloat16", 2),
    (Element::I8, sys::ONNX_INT8, "int8", 1),
    (Element::I16, sys::ONNX_INT16, "int16", 2),
    (Element::I32, sys::ONNX_INT32, "int32", 4),
    (Element::I64, sys::ONNX_INT64, "int64", 8),
    (Element::U8, sys::ONNX_UINT8, "uint8", 1),
    (Element::U16, sys::ONNX_UINT16, "uint16", 2),
    (Element::U32, sys::ONNX_UINT32, "uint32", 4),
    (Element::U64, sys::ONNX_UINT64, "uint64", 8),
    (Element::Bool, sys::ONNX_BOOL, "bool", 1),
    (Element::F8E4M3Fn, sys::ONNX_FLOAT8E4M3FN, "float8_e4m3fn", 1),
];

impl Element {
    /// Every type.
    pub fn all() -> impl Iterator<Item = Element> {
        TABLE.iter().map(|row| row.0)
    }

    /// The type with this ONNX number, if it is one of these.
    pub(crate) fn from_onnx(number: i32) -> Option<Element> {
        TABLE.iter().find(|row| row.1 == number).map(|row| row.0)
    }

    fn row(self) -> &'static (Element, i32, &'static str, usize) {
        // The table has the same order as the declaration; a test checks this.
        &TABLE[self as usize]
    }

    /// ONNX's number.
    pub(crate) fn onnx(self) -> i32 {
        self.row().1
    }

    /// The name, as numpy spells it.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// The size in bytes.
    pub fn bytes(self) -> usize {
        self.row().3
    }

    /// The size of a tensor in bytes, or `None` if it overflows or an extent is negative.
    pub fn bytes_of(self, shape: &[i64]) -> Option<usize> {
        shape.iter().try_fold(self.bytes(), |bytes, &extent| bytes.checked_mul(usize::try_from(extent).ok()?))
    }
}

/// A Rust type with an element type of its own.
pub trait Number: bytemuck::Pod {
    /// The element type.
    const ELEMENT: Element;
}

impl Number for f32 {
    const ELEMENT: Element = Element::F32;
}

impl Number for i32 {
    const ELEMENT: Element = Element::I32;
}

impl Number for i64 {
    const ELEMENT: Element = Element::I64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_types() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, at);
            assert_eq!(Element::from_onnx(row.1), Some(row.0));
        }
        assert_eq!(Element::from_onnx(sys::ONNX_STRING), None);
    }

    #[test]
    fn sizes_do_not_overflow() {
        assert_eq!(Element::I64.bytes_of(&[]), Some(8));
        assert_eq!(Element::F16.bytes_of(&[3, 0, 5]), Some(0));
        assert_eq!(Element::F32.bytes_of(&[2, -1]), None);
        assert_eq!(Element::F32.bytes_of(&[i64::MAX, 2]), None);
    }
}
