//! Mixtures of experts: `MoE` and `QMoE`.
//!
//! Each token is processed by the `k` experts with the highest scores, and their results are added up, weighted. The
//! choice stays on the device: products read the number of each row's expert from memory.
use crate::expr::{Binary, Expr, Ref};
use crate::lower::Lower;
use crate::ops::activation::Activation;
use crate::ops::float4;
use crate::ops::interleaved;
use crate::ops::matmul_nbits::is_short_float;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::{ExpertProduct, ExpertWeights, ReduceKind, TopK};
use crate::{DType, Declined, LowerError, Prim, Scalar, Val, shape};

/// The input indices of one of the two or three layers of an expert.
#[derive(Clone, Copy, Debug)]
struct Inputs {
    weights: usize,
    scales: Option<usize>,
    zeros: Option<usize>,
    bias: usize,
}

const FLOATS: [Inputs; 3] = [
    Inputs { weights: 2, scales: None, zeros: None, bias: 3 },
    Inputs { weights: 4, scales: None, zeros: None, bias: 5 },
    Inputs { weights: 6, scales: None, zeros: None, bias: 7 },
];
const PACKED: [Inputs; 3] = [
    Inputs { weights: 2, scales: Some(3), zeros: Some(11), bias: 4 },
    Inputs { weights: 5, scales: Some(6), zeros: Some(12), bias: 7 },
    Inputs { weights: 8, scales: Some(9), zeros: Some(13), bias: 10 },
];
const ROUTER_WEIGHTS: usize = 14;
/// The scales of the experts themselves in the first and second layer, for 4-bit floats.
const EXPERT_SCALES: [usize; 2] = [15, 16];

/// Where the second half of a gated activation comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Halves {
    /// Activations are not gated.
    No,
    /// From the third layer.
    Apart,
    /// From every second column of the first layer.
    Interleaved,
    /// From the last columns of the first layer.
    Concatenated,
}

/// What happens between the layers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Middle {
    /// Applied to the result of the first layer; `None` keeps it.
    activation: Option<Activation>,
    halves: Halves,
    /// Added to the second half.
    shift: f32,
    /// Bounds the first half above and the second on both sides.
    limit: Option<f32>,
}

/// `MoE` or `QMoE`.
#[derive(Debug)]
struct Experts {
    name: &'static str,
    k: usize,
    /// The weights of a token's experts add up to 1.
    normalize: bool,
    middle: Middle,
    weights: Weights,
}

/// How the weights of the layers are stored.
#[derive(Clone, Copy, Debug)]
enum Weights {
    /// In the type of the tokens.
    Floats,
    Packed(Packing),
    Float4(float4::Scales),
}

/// Weights that are packed integers.
#[derive(Clone, Copy, Debug)]
struct Packing {
    /// Bits of the weights of each layer.
    bits: [usize; 3],
    /// How many weights share a scale; `None` for all of a column.
    block: Option<usize>,
    /// Whether the node says that the weights have the layout of CUDA's kernels, or not; `None` if it says neither.
    layout: Option<bool>,
}

/// Which expert each row uses, `[tokens · k]`, and its weight, `[tokens, k]` in single precision.
struct Routes {
    experts: Val,
    weights: Val,
}

impl Op for Experts {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let input = cx.required(inputs, 0)?;
        let Some((&hidden, leading)) =
            input.shape().split_last().filter(|(_, leading)| (1..=2).contains(&leading.len()))
        else {
            return Err(cx.invalid(format!("the input has shape {:?}, expected 2 or 3 axes", input.shape())));
        };
        let tokens = shape::elems(leading).ok_or_else(|| cx.invalid(format!("{leading:?} is too many tokens")))?;
        let rows = tokens.checked_mul(self.k).ok_or_else(|| cx.invalid(format!("{tokens} is too many tokens")))?;
        let routes = self.routes(cx, inputs, tokens)?;
        let flat = cx.reshape(input, &[tokens, hidden])?;
        let flat = cx.dense(&flat)?;
        let layers = if matches!(self.weights, Weights::Floats) { FLOATS } else { PACKED };
        let first = self.product(cx, inputs, (layers[0], 0), &flat, &routes, self.k)?;
        let second = match self.middle.halves {
            Halves::Apart => Some(self.product(cx, inputs, (layers[2], 2), &flat, &routes, self.k)?),
            _ => None,
        };
        let middle = self.middle.lower(cx, first, second, input.dtype())?;
        let made = self.product(cx, inputs, (layers[1], 1), &middle, &routes, 1)?;
        if made.shape() != [rows, hidden] {
            return Err(cx.invalid(format!("experts return {} columns for an input of {hidden}", made.shape()[1])));
        }
        let made = cx.reshape(&made, &[tokens, self.k, hidden])?;
        let weighted = cx.binary(Binary::Mul, &made, &routes.weights.unsqueezed(2))?;
        let sum = cx.reduce(&weighted, &[1], false, ReduceKind::Sum)?;
        let result = cx.cast(&sum, input.dtype())?;
        Ok(vec![cx.reshape(&result, input.shape())?])
    }
}

impl Experts {
    fn routes(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>], tokens: usize) -> Result<Routes, LowerError> {
        let scores = cx.required(inputs, 1)?;
        let count = match *scores.shape() {
            [rows, count] if rows == tokens && count >= self.k => count,
            ref other => {
                let k = self.k;
                return Err(cx.invalid(format!("router_probs {other:?} for {tokens} tokens and the best {k} experts")));
            }
        };
        let values = cx.fresh(scores.dtype(), &[tokens, self.k])?;
        let experts = cx.fresh(DType::I64, &[tokens, self.k])?;
        if values.elems() > 0 {
            let prim = Prim::TopK(TopK { k: self.k, largest: true, sorted: true });
            cx.emit(prim, &[scores], &[&values, &experts]);
        }
        let weights = match inputs.get(ROUTER_WEIGHTS).and_then(Option::as_ref) {
            Some(given) if given.shape() != [tokens, count] => {
                return Err(cx.invalid(format!("router_weights {:?}, expected [{tokens}, {count}]", given.shape())));
            }
            Some(given) => {
                let chosen = cx.gather_elements(given, &experts, 1)?;
                let chosen = cx.cast(&chosen, DType::F32)?;
                if self.normalize {
                    let sum = cx.reduce(&chosen, &[1], true, ReduceKind::Sum)?;
                    // Weights that are all 0 stay 0.
                    let divisor = cx.map_to(&[&sum], DType::F32, &[tokens, 1], |expr, sum| {
                        let [zero, one] = [0.0, 1.0].map(|value| expr.constant(Scalar::Float(value), DType::F32));
                        let is_zero = expr.binary(Binary::Eq, sum[0], zero);
                        expr.select(is_zero, one, sum[0])
                    })?;
                    cx.binary(Binary::Div, &chosen, &divisor)?
                } else {
                    chosen
                }
            }
            // The chosen part of a softmax, scaled to a sum of 1, is the softmax of the chosen scores.
            None if self.normalize => {
                let values = cx.cast(&values, DType::F32)?;
                cx.softmax(&values, 1, false)?
            }
            None => {
                let scores = cx.cast(scores, DType::F32)?;
                let shares = cx.softmax(&scores, 1, false)?;
                cx.gather_elements(&shares, &experts, 1)?
            }
        };
        let experts = cx.reshape(&experts, &[tokens * self.k])?;
        Ok(Routes { experts, weights })
    }

    /// One layer of the chosen experts, in single precision.
    fn product(
        &self,
        cx: &mut Lower<'_>,
        inputs: &[Option<Val>],
        (at, layer): (Inputs, usize),
        x: &Val,
        routes: &Routes,
        share: usize,
    ) -> Result<Val, LowerError> {
        let depth = x.shape()[1];
        let given = cx.required(inputs, at.weights)?;
        let (weights, bits) = match self.weights {
            Weights::Floats => (given.clone(), None),
            Weights::Packed(packing) if packing.is_for_cuda(inputs) => {
                (interleaved::unpacked(cx, given, packing.bits[layer], depth)?, Some(packing.bits[layer]))
            }
            Weights::Packed(packing) => (given.clone(), Some(packing.bits[layer])),
            Weights::Float4(_) => (float4::by_column(cx, given, depth)?, Some(4)),
        };
        let wanted_bytes =
            bits.map_or(Some(depth), |bits| (depth * bits).is_multiple_of(8).then_some(depth * bits / 8));
        let (count, columns) = match *weights.shape() {
            [count, columns, bytes] if Some(bytes) == wanted_bytes => (count, columns),
            ref other => {
                return Err(cx.invalid(format!("weights of shape {other:?} for a depth of {depth}")));
            }
        };
        if cx.required(inputs, 1)?.shape().get(1) != Some(&count) {
            return Err(cx.invalid(format!("weights of {count} experts do not match router_probs")));
        }
        let mut operands = vec![x.clone(), routes.experts.clone(), cx.dense(&weights)?];
        let blocks = |block: usize| match block {
            1.. if depth.is_multiple_of(block) => Ok(depth / block),
            _ => Err(cx.invalid(format!("a depth of {depth} is not a multiple of its blocks of {block}"))),
        };
        let weights = match (self.weights, at.scales) {
            (Weights::Packed(packing), Some(scales)) => {
                let (bits, block) = (packing.bits[layer], packing.block.unwrap_or(depth.max(1)));
                let shape = [count, columns, blocks(block)?];
                let zeros = at.zeros.and_then(|zeros| inputs.get(zeros)).and_then(Option::as_ref);
                operands.push(packing.scales(cx, cx.required(inputs, scales)?, shape)?);
                if let Some(zeros) = zeros {
                    operands.push(packing.zeros(cx, zeros, bits, shape)?);
                }
                ExpertWeights::Packed { bits, block, zeros: zeros.is_some() }
            }
            (Weights::Float4(kind), Some(scales)) => {
                let shape = [count, columns, blocks(kind.block())?];
                let scales = cx.required(inputs, scales)?;
                let of_expert = cx.required(inputs, EXPERT_SCALES[layer])?;
                operands.push(kind.decoded(cx, scales, of_expert, shape)?);
                ExpertWeights::Float4 { block: kind.block() }
            }
            _ => ExpertWeights::Floats,
        };
        let bias = inputs.get(at.bias).and_then(Option::as_ref);
        if let Some(bias) = bias {
            if bias.shape() != [count, columns] {
                return Err(cx.invalid(format!("a bias of shape {:?}, expected [{count}, {columns}]", bias.shape())));
            }
            operands.push(cx.dense(bias)?);
        }
        let rows = routes.experts.shape()[0];
        let prim = Prim::ExpertProduct(ExpertProduct { share, weights, bias: bias.is_some() });
        let operands: Vec<&Val> = operands.iter().collect();
        cx.apply(prim, &operands, DType::F32, &[rows, columns])
    }
}

impl Packing {
    /// Whether the weights have the layout of CUDA's kernels. The model builder does not say so in the node, but in that
    /// layout the columns, which the scales count, are along the last axis.
    fn is_for_cuda(self, inputs: &[Option<Val>]) -> bool {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref).map(Val::shape);
        self.layout.unwrap_or_else(|| {
            PACKED.iter().any(|layer| match (given(layer.weights), layer.scales.and_then(given)) {
                (Some(&[_, rows, _]), Some(&[_, columns, ..])) => rows != columns,
                _ => false,
            })
        })
    }

    fn scales(self, cx: &mut Lower<'_>, scales: &Val, shape: [usize; 3]) -> Result<Val, LowerError> {
        let fits = scales.shape() == shape || self.block.is_none() && scales.shape() == &shape[..2];
        if !fits {
            return Err(cx.invalid(format!("scales of shape {:?}, expected {shape:?}", scales.shape())));
        }
        let scales = cx.reshape(scales, &shape)?;
        cx.dense(&scales)
    }

    /// The zero points, with each column in separate bytes. In models without blocks, columns share bytes.
    fn zeros(self, cx: &mut Lower<'_>, zeros: &Val, bits: usize, shape: [usize; 3]) -> Result<Val, LowerError> {
        let [count, columns, blocks] = shape;
        let bytes = [count, columns, (blocks * bits).div_ceil(8)];
        if self.block.is_some() && zeros.shape() == bytes {
            return cx.dense(zeros);
        }
        let shared = [count, (columns * bits).div_ceil(8)];
        if self.block.is_some() || zeros.shape() != shared {
            return Err(cx.invalid(format!("zero points of shape {:?} for {count} × {columns} columns", zeros.shape())));
        }
        let each = 8 / bits;
        let apart = cx.map_to(&[&zeros.unsqueezed(2)], DType::U8, &[count, shared[1], each], |expr, operands| {
            let index = expr.index(2);
            let place = expr.cast(index, DType::U8);
            let width = expr.constant(Scalar::Uint(bits as u64), DType::U8);
            let shift = expr.binary(Binary::Mul, place, width);
            let moved = expr.binary(Binary::Shr, operands[0], shift);
            let mask = expr.constant(Scalar::Uint((1 << bits) - 1), DType::U8);
            expr.binary(Binary::And, moved, mask)
        })?;
        let flat = cx.reshape(&apart, &[count, shared[1] * each])?.sliced(1, 0, 1, columns);
        let dense = cx.dense(&flat)?;
        cx.reshape(&dense, &[count, columns, 1])
    }
}

impl Middle {
    /// The input of the second layer, rounded to `dtype`.
    fn lower(self, cx: &mut Lower<'_>, first: Val, second: Option<Val>, dtype: DType) -> Result<Val, LowerError> {
        let (rows, columns) = (first.shape()[0], first.shape()[1]);
        let (gate, up) = match self.halves {
            Halves::No | Halves::Apart => (first, second),
            Halves::Interleaved | Halves::Concatenated if columns % 2 != 0 => {
                return Err(cx.invalid(format!("{columns} columns cannot be split into halves")));
            }
            Halves::Interleaved => {
                let pairs = cx.reshape(&first, &[rows, columns / 2, 2])?;
                let half = |at| pairs.sliced(2, at, 1, 1).squeezed(2);
                (half(0), Some(half(1)))
            }
            Halves::Concatenated => {
                let half = |at: usize| first.sliced(1, at * (columns / 2), 1, columns / 2);
                (half(0), Some(half(1)))
            }
        };
        if let Some(up) = up.as_ref().filter(|up| up.shape() != gate.shape()) {
            return Err(cx.invalid(format!("layers of {:?} and {:?} do not match", gate.shape(), up.shape())));
        }
        let to = gate.shape().to_vec();
        let operands: Vec<&Val> = [&gate].into_iter().chain(&up).collect();
        cx.map_to(&operands, dtype, &to, |expr, operands| self.build(expr, operands[0], operands.get(1).copied()))
    }

    fn build(self, expr: &mut Expr, gate: Ref, up: Option<Ref>) -> Ref {
        let number = |expr: &mut Expr, value: f32| expr.constant(Scalar::Float(value.into()), DType::F32);
        let bound = |expr: &mut Expr, op: Binary, value: Ref, limit: f32| {
            let limit = number(expr, limit);
            expr.binary(op, value, limit)
        };
        let gate = self.limit.map_or(gate, |limit| bound(expr, Binary::Min, gate, limit));
        let gate = self.activation.map_or(gate, |activation| activation.build(expr, gate));
        let Some(up) = up else { return gate };
        let up = match self.limit {
            Some(limit) => {
                let up = bound(expr, Binary::Min, up, limit);
                bound(expr, Binary::Max, up, -limit)
            }
            None => up,
        };
        let shift = number(expr, self.shift);
        let up = expr.binary(Binary::Add, up, shift);
        expr.binary(Binary::Mul, gate, up)
    }
}

/// What happens between the layers, by the attributes. `third`: there is a third layer.
fn middle(node: &NodeInfo<'_>, third: bool) -> Result<Middle, Declined> {
    let attributes = node.attributes;
    let fusion = attributes.int("swiglu_fusion", 0)?;
    let limit = attributes.get("swiglu_limit").map(|_| attributes.float("swiglu_limit", 0.0)).transpose()?;
    let name = attributes.text("activation_type", "relu")?;
    let is_fused = matches!(name, "swiglu" | "geglu");
    let halves = match (third, fusion) {
        (true, 0) => Halves::Apart,
        (true, _) => return Err(Declined::new(format!("a third layer with swiglu_fusion {fusion}"))),
        (false, _) if !is_fused => Halves::No,
        (false, 1) => Halves::Interleaved,
        (false, 2) => Halves::Concatenated,
        (false, other) => return Err(Declined::new(format!("{name} with swiglu_fusion {other} and no third layer"))),
    };
    let plain = |activation| Middle { activation, halves, shift: 0.0, limit: None };
    Ok(match name {
        "relu" => plain(Some(Activation::Relu)),
        "silu" => plain(Some(Activation::Swish { alpha: 1.0 })),
        // ONNX Runtime's kernels use the approximation.
        "gelu" => plain(Some(Activation::TanhGelu)),
        "geglu" if limit.is_none() => plain(Some(Activation::TanhGelu)),
        "geglu" => return Err(Declined::new("geglu with swiglu_limit is not supported")),
        "identity" => plain(None),
        "swiglu" => Middle {
            activation: Some(Activation::Swish { alpha: attributes.float("activation_alpha", 1.0)? }),
            halves,
            shift: attributes.float("activation_beta", 0.0)?,
            limit,
        },
        other => return Err(Declined::new(format!("activation {other:?} is not supported"))),
    })
}

fn parse(node: &NodeInfo<'_>, name: &'static str) -> Result<Box<dyn Op>, Declined> {
    let attributes = node.attributes;
    let dtype = node.accept(0, is_short_float)?;
    let is_packed = name == "QMoE";
    if attributes.flag("use_sparse_mixer")? {
        return Err(Declined::new("the sparse mixer's routing is not supported"));
    }
    let k = usize::try_from(attributes.int("k", 1)?).ok().filter(|&k| k > 0);
    let k = k.ok_or_else(|| Declined::new("k is below 1"))?;
    let layers = if is_packed { PACKED } else { FLOATS };
    let own_type = layers.iter().map(|layer| layer.bias).chain([1]).chain(is_packed.then_some(ROUTER_WEIGHTS));
    for at in own_type.chain(layers.iter().filter(|_| !is_packed).map(|layer| layer.weights)) {
        if let Some(other) = node.optional(at).filter(|other| other.dtype != dtype) {
            return Err(Declined::new(format!("input {at} has type {}, but the tokens are {dtype}", other.dtype)));
        }
    }
    let third = node.optional(layers[2].weights).is_some();
    let weights = if is_packed { packed_weights(node, third)? } else { Weights::Floats };
    let (normalize, middle) = (attributes.flag("normalize_routing_weights")?, middle(node, third)?);
    Ok(Box::new(Experts { name, k, normalize, middle, weights }))
}

/// How the weights of `QMoE` are stored.
fn packed_weights(node: &NodeInfo<'_>, third: bool) -> Result<Weights, Declined> {
    let kind = node.attributes.text("quant_type", "int")?;
    let count = if third { 3 } else { 2 };
    for layer in &PACKED[..count] {
        node.accept(layer.weights, |dtype| dtype == DType::U8)?;
    }
    match (kind, float4::Scales::of(kind)) {
        ("int", _) => Ok(Weights::Packed(packing(node, &PACKED[..count])?)),
        (_, Some(scales)) => float4_weights(node, scales, third),
        _ => {
            Err(Declined::new(format!("experts with weights of type {kind} are not supported; int, fp4 and nvfp4 are")))
        }
    }
}

/// Checks 4-bit floats.
fn float4_weights(node: &NodeInfo<'_>, scales: float4::Scales, third: bool) -> Result<Weights, Declined> {
    if third {
        return Err(Declined::new("a third layer of 4-bit floats is not supported"));
    }
    for (layer, of_experts) in PACKED.iter().zip(EXPERT_SCALES) {
        node.accept(of_experts, |dtype| dtype == DType::F32)?;
        let found = layer.scales.and_then(|at| node.optional(at)).map(|scales| scales.dtype);
        if found != Some(scales.dtype()) {
            return Err(Declined::new(format!("4-bit floats need scales of type {}", scales.dtype())));
        }
    }
    // Zero points, and scales of activations.
    let other = (11..node.inputs.len()).filter(|at| *at != ROUTER_WEIGHTS && !EXPERT_SCALES.contains(at));
    if let Some(at) = other.into_iter().find(|&at| node.optional(at).is_some()) {
        return Err(Declined::new(format!("input {at} with 4-bit floats is not supported")));
    }
    match node.attributes.int("block_size", 0)? {
        ..=0 => {}
        block if usize::try_from(block) == Ok(scales.block()) => {}
        block => return Err(Declined::new(format!("blocks of {block} 4-bit floats, expected {}", scales.block()))),
    }
    Ok(Weights::Float4(scales))
}

fn packing(node: &NodeInfo<'_>, layers: &[Inputs]) -> Result<Packing, Declined> {
    let attributes = node.attributes;
    for layer in layers {
        if let Some(scales) = layer.scales {
            node.accept(scales, is_short_float)?;
        }
        if let Some(zeros) = layer.zeros.and_then(|zeros| node.optional(zeros)).filter(|it| it.dtype != DType::U8) {
            return Err(Declined::new(format!("zero points of type {} are not supported", zeros.dtype)));
        }
    }
    let all = attributes.int("expert_weight_bits", 4)?;
    let mut bits = [0; 3];
    for (to, name) in bits.iter_mut().zip(["fc1", "fc2", "fc3"]) {
        *to = match attributes.int(&format!("{name}_expert_weight_bits"), all)? {
            width @ (2 | 4 | 8) => width as usize,
            other => return Err(Declined::new(format!("weights of {other} bits are not supported; 2, 4 and 8 are"))),
        };
    }
    let block = match attributes.int("block_size", 0)? {
        ..=0 => None,
        block if block >= 16 && block & (block - 1) == 0 => Some(block as usize),
        block => return Err(Declined::new(format!("blocks of {block} are not supported; powers of two from 16 are"))),
    };
    let layout = match attributes.int("weights_prepacked", -1)? {
        ..0 => None,
        prepacked => Some(prepacked > 0),
    };
    Ok(Packing { bits, block, layout })
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "com.microsoft", op_type: "MoE", parse: |node| parse(node, "MoE") },
    Entry { domain: "com.microsoft", op_type: "QMoE", parse: |node| parse(node, "QMoE") },
];
