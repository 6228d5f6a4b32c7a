//! Tensors of the protocol: names of types, and elements as JSON or as bytes.

use ort_client::Element;
use serde_json::{Value, json};

/// The protocol's names of types.
const NAMES: [(Element, &str); 14] = [
    (Element::Bool, "BOOL"),
    (Element::U8, "UINT8"),
    (Element::U16, "UINT16"),
    (Element::U32, "UINT32"),
    (Element::U64, "UINT64"),
    (Element::I8, "INT8"),
    (Element::I16, "INT16"),
    (Element::I32, "INT32"),
    (Element::I64, "INT64"),
    (Element::F16, "FP16"),
    (Element::F32, "FP32"),
    (Element::F64, "FP64"),
    (Element::Bf16, "BF16"),
    // The protocol has no word for it.
    (Element::F8E4M3Fn, "FP8_E4M3FN"),
];

/// The protocol's name of a type.
pub fn datatype(element: Element) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == element).map_or("", |(_, name)| name)
}

/// The bytes of elements that are written as JSON: one flat list, or lists in lists as the shape says.
pub fn from_json(element: Element, shape: &[i64], data: &Value) -> Result<Vec<u8>, String> {
    let elems = shape.iter().try_fold(1_usize, |elems, &extent| elems.checked_mul(usize::try_from(extent).ok()?));
    let elems = elems.ok_or("the shape is too large")?;
    let mut bytes = Vec::new();
    let is_flat = data.as_array().is_some_and(|values| !values.iter().any(Value::is_array));
    match data {
        Value::Array(values) if is_flat => {
            if values.len() != elems {
                return Err(format!("there are {} elements, but the shape {shape:?} has {elems}", values.len()));
            }
            values.iter().try_for_each(|value| push(element, value, &mut bytes))?;
        }
        data => push_nested(element, shape, data, &mut bytes)?,
    }
    Ok(bytes)
}

fn push_nested(element: Element, shape: &[i64], data: &Value, bytes: &mut Vec<u8>) -> Result<(), String> {
    let Some((&extent, inner)) = shape.split_first() else { return push(element, data, bytes) };
    match data {
        Value::Array(values) if values.len() as i64 == extent => {
            values.iter().try_for_each(|value| push_nested(element, inner, value, bytes))
        }
        Value::Array(values) => Err(format!("a list has {} entries, but the shape says {extent}", values.len())),
        _ => Err("it must be a list".to_owned()),
    }
}

/// Adds one element.
fn push(element: Element, value: &Value, bytes: &mut Vec<u8>) -> Result<(), String> {
    let wrong = || format!("{} is not a value of type {}", short(value), datatype(element));
    macro_rules! integer {
        ($type:ty, $read:ident) => {{
            let number = value.$read().and_then(|number| <$type>::try_from(number).ok());
            bytes.extend(number.ok_or_else(wrong)?.to_le_bytes());
        }};
    }
    match element {
        Element::Bool => bytes.push(value.as_bool().ok_or_else(wrong)?.into()),
        Element::U8 => integer!(u8, as_u64),
        Element::U16 => integer!(u16, as_u64),
        Element::U32 => integer!(u32, as_u64),
        Element::U64 => integer!(u64, as_u64),
        Element::I8 => integer!(i8, as_i64),
        Element::I16 => integer!(i16, as_i64),
        Element::I32 => integer!(i32, as_i64),
        Element::I64 => integer!(i64, as_i64),
        Element::F32 => {
            let number = value.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
            bytes.extend(number.ok_or_else(wrong)?.to_le_bytes());
        }
        Element::F64 => bytes.extend(value.as_f64().ok_or_else(wrong)?.to_le_bytes()),
        Element::F16 | Element::Bf16 | Element::F8E4M3Fn => return Err(only_binary(element)),
    }
    Ok(())
}

/// A value for a message, cut if it is long.
fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 { text } else { text.chars().take(37).chain("...".chars()).collect() }
}

/// The elements as a flat list. Infinities and values that are not numbers are `null`, because JSON has no word for
/// them.
pub fn to_json(element: Element, bytes: &[u8]) -> Result<Vec<Value>, String> {
    macro_rules! numbers {
        ($type:ty) => {{
            let (chunks, _) = bytes.as_chunks();
            chunks.iter().map(|chunk| json!(<$type>::from_le_bytes(*chunk))).collect()
        }};
    }
    Ok(match element {
        Element::Bool => bytes.iter().map(|&byte| json!(byte != 0)).collect(),
        Element::U8 => numbers!(u8),
        Element::U16 => numbers!(u16),
        Element::U32 => numbers!(u32),
        Element::U64 => numbers!(u64),
        Element::I8 => numbers!(i8),
        Element::I16 => numbers!(i16),
        Element::I32 => numbers!(i32),
        Element::I64 => numbers!(i64),
        Element::F32 => numbers!(f32),
        Element::F64 => numbers!(f64),
        Element::F16 | Element::Bf16 | Element::F8E4M3Fn => return Err(only_binary(element)),
    })
}

fn only_binary(element: Element) -> String {
    format!("{} has no form in JSON; use the binary tensor extension", datatype(element))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Element::all().map(datatype).collect();
        assert_eq!(names.len(), NAMES.len());
        assert!(!names.contains(""));
    }

    #[test]
    fn flat_and_nested_lists_are_the_same_tensor() {
        let flat = from_json(Element::I16, &[2, 2], &json!([1, -2, 3, 4])).unwrap();
        assert_eq!(flat, [1, 0, 0xfe, 0xff, 3, 0, 4, 0]);
        assert_eq!(from_json(Element::I16, &[2, 2], &json!([[1, -2], [3, 4]])).unwrap(), flat);
        assert_eq!(from_json(Element::Bool, &[], &json!(true)).unwrap(), [1]);
        assert_eq!(from_json(Element::Bool, &[], &json!([true])).unwrap(), [1]);
        assert_eq!(from_json(Element::F32, &[2, 0], &json!([])), Ok(Vec::new()));
        assert_eq!(from_json(Element::F32, &[2, 0], &json!([[], []])), Ok(Vec::new()));
    }

    #[test]
    fn wrong_elements_and_shapes_are_rejected() {
        for (element, shape, data) in [
            (Element::U8, &[1_i64][..], json!([256])),
            (Element::U8, &[1], json!([-1])),
            (Element::I8, &[1], json!([1.5])),
            (Element::I64, &[1], json!(["1"])),
            (Element::U64, &[1], json!([1e30])),
            (Element::F32, &[1], json!([1e39])),
            (Element::F32, &[1], json!([null])),
            (Element::F64, &[1], json!([true])),
            (Element::Bool, &[1], json!([1])),
            (Element::F16, &[1], json!([1.0])),
            (Element::F32, &[2], json!([1.0])),
            (Element::F32, &[2], json!([[1.0], [2.0]])),
            (Element::F32, &[2, 1], json!([[1.0, 2.0]])),
            (Element::F32, &[1, 2], json!([1.0, [2.0]])),
            (Element::F32, &[1], json!({})),
            (Element::F32, &[-1], json!([])),
            (Element::F32, &[i64::MAX, i64::MAX], json!([])),
        ] {
            assert!(from_json(element, shape, &data).is_err(), "{element:?} {shape:?} {data}");
        }
    }

    #[test]
    fn elements_survive_the_way_there_and_back() {
        for (element, data) in [
            (Element::Bool, json!([true, false])),
            (Element::U64, json!([0, u64::MAX])),
            (Element::I64, json!([i64::MIN, i64::MAX])),
            (Element::I8, json!([-128, 127])),
            (Element::F32, json!([0.5, -3.25])),
            (Element::F64, json!([0.1, -1e300])),
        ] {
            let bytes = from_json(element, &[2], &data).unwrap();
            assert_eq!(json!(to_json(element, &bytes).unwrap()), data, "{element:?}");
        }
        let odd = [f32::NAN, f32::INFINITY].map(f32::to_le_bytes).concat();
        assert_eq!(to_json(Element::F32, &odd).unwrap(), [Value::Null, Value::Null]);
    }
}
