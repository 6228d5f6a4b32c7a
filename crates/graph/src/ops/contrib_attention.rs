//! com.microsoft's `Attention` and `MultiHeadAttention`.
use crate::expr::{Binary, Expr, Ref};
use crate::lower::Lower;
use crate::ops::attention::{Sight, extended, hidden, join_heads, scores, split_heads, weighted};
use crate::ops::group_query_attention::NO_TOKENS;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::{Append, CachedAttention, Filled, Sinks};
use crate::{DType, Declined, LowerError, Prim, Scalar, Val};

const DOMAIN: &str = "com.microsoft";

/// What both operators share.
#[derive(Debug)]
pub(super) struct Common {
    heads: usize,
    scale: f32,
    causal: bool,
    /// The number added to scores that a padding mask hides.
    filter: f32,
}

impl Common {
    pub(super) fn parse(node: &NodeInfo<'_>) -> Result<Self, Declined> {
        let heads = usize::try_from(node.attributes.int("num_heads", 0)?).ok().filter(|&heads| heads > 0);
        Ok(Self {
            heads: heads.ok_or_else(|| Declined::new("num_heads is below 1"))?,
            scale: node.attributes.float("scale", 0.0)?,
            causal: node.attributes.flag("unidirectional")?,
            filter: node.attributes.float("mask_filter_value", -10000.0)?,
        })
    }

    /// Attention over heads `[batch, heads, sequence, size]`; the result has the heads joined.
    fn attend(
        &self,
        cx: &mut Lower<'_>,
        [q, k, v]: [&Val; 3],
        past: usize,
        mask: Option<&Val>,
        bias: Option<&Val>,
    ) -> Result<Val, LowerError> {
        if k.shape()[2] != v.shape()[2] {
            return Err(cx.invalid(format!("keys {:?} and values {:?} do not match", k.shape(), v.shape())));
        }
        let mut result = scores(cx, q, k, self.alpha(q.shape()[3]))?;
        if let Some(bias) = bias {
            let bias = cx.expand(&first_columns(bias, k.shape()[2]), result.shape())?;
            result = cx.binary(Binary::Add, &result, &bias)?;
        }
        if let Some(mask) = mask {
            result = self.masked(cx, &result, mask)?;
        }
        result = hidden(cx, &result, Sight { causal: self.causal.then_some(past), lengths: None })?;
        let probabilities = cx.softmax(&result, 3, false)?;
        let result = weighted(cx, &probabilities, v)?;
        join_heads(cx, &result)
    }

    /// Like [`attend`](Self::attend), but over a cache `past` with room for more rows than it holds. `held` says how
    /// many it holds, and `present` is the updated cache.
    fn attend_cached(
        &self,
        cx: &mut Lower<'_>,
        [q, k, v]: [&Val; 3],
        (past, present): ([&Val; 2], [&Val; 2]),
        held: &Val,
        (mask, bias): (Option<&Val>, Option<&Val>),
    ) -> Result<Val, LowerError> {
        let (&[batch, heads, rows, size], &[_, _, extent, width]) = (q.shape(), present[1].shape()) else {
            return Err(cx.invalid(format!(
                "queries {:?} do not match a cache of {:?}",
                q.shape(),
                present[1].shape()
            )));
        };
        if held.elems() != 1 || k.shape()[2] != rows || v.shape()[2] != rows {
            let (held, k) = (held.shape(), k.shape());
            return Err(
                cx.invalid(format!("queries {:?} do not match keys {k:?} with lengths of shape {held:?}", q.shape()))
            );
        }
        if rows == 0 {
            return Err(cx.invalid(NO_TOKENS));
        }
        let lengths = cx.reshape(held, &[1])?;
        let lengths = cx.expand(&lengths, &[batch])?;
        let filled = Filled::default();
        cx.emit(
            Prim::Append(Append { filled, past: true, rotary: None }),
            &[&lengths, k, v, past[0], past[1]],
            &present,
        );
        // Masks and biases limit how many keys there are.
        let last = |value: &Val| value.shape().last().copied().filter(|_| value.rank() > 1);
        let seen = bias.and_then(last).or(mask.and_then(last)).unwrap_or(extent).min(extent);
        let bias = bias.map(|bias| first_columns(bias, seen));
        let bias = bias.map(|bias| cx.expand(&bias, &[batch, heads, rows, seen])).transpose()?;
        let bias = match (bias, mask) {
            (bias, None) => bias,
            (None, Some(mask)) => {
                let none = cx.full(q.dtype(), &[batch, 1, rows, seen], Scalar::Float(0.0))?;
                let bias = self.masked(cx, &none, mask)?;
                Some(cx.expand(&bias, &[batch, heads, rows, seen])?)
            }
            (Some(bias), Some(mask)) => Some(self.masked(cx, &bias, mask)?),
        };
        let prim = Prim::CachedAttention(CachedAttention {
            alpha: self.alpha(size),
            filled,
            causal: self.causal,
            window: None,
            softcap: None,
            bias: bias.is_some(),
            sinks: Sinks::None,
        });
        let [keys, values] = present.map(|cache| cache.sliced(2, 0, 1, seen));
        let output = cx.fresh(q.dtype(), &[batch, rows, heads, width])?;
        if output.elems() > 0 {
            let operands: Vec<&Val> = [q, &keys, &values, &lengths].into_iter().chain(&bias).collect();
            cx.emit(prim, &operands, &[&output.permuted(&[0, 2, 1, 3])]);
        }
        cx.reshape(&output, &[batch, rows, heads * width])
    }

    fn alpha(&self, size: usize) -> f32 {
        if self.scale == 0.0 { (1.0 / (size as f64).sqrt()) as f32 } else { self.scale }
    }

    /// Scores with the filter value added where a padding mask hides a key. The mask has an integer per key, or per
    /// query and key; ONNX Runtime GenAI's masks have more columns for keys to come. Or it has, per batch, the index of
    /// the first padding key, then optionally that of the first real key.
    fn masked(&self, cx: &mut Lower<'_>, scores: &Val, mask: &Val) -> Result<Val, LowerError> {
        let dtype = scores.dtype();
        let (batch, sequence, total) = (scores.shape()[0], scores.shape()[2], scores.shape()[3]);
        let filter = |expr: &mut Expr, score: Ref, keep: Ref| {
            let filter = expr.constant(Scalar::Float(f64::from(self.filter)), dtype);
            let low = expr.binary(Binary::Add, score, filter);
            expr.select(keep, score, low)
        };
        let raw = match *mask.shape() {
            [b, t] if b == batch && t >= total => Some(first_columns(mask, total).unsqueezed(1).unsqueezed(1)),
            [b, s, t] if (b, s) == (batch, sequence) && t >= total => Some(first_columns(mask, total).unsqueezed(1)),
            [count] if count == batch || count == 2 * batch => None,
            ref other => {
                return Err(cx.invalid(format!(
                    "a mask of shape {other:?} does not match scores of shape {:?}",
                    scores.shape()
                )));
            }
        };
        if let Some(raw) = raw {
            return cx.map(&[scores, &raw], dtype, |expr, arguments| {
                let zero = expr.constant(Scalar::Int(0), expr.dtype(arguments[1]));
                let keep = expr.binary(Binary::Gt, arguments[1], zero);
                filter(expr, arguments[0], keep)
            });
        }
        let part = |cx: &mut Lower<'_>, at: usize| -> Result<Val, LowerError> {
            let part = cx.reshape(&mask.sliced(0, at * batch, 1, batch), &[batch, 1, 1, 1])?;
            cx.cast(&part, DType::I64)
        };
        let ends = part(cx, 0)?;
        let starts = if mask.shape()[0] == batch { None } else { Some(part(cx, 1)?) };
        let inputs: Vec<&Val> = [scores, &ends].into_iter().chain(&starts).collect();
        cx.map(&inputs, dtype, |expr, arguments| {
            let key = expr.index(3);
            let mut keep = expr.binary(Binary::Lt, key, arguments[1]);
            if let Some(&start) = arguments.get(2) {
                let real = expr.binary(Binary::Ge, key, start);
                keep = expr.binary(Binary::And, keep, real);
            }
            filter(expr, arguments[0], keep)
        })
    }
}

/// The columns of the keys that exist, of a mask or a bias that may have more.
fn first_columns(value: &Val, keys: usize) -> Val {
    match value.shape().last() {
        Some(&columns) if columns > keys => value.sliced(value.rank() - 1, 0, 1, keys),
        _ => value.clone(),
    }
}

/// `Attention`: one product computes queries, keys and values from the input.
#[derive(Debug)]
pub(super) struct Attention {
    pub common: Common,
    pub widths: Option<[usize; 3]>,
    /// Whether the past has room for the new rows.
    pub in_place: bool,
}

/// What [`Attention`] reads besides the projected input.
#[derive(Clone, Copy, Default)]
pub(super) struct Context<'a> {
    pub mask: Option<&'a Val>,
    pub past: Option<&'a Val>,
    pub bias: Option<&'a Val>,
    /// The number of rows in a past with room for more.
    pub held: Option<&'a Val>,
}

impl Op for Attention {
    fn name(&self) -> &'static str {
        "Attention"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let mut all = cx.matmul(cx.required(inputs, 0)?, cx.required(inputs, 1)?)?;
        if let Some(bias) = given(2) {
            all = cx.binary(Binary::Add, &all, bias)?;
        }
        self.attend(cx, &all, Context { mask: given(3), past: given(4), bias: given(5), held: given(6) })
    }
}

impl Attention {
    /// Attention for the projected input: queries, keys and values side by side.
    pub(super) fn attend(
        &self,
        cx: &mut Lower<'_>,
        all: &Val,
        Context { mask, past, bias, held }: Context<'_>,
    ) -> Result<Vec<Val>, LowerError> {
        let &[batch, _, width] = all.shape() else {
            return Err(cx.invalid(format!("the projected input has shape {:?}, expected three axes", all.shape())));
        };
        let widths = self.widths.unwrap_or([width / 3; 3]);
        if widths.iter().sum::<usize>() != width {
            return Err(cx.invalid(format!(
                "queries, keys and values of widths {widths:?} cannot be split from {width} columns"
            )));
        }
        let mut start = 0;
        let mut parts = Vec::new();
        for width in widths {
            let part = split_heads(cx, &all.sliced(2, start, 1, width), self.common.heads)?;
            parts.push(part);
            start += width;
        }
        let mut past_length = 0;
        if let Some(past) = past {
            let size = parts[1].shape()[3];
            match *past.shape() {
                [2, b, h, length, s] if (b, h, s) == (batch, self.common.heads, size) => past_length = length,
                ref other => {
                    return Err(cx.invalid(format!(
                        "a past of shape {other:?} does not match keys of shape {:?}",
                        parts[1].shape()
                    )));
                }
            }
            if let Some(held) = held.filter(|_| self.in_place) {
                let present = cx.fresh(past.dtype(), past.shape())?;
                let halves = |value: &Val| [0, 1].map(|at| value.sliced(0, at, 1, 1).squeezed(0));
                let (from, to) = (halves(past), halves(&present));
                let caches = (from.each_ref(), to.each_ref());
                let [q, k, v] = &parts[..] else { return Err(cx.invalid("expected three parts")) };
                let result = self.common.attend_cached(cx, [q, k, v], caches, held, (mask, bias))?;
                return Ok(vec![result, present]);
            }
            for at in 0..2 {
                let past = past.sliced(0, at, 1, 1).squeezed(0);
                parts[at + 1] = extended(cx, Some(&past), &parts[at + 1])?;
            }
        }
        let [q, k, v] = &parts[..] else { return Err(cx.invalid("expected three parts")) };
        let result = self.common.attend(cx, [q, k, v], past_length, mask, bias)?;
        if k.shape() != v.shape() {
            return Ok(vec![result]);
        }
        let present = cx.concat(&[&k.unsqueezed(0), &v.unsqueezed(0)], 0)?;
        Ok(vec![result, present])
    }
}

fn parse_attention(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, DType::is_float)?;
    node.accept(1, DType::is_float)?;
    if node.attributes.flag("do_rotary")? {
        return Err(Declined::new("do_rotary is not supported"));
    }
    let in_place = node.attributes.flag("past_present_share_buffer")?;
    if in_place != node.optional(6).is_some() || in_place && node.optional(4).is_none() {
        return Err(Declined::new("past_present_share_buffer, past and past_sequence_length must be given together"));
    }
    if in_place {
        cached_types(node, 6)?;
    }
    decline_mask(node, 3)?;
    let widths = match node.attributes.ints("qkv_hidden_sizes")? {
        None | Some([]) => None,
        Some(&[q, k, v]) if q > 0 && k > 0 && v > 0 => Some([q as usize, k as usize, v as usize]),
        Some(other) => return Err(Declined::new(format!("unsupported qkv_hidden_sizes {other:?}"))),
    };
    if widths.is_some_and(|[_, k, v]| k != v) && (node.wants(1) || node.optional(4).is_some()) {
        return Err(Declined::new("the past's values and keys differ in width"));
    }
    Ok(Box::new(Attention { common: Common::parse(node)?, widths, in_place }))
}

/// Declines what attention over an in-place cache does not support.
fn cached_types(node: &NodeInfo<'_>, held: usize) -> Result<(), Declined> {
    node.accept(0, |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16))?;
    node.accept(held, |dtype| matches!(dtype, DType::I32 | DType::I64))?;
    Ok(())
}

/// Declines masks of rank 4, and those that are not int32.
pub(super) fn decline_mask(node: &NodeInfo<'_>, index: usize) -> Result<(), Declined> {
    match node.optional(index) {
        Some(mask) if mask.dtype != DType::I32 => {
            Err(Declined::new(format!("the mask has unsupported type {}", mask.dtype)))
        }
        Some(mask) if mask.rank.is_some_and(|rank| !(1..=3).contains(&rank)) => {
            Err(Declined::new("a mask of rank 4 is not supported"))
        }
        _ => Ok(()),
    }
}

/// `MultiHeadAttention`: queries, keys and values are separate inputs.
#[derive(Debug)]
pub(super) struct MultiHeadAttention {
    pub common: Common,
}

impl Op for MultiHeadAttention {
    fn name(&self) -> &'static str {
        "MultiHeadAttention"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let mut start = 0;
        let mut parts = Vec::new();
        for at in 0..3 {
            let value = cx.required(inputs, at)?;
            let width = value.shape().last().copied().unwrap_or(0);
            if value.rank() == 4 && at > 0 {
                // Precomputed keys and values of another sequence: the heads are already split, and the bias is
                // included.
                parts.push(value.clone());
                continue;
            }
            let mut value = value.clone();
            if let Some(bias) = given(3) {
                if bias.rank() != 1 || bias.elems() < start + width {
                    return Err(cx.invalid(format!(
                        "a bias of shape {:?} does not match {:?}",
                        bias.shape(),
                        value.shape()
                    )));
                }
                value = cx.binary(Binary::Add, &value, &bias.sliced(0, start, 1, width))?;
            }
            start += width;
            parts.push(split_heads(cx, &value, self.common.heads)?);
        }
        if let (Some(past_keys), Some(past_values), Some(held)) = (given(6), given(7), given(8)) {
            let [q, k, v] = &parts[..] else { return Err(cx.invalid("expected three parts")) };
            for (past, new) in [(past_keys, k), (past_values, v)] {
                let fits = past.rank() == 4 && [0, 1, 3].iter().all(|&axis| past.shape()[axis] == new.shape()[axis]);
                if !fits {
                    return Err(cx.invalid(format!(
                        "a past of shape {:?} does not match {:?}",
                        past.shape(),
                        new.shape()
                    )));
                }
            }
            let keys = cx.fresh(past_keys.dtype(), past_keys.shape())?;
            let values = cx.fresh(past_values.dtype(), past_values.shape())?;
            let caches = ([past_keys, past_values], [&keys, &values]);
            let result = self.common.attend_cached(cx, [q, k, v], caches, held, (given(4), given(5)))?;
            return Ok(vec![result, keys, values]);
        }
        let past_length = given(6).and_then(|past| past.shape().get(2).copied()).unwrap_or(0);
        for at in 0..2 {
            parts[at + 1] = extended(cx, given(6 + at), &parts[at + 1])?;
        }
        let [q, k, v] = &parts[..] else { return Err(cx.invalid("expected three parts")) };
        let result = self.common.attend(cx, [q, k, v], past_length, given(4), given(5))?;
        Ok(vec![result, k.clone(), v.clone()])
    }
}

fn parse_multi_head_attention(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, DType::is_float)?;
    for index in [1, 2] {
        if node.optional(index).is_none() {
            return Err(Declined::new("queries, keys and values packed into one input are not supported"));
        }
    }
    for (index, least) in [(0, 3), (1, 3), (2, 3)] {
        if node.input(index)?.rank.is_some_and(|rank| rank != least && (index == 0 || rank != 4)) {
            return Err(Declined::new(format!("input {index} is packed, which is not supported")));
        }
    }
    if node.optional(9).is_some() {
        return Err(Declined::new("cache_indirection (beam search) is not supported"));
    }
    if node.optional(8).is_some() {
        if node.optional(6).is_none() || node.optional(7).is_none() {
            return Err(Declined::new("past_sequence_length needs past_key and past_value"));
        }
        cached_types(node, 8)?;
    }
    if node.wants(3) {
        return Err(Declined::new("the output qk is not supported"));
    }
    decline_mask(node, 4)?;
    Ok(Box::new(MultiHeadAttention { common: Common::parse(node)? }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: DOMAIN, op_type: "Attention", parse: parse_attention },
    Entry { domain: DOMAIN, op_type: "MultiHeadAttention", parse: parse_multi_head_attention },
];
