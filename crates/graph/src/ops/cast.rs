//! Values in another element type.
use crate::lower::{Lower, Storage};
use crate::ops::{Entry, Meaning, NodeInfo, Op, RowWise};
use crate::{DType, Declined, LowerError, Tensor, Val};

/// The element type for a number of ONNX's `TensorProto.DataType`, if supported.
pub(super) const fn dtype_of_onnx(number: i64) -> Option<DType> {
    Some(match number {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::Bf16,
        _ => return None,
    })
}

/// The type given by a node's attribute; `None` if the attribute is absent or 0, which ONNX calls undefined.
pub(super) fn dtype_attribute(node: &NodeInfo<'_>, name: &str) -> Result<Option<DType>, Declined> {
    match node.attributes.int(name, 0)? {
        0 => Ok(None),
        number => dtype_of_onnx(number)
            .map(Some)
            .ok_or_else(|| Declined::new(format!("attribute {name} is the unsupported ONNX element type {number}"))),
    }
}

#[derive(Debug)]
struct Cast {
    name: &'static str,
    to: DType,
}

impl Op for Cast {
    fn name(&self) -> &'static str {
        self.name
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Cast(self.to)
    }

    fn row_wise(&self) -> RowWise {
        RowWise::Elements
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        Ok(vec![cx.cast(value, self.to)?])
    }
}

/// The same bits in another type of the same width.
#[derive(Debug)]
struct BitCast {
    to: DType,
}

impl Op for BitCast {
    fn name(&self) -> &'static str {
        "BitCast"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        let storage = match value.storage() {
            Storage::Known(known) => {
                let moved = Tensor::from_bytes(self.to, known.shape(), known.bytes());
                Storage::Known(moved.ok_or_else(|| cx.invalid("the types differ in width"))?)
            }
            Storage::Buffer(id) => Storage::Buffer(*id),
        };
        let (shape, strides) = (value.shape().into(), value.strides().into());
        Ok(vec![Val::new(self.to, shape, strides, value.offset(), storage)])
    }
}

fn parse_cast(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.input(0)?;
    let to = dtype_attribute(node, "to")?.ok_or_else(|| Declined::new("attribute to is missing"))?;
    Ok(Box::new(Cast { name: "Cast", to }))
}

fn parse_cast_like(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.input(0)?;
    Ok(Box::new(Cast { name: "CastLike", to: node.input(1)?.dtype }))
}

fn parse_bit_cast(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let to = dtype_attribute(node, "to")?.ok_or_else(|| Declined::new("attribute to is missing"))?;
    let from = node.input(0)?.dtype;
    // A byte other than 0 and 1 is not a valid bool.
    let numbers = from != DType::Bool && to != DType::Bool;
    if from != to && !(numbers && from.bytes() == to.bytes()) {
        return Err(Declined::new(format!("BitCast from {from} to {to} is not supported")));
    }
    Ok(Box::new(BitCast { to }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "Cast", parse: parse_cast },
    Entry { domain: "", op_type: "CastLike", parse: parse_cast_like },
    Entry { domain: "", op_type: "BitCast", parse: parse_bit_cast },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Attribute;
    use crate::ops::case::{Case, vector};

    fn cast(values: &[f64], from: DType, number: i64, to: DType) -> Vec<f64> {
        let case = Case::new("Cast", 13).with("to", Attribute::Int(number)).input(vector(from, values)).output(to);
        case.floats()
    }

    #[test]
    fn casts_cut_off_wrap_and_round() {
        assert_eq!(cast(&[2.9, -2.9, 0.0], DType::F32, 7, DType::I64), [2.0, -2.0, 0.0]);
        assert_eq!(cast(&[300.0, -1.0], DType::I32, 2, DType::U8), [44.0, 255.0]);
        assert_eq!(cast(&[1.0 + 1.0 / 4096.0, 1e6], DType::F32, 10, DType::F16), [1.0, f64::INFINITY]);
        assert_eq!(cast(&[0.0, -0.5, f64::NAN], DType::F16, 9, DType::Bool), [0.0, 1.0, 1.0]);
        assert_eq!(cast(&[0.0, 1.0], DType::Bool, 16, DType::Bf16), [0.0, 1.0]);
        assert_eq!(cast(&[257.0], DType::I16, 16, DType::Bf16), [256.0]);
    }

    #[test]
    fn every_type_has_its_onnx_number() {
        let found: Vec<_> = (0..30).filter_map(dtype_of_onnx).collect();
        assert_eq!(found.len(), DType::ALL.len());
        assert!(DType::ALL.iter().all(|dtype| found.contains(dtype)));
    }

    #[test]
    fn a_cast_to_a_type_we_lack_is_declined() {
        let case = Case::new("Cast", 19).with("to", Attribute::Int(17)).input(vector(DType::F32, &[1.0]));
        assert_eq!(case.parse().unwrap_err(), "attribute to is the unsupported ONNX element type 17");
    }

    #[test]
    fn a_cast_to_the_same_type_takes_no_step() {
        let case = Case::new("CastLike", 15).input(vector(DType::F32, &[1.0])).input(vector(DType::F32, &[]));
        assert!(case.output(DType::F32).lower(false).unwrap().steps.is_empty());
    }

    #[test]
    fn bits_stay_as_they_are_without_a_step() {
        let case = |to| Case::new("BitCast", 26).with("to", Attribute::Int(to)).input(vector(DType::I8, &[-1.0, 5.0]));
        assert_eq!(case(2).output(DType::U8).floats(), [255.0, 5.0]);
        let lowered = case(2).output(DType::U8).lower(false).unwrap();
        assert!(lowered.steps.is_empty());
        assert_eq!(lowered.outputs[0].dtype(), DType::U8);
        assert_eq!(case(4).output(DType::U16).parse().unwrap_err(), "BitCast from i8 to u16 is not supported");
        assert_eq!(case(9).output(DType::Bool).parse().unwrap_err(), "BitCast from i8 to bool is not supported");
        let one = Case::new("BitCast", 26).with("to", Attribute::Int(6)).input(vector(DType::F32, &[1.0]));
        assert_eq!(one.output(DType::I32).floats(), [f64::from(0x3f80_0000)]);
    }
}
