//! Products, sums and what comes after them in one operator of com.microsoft: `FusedMatMulActivation`, `GemmFastGelu`,
//! `BiasSoftmax` and `BiasDropout`.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::activation::Activation;
use crate::ops::matmul::{MatMulOp, fused_matmul};
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Val, shape};

/// `FusedMatMulActivation`.
#[derive(Debug)]
struct MatMulActivation {
    product: MatMulOp,
    finish: Finish,
}

#[derive(Clone, Copy, Debug)]
enum Finish {
    Activation(Activation),
    Unary(Unary),
}

impl Finish {
    /// Reads the activation. Parameters have no defaults.
    fn parse(node: &NodeInfo<'_>) -> Result<Self, Declined> {
        let name = node.attributes.text("activation", "")?;
        let parameter = |key: &str| match node.attributes.get(key) {
            Some(_) => node.attributes.float(key, 0.0),
            None => Err(Declined::new(format!("activation {name} without {key}"))),
        };
        let (alpha, beta) = (|| parameter("activation_alpha"), || parameter("activation_beta"));
        Ok(match name {
            "Relu" => Self::Activation(Activation::Relu),
            "Softsign" => Self::Activation(Activation::Softsign),
            "Tanh" => Self::Unary(Unary::Tanh),
            "Sigmoid" => Self::Unary(Unary::Sigmoid),
            "LeakyRelu" => Self::Activation(Activation::LeakyRelu { alpha: alpha()? }),
            "Elu" => Self::Activation(Activation::Elu { alpha: alpha()? }),
            "ThresholdedRelu" => Self::Activation(Activation::ThresholdedRelu { alpha: alpha()? }),
            "HardSigmoid" => Self::Activation(Activation::HardSigmoid { alpha: alpha()?, beta: beta()? }),
            other => return Err(Declined::new(format!("activation {other:?} is not supported"))),
        })
    }
}

impl Op for MatMulActivation {
    fn name(&self) -> &'static str {
        "FusedMatMulActivation"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let product = self.product.emit(cx, inputs)?;
        let made = cx.map(&[&product], product.dtype(), |expr, operands| match self.finish {
            Finish::Activation(activation) => activation.build(expr, operands[0]),
            Finish::Unary(op) => expr.unary(op, operands[0]),
        })?;
        Ok(vec![made])
    }
}

fn parse_matmul_activation(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let product = fused_matmul(node, "FusedMatMulActivation")?;
    Ok(Box::new(MatMulActivation { product, finish: Finish::parse(node)? }))
}

/// `GemmFastGelu`: inputs X, W and a bias.
#[derive(Debug)]
struct GemmFastGelu;

impl Op for GemmFastGelu {
    fn name(&self) -> &'static str {
        "GemmFastGelu"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let product = cx.matmul(cx.required(inputs, 0)?, cx.required(inputs, 1)?)?;
        let bias = inputs.get(2).and_then(Option::as_ref);
        let operands: Vec<&Val> = [&product].into_iter().chain(bias).collect();
        let made = cx.map_to(&operands, product.dtype(), product.shape(), |expr, operands| {
            let sum = operands.get(1).map_or(operands[0], |&bias| expr.binary(Binary::Add, operands[0], bias));
            Activation::TanhGelu.build(expr, sum)
        })?;
        Ok(vec![made])
    }
}

/// `BiasSoftmax`: softmax of the sum of data and bias, over all axes from `axis` to the last.
#[derive(Debug)]
struct BiasSoftmax {
    axis: i64,
    /// The bias repeats along the last of the other axes, not along the first ones.
    inner: bool,
}

impl Op for BiasSoftmax {
    fn name(&self) -> &'static str {
        "BiasSoftmax"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (data, bias) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let axis = cx.axis(self.axis, data.rank())?;
        let count = |extents: &[usize]| shape::elems(extents).unwrap_or(usize::MAX);
        let (rows, width) = (count(&data.shape()[..axis]), count(&data.shape()[axis..]));
        if data.elems() == 0 {
            return Ok(vec![data.clone()]);
        }
        let groups = bias.elems() / width;
        if groups == 0 || groups * width != bias.elems() || rows % groups != 0 {
            let (data, bias) = (data.shape(), bias.shape());
            return Err(cx.invalid(format!("a bias of shape {bias:?} for data of shape {data:?} along axis {axis}")));
        }
        let (to, of_bias) = if self.inner {
            ([groups, rows / groups, width], [groups, 1, width])
        } else {
            ([rows / groups, groups, width], [1, groups, width])
        };
        let (flat, bias) = (cx.reshape(data, &to)?, cx.reshape(bias, &of_bias)?);
        let sum = cx.binary(Binary::Add, &flat, &bias)?;
        let made = cx.softmax(&sum, 2, false)?;
        Ok(vec![cx.reshape(&made, data.shape())?])
    }
}

/// `BiasDropout` outside of training: the sum of data, bias and residual.
#[derive(Debug)]
struct BiasDropout;

impl Op for BiasDropout {
    fn name(&self) -> &'static str {
        "BiasDropout"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (data, bias) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let residual = inputs.get(2).and_then(Option::as_ref);
        let operands: Vec<&Val> = [data, bias].into_iter().chain(residual).collect();
        let made = cx.map_to(&operands, data.dtype(), data.shape(), |expr, operands| {
            operands[1..].iter().fold(operands[0], |sum, &value| expr.binary(Binary::Add, sum, value))
        })?;
        Ok(vec![made])
    }
}

fn parse_bias_dropout(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    one_type(node, 3)?;
    let trains = |flag: &crate::Tensor| flag.elems() != 1 || flag.get(0).as_bool();
    if node.optional(4).is_some_and(|flag| flag.constant.is_none_or(trains)) {
        return Err(Declined::new("training mode is not supported"));
    }
    if node.wants(1) {
        return Err(Declined::new("the output mask is not supported; only training uses it"));
    }
    Ok(Box::new(BiasDropout))
}

/// Declines inputs of different types among the first `count`, which must be floats.
fn one_type(node: &NodeInfo<'_>, count: usize) -> Result<(), Declined> {
    let dtype = node.accept(0, DType::is_float)?;
    match (1..count).find(|&at| node.optional(at).is_some_and(|input| input.dtype != dtype)) {
        Some(at) => Err(Declined::new(format!("input {at} is not {dtype}"))),
        None => Ok(()),
    }
}

fn parse_bias_softmax(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    one_type(node, 2)?;
    if node.attributes.get("is_inner_broadcast").is_none() {
        return Err(Declined::new("is_inner_broadcast is missing"));
    }
    let inner = node.attributes.flag("is_inner_broadcast")?;
    Ok(Box::new(BiasSoftmax { axis: node.attributes.int("axis", 1)?, inner }))
}

fn parse_gemm_fast_gelu(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    one_type(node, 3)?;
    Ok(Box::new(GemmFastGelu))
}

const MICROSOFT: &str = "com.microsoft";

pub(super) const OPS: &[Entry] = &[
    Entry { domain: MICROSOFT, op_type: "FusedMatMulActivation", parse: parse_matmul_activation },
    Entry { domain: MICROSOFT, op_type: "GemmFastGelu", parse: parse_gemm_fast_gelu },
    Entry { domain: MICROSOFT, op_type: "BiasSoftmax", parse: parse_bias_softmax },
    Entry { domain: MICROSOFT, op_type: "BiasDropout", parse: parse_bias_dropout },
];
