//! Attention as matrix products around a softmax.

use graph::DType;
use graph::ops::Attribute;
use hipdnn::sys::{AttributeName as A, AttributeType, DiagonalAlignment};
use hipdnn_abi::Descriptor;

use super::{Answer, LoweredValue, Lowering};

/// The attributes that attention and its gradient have in common, with the names of one of them.
pub(super) struct Names {
    pub q: A,
    pub k: A,
    pub v: A,
    pub scale: A,
    pub mask: A,
    pub queries: A,
    pub keys: A,
    pub alibi: A,
    pub padding: A,
    pub causal: A,
    pub causal_from_the_end: A,
    pub dropout: A,
    pub scale_value: A,
    pub left: A,
    pub right: A,
    pub alignment: A,
    /// Further tensors that are supported.
    pub known: &'static [A],
}

const FORWARD: Names = Names {
    q: A::OPERATION_SDPA_FWD_QDESC,
    k: A::OPERATION_SDPA_FWD_KDESC,
    v: A::OPERATION_SDPA_FWD_VDESC,
    scale: A::OPERATION_SDPA_FWD_SCALEDESC,
    mask: A::OPERATION_SDPA_FWD_ATTN_MASK_EXT,
    queries: A::OPERATION_SDPA_FWD_SEQ_LEN_QDESC,
    keys: A::OPERATION_SDPA_FWD_SEQ_LEN_KVDESC,
    alibi: A::SDPA_FWD_ALIBI_MASK_EXT,
    padding: A::SDPA_FWD_PADDING_MASK_EXT,
    causal: A::SDPA_FWD_CAUSAL_MASK_EXT,
    causal_from_the_end: A::SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT,
    dropout: A::SDPA_FWD_DROPOUT_PROBABILITY_EXT,
    scale_value: A::SDPA_FWD_ATTN_SCALE_VALUE_EXT,
    left: A::SDPA_FWD_LEFT_BOUND_EXT,
    right: A::SDPA_FWD_RIGHT_BOUND_EXT,
    alignment: A::SDPA_FWD_DIAGONAL_ALIGNMENT_EXT,
    known: &[A::OPERATION_SDPA_FWD_ODESC, A::OPERATION_SDPA_FWD_STATSDESC],
};

/// Masked scores and their operands. Query heads that share a key head are a separate axis: everything is `[batch, key
/// heads, shared, rows, …]`.
pub(super) struct Scores {
    pub q: LoweredValue,
    pub k: LoweredValue,
    pub v: LoweredValue,
    pub scale: LoweredValue,
    pub values: LoweredValue,
    /// True for rows in which every key is masked; `None` if there cannot be any.
    pub is_blind: Option<LoweredValue>,
    /// Batch, query heads, rows, columns.
    pub dims: [i64; 4],
    /// Query heads per key head.
    pub shared: i64,
}

impl Lowering {
    pub(super) fn attention(&mut self, operation: &Descriptor) -> Answer {
        let scores = self.scores(operation, &FORWARD)?;
        let [batch, heads, rows, _] = scores.dims;
        let values = &scores.values;
        let mut weights = self.compute_node("Softmax", &[("axis", Attribute::Int(-1))], &[values], &values.dims)?;
        if let Some(is_blind) = &scores.is_blind {
            let zero = self.scalar(0.0);
            weights = self.elementwise("Where", &[is_blind, &zero, &weights])?;
        }
        let made = self.product(&weights, &scores.v)?;
        let width = scores.v.dims[4];
        let o = self.reshape(&made, &[batch, heads, rows, width])?;
        self.write(operation, A::OPERATION_SDPA_FWD_ODESC, &o)?;
        if operation.descriptor(A::OPERATION_SDPA_FWD_STATSDESC).is_some() {
            let mut sums = self.reduce("ReduceLogSumExp", values, &[4])?;
            if let Some(is_blind) = &scores.is_blind {
                let nothing = self.scalar(f64::NEG_INFINITY);
                sums = self.elementwise("Where", &[is_blind, &nothing, &sums])?;
            }
            let sums = self.reshape(&sums, &[batch, heads, rows, 1])?;
            self.write(operation, A::OPERATION_SDPA_FWD_STATSDESC, &sums)?;
        }
        Ok(())
    }

    /// The scores of queries and keys, scaled and masked.
    pub(super) fn scores(&mut self, operation: &Descriptor, names: &Names) -> Answer<Scores> {
        refuse_unknown(operation, names)?;
        let [q, k, v] = [names.q, names.k, names.v];
        let (q, k, v) = (self.read(operation, q)?, self.read(operation, k)?, self.read(operation, v)?);
        let shapes = [&q, &k, &v].map(|made| <[i64; 4]>::try_from(&made.dims[..]));
        let [Ok([batch, heads, rows, depth]), Ok([key_batch, key_heads, columns, key_depth]), Ok(values)] = shapes
        else {
            return Err("attention needs four axes".into());
        };
        let [_, _, _, width] = values;
        let fits = heads % key_heads == 0
            && (key_batch, key_depth) == (batch, depth)
            && values == [batch, key_heads, columns, width];
        if !fits {
            return Err(format!("queries {:?} do not match keys {:?} and values {:?}", q.dims, k.dims, v.dims));
        }
        let shared = heads / key_heads;
        let q = self.reshape(&q, &[batch, key_heads, shared, rows, depth])?;
        let k = self.reshape(&k, &[batch, key_heads, 1, columns, depth])?;
        let v = self.reshape(&v, &[batch, key_heads, 1, columns, width])?;
        let turned = self.turned(&k)?;
        let products = self.product(&q, &turned)?;
        let scale = match operation.f32(names.scale_value) {
            Some(scale) => self.scalar(f64::from(scale)),
            None => match self.read_optional(operation, names.scale)? {
                Some(scale) => self.reshape(&scale, &[1])?,
                None => self.scalar(1.0),
            },
        };
        let mut scores = self.elementwise("Mul", &[&products, &scale])?;
        let dims = [batch, heads, rows, columns];
        if let Some(mask) = self.read_optional(operation, names.mask)? {
            let mask = self.split_heads(&mask, dims, shared)?;
            scores = self.elementwise("Add", &[&scores, &mask])?;
        }
        let (band, hides_rows) = self.band(operation, names, rows, columns)?;
        let padding = self.padding(operation, names, dims)?;
        let may_be_blind = hides_rows || !padding.is_empty();
        let nothing = self.scalar(f64::NEG_INFINITY);
        for hidden in band.iter().chain(&padding) {
            scores = self.elementwise("Where", &[hidden, &nothing, &scores])?;
        }
        let mut is_blind = None;
        if may_be_blind {
            let most = self.reduce("ReduceMax", &scores, &[4])?;
            is_blind = Some(self.elementwise_to("Equal", &[&most, &nothing], DType::Bool)?);
        }
        Ok(Scores { q, k, v, scale, values: scores, is_blind, dims, shared })
    }

    /// Reshapes a mask over `[batch, heads, rows, columns]`, or some of these axes, for scores with two axes of heads.
    fn split_heads(&mut self, mask: &LoweredValue, scores: [i64; 4], shared: i64) -> Answer<LoweredValue> {
        let missing = 4usize.checked_sub(mask.dims.len()).ok_or("a mask of more than four axes")?;
        let mut dims = vec![1; missing];
        dims.extend(&mask.dims);
        if dims.iter().zip(scores).any(|(&extent, wanted)| extent != 1 && extent != wanted) {
            return Err(format!("a mask {:?} does not match scores {scores:?}", mask.dims));
        }
        let heads = if dims[1] == 1 { [1, 1] } else { [dims[1] / shared, shared] };
        self.reshape(mask, &[dims[0], heads[0], heads[1], dims[2], dims[3]])
    }

    /// The mask of keys that the diagonal and its bounds hide, and whether it hides every key of some query.
    fn band(
        &mut self,
        operation: &Descriptor,
        names: &Names,
        rows: i64,
        columns: i64,
    ) -> Answer<(Option<LoweredValue>, bool)> {
        let from_the_end = operation.flag(names.causal_from_the_end)
            || operation.number(names.alignment) == Some(DiagonalAlignment::BOTTOM_RIGHT_EXT.0);
        let is_causal = operation.flag(names.causal) || operation.flag(names.causal_from_the_end);
        let bound = |name| operation.i64s(name).first().copied();
        let left = bound(names.left);
        let right = if is_causal { Some(0) } else { bound(names.right) };
        let shift = if from_the_end { columns - rows } else { 0 };
        let column = self.along(DType::I64, 5, 4, columns, |column| column)?;
        let mut hidden = None;
        if let Some(right) = right {
            let last = self.along(DType::I64, 5, 3, rows, |row| (row + shift).saturating_add(right))?;
            hidden = Some(self.elementwise_to("Greater", &[&column, &last], DType::Bool)?);
        }
        if let Some(left) = left {
            let before = self.along(DType::I64, 5, 3, rows, |row| (row + shift).saturating_sub(left))?;
            let is_before = self.elementwise_to("LessOrEqual", &[&column, &before], DType::Bool)?;
            hidden = Some(match hidden {
                Some(hidden) => self.elementwise_to("Or", &[&hidden, &is_before], DType::Bool)?,
                None => is_before,
            });
        }
        let hides_row = |row: i64| {
            let first = left.map_or(0, |left| (row + shift).saturating_sub(left).saturating_add(1).max(0));
            let last = right.map_or(columns - 1, |right| (row + shift).saturating_add(right).min(columns - 1));
            first > last
        };
        Ok((hidden, (0..rows).any(hides_row)))
    }

    /// Masks of queries and keys past the end of their sequence.
    fn padding(&mut self, operation: &Descriptor, names: &Names, dims: [i64; 4]) -> Answer<Vec<LoweredValue>> {
        let mut hidden = Vec::new();
        if !operation.flag(names.padding) {
            return Ok(hidden);
        }
        for (name, axis) in [(names.queries, 3), (names.keys, 4)] {
            let Some(lengths) = operation.descriptor(name) else { continue };
            let lengths = self.read_as_is(&lengths)?;
            let lengths = self.cast(&lengths, DType::I64)?;
            if lengths.dims.iter().product::<i64>() != dims[0] {
                return Err(format!("lengths {:?} do not match {} sequences", lengths.dims, dims[0]));
            }
            let lengths = self.reshape(&lengths, &[dims[0], 1, 1, 1, 1])?;
            let place = self.along(DType::I64, 5, axis, dims[axis - 1], |at| at)?;
            hidden.push(self.elementwise_to("GreaterOrEqual", &[&place, &lengths], DType::Bool)?);
        }
        if hidden.is_empty() { Err("a padding mask needs lengths".into()) } else { Ok(hidden) }
    }
}

/// Rejects attributes that the engine does not support: they must not be ignored.
fn refuse_unknown(operation: &Descriptor, names: &Names) -> Answer {
    if operation.flag(names.alibi) {
        return Err(format!("attention with {} is not supported", names.alibi));
    }
    if operation.f32(names.dropout).is_some_and(|probability| probability != 0.0) {
        return Err("attention with dropout is not supported".into());
    }
    let own = [names.q, names.k, names.v, names.scale, names.mask, names.queries, names.keys];
    let rows = operation.kind.rows.iter().filter(|row| row.kind == AttributeType::BACKEND_DESCRIPTOR);
    let mut further = rows.map(|row| row.name).filter(|name| !own.contains(name) && !names.known.contains(name));
    match further.find(|&name| operation.descriptor(name).is_some()) {
        Some(name) => Err(format!("attention with {name} is not supported")),
        None => Ok(()),
    }
}
