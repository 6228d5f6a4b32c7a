//! Losses: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::ReduceKind;
use crate::{DType, Declined, LowerError, Scalar, Shape, Val, shape};

/// How the losses of all samples are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduction {
    None,
    Sum,
    Mean,
}

#[derive(Debug)]
struct LossOp {
    name: &'static str,
    /// Input 0 holds scores. The log-softmax is applied first, and is the second output.
    from_scores: bool,
    reduction: Reduction,
    /// Samples with this label are ignored.
    ignore_index: Option<i64>,
}

impl Op for LossOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let input = cx.required(inputs, 0)?;
        let labels = cx.required(inputs, 1)?;
        let weights = inputs.get(2).and_then(Option::as_ref);
        let full: Shape = input.shape().into();
        let [batch, classes, ref positions @ ..] = full[..] else {
            return Err(cx.invalid(format!("shape {full:?} has no classes")));
        };
        let samples: Shape = [batch].iter().chain(positions).copied().collect();
        if labels.shape() != &samples[..] {
            return Err(cx.invalid(format!("labels of shape {:?} do not match {full:?}", labels.shape())));
        }
        if let Some(weights) = weights.filter(|weights| weights.shape() != [classes]) {
            return Err(cx.invalid(format!("weights of shape {:?} do not match {classes} classes", weights.shape())));
        }
        // Computed at least in single precision until the end.
        let mut logarithms = cx.cast(input, input.dtype().compute())?;
        if self.from_scores {
            logarithms = cx.softmax(&logarithms, 1, true)?;
        }
        let flat = cx.reshape(&logarithms, &[batch, classes, shape::elems(positions).unwrap_or(0)])?;
        let loss = self.loss(cx, &flat, labels, weights)?;
        let loss = if self.reduction == Reduction::None { cx.reshape(&loss, &samples)? } else { loss };
        Ok(vec![cx.cast(&loss, input.dtype())?, cx.cast(&logarithms, input.dtype())?])
    }
}

impl LossOp {
    /// The loss for logarithms `[batch, classes, positions]`.
    fn loss(
        &self,
        cx: &mut Lower<'_>,
        logarithms: &Val,
        labels: &Val,
        weights: Option<&Val>,
    ) -> Result<Val, LowerError> {
        let dtype = logarithms.dtype();
        let labels = cx.reshape(labels, &[logarithms.shape()[0], 1, logarithms.shape()[2]])?;
        let counts = match self.ignore_index {
            None => None,
            Some(ignored) => Some(cx.map(&[&labels], DType::Bool, |expr, arguments| {
                let ignored = expr.constant(Scalar::Int(ignored), expr.dtype(arguments[0]));
                expr.binary(Binary::Ne, arguments[0], ignored)
            })?),
        };
        // An ignored label may be out of range; any class can replace it.
        let classes = match &counts {
            None => labels.clone(),
            Some(counts) => cx.map(&[counts, &labels], labels.dtype(), |expr, arguments| {
                let zero = expr.constant(Scalar::Int(0), expr.dtype(arguments[1]));
                expr.select(arguments[0], arguments[1], zero)
            })?,
        };
        let picked = cx.gather_elements(logarithms, &classes, 1)?;
        let mut loss = cx.unary(Unary::Neg, &picked)?;
        let mut weight = None;
        if let Some(weights) = weights {
            let weights = cx.cast(weights, dtype)?;
            let of_samples = cx.gather(&weights, &classes, 0)?;
            loss = cx.binary(Binary::Mul, &loss, &of_samples)?;
            weight = Some(of_samples);
        }
        if let Some(counts) = &counts {
            let one = Val::scalar(dtype, Scalar::one(dtype));
            let zero = Val::scalar(dtype, Scalar::zero(dtype));
            loss = choose(cx, counts, &loss, &zero)?;
            weight = Some(choose(cx, counts, weight.as_ref().unwrap_or(&one), &zero)?);
        }
        let all = [0, 1, 2];
        match (self.reduction, weight) {
            (Reduction::None, _) => Ok(loss),
            (Reduction::Sum, _) => cx.reduce(&loss, &all, false, ReduceKind::Sum),
            (Reduction::Mean, None) => cx.reduce(&loss, &all, false, ReduceKind::Mean),
            (Reduction::Mean, Some(weight)) => {
                let sum = cx.reduce(&loss, &all, false, ReduceKind::Sum)?;
                let weight = cx.reduce(&weight, &all, false, ReduceKind::Sum)?;
                cx.binary(Binary::Div, &sum, &weight)
            }
        }
    }
}

/// `a` where the condition holds, else `b`.
fn choose(cx: &mut Lower<'_>, condition: &Val, a: &Val, b: &Val) -> Result<Val, LowerError> {
    cx.map(&[condition, a, b], a.dtype(), |expr, arguments| expr.select(arguments[0], arguments[1], arguments[2]))
}

fn parse(node: &NodeInfo<'_>, name: &'static str, from_scores: bool) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, |dtype| dtype.is_float())?;
    if let Some(weight) = node.optional(2).filter(|weight| weight.dtype != dtype) {
        return Err(Declined::new(format!("weights have type {}, but the input is {dtype}", weight.dtype)));
    }
    let reduction = match node.attributes.text("reduction", "mean")? {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        other => return Err(Declined::new(format!("unsupported reduction {other:?}"))),
    };
    let ignore_index = match node.attributes.get("ignore_index") {
        Some(_) => Some(node.attributes.int("ignore_index", 0)?),
        None => None,
    };
    Ok(Box::new(LossOp { name, from_scores, reduction, ignore_index }))
}

pub(super) const OPS: &[Entry] = &[
    Entry {
        domain: "",
        op_type: "NegativeLogLikelihoodLoss",
        parse: |node| parse(node, "NegativeLogLikelihoodLoss", false),
    },
    Entry {
        domain: "",
        op_type: "SoftmaxCrossEntropyLoss",
        parse: |node| parse(node, "SoftmaxCrossEntropyLoss", true),
    },
];
