//! Linear attention with its gates and norms in one operator: com.microsoft's `GatedDeltaNet`.
//!
//! The recurrence is the same as that of `LinearAttention`. Everything is computed in single precision, as the
//! operator's definition says, and the state has its last two axes exchanged.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::activation::Activation;
use crate::ops::linear_attention::update_rule;
use crate::ops::matmul_nbits::is_short_float;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::{self, ReduceKind};
use crate::{DType, Declined, LowerError, Prim, Scalar, Val};

/// Keeps the norm of a zero vector from dividing by zero.
const NORM_EPSILON: f64 = 1e-6;

/// The inputs by position.
mod input {
    pub const QUERY: usize = 0;
    pub const KEY: usize = 1;
    pub const VALUE: usize = 2;
    pub const SEQUENCES: usize = 3;
    pub const DECAY: usize = 4;
    pub const BETA: usize = 5;
    pub const STATE: usize = 6;
    pub const A_LOG: usize = 7;
    pub const DT_BIAS: usize = 8;
}

#[derive(Debug)]
struct GatedDeltaNet {
    scale: f32,
    decay: bool,
    delta: bool,
    /// The decay is `-exp(a_log) · softplus(decay + dt_bias)`.
    qwen_gate: bool,
    sigmoid_beta: bool,
    normalize: bool,
}

impl Op for GatedDeltaNet {
    fn name(&self) -> &'static str {
        "GatedDeltaNet"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let past = given(input::STATE);
        // The tokens have one axis or two; packed queries, keys and values have one axis for all heads.
        let flat_rank = if given(input::KEY).is_some() { 3 } else { 2 };
        let is_flat = cx.required(inputs, input::QUERY)?.rank() == flat_rank;
        let [query, key, value] = heads(cx, inputs, past)?;
        let (&[batch, length, queries, size], &[_, _, count, width]) = (query.shape(), value.shape()) else {
            return Err(cx.invalid("queries and values without heads"));
        };
        let is_shared = queries > 0 && count % queries == 0 && key.shape() == query.shape();
        if !is_shared || value.shape()[..2] != [batch, length] {
            let [q, k, v] = [&query, &key, &value].map(Val::shape);
            return Err(cx.invalid(format!("queries {q:?}, keys {k:?} and values {v:?} do not match")));
        }
        let turned_shape = [batch, count, width, size];
        if let Some(past) = past.filter(|past| past.shape() != turned_shape) {
            return Err(cx.invalid(format!("initial_state {:?}, expected {turned_shape:?}", past.shape())));
        }
        let by_head = |value: &Val| value.permuted(&[0, 2, 1, 3]);
        let (q, k) = (self.normalized(cx, &query)?, self.normalized(cx, &key)?);
        let v = cx.cast(&value, DType::F32)?;
        let mut operands = vec![by_head(&q), by_head(&k), by_head(&v)];
        operands.extend(past.map(|past| past.permuted(&[0, 1, 3, 2])));
        if self.decay {
            let decay = self.gate(cx, inputs, [batch, length, count])?;
            operands.push(by_head(&cx.expand(&decay, &[batch, length, count, size])?));
        }
        if self.delta {
            let beta = cx.reshape(cx.required(inputs, input::BETA)?, &[batch, length, count])?;
            let beta = if self.sigmoid_beta { cx.unary(Unary::Sigmoid, &beta)? } else { beta };
            operands.push(beta.permuted(&[0, 2, 1]));
        }
        let output = cx.fresh(DType::F32, &[batch, length, count, width])?;
        let state = cx.fresh(DType::F32, &[batch, count, size, width])?;
        let scale = if self.scale == 0.0 { (1.0 / (size as f64).sqrt()) as f32 } else { self.scale };
        let prim = prim::LinearAttention { scale, past: past.is_some(), decay: self.decay, delta: self.delta };
        if state.elems() > 0 {
            let operands: Vec<&Val> = operands.iter().collect();
            cx.emit(Prim::LinearAttention(prim), &operands, &[&by_head(&output), &state]);
        }
        let output = cx.cast(&output, query.dtype())?;
        let output = if is_flat { cx.reshape(&output, &[batch * length, count, width])? } else { output };
        Ok(vec![output, cx.copy(&state.permuted(&[0, 1, 3, 2]))?])
    }
}

/// Queries, keys and values as `[batch, length, heads, size]`.
fn heads(cx: &mut Lower<'_>, inputs: &[Option<Val>], past: Option<&Val>) -> Result<[Val; 3], LowerError> {
    let query = cx.required(inputs, input::QUERY)?;
    // Tokens of all sequences in one axis are split evenly.
    let split = |cx: &mut Lower<'_>, value: &Val| match (value.shape(), past.map(Val::shape)) {
        (&[_, _, _, _], _) => Ok(value.clone()),
        (&[tokens, heads, size], Some(&[batch, ..])) if batch > 0 && tokens % batch == 0 => {
            cx.reshape(value, &[batch, tokens / batch, heads, size])
        }
        (other, _) => Err(cx.invalid(format!("{other:?} cannot be split into sequences"))),
    };
    let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
    if let (Some(key), Some(value)) = (given(input::KEY), given(input::VALUE)) {
        return Ok([split(cx, query)?, split(cx, key)?, split(cx, value)?]);
    }
    // All three in one: the state says how wide each is.
    let (&[batch, count, width, size], Some((&all, leading))) =
        (past.map(Val::shape).unwrap_or_default(), query.shape().split_last())
    else {
        return Err(cx.invalid("packed queries, keys and values need initial_state"));
    };
    let tokens: usize = leading.iter().product();
    let queries = all.checked_sub(count * width).filter(|_| size > 0).map_or(0, |rest| rest / (2 * size));
    if queries == 0 || 2 * queries * size + count * width != all || batch == 0 || !tokens.is_multiple_of(batch) {
        return Err(cx.invalid(format!("packed {:?} for initial_state {batch}×{count}×{width}×{size}", query.shape())));
    }
    let packed = cx.reshape(query, &[batch, tokens / batch, all])?;
    let mut part = |start: usize, heads: usize, size: usize| {
        let part = packed.sliced(2, start, 1, heads * size);
        cx.reshape(&part, &[batch, tokens / batch, heads, size])
    };
    Ok([part(0, queries, size)?, part(queries * size, queries, size)?, part(2 * queries * size, count, width)?])
}

impl GatedDeltaNet {
    /// Vectors of heads in single precision, of length one if the operator asks for it.
    fn normalized(&self, cx: &mut Lower<'_>, value: &Val) -> Result<Val, LowerError> {
        let wide = cx.cast(value, DType::F32)?;
        if !self.normalize {
            return Ok(wide);
        }
        let squares = cx.reduce(&wide, &[3], true, ReduceKind::SumSquare)?;
        cx.map(&[&wide, &squares], DType::F32, |expr, operands| {
            let epsilon = expr.constant(Scalar::Float(NORM_EPSILON), DType::F32);
            let sum = expr.binary(Binary::Add, operands[1], epsilon);
            let inverse = expr.unary(Unary::Rsqrt, sum);
            expr.binary(Binary::Mul, operands[0], inverse)
        })
    }

    /// The logarithm of the decay, `[batch, length, heads, 1 or size]`.
    fn gate(
        &self,
        cx: &mut Lower<'_>,
        inputs: &[Option<Val>],
        [batch, length, count]: [usize; 3],
    ) -> Result<Val, LowerError> {
        let decay = cx.required(inputs, input::DECAY)?;
        let rows = batch * length * count;
        let each = decay.elems().checked_div(rows).unwrap_or(1);
        let decay = cx.reshape(decay, &[batch, length, count, each])?;
        if !self.qwen_gate {
            return Ok(decay);
        }
        let (logarithm, bias) = (cx.required(inputs, input::A_LOG)?, cx.required(inputs, input::DT_BIAS)?);
        let (logarithm, bias) = (cx.reshape(logarithm, &[count, 1])?, cx.reshape(bias, &[count, 1])?);
        let to = [batch, length, count, each];
        cx.map_to(&[&decay, &logarithm, &bias], DType::F32, &to, |expr, operands| {
            let sum = expr.binary(Binary::Add, operands[0], operands[2]);
            let softplus = Activation::Softplus { alpha: 1.0, beta: 1.0 }.build(expr, sum);
            let speed = expr.unary(Unary::Exp, operands[1]);
            let product = expr.binary(Binary::Mul, speed, softplus);
            expr.unary(Unary::Neg, product)
        })
    }
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let attributes = node.attributes;
    let dtype = node.accept(input::QUERY, is_short_float)?;
    for at in [input::KEY, input::VALUE] {
        if node.optional(at).is_some_and(|other| other.dtype != dtype) {
            return Err(Declined::new(format!("input {at} is not {dtype}")));
        }
    }
    for at in input::DECAY..=input::DT_BIAS {
        if node.optional(at).is_some_and(|other| other.dtype != DType::F32) {
            return Err(Declined::new(format!("input {at} is not f32")));
        }
    }
    if node.optional(input::SEQUENCES).is_some() {
        return Err(Declined::new("sequences of different lengths in one batch (cu_seqlens) are not supported"));
    }
    if attributes.int("state_update_capacity", 0)? != 0 {
        return Err(Declined::new("compact state updates are not supported"));
    }
    let (decay, delta) = update_rule(attributes)?;
    let chosen = |name: &str, other: &str| match attributes.text(name, "none")? {
        "none" => Ok(false),
        found if found == other => Ok(true),
        found => Err(Declined::new(format!("{name} is {found:?}, expected none or {other}"))),
    };
    let qwen_gate = chosen("gate_activation", "qwen")?;
    let gates = [input::A_LOG, input::DT_BIAS].map(|at| (at, decay && qwen_gate));
    for (at, is_used) in [(input::DECAY, decay), (input::BETA, delta)].into_iter().chain(gates) {
        if is_used && node.optional(at).is_none() {
            return Err(Declined::new(format!("input {at} is missing")));
        }
    }
    Ok(Box::new(GatedDeltaNet {
        scale: attributes.float("scale", 0.0)?,
        decay,
        delta,
        qwen_gate,
        sigmoid_beta: chosen("beta_activation", "sigmoid")?,
        normalize: attributes.flag("qk_l2_norm")?,
    }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "com.microsoft", op_type: "GatedDeltaNet", parse }];
