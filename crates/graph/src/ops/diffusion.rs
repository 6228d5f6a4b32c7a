//! Fusions that ONNX Runtime's optimiser makes in diffusion models: `BiasAdd`, `BiasSplitGelu`, `GroupNorm` and
//! `SkipGroupNorm`.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::activation::Activation;
use crate::ops::norm::Layer;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Val, shape};

/// `BiasAdd`: inputs X, bias, skip.
#[derive(Debug)]
struct BiasAdd;

impl Op for BiasAdd {
    fn name(&self) -> &'static str {
        "BiasAdd"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, bias, skip) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let sum = cx.map_to(&[x, bias, skip], x.dtype(), x.shape(), |expr, operands| {
            let sum = expr.binary(Binary::Add, operands[0], operands[1]);
            expr.binary(Binary::Add, sum, operands[2])
        })?;
        Ok(vec![sum])
    }
}

/// `BiasSplitGelu`: inputs X, bias. The left half of the sum times the Gelu of the right one.
#[derive(Debug)]
struct BiasSplitGelu;

impl Op for BiasSplitGelu {
    fn name(&self) -> &'static str {
        "BiasSplitGelu"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, bias) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let width = x.shape().last().copied().unwrap_or(0);
        if bias.shape() != [width] || width % 2 != 0 {
            return Err(cx.invalid(format!("X {:?} and bias {:?} do not match", x.shape(), bias.shape())));
        }
        let half = |value: &Val, at: usize| value.sliced(value.rank() - 1, at * (width / 2), 1, width / 2);
        let operands = [half(x, 0), half(bias, 0), half(x, 1), half(bias, 1)];
        let to = operands[0].shape().to_vec();
        let operands: Vec<&Val> = operands.iter().collect();
        let made = cx.map_to(&operands, x.dtype(), &to, |expr, operands| {
            let left = expr.binary(Binary::Add, operands[0], operands[1]);
            let right = expr.binary(Binary::Add, operands[2], operands[3]);
            let gate = Activation::Gelu.build(expr, right);
            expr.binary(Binary::Mul, left, gate)
        })?;
        Ok(vec![made])
    }
}

fn parse_bias(node: &NodeInfo<'_>, count: usize, op: Box<dyn Op>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, is_image_type)?;
    for at in 1..count {
        if node.input(at)?.dtype != dtype {
            return Err(Declined::new(format!("input {at} is not {dtype}")));
        }
    }
    Ok(op)
}

/// `GroupNorm` or `SkipGroupNorm`: inputs X, gamma, beta, and for the second skip and bias.
#[derive(Debug)]
struct GroupNorm {
    name: &'static str,
    groups: usize,
    epsilon: f32,
    channels_last: bool,
    silu: bool,
    /// Adds the inputs skip and bias first; the sum is an output.
    skip: bool,
}

impl GroupNorm {
    /// An operand with a number for each channel, or for each channel of a batch, that broadcasts to `[n, c, h, w]`.
    fn by_channel(&self, cx: &mut Lower<'_>, value: &Val, [batch, channels]: [usize; 2]) -> Result<Val, LowerError> {
        match *value.shape() {
            [count] if count == channels => cx.reshape(value, &[1, channels, 1, 1]),
            [b, c] if [b, c] == [batch, channels] => cx.reshape(value, &[batch, channels, 1, 1]),
            [_, _, _, _] if self.channels_last => Ok(value.permuted(&[0, 3, 1, 2])),
            [_, _, _, _] => Ok(value.clone()),
            ref other => Err(cx.invalid(format!("{other:?} for {batch} images of {channels} channels"))),
        }
    }

    fn back(&self, value: &Val) -> Val {
        if self.channels_last { value.permuted(&[0, 2, 3, 1]) } else { value.clone() }
    }
}

impl Op for GroupNorm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (input, gamma, beta) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let mut x = match input.rank() {
            4 if self.channels_last => input.permuted(&[0, 3, 1, 2]),
            4 => input.clone(),
            _ => return Err(cx.invalid(format!("an image of shape {:?}, expected four axes", input.shape()))),
        };
        let (batch, channels) = (x.shape()[0], x.shape()[1]);
        if channels % self.groups != 0 {
            return Err(cx.invalid(format!("{channels} channels cannot be split into {} groups", self.groups)));
        }
        if self.skip {
            let mut operands = vec![x.clone()];
            for value in inputs.get(3..).unwrap_or_default().iter().flatten() {
                operands.push(self.by_channel(cx, value, [batch, channels])?);
            }
            let (to, operands) = (x.shape().to_vec(), operands.iter().collect::<Vec<&Val>>());
            x = cx.map_to(&operands, input.dtype(), &to, |expr, operands| {
                operands[1..].iter().fold(operands[0], |sum, &value| expr.binary(Binary::Add, sum, value))
            })?;
        }
        let positions = shape::elems(&x.shape()[2..]).unwrap_or(0);
        let wide = cx.cast(&x, DType::F32)?;
        let rows = cx.reshape(&wide, &[batch, self.groups, channels / self.groups * positions])?;
        let layer = Layer { epsilon: self.epsilon, centre: true, round_before_scale: false };
        let normal = layer.lower(cx, &rows, 1, None, None)?;
        let normal = cx.reshape(&normal, x.shape())?;
        let [gamma, beta] = [gamma, beta].map(|value| self.by_channel(cx, value, [batch, channels]));
        let (gamma, beta) = (cx.cast(&gamma?, DType::F32)?, cx.cast(&beta?, DType::F32)?);
        let y = cx.map_to(&[&normal, &gamma, &beta], input.dtype(), x.shape(), |expr, operands| {
            let scaled = expr.binary(Binary::Mul, operands[0], operands[1]);
            let moved = expr.binary(Binary::Add, scaled, operands[2]);
            if self.silu { Activation::Swish { alpha: 1.0 }.build(expr, moved) } else { moved }
        })?;
        let mut results = vec![self.back(&y)];
        results.extend(self.skip.then(|| self.back(&x)));
        Ok(results)
    }
}

const fn is_image_type(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
}

fn parse_group_norm(node: &NodeInfo<'_>, name: &'static str, skip: bool) -> Result<Box<dyn Op>, Declined> {
    let attributes = node.attributes;
    let dtype = node.accept(0, is_image_type)?;
    node.accept(1, is_image_type)?;
    node.accept(2, is_image_type)?;
    if let Some(at) = (3..5).find(|&at| node.optional(at).is_some_and(|input| input.dtype != dtype)) {
        return Err(Declined::new(format!("input {at} is not {dtype}")));
    }
    let groups = usize::try_from(attributes.int("groups", 0)?).ok().filter(|&groups| groups > 0);
    let groups = groups.ok_or_else(|| Declined::new("groups is missing or not positive"))?;
    let silu = match attributes.int("activation", 0)? {
        0 => false,
        1 => true,
        other => return Err(Declined::new(format!("activation {other} is not supported"))),
    };
    let channels_last = attributes.flag_or("channels_last", true)?;
    let epsilon = attributes.float("epsilon", 1e-5)?;
    Ok(Box::new(GroupNorm { name, groups, epsilon, channels_last, silu, skip }))
}

const MICROSOFT: &str = "com.microsoft";

pub(super) const OPS: &[Entry] = &[
    Entry { domain: MICROSOFT, op_type: "BiasAdd", parse: |node| parse_bias(node, 3, Box::new(BiasAdd)) },
    Entry { domain: MICROSOFT, op_type: "BiasSplitGelu", parse: |node| parse_bias(node, 2, Box::new(BiasSplitGelu)) },
    Entry { domain: MICROSOFT, op_type: "GroupNorm", parse: |node| parse_group_norm(node, "GroupNorm", false) },
    Entry { domain: MICROSOFT, op_type: "SkipGroupNorm", parse: |node| parse_group_norm(node, "SkipGroupNorm", true) },
];
