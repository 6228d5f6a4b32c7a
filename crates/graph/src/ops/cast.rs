//! Values in another element type.
use crate::expr::{Binary, Expr, Ref, Unary};
use crate::float8::Format;
use crate::lower::{Lower, Storage};
use crate::ops::{Entry, Meaning, NodeInfo, Op, RowWise};
use crate::{DType, Declined, LowerError, Scalar, Tensor, Val};

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
        17 => DType::F8E4M3Fn,
        18 => DType::F8E4M3Fnuz,
        19 => DType::F8E5M2,
        20 => DType::F8E5M2Fnuz,
        21 => DType::U4,
        22 => DType::I4,
        25 => DType::U2,
        26 => DType::I2,
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
        Ok(vec![cx.cast(value, self.to.stored())?])
    }
}

/// A conversion from or to 8-bit floats.
#[derive(Debug)]
struct Float8Cast {
    name: &'static str,
    from: Option<Format>,
    to: DType,
    /// Numbers that are too large become the largest one.
    saturate: bool,
}

impl Op for Float8Cast {
    fn name(&self) -> &'static str {
        self.name
    }

    fn row_wise(&self) -> RowWise {
        RowWise::Elements
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        let converted = cx.map(&[value], self.to.stored(), |expr, arguments| {
            let number = self.from.map_or(arguments[0], |format| format.decoded(expr, arguments[0]));
            match Format::of(self.to) {
                Some(format) => format.encoded(expr, number, self.saturate),
                None => number,
            }
        })?;
        Ok(vec![converted])
    }
}

/// A conversion to integers of 4 or 2 bits: the lowest bits of the integer, as ONNX Runtime's CPU provider does it.
#[derive(Debug)]
struct PackedCast {
    name: &'static str,
    to: DType,
}

impl Op for PackedCast {
    fn name(&self) -> &'static str {
        self.name
    }

    fn row_wise(&self) -> RowWise {
        RowWise::Elements
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        let bits = self.to.bits();
        let converted = cx.map(&[value], self.to.stored(), |expr, arguments| {
            let number = arguments[0];
            let whole = if expr.dtype(number).is_float() { rounded_away(expr, number) } else { number };
            let wide = expr.cast(whole, DType::I32);
            let [mask, half] =
                [(1 << bits) - 1, 1 << (bits - 1)].map(|value: i64| expr.constant(Scalar::Int(value), DType::I32));
            let low = expr.binary(Binary::And, wide, mask);
            if !self.to.unpacked().is_signed() {
                return low;
            }
            let flipped = expr.binary(Binary::Xor, low, half);
            expr.binary(Binary::Sub, flipped, half)
        })?;
        Ok(vec![converted])
    }
}

/// The nearest integer; halves are rounded away from zero.
fn rounded_away(expr: &mut Expr, number: Ref) -> Ref {
    let dtype = expr.dtype(number);
    let size = expr.unary(Unary::Abs, number);
    let floor = expr.unary(Unary::Floor, size);
    let rest = expr.binary(Binary::Sub, size, floor);
    let [half, one, zero] = [0.5, 1.0, 0.0].map(|value| expr.constant(Scalar::Float(value), dtype));
    let is_more = expr.binary(Binary::Ge, rest, half);
    let more = expr.binary(Binary::Add, floor, one);
    let whole = expr.select(is_more, more, floor);
    let negative = expr.unary(Unary::Neg, whole);
    let is_negative = expr.binary(Binary::Lt, number, zero);
    expr.select(is_negative, negative, whole)
}

/// The operator for a conversion between two types.
fn conversion(node: &NodeInfo<'_>, name: &'static str, from: DType, to: DType) -> Result<Box<dyn Op>, Declined> {
    if to.is_packed() {
        if from.is_float8() {
            return Err(Declined::new(format!("a conversion from {from} to {to} is not supported")));
        }
        return Ok(Box::new(PackedCast { name, to }));
    }
    if from == to || !(from.is_float8() || to.is_float8()) {
        return Ok(Box::new(Cast { name, to }));
    }
    let saturate = node.attributes.flag_or("saturate", true)?;
    Ok(Box::new(Float8Cast { name, from: Format::of(from), to, saturate }))
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
    let from = node.input(0)?.dtype;
    let to = dtype_attribute(node, "to")?.ok_or_else(|| Declined::new("attribute to is missing"))?;
    conversion(node, "Cast", from, to)
}

fn parse_cast_like(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    // A constant of packed integers has the type of their bytes; the output has the intended type.
    let like = node.input(1)?.dtype;
    let to = node.outputs.first().copied().flatten().unwrap_or(like);
    conversion(node, "CastLike", node.input(0)?.dtype, to)
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
    fn casts_truncate_wrap_and_round() {
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
        let packed = [DType::I4, DType::U4, DType::I2, DType::U2];
        let all = [&DType::ALL[..], &DType::FLOAT8, &packed].concat();
        assert_eq!(found.len(), all.len());
        assert!(all.iter().all(|dtype| found.contains(dtype)));
    }

    #[test]
    fn a_cast_to_an_unsupported_type_is_declined() {
        let case = Case::new("Cast", 19).with("to", Attribute::Int(23)).input(vector(DType::F32, &[1.0]));
        assert_eq!(case.parse().unwrap_err(), "attribute to is the unsupported ONNX element type 23");
    }

    #[test]
    fn eight_bit_floats_are_converted_and_moved_but_not_computed_with() {
        // 1, -1.5 and the largest number.
        let codes = [0x38, 0xBC, 0x7E].map(f64::from);
        assert_eq!(cast(&codes, DType::F8E4M3Fn, 1, DType::F32), [1.0, -1.5, 448.0]);
        assert_eq!(cast(&[1.0, -1.5, 1e9], DType::F32, 17, DType::F8E4M3Fn), codes);
        assert_eq!(cast(&codes, DType::F8E4M3Fn, 17, DType::F8E4M3Fn), codes);
        // From one format to the other: 448 has a neighbour in two bits.
        assert_eq!(cast(&codes, DType::F8E4M3Fn, 19, DType::F8E5M2), [0x3C, 0xBE, 0x5F].map(f64::from));
        let moved = Case::new("Flatten", 21).input(vector(DType::F8E5M2, &codes)).output(DType::F8E5M2);
        assert_eq!(moved.floats(), codes);
        let sum = Case::new("Relu", 14).input(vector(DType::F8E5M2, &codes)).output(DType::F8E5M2);
        assert_eq!(sum.parse().unwrap_err(), "f8e5m2 can be converted and moved, but not computed with");
    }

    #[test]
    fn a_cast_to_the_same_type_takes_no_step() {
        let case = Case::new("CastLike", 15).input(vector(DType::F32, &[1.0])).input(vector(DType::F32, &[]));
        assert!(case.output(DType::F32).lower(false).unwrap().steps.is_empty());
    }

    #[test]
    fn bit_casts_need_no_step() {
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
