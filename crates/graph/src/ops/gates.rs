//! Gates and norms around linear attention: `LinearAttentionGate`, `GatedRMSNorm`, `GatedAdd`, `BranchwiseRMSNorm`.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::activation::Activation;
use crate::ops::matmul_nbits::is_short_float;
use crate::ops::norm::Layer;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Val};

/// `LinearAttentionGate`: inputs a, dt_bias, decay_scale, b; outputs decay and beta.
#[derive(Debug)]
struct LinearAttentionGate;

impl Op for LinearAttentionGate {
    fn name(&self) -> &'static str {
        "LinearAttentionGate"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (a, bias, scale) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let decay = cx.map_to(&[a, bias, scale], a.dtype(), a.shape(), |expr, operands| {
            let sum = expr.binary(Binary::Add, operands[0], operands[1]);
            let softplus = Activation::Softplus { alpha: 1.0, beta: 1.0 }.build(expr, sum);
            expr.binary(Binary::Mul, operands[2], softplus)
        })?;
        let mut results = vec![decay];
        if let Some(b) = inputs.get(3).and_then(Option::as_ref) {
            results.push(cx.unary(Unary::Sigmoid, b)?);
        }
        Ok(results)
    }
}

fn parse_gate(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, is_short_float)?;
    for at in [1, 2] {
        node.accept(at, |dtype| dtype == DType::F32)?;
    }
    if node.optional(3).is_some_and(|b| b.dtype != dtype) {
        return Err(Declined::new(format!("input 3 is not {dtype}")));
    }
    if node.wants(1) && node.optional(3).is_none() {
        return Err(Declined::new("the output beta needs input b"));
    }
    Ok(Box::new(LinearAttentionGate))
}

/// `GatedRMSNorm`: inputs X, scale, gate.
#[derive(Debug)]
struct GatedRmsNorm {
    epsilon: f32,
    /// The gate is multiplied by its own sigmoid.
    silu: bool,
}

/// The last axis `[…, groups · size]` as `[…, groups, size]`.
fn in_groups(cx: &mut Lower<'_>, x: &Val, size: usize) -> Result<Val, LowerError> {
    match x.shape().split_last() {
        Some((&width, leading)) if size > 0 && width % size == 0 => {
            let to: Vec<usize> = leading.iter().copied().chain([width / size, size]).collect();
            cx.reshape(x, &to)
        }
        _ => Err(cx.invalid(format!("{:?} cannot be split into groups of {size}", x.shape()))),
    }
}

impl Op for GatedRmsNorm {
    fn name(&self) -> &'static str {
        "GatedRMSNorm"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, scale, gate) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        if scale.rank() != 1 || gate.shape() != x.shape() {
            let [x, scale, gate] = [x, scale, gate].map(Val::shape);
            return Err(cx.invalid(format!("X {x:?}, scale {scale:?} and gate {gate:?} do not match")));
        }
        let (wide, scale) = (cx.cast(x, DType::F32)?, cx.cast(scale, DType::F32)?);
        let groups = in_groups(cx, &wide, scale.shape()[0])?;
        let layer = Layer { epsilon: self.epsilon, centre: false, round_before_scale: false };
        let normed = layer.lower(cx, &groups, 1, Some(&scale), None)?;
        let normed = cx.reshape(&normed, x.shape())?;
        let result = cx.map_to(&[&normed, gate], x.dtype(), x.shape(), |expr, operands| {
            let gate = operands[1];
            let open = expr.unary(Unary::Sigmoid, gate);
            let open = if self.silu { expr.binary(Binary::Mul, gate, open) } else { open };
            expr.binary(Binary::Mul, operands[0], open)
        })?;
        Ok(vec![result])
    }
}

fn parse_gated_norm(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, is_short_float)?;
    for at in [1, 2] {
        if node.input(at)?.dtype != dtype {
            return Err(Declined::new(format!("input {at} is not {dtype}")));
        }
    }
    let silu = match node.attributes.text("activation", "silu")? {
        "silu" | "swish" => true,
        "sigmoid" => false,
        other => return Err(Declined::new(format!("activation {other:?} is not supported"))),
    };
    Ok(Box::new(GatedRmsNorm { epsilon: node.attributes.float("epsilon", 1e-5)?, silu }))
}

/// `GatedAdd`: X + Y · gate, with the product rounded first.
#[derive(Debug)]
struct GatedAdd;

impl Op for GatedAdd {
    fn name(&self) -> &'static str {
        "GatedAdd"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, y, gate) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        if y.shape() != x.shape() {
            return Err(cx.invalid(format!("X {:?} and Y {:?} do not match", x.shape(), y.shape())));
        }
        let dtype = x.dtype();
        let sum = cx.map_to(&[x, y, gate], dtype, x.shape(), |expr, operands| {
            let product = expr.binary(Binary::Mul, operands[1], operands[2]);
            let rounded = expr.cast(product, dtype);
            let rounded = if dtype == dtype.compute() { rounded } else { expr.cast(rounded, dtype.compute()) };
            expr.binary(Binary::Add, operands[0], rounded)
        })?;
        Ok(vec![sum])
    }
}

fn parse_gated_add(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, is_short_float)?;
    match [1, 2].into_iter().find(|&at| node.optional(at).is_none_or(|input| input.dtype != dtype)) {
        Some(at) => Err(Declined::new(format!("input {at} is not {dtype}"))),
        None => Ok(Box::new(GatedAdd)),
    }
}

/// `BranchwiseRMSNorm`: inputs X, scale.
#[derive(Debug)]
struct BranchwiseRmsNorm {
    epsilon: f32,
    /// The branches of a flattened input; `None` if the branches are a separate axis.
    branches: Option<usize>,
}

impl Op for BranchwiseRmsNorm {
    fn name(&self) -> &'static str {
        "BranchwiseRMSNorm"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let grouped = match (self.branches, x.shape()) {
            (None, [.., _, _]) => x.clone(),
            (Some(branches), &[.., width]) if width % branches == 0 => in_groups(cx, x, width / branches)?,
            (_, other) => return Err(cx.invalid(format!("{other:?} has no branches"))),
        };
        let &[.., branches, size] = grouped.shape() else { return Err(cx.invalid("an input without branches")) };
        let wide = cx.cast(&grouped, DType::F32)?;
        let layer = Layer { epsilon: self.epsilon, centre: false, round_before_scale: false };
        let normed = match inputs.get(1).and_then(Option::as_ref) {
            None => layer.lower(cx, &wide, 1, None, None)?,
            Some(scale) => {
                let to = match scale.shape() {
                    &[count] if count == size => vec![size],
                    &[count] if count == branches * size => vec![branches, size],
                    &[a, b] if (a, b) == (branches, size) => vec![branches, size],
                    other => return Err(cx.invalid(format!("scale {other:?} for {branches} branches of {size}"))),
                };
                let scale = cx.cast(scale, DType::F32)?;
                let scale = cx.reshape(&scale, &to)?;
                layer.lower(cx, &wide, 1, Some(&scale), None)?
            }
        };
        let result = cx.cast(&normed, x.dtype())?;
        Ok(vec![cx.reshape(&result, x.shape())?])
    }
}

fn parse_branchwise(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, is_short_float)?;
    if let Some(scale) = node.optional(1).filter(|scale| !is_short_float(scale.dtype)) {
        return Err(Declined::new(format!("a scale of type {} is not supported", scale.dtype)));
    }
    let branches = match node.attributes.int("num_branches", 0)? {
        0 => None,
        count @ 1.. => Some(count as usize),
        count => return Err(Declined::new(format!("num_branches is {count}"))),
    };
    Ok(Box::new(BranchwiseRmsNorm { epsilon: node.attributes.float("epsilon", 1e-5)?, branches }))
}

const MICROSOFT: &str = "com.microsoft";

pub(super) const OPS: &[Entry] = &[
    Entry { domain: MICROSOFT, op_type: "LinearAttentionGate", parse: parse_gate },
    Entry { domain: MICROSOFT, op_type: "GatedRMSNorm", parse: parse_gated_norm },
    Entry { domain: MICROSOFT, op_type: "GatedAdd", parse: parse_gated_add },
    Entry { domain: MICROSOFT, op_type: "BranchwiseRMSNorm", parse: parse_branchwise },
];
