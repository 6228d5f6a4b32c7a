//! Converts ONNX Runtime's types to the engine's.
use graph::ops::Attribute;
use graph::{DType, Declined, Tensor};
use ort_ep::view::{AttributeValue, Dim, Tensor as TensorView, ValueInfo, ValueType};
use ort_ep::{ElementType, Error, Result};

/// The engine's element type; `None` if it has no equivalent.
pub(crate) fn dtype(element: ElementType) -> Option<DType> {
    Some(match element {
        ElementType::F32 => DType::F32,
        ElementType::F64 => DType::F64,
        ElementType::F16 => DType::F16,
        ElementType::Bf16 => DType::Bf16,
        ElementType::I8 => DType::I8,
        ElementType::I16 => DType::I16,
        ElementType::I32 => DType::I32,
        ElementType::I64 => DType::I64,
        ElementType::U8 => DType::U8,
        ElementType::U16 => DType::U16,
        ElementType::U32 => DType::U32,
        ElementType::U64 => DType::U64,
        ElementType::Bool => DType::Bool,
        ElementType::F8E4M3Fn => DType::F8E4M3Fn,
        ElementType::F8E4M3FnUz => DType::F8E4M3Fnuz,
        ElementType::F8E5M2 => DType::F8E5M2,
        ElementType::F8E5M2FnUz => DType::F8E5M2Fnuz,
        ElementType::F8E8M0 => DType::F8E8M0,
        ElementType::I4 => DType::I4,
        ElementType::U4 => DType::U4,
        ElementType::I2 => DType::I2,
        ElementType::U2 => DType::U2,
        _ => return None,
    })
}

/// The element type of a value, or why the engine does not support it.
pub(crate) fn value_dtype(value: ValueInfo<'_>) -> Result<Result<DType, Declined>> {
    Ok(match value.value_type()? {
        ValueType::Tensor(tensor) => dtype(tensor.element).ok_or_else(|| {
            Declined::new(format!("{:?} has the unsupported type {:?}", value.name().unwrap_or("?"), tensor.element))
        }),
        other => Err(Declined::new(format!("{:?} is not a tensor but {other:?}", value.name().unwrap_or("?")))),
    })
}

/// The element type of a constant. Packed constants are unpacked to one byte per element when they are read.
pub(crate) fn constant_dtype(value: ValueInfo<'_>) -> Result<Result<DType, Declined>> {
    Ok(value_dtype(value)?.map(DType::unpacked))
}

/// The rank of a value, if ONNX Runtime knows it.
pub(crate) fn value_rank(value: ValueInfo<'_>) -> Result<Option<usize>> {
    Ok(match value.value_type()? {
        ValueType::Tensor(tensor) => tensor.shape.map(|shape| shape.len()),
        _ => None,
    })
}

/// The axes of a value, if ONNX Runtime knows its rank.
pub(crate) fn value_axes(value: ValueInfo<'_>) -> Result<Option<Vec<Dim>>> {
    Ok(match value.value_type()? {
        ValueType::Tensor(tensor) => tensor.shape,
        _ => None,
    })
}

/// The shape of an ONNX Runtime tensor; `None` if an extent is negative.
pub(crate) fn extents(view: TensorView<'_>) -> Result<Option<Vec<usize>>> {
    Ok(view.shape()?.iter().map(|&extent| usize::try_from(extent).ok()).collect())
}

/// A copy of an ONNX Runtime tensor.
pub(crate) fn tensor(view: TensorView<'_>) -> Result<Tensor> {
    let element = view.element_type()?;
    let shape = extents(view)?.ok_or_else(|| Error::invalid_argument("a constant has a negative extent"))?;
    let packed = view.bytes()?;
    let dtype = dtype(element);
    let dtype =
        dtype.ok_or_else(|| Error::not_implemented(format!("a constant has the unsupported type {element:?}")))?;
    let made = if dtype.is_packed() {
        Tensor::from_bytes(dtype.unpacked(), &shape, &unpacked(packed, dtype, &shape))
    } else {
        Tensor::from_bytes(dtype, &shape, packed)
    };
    made.ok_or_else(|| Error::invalid_argument("a constant has too few bytes"))
}

/// Unpacks integers of a few bits to one byte each. The first of a byte is in its lowest bits.
fn unpacked(packed: &[u8], dtype: DType, shape: &[usize]) -> Vec<u8> {
    let bits = dtype.bits();
    let shift = 8 - bits;
    // `top` has the number's bits at the top of the byte. Shifting them to the bottom extends the sign, if
    // there is one.
    let widened = |top: u8| match dtype.unpacked() {
        DType::I8 => (top.cast_signed() >> shift).cast_unsigned(),
        _ => top >> shift,
    };
    let numbers = packed.iter().flat_map(|&byte| (0..8).step_by(bits).map(move |at| byte >> at << shift));
    // The last byte may end in padding.
    numbers.map(widened).take(shape.iter().product()).collect()
}

/// Converts an attribute; kinds that the engine does not support become `Other`.
pub(crate) fn attribute(value: AttributeValue) -> Result<Attribute> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(match value {
        AttributeValue::Int(value) => Attribute::Int(value),
        AttributeValue::Ints(values) => Attribute::Ints(values),
        AttributeValue::Float(value) => Attribute::Float(value),
        AttributeValue::Floats(values) => Attribute::Floats(values),
        AttributeValue::String(bytes) => Attribute::Text(text(bytes)),
        AttributeValue::Strings(list) => Attribute::Texts(list.into_iter().map(text).collect()),
        AttributeValue::Tensor(value) => tensor(value.as_tensor()).map_or(Attribute::Other, Attribute::Tensor),
        _ => Attribute::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bit_numbers_come_low_half_first() {
        let signed = unpacked(&[0x7F, 0x08], DType::I4, &[3]);
        assert_eq!(signed, [-1i8, 7, -8].map(i8::cast_unsigned));
        assert_eq!(unpacked(&[0x7F, 0x08], DType::U4, &[3]), [15, 7, 8]);
        assert_eq!(unpacked(&[0b11_10_01_00, 0b01], DType::U2, &[5]), [0, 1, 2, 3, 1]);
        assert_eq!(unpacked(&[0b11_10_01_00], DType::I2, &[4]), [0, 1, 254, 255]);
    }
}
