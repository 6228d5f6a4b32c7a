//! Layers with a state of fixed size: `LinearAttention` and `CausalConvWithState`.
use crate::lower::Lower;
use crate::ops::matmul_nbits::is_short_float;
use crate::ops::{Attributes, Entry, NodeInfo, Op};
use crate::prim::{self, CausalConv};
use crate::{DType, Declined, LowerError, Prim, Val};

/// `LinearAttention`: inputs query, key, value, past_state, decay, beta.
#[derive(Debug)]
struct LinearAttention {
    queries: usize,
    heads: usize,
    scale: f32,
    decay: bool,
    delta: bool,
    state: DType,
}

/// `[batch, length, heads · size]` as `[batch, heads, length, size]`.
fn by_head(cx: &mut Lower<'_>, value: &Val, heads: usize) -> Result<Val, LowerError> {
    match *value.shape() {
        [batch, length, width] if width % heads == 0 => {
            Ok(cx.reshape(value, &[batch, length, heads, width / heads])?.permuted(&[0, 2, 1, 3]))
        }
        ref other => Err(cx.invalid(format!("{other:?} cannot be split into {heads} heads"))),
    }
}

impl Op for LinearAttention {
    fn name(&self) -> &'static str {
        "LinearAttention"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let (query, key, value) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let queries = by_head(cx, query, self.queries)?;
        let &[batch, _, length, size] = queries.shape() else { return Err(cx.invalid("queries without heads")) };
        // Keys have as many heads as states, or as queries.
        let key_heads = key.shape().last().filter(|_| size > 0).map_or(0, |width| width / size);
        let shares =
            key_heads > 0 && self.heads.is_multiple_of(key_heads) && key.shape() == [batch, length, key_heads * size];
        let values = by_head(cx, value, self.heads)?;
        let &[_, _, _, width] = values.shape() else { return Err(cx.invalid("values without heads")) };
        if !shares || values.shape() != [batch, self.heads, length, width] {
            let [q, k, v] = [query, key, value].map(Val::shape);
            return Err(cx.invalid(format!("queries {q:?}, keys {k:?} and values {v:?} do not match")));
        }
        let keys = by_head(cx, key, key_heads)?;
        let state_shape = [batch, self.heads, size, width];
        let past = given(3);
        if let Some(past) = past.filter(|past| past.shape() != state_shape) {
            return Err(cx.invalid(format!("past_state {:?}, expected {state_shape:?}", past.shape())));
        }
        let mut operands = vec![queries, keys, values];
        operands.extend(past.cloned());
        if self.decay {
            operands.push(self.decay(cx, inputs, [batch, length, size])?);
        }
        if self.delta {
            let rate = cx.required(inputs, 5)?;
            let rate = match *rate.shape() {
                [b, l, heads] if (b, l) == (batch, length) && (heads == 1 || heads == self.heads) => rate,
                ref other => return Err(cx.invalid(format!("beta {other:?} for {} heads", self.heads))),
            };
            operands.push(cx.expand(rate, &[batch, length, self.heads])?.permuted(&[0, 2, 1]));
        }
        let shown = self.queries.max(self.heads);
        let output = cx.fresh(query.dtype(), &[batch, length, shown, width])?;
        let state = cx.fresh(self.state, &state_shape)?;
        let scale = if self.scale == 0.0 { (1.0 / (size as f64).sqrt()) as f32 } else { self.scale };
        let prim = prim::LinearAttention { scale, past: past.is_some(), decay: self.decay, delta: self.delta };
        if state.elems() > 0 {
            let operands: Vec<&Val> = operands.iter().collect();
            cx.emit(Prim::LinearAttention(prim), &operands, &[&output.permuted(&[0, 2, 1, 3]), &state]);
        }
        Ok(vec![cx.reshape(&output, &[batch, length, shown * width])?, state])
    }
}

impl LinearAttention {
    /// The decay `[batch, heads, length, size]`, given for each row of the state or for each head.
    fn decay(
        &self,
        cx: &mut Lower<'_>,
        inputs: &[Option<Val>],
        [batch, length, size]: [usize; 3],
    ) -> Result<Val, LowerError> {
        let decay = cx.required(inputs, 4)?;
        let each = match *decay.shape() {
            [b, l, width] if (b, l) == (batch, length) && width == self.heads => 1,
            [b, l, width] if (b, l) == (batch, length) && width == self.heads * size => size,
            ref other => return Err(cx.invalid(format!("decay {other:?} for {} heads of {size}", self.heads))),
        };
        let split = cx.reshape(decay, &[batch, length, self.heads, each])?;
        Ok(cx.expand(&split, &[batch, length, self.heads, size])?.permuted(&[0, 2, 1, 3]))
    }
}

/// Whether the state decays, and whether it is corrected by what it predicts.
pub(super) fn update_rule(attributes: &Attributes) -> Result<(bool, bool), Declined> {
    match attributes.text("update_rule", "gated_delta")? {
        "linear" => Ok((false, false)),
        "gated" => Ok((true, false)),
        "delta" => Ok((false, true)),
        "gated_delta" => Ok((true, true)),
        other => Err(Declined::new(format!("update rule {other:?} is not supported"))),
    }
}

fn parse_linear_attention(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let attributes = node.attributes;
    let dtype = node.accept(0, is_short_float)?;
    for at in [1, 2, 4, 5] {
        if let Some(other) = node.optional(at).filter(|other| other.dtype != dtype) {
            return Err(Declined::new(format!("input {at} has type {}, but the queries are {dtype}", other.dtype)));
        }
    }
    let state = node.outputs.get(1).copied().flatten().or(node.optional(3).map(|past| past.dtype)).unwrap_or(dtype);
    if !is_short_float(state) || node.optional(3).is_some_and(|past| past.dtype != state) {
        return Err(Declined::new(format!("a state of type {state} is not supported")));
    }
    if attributes.int("state_window", 0)? != 0 {
        return Err(Declined::new("a window of states is not supported"));
    }
    let count = |name: &str| match attributes.int(name, 0)? {
        count @ 1.. => Ok(count as usize),
        count => Err(Declined::new(format!("{name} is {count}"))),
    };
    let (queries, heads) = (count("q_num_heads")?, count("kv_num_heads")?);
    if queries % heads != 0 && heads % queries != 0 {
        return Err(Declined::new(format!("{queries} query heads cannot share {heads} states")));
    }
    let (decay, delta) = update_rule(attributes)?;
    for (name, is_used, at) in [("decay", decay, 4), ("beta", delta, 5)] {
        if is_used && node.optional(at).is_none() {
            return Err(Declined::new(format!("the update rule needs {name}")));
        }
    }
    Ok(Box::new(LinearAttention { queries, heads, scale: attributes.float("scale", 0.0)?, decay, delta, state }))
}

/// `CausalConvWithState`: inputs x, weights, bias, past_state.
#[derive(Debug)]
struct CausalConvWithState {
    dilation: usize,
    silu: bool,
    /// The sequence comes before the channels, which may have several axes.
    channels_last: bool,
}

impl CausalConvWithState {
    /// `[batch, channels, length]` of activations or a state.
    fn by_channel(&self, cx: &mut Lower<'_>, value: &Val, channels: usize) -> Result<Val, LowerError> {
        if !self.channels_last {
            return match *value.shape() {
                [_, found, _] if found == channels => Ok(value.clone()),
                ref other => Err(cx.invalid(format!("{other:?} for {channels} channels"))),
            };
        }
        let whole = |shape: &[usize]| shape.iter().product::<usize>() == channels;
        match *value.shape() {
            [batch, length, ref trailing @ ..] if whole(trailing) => {
                Ok(cx.reshape(value, &[batch, length, channels])?.permuted(&[0, 2, 1]))
            }
            ref other => Err(cx.invalid(format!("{other:?} for {channels} channels at the end"))),
        }
    }
}

impl Op for CausalConvWithState {
    fn name(&self) -> &'static str {
        "CausalConvWithState"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let (input, weights) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let (channels, taps) = match *weights.shape() {
            [channels, 1, taps] if taps > 0 => (channels, taps),
            ref other => return Err(cx.invalid(format!("weights {other:?}, expected [channels, 1, taps]"))),
        };
        let x = self.by_channel(cx, input, channels)?;
        let batch = x.shape()[0];
        let reach = (taps - 1).checked_mul(self.dilation);
        let reach = reach.ok_or_else(|| cx.invalid(format!("{taps} taps {} apart", self.dilation)))?;
        let mut operands = vec![x.clone(), cx.reshape(weights, &[channels, taps])?];
        let past = given(3).map(|past| self.by_channel(cx, past, channels)).transpose()?;
        if let Some(past) = past.as_ref().filter(|past| past.shape() != [batch, channels, reach]) {
            return Err(cx.invalid(format!("a state of {:?}, expected {reach} elements", past.shape())));
        }
        let is_kept = past.is_some() && reach > 0;
        operands.extend(past.filter(|_| is_kept));
        let bias = given(2);
        if let Some(bias) = bias.filter(|bias| bias.shape() != [channels]) {
            return Err(cx.invalid(format!("a bias {:?} for {channels} channels", bias.shape())));
        }
        operands.extend(bias.cloned());
        let output = cx.fresh(input.dtype(), input.shape())?;
        let mut state_shape = match given(3) {
            Some(past) => past.shape().to_vec(),
            None => input.shape().to_vec(),
        };
        state_shape[if self.channels_last { 1 } else { 2 }] = reach;
        let state = cx.fresh(input.dtype(), &state_shape)?;
        let (y, present) = (self.by_channel(cx, &output, channels)?, self.by_channel(cx, &state, channels)?);
        let prim = CausalConv { dilation: self.dilation, past: is_kept, bias: bias.is_some(), silu: self.silu };
        if batch * channels > 0 && (output.elems() > 0 || state.elems() > 0) {
            let operands: Vec<&Val> = operands.iter().collect();
            cx.emit(Prim::CausalConv(prim), &operands, &[&y, &present]);
        }
        Ok(vec![output, state])
    }
}

fn parse_causal_conv(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let attributes = node.attributes;
    let dtype = node.accept(0, is_short_float)?;
    for at in 1..4 {
        if let Some(other) = node.optional(at).filter(|other| other.dtype != dtype) {
            return Err(Declined::new(format!("input {at} has type {}, but the input is {dtype}", other.dtype)));
        }
    }
    match attributes.int("ndim", 1)? {
        1 => {}
        axes => return Err(Declined::new(format!("a convolution along {axes} axes is not supported; one is"))),
    }
    if attributes.int("state_window", 0)? != 0 {
        return Err(Declined::new("a window of states is not supported"));
    }
    let dilation = match attributes.int("dilation", 1)? {
        dilation @ 1.. => dilation as usize,
        dilation => return Err(Declined::new(format!("a dilation of {dilation}"))),
    };
    let silu = match attributes.text("activation", "none")? {
        "none" => false,
        "silu" | "swish" => true,
        other => return Err(Declined::new(format!("activation {other:?} is not supported"))),
    };
    Ok(Box::new(CausalConvWithState { dilation, silu, channels_last: attributes.flag("channels_last")? }))
}

const MICROSOFT: &str = "com.microsoft";

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "LinearAttention", parse: parse_linear_attention },
    Entry { domain: MICROSOFT, op_type: "LinearAttention", parse: parse_linear_attention },
    Entry { domain: "", op_type: "CausalConvWithState", parse: parse_causal_conv },
    Entry { domain: MICROSOFT, op_type: "CausalConvWithState", parse: parse_causal_conv },
];
