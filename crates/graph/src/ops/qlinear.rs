//! com.microsoft's operators on 8-bit integers: `QLinearAdd`, `QLinearMul`, `QLinearSigmoid`, `QLinearLeakyRelu`,
//! `QLinearWhere`, `QLinearConcat`, `QLinearSoftmax` and `QLinearGlobalAveragePool`.
//!
//! Each is the operator without the prefix, between a DequantizeLinear of its inputs and a QuantizeLinear of its result.
use crate::expr::{Binary, Expr, Ref, Unary};
use crate::lower::Lower;
use crate::ops::activation::Activation;
use crate::ops::quantized::byte;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::ReduceKind;
use crate::{DType, Declined, LowerError, Scalar, Shape, Val, shape};

/// What is computed between the conversions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Add,
    Mul,
    Sigmoid,
    LeakyRelu(f32),
    Where,
    Concat(i64),
    Softmax { axis: i64, opset: i64 },
    GlobalAveragePool { channels_last: bool },
}

/// An operator on 8-bit integers.
#[derive(Debug)]
struct QLinear {
    name: &'static str,
    kind: Kind,
    /// The type of the result.
    dtype: DType,
}

/// A scale and a zero point, each a single number.
pub(super) struct Parameters {
    scale: Val,
    zero: Option<Val>,
}

impl Parameters {
    /// Reads a scale and the zero point behind it.
    pub(super) fn read(cx: &mut Lower<'_>, inputs: &[Option<Val>], at: usize) -> Result<Self, LowerError> {
        let mut single = |value: &Val, at: usize| match value.elems() {
            1 => cx.reshape(value, &[]),
            _ => Err(cx.invalid(format!("input {at} has shape {:?}, expected one number", value.shape()))),
        };
        let zero = inputs.get(at + 1).and_then(Option::as_ref).map(|zero| single(zero, at + 1)).transpose()?;
        let scale = inputs.get(at).and_then(Option::as_ref).map(|scale| single(scale, at)).transpose()?;
        let scale = scale.ok_or_else(|| cx.invalid(format!("input {at} is missing")))?;
        Ok(Self { scale, zero })
    }

    /// The numbers that integers stand for.
    pub(super) fn dequantized(&self, cx: &mut Lower<'_>, value: &Val) -> Result<Val, LowerError> {
        let operands: Vec<&Val> = [value, &self.scale].into_iter().chain(&self.zero).collect();
        cx.map_to(&operands, DType::F32, value.shape(), |expr, operands| {
            let number = expr.cast(operands[0], DType::F32);
            let centred = match operands.get(2) {
                Some(&zero) => {
                    let zero = expr.cast(zero, DType::F32);
                    expr.binary(Binary::Sub, number, zero)
                }
                None => number,
            };
            expr.binary(Binary::Mul, centred, operands[1])
        })
    }

    /// The integers that stand for numbers.
    pub(super) fn quantized(&self, cx: &mut Lower<'_>, value: &Val, dtype: DType) -> Result<Val, LowerError> {
        let (low, high) = if dtype == DType::I8 { (-128.0, 127.0) } else { (0.0, 255.0) };
        let operands: Vec<&Val> = [value, &self.scale].into_iter().chain(&self.zero).collect();
        let to: Shape = value.shape().into();
        cx.map_to(&operands, dtype, &to, |expr, operands| {
            let ratio = expr.binary(Binary::Div, operands[0], operands[1]);
            let mut whole = expr.unary(Unary::Round, ratio);
            if let Some(&zero) = operands.get(2) {
                let zero = expr.cast(zero, DType::F32);
                whole = expr.binary(Binary::Add, whole, zero);
            }
            let raised = bound(expr, Binary::Max, whole, low);
            let bounded = bound(expr, Binary::Min, raised, high);
            expr.cast(bounded, dtype)
        })
    }
}

fn bound(expr: &mut Expr, op: Binary, value: Ref, limit: f64) -> Ref {
    let limit = expr.constant(Scalar::Float(limit), DType::F32);
    expr.binary(op, value, limit)
}

impl Op for QLinear {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (made, to) = match self.kind {
            Kind::Add | Kind::Mul => {
                let (a, b) = (number(cx, inputs, 0)?, number(cx, inputs, 3)?);
                let op = if self.kind == Kind::Add { Binary::Add } else { Binary::Mul };
                (cx.binary(op, &a, &b)?, 6)
            }
            Kind::Sigmoid => {
                let x = number(cx, inputs, 0)?;
                (cx.unary(Unary::Sigmoid, &x)?, 3)
            }
            Kind::LeakyRelu(alpha) => {
                let x = number(cx, inputs, 0)?;
                let made = cx.map(&[&x], DType::F32, |expr, operands| {
                    Activation::LeakyRelu { alpha }.build(expr, operands[0])
                })?;
                (made, 3)
            }
            Kind::Where => {
                let (x, y) = (number(cx, inputs, 1)?, number(cx, inputs, 4)?);
                let condition = cx.required(inputs, 0)?;
                let made = cx.map(&[condition, &x, &y], DType::F32, |expr, operands| {
                    expr.select(operands[0], operands[1], operands[2])
                })?;
                (made, 7)
            }
            Kind::Concat(axis) => {
                let mut parts = Vec::new();
                for at in (2..inputs.len()).step_by(3) {
                    parts.push(number(cx, inputs, at)?);
                }
                let rank = parts.first().map_or(0, Val::rank);
                let axis = cx.axis(axis, rank)?;
                (cx.concat(&parts.iter().collect::<Vec<_>>(), axis)?, 0)
            }
            Kind::Softmax { axis, opset } => {
                let x = number(cx, inputs, 0)?;
                let axis = cx.axis(axis, x.rank())?;
                (softmax(cx, &x, axis, opset)?, 3)
            }
            Kind::GlobalAveragePool { channels_last } => {
                let x = number(cx, inputs, 0)?;
                if x.rank() < 3 {
                    return Err(cx.invalid(format!("shape {:?} has no spatial axes", x.shape())));
                }
                let axes: Vec<usize> =
                    if channels_last { (1..x.rank() - 1).collect() } else { (2..x.rank()).collect() };
                (cx.reduce(&x, &axes, true, ReduceKind::Mean)?, 3)
            }
        };
        let to = Parameters::read(cx, inputs, to)?;
        Ok(vec![to.quantized(cx, &made, self.dtype)?])
    }
}

/// The numbers of an input, whose scale and zero point follow it.
pub(super) fn number(cx: &mut Lower<'_>, inputs: &[Option<Val>], at: usize) -> Result<Val, LowerError> {
    let parameters = Parameters::read(cx, inputs, at + 1)?;
    let value = cx.required(inputs, at)?.clone();
    parameters.dequantized(cx, &value)
}

/// Softmax along one axis, or before opset 13 along it and all later ones.
fn softmax(cx: &mut Lower<'_>, x: &Val, axis: usize, opset: i64) -> Result<Val, LowerError> {
    if opset >= 13 {
        return cx.softmax(x, axis, false);
    }
    let count = |extents: &[usize]| shape::elems(extents).unwrap_or(0);
    let flat = cx.reshape(x, &[count(&x.shape()[..axis]), count(&x.shape()[axis..])])?;
    let made = cx.softmax(&flat, 1, false)?;
    cx.reshape(&made, x.shape())
}

/// `first`: the first integer input; `zero`: the zero point of the result.
fn parse(node: &NodeInfo<'_>, name: &'static str, first: usize, kind: Kind) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(first, byte)?;
    for (at, input) in node.inputs.iter().enumerate() {
        let Some(input) = input else { continue };
        let fits = input.dtype == dtype || input.dtype == DType::F32 || kind == Kind::Where && at == 0;
        if !fits {
            return Err(Declined::new(format!("input {at} has type {}, expected {dtype} or f32", input.dtype)));
        }
    }
    Ok(Box::new(QLinear { name, kind, dtype }))
}

fn parse_leaky_relu(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    parse(node, "QLinearLeakyRelu", 0, Kind::LeakyRelu(node.attributes.float("alpha", 0.01)?))
}

fn parse_concat(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    if node.inputs.len() % 3 != 2 || node.inputs.len() < 5 {
        return Err(Declined::new(format!("{} inputs, expected two and three for each part", node.inputs.len())));
    }
    parse(node, "QLinearConcat", 2, Kind::Concat(node.attributes.int("axis", 0)?))
}

fn parse_softmax(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let (axis, opset) = (node.attributes.int("axis", -1)?, node.attributes.int("opset", 13)?);
    parse(node, "QLinearSoftmax", 0, Kind::Softmax { axis, opset })
}

fn parse_global_pool(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let channels_last = node.attributes.flag("channels_last")?;
    parse(node, "QLinearGlobalAveragePool", 0, Kind::GlobalAveragePool { channels_last })
}

const MICROSOFT: &str = "com.microsoft";

pub(super) const OPS: &[Entry] = &[
    Entry { domain: MICROSOFT, op_type: "QLinearAdd", parse: |node| parse(node, "QLinearAdd", 0, Kind::Add) },
    Entry { domain: MICROSOFT, op_type: "QLinearMul", parse: |node| parse(node, "QLinearMul", 0, Kind::Mul) },
    Entry {
        domain: MICROSOFT,
        op_type: "QLinearSigmoid",
        parse: |node| parse(node, "QLinearSigmoid", 0, Kind::Sigmoid),
    },
    Entry { domain: MICROSOFT, op_type: "QLinearLeakyRelu", parse: parse_leaky_relu },
    Entry { domain: MICROSOFT, op_type: "QLinearWhere", parse: |node| parse(node, "QLinearWhere", 1, Kind::Where) },
    Entry { domain: MICROSOFT, op_type: "QLinearConcat", parse: parse_concat },
    Entry { domain: MICROSOFT, op_type: "QLinearSoftmax", parse: parse_softmax },
    Entry { domain: MICROSOFT, op_type: "QLinearGlobalAveragePool", parse: parse_global_pool },
];
