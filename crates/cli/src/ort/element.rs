//! Elements as numbers, and their names in numpy's files.

use half::{bf16, f16};
use ort_client::Element;

/// What this command does with elements.
pub trait Numeric: Copy {
    /// The type with this numpy code, such as `f4`.
    fn from_numpy(code: &str) -> Option<Self>;
    /// Numpy's code; empty for bfloat16 and 8-bit floats, which numpy lacks.
    fn numpy(self) -> &'static str;
    /// Whether it is a floating-point type.
    fn is_float(self) -> bool;
    /// Reads one element as a number; `bytes` has the size of the element.
    fn read(self, bytes: &[u8]) -> f64;
    /// Appends a number as one element; for integers it is truncated, not rounded.
    fn write(self, value: f64, to: &mut Vec<u8>);
}

impl Numeric for Element {
    fn from_numpy(code: &str) -> Option<Element> {
        Element::all().find(|element| !element.numpy().is_empty() && element.numpy() == code)
    }

    fn numpy(self) -> &'static str {
        match self {
            Element::F32 => "f4",
            Element::F64 => "f8",
            Element::F16 => "f2",
            Element::Bf16 | Element::F8E4M3Fn => "",
            Element::I8 => "i1",
            Element::I16 => "i2",
            Element::I32 => "i4",
            Element::I64 => "i8",
            Element::U8 => "u1",
            Element::U16 => "u2",
            Element::U32 => "u4",
            Element::U64 => "u8",
            Element::Bool => "b1",
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Element::F32 | Element::F64 | Element::F16 | Element::Bf16 | Element::F8E4M3Fn)
    }

    fn read(self, bytes: &[u8]) -> f64 {
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
            Element::F8E4M3Fn => float8(raw as u8),
        }
    }

    fn write(self, value: f64, to: &mut Vec<u8>) {
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
            Element::F8E4M3Fn => to.push(nearest_float8(value)),
        }
    }
}

/// The code of NaN in the format E4M3FN; the codes below it are the numbers that are not negative, in order.
const FLOAT8_NAN: u8 = 0x7F;

/// The number of a code of the format E4M3FN.
fn float8(code: u8) -> f64 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(code >> 3 & 0xF), f64::from(code & 7) / 8.0);
    match exponent {
        _ if code & FLOAT8_NAN == FLOAT8_NAN => f64::NAN,
        0 => sign * mantissa * 2f64.powi(-6),
        _ => sign * (1.0 + mantissa) * 2f64.powi(exponent - 7),
    }
}

/// The code of the nearest number; halfway between two, the even one. Numbers that are too large become the largest.
fn nearest_float8(value: f64) -> u8 {
    if value.is_nan() {
        return FLOAT8_NAN;
    }
    let magnitude = value.abs().min(float8(FLOAT8_NAN - 1));
    let above = (0..FLOAT8_NAN).find(|&code| float8(code) >= magnitude).unwrap_or(FLOAT8_NAN - 1);
    let below = above.saturating_sub(1);
    let (down, up) = (magnitude - float8(below), float8(above) - magnitude);
    let code = if down < up || (down == up && below % 2 == 0) { below } else { above };
    if value.is_sign_negative() { code | 0x80 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numpys_codes_are_known_by_their_size() {
        for element in Element::all().filter(|&element| ![Element::Bf16, Element::F8E4M3Fn].contains(&element)) {
            assert_eq!(Element::from_numpy(element.numpy()), Some(element));
            assert!(element.numpy().ends_with(&element.bytes().to_string()), "{element:?}");
        }
        assert_eq!(Element::from_numpy(""), None);
    }

    #[test]
    fn numbers_survive_being_written_and_read() {
        for element in Element::all() {
            let unsigned = matches!(element, Element::U8 | Element::U16 | Element::U32 | Element::U64);
            for value in [0.0, 1.0, 96.0, -3.0] {
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

    #[test]
    fn eight_bit_floats_are_rounded_to_the_nearest_code() {
        for code in (0..=0xFF).filter(|code| code & FLOAT8_NAN != FLOAT8_NAN) {
            assert_eq!(nearest_float8(float8(code)), code);
        }
        let cases = [(1e9, 448.0), (1.0625, 1.0), (1.1875, 1.25), (-1.1, -1.125), (0.001, 0.001953125)];
        for (value, wanted) in cases {
            assert_eq!(float8(nearest_float8(value)), wanted, "{value}");
        }
        assert!(float8(nearest_float8(f64::NAN)).is_nan());
    }
}
