//! Element types that an array can hold.

use half::{bf16, f16};
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
}

/// All types: ONNX's number, the name, numpy's code (empty for bfloat16), and the size.
const TABLE: [(Element, i32, &str, &str, usize); 13] = [
    (Element::F32, sys::ONNX_FLOAT, "float32", "f4", 4),
    (Element::F64, sys::ONNX_DOUBLE, "float64", "f8", 8),
    (Element::F16, sys::ONNX_FLOAT16, "float16", "f2", 2),
    (Element::Bf16, sys::ONNX_BFLOAT16, "bfloat16", "", 2),
    (Element::I8, sys::ONNX_INT8, "int8", "i1", 1),
    (Element::I16, sys::ONNX_INT16, "int16", "i2", 2),
    (Element::I32, sys::ONNX_INT32, "int32", "i4", 4),
    (Element::I64, sys::ONNX_INT64, "int64", "i8", 8),
    (Element::U8, sys::ONNX_UINT8, "uint8", "u1", 1),
    (Element::U16, sys::ONNX_UINT16, "uint16", "u2", 2),
    (Element::U32, sys::ONNX_UINT32, "uint32", "u4", 4),
    (Element::U64, sys::ONNX_UINT64, "uint64", "u8", 8),
    (Element::Bool, sys::ONNX_BOOL, "bool", "b1", 1),
];

impl Element {
    /// The type with this ONNX number, if supported.
    pub fn from_onnx(number: i32) -> Option<Element> {
        TABLE.iter().find(|row| row.1 == number).map(|row| row.0)
    }

    /// The type with this numpy code, such as `f4`.
    pub fn from_numpy(code: &str) -> Option<Element> {
        TABLE.iter().find(|row| !row.3.is_empty() && row.3 == code).map(|row| row.0)
    }

    fn row(self) -> &'static (Element, i32, &'static str, &'static str, usize) {
        // The table has the same order as the declaration; a test checks this.
        &TABLE[self as usize]
    }

    /// ONNX's number.
    pub fn onnx(self) -> i32 {
        self.row().1
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Numpy's code; empty for bfloat16, which numpy lacks.
    pub fn numpy(self) -> &'static str {
        self.row().3
    }

    /// Its size in bytes.
    pub fn bytes(self) -> usize {
        self.row().4
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Element::F32 | Element::F64 | Element::F16 | Element::Bf16)
    }

    /// Reads one element as a number; `bytes` has the size of the element.
    pub fn read(self, bytes: &[u8]) -> f64 {
        let mut word = [0; 8];
        word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        let raw = u64::from_le_bytes(word);
        match self {
            Element::F32 => f64::from(f32::from_bits(raw as u32)),
            Element::F64 => f64::from_bits(raw),
            Element::F16 => f16::from_bits(raw as u16).to_f64(),
            Element::Bf16 => bf16::from_bits(raw as u16).to_f64(),
            Element::I8 => f64::from(raw as u8 as i8),
            Element::I16 => f64::from(raw as u16 as i16),
            Element::I32 => f64::from(raw as u32 as i32),
            Element::I64 => raw as i64 as f64,
            Element::U8 | Element::U16 | Element::U32 => raw as f64,
            Element::U64 => raw as f64,
            Element::Bool => f64::from(u8::from(raw != 0)),
        }
    }

    /// Appends a number as one element; for integers it is truncated, not rounded.
    pub fn write(self, value: f64, to: &mut Vec<u8>) {
        match self {
            Element::F32 => to.extend((value as f32).to_le_bytes()),
            Element::F64 => to.extend(value.to_le_bytes()),
            Element::F16 => to.extend(f16::from_f64(value).to_le_bytes()),
            Element::Bf16 => to.extend(bf16::from_f64(value).to_le_bytes()),
            Element::I8 => to.extend((value as i8).to_le_bytes()),
            Element::I16 => to.extend((value as i16).to_le_bytes()),
            Element::I32 => to.extend((value as i32).to_le_bytes()),
            Element::I64 => to.extend((value as i64).to_le_bytes()),
            Element::U8 => to.extend((value as u8).to_le_bytes()),
            Element::U16 => to.extend((value as u16).to_le_bytes()),
            Element::U32 => to.extend((value as u32).to_le_bytes()),
            Element::U64 => to.extend((value as u64).to_le_bytes()),
            Element::Bool => to.push(u8::from(value != 0.0)),
        }
    }
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
        assert_eq!(Element::from_numpy(""), None);
    }

    #[test]
    fn numbers_survive_being_written_and_read() {
        for (element, ..) in TABLE {
            let unsigned = matches!(element, Element::U8 | Element::U16 | Element::U32 | Element::U64);
            for value in [0.0, 1.0, 100.0, -3.0] {
                let want = match element {
                    Element::Bool => f64::from(u8::from(value != 0.0)),
                    _ if unsigned && value < 0.0 => continue,
                    _ => value,
                };
                let mut bytes = Vec::new();
                element.write(value, &mut bytes);
                assert_eq!(bytes.len(), element.bytes());
                assert_eq!(element.read(&bytes), want, "{}", element.name());
            }
        }
    }
}
