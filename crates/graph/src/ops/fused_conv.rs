//! com.microsoft's `FusedConv`: a convolution, a sum and an activation.
use crate::expr::{Binary, Expr, Ref, Unary};
use crate::lower::Lower;
use crate::ops::activation::Activation;
use crate::ops::conv::Conv;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Val};

/// `FusedConv`: inputs X, W, B, and Z, which is added to the result.
#[derive(Debug)]
struct FusedConv {
    conv: Conv,
    finish: Option<Finish>,
}

/// What happens to the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finish {
    Activation(Activation),
    Unary(Unary),
    Clip { low: f32, high: f32 },
}

impl Finish {
    fn build(self, expr: &mut Expr, x: Ref) -> Ref {
        match self {
            Self::Activation(activation) => activation.build(expr, x),
            Self::Unary(op) => expr.unary(op, x),
            Self::Clip { low, high } => {
                let dtype = expr.dtype(x);
                let low = expr.constant(Scalar::Float(low.into()), dtype);
                let high = expr.constant(Scalar::Float(high.into()), dtype);
                let raised = expr.binary(Binary::Max, x, low);
                expr.binary(Binary::Min, raised, high)
            }
        }
    }

    fn parse(node: &NodeInfo<'_>) -> Result<Option<Self>, Declined> {
        let name = node.attributes.text("activation", "")?;
        let parameters = node.attributes.floats("activation_params")?.unwrap_or_default();
        Ok(Some(match (name, parameters) {
            ("", _) => return Ok(None),
            ("Relu", _) => Self::Activation(Activation::Relu),
            ("Tanh", _) => Self::Unary(Unary::Tanh),
            ("Sigmoid", _) => Self::Unary(Unary::Sigmoid),
            ("LeakyRelu", &[alpha, ..]) => Self::Activation(Activation::LeakyRelu { alpha }),
            ("Clip", &[low, high, ..]) => Self::Clip { low, high },
            ("HardSigmoid", &[alpha, beta, ..]) => Self::Activation(Activation::HardSigmoid { alpha, beta }),
            (other, parameters) => {
                let count = parameters.len();
                return Err(Declined::new(format!("activation {other} with {count} parameters is not supported")));
            }
        }))
    }
}

impl Op for FusedConv {
    fn name(&self) -> &'static str {
        "FusedConv"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, w) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let made = self.conv.emit(cx, x, w, inputs.get(2).and_then(Option::as_ref))?;
        let other = inputs.get(3).and_then(Option::as_ref);
        if let Some(other) = other.filter(|other| other.shape() != made.shape()) {
            return Err(cx.invalid(format!("Z {:?} does not match the result {:?}", other.shape(), made.shape())));
        }
        if other.is_none() && self.finish.is_none() {
            return Ok(vec![made]);
        }
        let operands: Vec<&Val> = [&made].into_iter().chain(other).collect();
        let result = cx.map(&operands, x.dtype(), |expr, operands| {
            let sum = match operands.get(1) {
                Some(&other) => expr.binary(Binary::Add, operands[0], other),
                None => operands[0],
            };
            self.finish.map_or(sum, |finish| finish.build(expr, sum))
        })?;
        Ok(vec![result])
    }
}

pub(super) fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, DType::is_float)?;
    if node.optional(3).is_some_and(|other| other.dtype != dtype) {
        return Err(Declined::new(format!("input 3 is not {dtype}")));
    }
    Ok(Box::new(FusedConv { conv: Conv::parse(node, 0, 1)?, finish: Finish::parse(node)? }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "com.microsoft", op_type: "FusedConv", parse }];
