//! Scaled dot-product attention: ONNX's `Attention`, and the parts it shares with the attention operators of other
//! domains.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Shape, Val};

/// `[batch, sequence, heads · size]` as `[batch, heads, sequence, size]`.
pub(super) fn split_heads(cx: &mut Lower<'_>, value: &Val, heads: usize) -> Result<Val, LowerError> {
    match *value.shape() {
        [batch, sequence, width] if heads > 0 && width % heads == 0 => {
            let split = cx.reshape(value, &[batch, sequence, heads, width / heads])?;
            Ok(split.permuted(&[0, 2, 1, 3]))
        }
        ref other => Err(cx.invalid(format!("{other:?} cannot be split into {heads} heads"))),
    }
}

/// `[batch, heads, sequence, size]` as `[batch, sequence, heads · size]`.
pub(super) fn join_heads(cx: &mut Lower<'_>, value: &Val) -> Result<Val, LowerError> {
    let moved = value.permuted(&[0, 2, 1, 3]);
    let to = [moved.shape()[0], moved.shape()[1], moved.shape()[2] * moved.shape()[3]];
    cx.reshape(&moved, &to)
}

/// The past, with the new rows appended.
pub(super) fn extended(cx: &mut Lower<'_>, past: Option<&Val>, new: &Val) -> Result<Val, LowerError> {
    match past {
        None => Ok(new.clone()),
        Some(past) if past.rank() == 4 => cx.concat(&[past, new], 2),
        Some(past) => Err(cx.invalid(format!("the past has shape {:?}, expected four axes", past.shape()))),
    }
}

/// Products of queries `[batch, heads, sequence, size]` and keys `[batch, key heads, total, size]`, times a scale:
/// `[batch, heads, sequence, total]`. Several query heads may share a key head.
pub(super) fn scores(cx: &mut Lower<'_>, q: &Val, k: &Val, scale: f32) -> Result<Val, LowerError> {
    let grouped = group(cx, q, k)?;
    let flat = cx.matmul_scaled(&grouped, &k.transposed(), scale)?;
    let mut to: Shape = q.shape().into();
    to[3] = k.shape()[2];
    cx.reshape(&flat, &to)
}

/// Values `[batch, key heads, total, size]` weighted by probabilities `[batch, heads, sequence, total]`.
pub(super) fn weighted(cx: &mut Lower<'_>, probabilities: &Val, v: &Val) -> Result<Val, LowerError> {
    let grouped = group(cx, probabilities, v)?;
    let flat = cx.matmul(&grouped, v)?;
    let mut to: Shape = probabilities.shape().into();
    to[3] = v.shape()[3];
    cx.reshape(&flat, &to)
}

/// Stacks the rows of all heads that share one head of `keys`.
fn group(cx: &mut Lower<'_>, value: &Val, keys: &Val) -> Result<Val, LowerError> {
    match (value.shape(), keys.shape()) {
        (&[batch, heads, rows, width], &[other, shared, _, _])
            if batch == other && shared > 0 && heads % shared == 0 =>
        {
            cx.reshape(value, &[batch, shared, heads / shared * rows, width])
        }
        (a, b) => Err(cx.invalid(format!("heads {a:?} cannot share {b:?}"))),
    }
}

/// Which keys a query may see, apart from any mask.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight<'v> {
    /// Only those up to its own position, which is this many after the first key.
    pub causal: Option<usize>,
    /// Only those before this index, per batch.
    pub lengths: Option<&'v Val>,
}

/// Scores with minus infinity for keys that a query may not see.
pub(super) fn hidden(cx: &mut Lower<'_>, scores: &Val, sight: Sight<'_>) -> Result<Val, LowerError> {
    let dtype = scores.dtype();
    let lengths = match sight.lengths {
        None => None,
        Some(lengths) => {
            let lengths = cx.reshape(lengths, &[scores.shape()[0], 1, 1, 1])?;
            Some(cx.cast(&lengths, DType::I64)?)
        }
    };
    if sight.causal.is_none() && lengths.is_none() {
        return Ok(scores.clone());
    }
    let inputs: Vec<&Val> = [scores].into_iter().chain(&lengths).collect();
    cx.map(&inputs, dtype, |expr, arguments| {
        let mut result = arguments[0];
        let never = expr.constant(Scalar::Float(f64::NEG_INFINITY), dtype);
        let key = expr.index(3);
        if let Some(past) = sight.causal {
            let query = expr.index(2);
            let past = expr.constant(Scalar::Int(past as i64), DType::I64);
            let own = expr.binary(Binary::Add, query, past);
            let ahead = expr.binary(Binary::Gt, key, own);
            result = expr.select(ahead, never, result);
        }
        if let Some(&length) = arguments.get(1) {
            let behind = expr.binary(Binary::Ge, key, length);
            result = expr.select(behind, never, result);
        }
        result
    })
}

/// `Attention` of opsets 23 and 24.
#[derive(Debug)]
struct Attention {
    scale: Option<f32>,
    causal: bool,
    query_heads: usize,
    key_heads: usize,
    softcap: f32,
    /// The stage whose scores are the fourth output, if that is requested.
    stage: Option<Stage>,
}

/// Stages from scores to probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Product,
    Capped,
    Masked,
    Probabilities,
}

impl Op for Attention {
    fn name(&self) -> &'static str {
        "Attention"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let (q, k, v) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let joined = q.rank() == 3;
        let heads = |cx: &mut Lower<'_>, value: &Val, count: usize| match value.rank() {
            4 if !joined => Ok(value.clone()),
            _ => split_heads(cx, value, count),
        };
        let q = heads(cx, q, self.query_heads)?;
        let (k, v) = (heads(cx, k, self.key_heads)?, heads(cx, v, self.key_heads)?);
        let past = given(4).map_or(0, |past| past.shape().get(2).copied().unwrap_or(0));
        let k = extended(cx, given(4), &k)?;
        let v = extended(cx, given(5), &v)?;
        if k.shape()[2] != v.shape()[2] {
            return Err(cx.invalid(format!("keys {:?} and values {:?} do not match", k.shape(), v.shape())));
        }
        let scale = self.scale.unwrap_or_else(|| (1.0 / (q.shape()[3] as f64).sqrt()) as f32);
        let product = scores(cx, &q, &k, scale)?;
        let capped = self.capped(cx, &product)?;
        let masked = match given(3) {
            None => capped.clone(),
            Some(mask) => masked(cx, &capped, mask)?,
        };
        let sight = Sight { causal: self.causal.then_some(past), lengths: given(6) };
        let masked = hidden(cx, &masked, sight)?;
        let mut probabilities = cx.softmax(&masked, 3, false)?;
        if given(3).is_some() || given(6).is_some() {
            probabilities = nothing_from_hidden(cx, &masked, &probabilities)?;
        }
        let result = weighted(cx, &probabilities, &v)?;
        let result = if joined { join_heads(cx, &result)? } else { result };
        let stage = match self.stage {
            Some(Stage::Product) => product,
            Some(Stage::Capped) => capped,
            Some(Stage::Masked) => masked,
            Some(Stage::Probabilities) | None => probabilities,
        };
        Ok(vec![result, k, v, stage])
    }
}

impl Attention {
    fn capped(&self, cx: &mut Lower<'_>, scores: &Val) -> Result<Val, LowerError> {
        if self.softcap <= 0.0 {
            return Ok(scores.clone());
        }
        cx.map(&[scores], scores.dtype(), |expr, arguments| {
            let cap = expr.constant(Scalar::Float(f64::from(self.softcap)), scores.dtype());
            let part = expr.binary(Binary::Div, arguments[0], cap);
            let bounded = expr.unary(Unary::Tanh, part);
            expr.binary(Binary::Mul, bounded, cap)
        })
    }
}

/// Scores with a mask added, or minus infinity where a boolean mask is false. A mask shorter than the keys hides the
/// rest.
fn masked(cx: &mut Lower<'_>, scores: &Val, mask: &Val) -> Result<Val, LowerError> {
    let dtype = scores.dtype();
    let total = scores.shape()[3];
    let last = mask.shape().last().copied().ok_or_else(|| cx.invalid("the mask has no axes"))?;
    let mut mask = mask.clone();
    if last != 1 && last < total {
        let mut rest: Shape = mask.shape().into();
        let axis = mask.rank() - 1;
        rest[axis] = total - last;
        let never = if mask.dtype() == DType::Bool { Scalar::Int(0) } else { Scalar::Float(f64::NEG_INFINITY) };
        let never = cx.full(mask.dtype(), &rest, never)?;
        mask = cx.concat(&[&mask, &never], axis)?;
    }
    let to = scores.shape().to_vec();
    let boolean = mask.dtype() == DType::Bool;
    cx.map_to(&[scores, &mask], dtype, &to, |expr, arguments| {
        if boolean {
            let never = expr.constant(Scalar::Float(f64::NEG_INFINITY), dtype);
            return expr.select(arguments[1], arguments[0], never);
        }
        expr.binary(Binary::Add, arguments[0], arguments[1])
    })
}

/// Probabilities that are 0 for every key that a query may not see, even if it may see none.
fn nothing_from_hidden(cx: &mut Lower<'_>, scores: &Val, probabilities: &Val) -> Result<Val, LowerError> {
    let dtype = scores.dtype();
    cx.map(&[scores, probabilities], dtype, |expr, arguments| {
        let never = expr.constant(Scalar::Float(f64::NEG_INFINITY), dtype);
        let zero = expr.constant(Scalar::Float(0.0), dtype);
        let is_hidden = expr.binary(Binary::Eq, arguments[0], never);
        expr.select(is_hidden, zero, arguments[1])
    })
}

fn parse_attention(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let attributes = node.attributes;
    let dtype = node.accept(0, DType::is_float)?;
    for index in [1, 2, 4, 5] {
        if node.optional(index).is_some_and(|input| input.dtype != dtype) {
            return Err(Declined::new(format!("input {index} has another type than input 0")));
        }
    }
    if node.optional(3).is_some_and(|mask| mask.dtype != dtype && mask.dtype != DType::Bool) {
        return Err(Declined::new("the mask has another type than the queries"));
    }
    let causal = attributes.flag("is_causal")?;
    if causal && node.optional(6).is_some() {
        return Err(Declined::new("is_causal with nonpad_kv_seqlen is not supported: implementations disagree"));
    }
    let stage = match attributes.int("qk_matmul_output_mode", 0)? {
        0 => Stage::Product,
        1 => Stage::Capped,
        2 => Stage::Masked,
        3 => Stage::Probabilities,
        other => return Err(Declined::new(format!("unsupported qk_matmul_output_mode {other}"))),
    };
    let heads = |name: &str| -> Result<usize, Declined> {
        usize::try_from(attributes.int(name, 0)?).map_err(|_| Declined::new(format!("{name} below 0")))
    };
    Ok(Box::new(Attention {
        scale: attributes.get("scale").map(|_| attributes.float("scale", 1.0)).transpose()?,
        causal,
        query_heads: heads("q_num_heads")?,
        key_heads: heads("kv_num_heads")?,
        softcap: attributes.float("softcap", 0.0)?,
        stage: node.wants(3).then_some(stage),
    }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "", op_type: "Attention", parse: parse_attention }];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial, device};

    #[test]
    fn heads_may_be_merged_shared_and_have_a_past() {
        let joined = Trial::new("Attention", 23).int("q_num_heads", 6).int("kv_num_heads", 2);
        let joined = joined.input(device(&[2, 3, 24])).input(device(&[2, 5, 8])).input(device(&[2, 5, 14]));
        let joined = joined.input(Given::Absent).input(device(&[2, 2, 4, 4])).input(device(&[2, 2, 4, 7]));
        let shapes = joined.gives(&[DType::F32; 4]).shapes();
        assert_eq!(shapes, Ok(vec![vec![2, 3, 42], vec![2, 2, 9, 4], vec![2, 2, 9, 7], vec![2, 6, 3, 9]]));
    }

    #[test]
    fn incompatible_head_counts_are_rejected() {
        let trial = Trial::new("Attention", 23).input(device(&[1, 3, 2, 4])).input(device(&[1, 2, 2, 4]));
        let found = trial.input(device(&[1, 2, 2, 4])).shapes();
        assert_eq!(found, Err("Attention: heads [1, 3, 2, 4] cannot share [1, 2, 2, 4]".to_owned()));
    }

    #[test]
    fn declines_forms_on_which_implementations_disagree() {
        let trial = Trial::new("Attention", 24).int("is_causal", 1);
        let trial = (0..3).fold(trial, |trial, _| trial.input(device(&[1, 1, 2, 4])));
        let trial = (3..6).fold(trial, |trial, _| trial.input(Given::Absent));
        let found = trial.input(Given::Device(DType::I64, &[1])).shapes();
        assert_eq!(found, Err("is_causal with nonpad_kv_seqlen is not supported: implementations disagree".to_owned()));
    }
}
