//! Biases of attention that depend on the distance of two tokens: com.microsoft's `RelativePositionBias` (T5) and
//! `GatedRelativePositionBias` (WavLM).
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::attention::split_heads;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::ReduceKind;
use crate::{DType, Declined, LowerError, Scalar, Shape, Val};

/// Longer sequences would need a result of more than 2^40 elements for each head.
const MAX_LENGTH: usize = 1 << 20;

/// `RelativePositionBias`: inputs the table, and the lengths of queries and keys.
#[derive(Debug)]
struct RelativeBias {
    bidirectional: bool,
    max_distance: i64,
}

impl RelativeBias {
    /// The bucket of a key that is `ahead` tokens after the query.
    fn bucket(&self, buckets: i64, ahead: i64) -> i64 {
        let (half, first) = match self.bidirectional {
            true => (buckets / 2, if ahead > 0 { buckets / 2 } else { 0 }),
            false => (buckets, 0),
        };
        let distance = if self.bidirectional { ahead.abs() } else { (-ahead).max(0) };
        let exact = half / 2;
        if distance < exact {
            return first + distance;
        }
        // In single precision, as ONNX Runtime does: the result decides at the borders of buckets.
        let [distance, largest, least] = [distance, self.max_distance, exact].map(|number| number as f32);
        let share = (distance / least).ln() / (largest / least).ln();
        first + (exact + (share * (half - exact) as f32) as i64).min(half - 1)
    }
}

impl Op for RelativeBias {
    fn name(&self) -> &'static str {
        "RelativePositionBias"
    }

    fn host_inputs(&self) -> &[usize] {
        &[1, 2]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let table = cx.required(inputs, 0)?;
        let (queries, keys) = (cx.known(inputs, 1)?.to_i64s(), cx.known(inputs, 2)?.to_i64s());
        let (&[buckets, heads], [queries], [keys]) = (table.shape(), &queries[..], &keys[..]) else {
            let shape = table.shape();
            return Err(cx.invalid(format!("a table {shape:?} for lengths {queries:?} and {keys:?}")));
        };
        let length = usize::try_from(*queries).ok().filter(|&length| queries == keys && length <= MAX_LENGTH);
        let length = length.ok_or_else(|| {
            cx.invalid(format!("query_length {queries} and key_length {keys}, expected one length up to {MAX_LENGTH}"))
        })?;
        if buckets < 4 || self.max_distance <= buckets as i64 / 2 {
            let distance = self.max_distance;
            return Err(cx.invalid(format!("{buckets} buckets for a max_distance of {distance}")));
        }
        let to = [1, heads, length, length];
        if length == 0 {
            return Ok(vec![cx.full(table.dtype(), &to, Scalar::Float(0.0))?]);
        }
        // The numbers of a head lie side by side, although the shape says otherwise.
        let by_head = cx.reshape(table, &[heads, buckets])?;
        let ends = length as i64 - 1;
        let places: Vec<usize> =
            (-ends..=ends).map(|ahead| self.bucket(buckets as i64, ahead).unsigned_abs() as usize).collect();
        let by_distance = cx.take(&by_head, 1, &places)?;
        let by_distance = cx.dense(&by_distance)?;
        // Row i of the result starts i places before the middle.
        let step = by_distance.strides()[0];
        let strides = [0, step, -1, 1].into_iter().collect();
        let rows = by_distance.with(Shape::from_slice(&to), strides, by_distance.offset() + ends as isize);
        Ok(vec![cx.copy(&rows)?])
    }
}

fn parse_relative(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| matches!(dtype, DType::F32 | DType::F16))?;
    for at in [1, 2] {
        node.accept(at, |dtype| dtype == DType::I64)?;
    }
    let max_distance = node.attributes.int("max_distance", 0)?;
    if !(1..1 << 24).contains(&max_distance) {
        return Err(Declined::new(format!("max_distance is {max_distance}")));
    }
    Ok(Box::new(RelativeBias { bidirectional: node.attributes.flag("is_bidirectional")?, max_distance }))
}

/// `GatedRelativePositionBias`: inputs query, its bias, the bias of positions, the weight and bias of the gates, and a
/// number for each head.
#[derive(Debug)]
struct GatedBias {
    heads: usize,
}

impl Op for GatedBias {
    fn name(&self) -> &'static str {
        "GatedRelativePositionBias"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let get = |cx: &Lower<'_>, at: usize| cx.required(inputs, at).cloned();
        let (query, query_bias, positions) = (get(cx, 0)?, get(cx, 1)?, get(cx, 2)?);
        let (weight, bias, of_head) = (get(cx, 3)?, get(cx, 4)?, get(cx, 5)?);
        let sum = cx.binary(Binary::Add, &query, &query_bias)?;
        let heads = split_heads(cx, &sum, self.heads)?;
        let (batch, length, dtype) = (heads.shape()[0], heads.shape()[2], query.dtype());
        let gates = weight.shape().last().copied().unwrap_or(0);
        let to = [batch, self.heads, length, length];
        let fits = gates % 2 == 0 && bias.shape() == [gates] && positions.shape() == [1, self.heads, length, length];
        if !fits || of_head.shape() != [1, self.heads, 1, 1] {
            return Err(cx.invalid(format!(
                "{gates} gates with a bias {:?}, positions {:?} and eco_a {:?} for a result of {to:?}",
                bias.shape(),
                positions.shape(),
                of_head.shape()
            )));
        }
        let product = cx.matmul(&heads, &weight)?;
        let product = cx
            .map(&[&product, &bias], DType::F32, |expr, operands| expr.binary(Binary::Add, operands[0], operands[1]))?;
        let halves = cx.reshape(&product, &[batch, self.heads, length, 2, gates / 2])?;
        let sums = cx.reduce(&halves, &[4], false, ReduceKind::Sum)?;
        let [update, reset] = [0, 1].map(|at| sums.sliced(3, at, 1, 1));
        let made = cx.map_to(&[&update, &reset, &of_head, &positions], dtype, &to, |expr, operands| {
            let [update, reset] = [0, 1].map(|at| expr.unary(Unary::Sigmoid, operands[at]));
            let [one, two] = [1.0, 2.0].map(|value| expr.constant(Scalar::Float(value), DType::F32));
            let scaled = expr.binary(Binary::Mul, reset, operands[2]);
            let lowered = expr.binary(Binary::Sub, scaled, one);
            let gated = expr.binary(Binary::Mul, update, lowered);
            let gate = expr.binary(Binary::Add, gated, two);
            expr.binary(Binary::Mul, gate, operands[3])
        })?;
        Ok(vec![made])
    }
}

fn parse_gated(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, |dtype| matches!(dtype, DType::F32 | DType::F16))?;
    if let Some(at) = (1..6).find(|&at| node.optional(at).is_none_or(|input| input.dtype != dtype)) {
        return Err(Declined::new(format!("input {at} is not {dtype}")));
    }
    if node.optional(6).is_some() {
        return Err(Declined::new("queries without padding (token_offset) are not supported"));
    }
    let heads = usize::try_from(node.attributes.int("num_heads", 0)?).ok().filter(|&heads| heads > 0);
    Ok(Box::new(GatedBias { heads: heads.ok_or_else(|| Declined::new("num_heads is below 1"))? }))
}

const MICROSOFT: &str = "com.microsoft";

pub(super) const OPS: &[Entry] = &[
    Entry { domain: MICROSOFT, op_type: "RelativePositionBias", parse: parse_relative },
    Entry { domain: MICROSOFT, op_type: "GatedRelativePositionBias", parse: parse_gated },
];
