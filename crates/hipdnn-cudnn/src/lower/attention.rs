//! Attention as products around a softmax: the pattern that cuDNN's fused engines know.

use hipdnn::sys::{AttributeName as H, AttributeType, DiagonalAlignment};
use hipdnn_abi::Descriptor;

use super::{Answer, Lowering, Variant};
use crate::descriptor::Setting;
use crate::graph::View;
use crate::sys::{AttributeName as A, DataType, PointwiseMode as C, ReduceOp};

const KNOWN: [H; 7] = [
    H::OPERATION_SDPA_FWD_QDESC,
    H::OPERATION_SDPA_FWD_KDESC,
    H::OPERATION_SDPA_FWD_VDESC,
    H::OPERATION_SDPA_FWD_ODESC,
    H::OPERATION_SDPA_FWD_ATTN_MASK_EXT,
    H::OPERATION_SDPA_FWD_SCALEDESC,
    H::OPERATION_SDPA_FWD_STATSDESC,
];

impl Lowering {
    pub(super) fn attention(&mut self, operation: &Descriptor) -> Answer {
        refuse_unknown(operation)?;
        let q = self.view(operation, H::OPERATION_SDPA_FWD_QDESC)?;
        let k = self.view(operation, H::OPERATION_SDPA_FWD_KDESC)?;
        let v = self.view(operation, H::OPERATION_SDPA_FWD_VDESC)?;
        let o = self.view(operation, H::OPERATION_SDPA_FWD_ODESC)?;
        if [&q, &k, &v, &o].iter().any(|view| view.dims.len() != 4) {
            return Err("attention over other than four axes".into());
        }
        let (heads, key_heads) = (q.dims[1], k.dims[1]);
        if heads % key_heads != 0 {
            return Err(format!("{heads} query heads for {key_heads} key heads"));
        }
        let shared = heads / key_heads;
        let mut k = k;
        k.dims.swap(2, 3);
        k.strides.swap(2, 3);
        let scores_dims = [q.dims[0], heads, q.dims[2], k.dims[3]];
        let raw = self.packed(self.compute, &scores_dims);
        self.headwise(&q, k, &raw, shared);
        let scale = match operation.f32(H::SDPA_FWD_ATTN_SCALE_VALUE_EXT) {
            Some(scale) => Some(self.number(scale.into())),
            None => self.view_optional(operation, H::OPERATION_SDPA_FWD_SCALEDESC)?,
        };
        let mut scores = raw;
        if let Some(scale) = scale {
            scores = self.mapped(C::MUL, &[&scores, &scale]);
        }
        if let Some(mask) = self.view_optional(operation, H::OPERATION_SDPA_FWD_ATTN_MASK_EXT)? {
            scores = self.mapped(C::ADD, &[&scores, &mask]);
        }
        scores = self.diagonal(operation, scores)?;
        let largest = self.reduced(ReduceOp::MAX, &scores, &[3]);
        let less = self.mapped(C::SUB, &[&scores, &largest]);
        let powers = self.mapped(C::EXP, &[&less]);
        let sums = self.reduced(ReduceOp::ADD, &powers, &[3]);
        if let Some(statistics) = self.view_optional(operation, H::OPERATION_SDPA_FWD_STATSDESC)? {
            let logarithm = self.mapped(C::LOG, &[&sums]);
            if self.data_type(&statistics) == self.compute {
                self.map(C::ADD, &[&logarithm, &largest], &statistics);
            } else {
                let wide = self.mapped(C::ADD, &[&logarithm, &largest]);
                self.map(C::IDENTITY, &[&wide], &statistics);
            }
        }
        // Products read what the queries are made of.
        let weights = self.packed(self.data_type(&q), &scores_dims);
        self.map(C::DIV, &[&powers, &sums], &weights);
        self.headwise(&weights, v, &o, shared);
        Ok(())
    }

    /// A packed tensor between operations.
    fn packed(&mut self, data_type: DataType, dims: &[i64]) -> View {
        let like = View { tensor: 0, dims: Vec::new(), strides: Vec::new() };
        self.inside(data_type, dims, &like)
    }

    /// A product for each head. In pieces, query heads that share a key head become rows of one matrix.
    fn headwise(&mut self, a: &View, b: View, c: &View, shared: i64) {
        if shared == 1 || self.variant == Variant::Whole {
            return self.product(a.clone(), b, c.clone());
        }
        let (rows, product) = (self.in_rows(a), self.rows(c));
        let stacked = |view: &View| View {
            tensor: view.tensor,
            dims: vec![view.dims[0], view.dims[1] / shared, view.dims[2] * shared, view.dims[3]],
            strides: vec![
                view.dims[1] * view.dims[2] * view.dims[3],
                view.dims[2] * view.dims[3] * shared,
                view.dims[3],
                1,
            ],
        };
        let to = stacked(product.as_ref().unwrap_or(c));
        self.product(stacked(&rows), b, to);
        if let Some(product) = product {
            self.map(C::IDENTITY, &[&product], c);
        }
    }

    /// Minus infinity where a query must not see a key, by the diagonal and its bounds.
    fn diagonal(&mut self, operation: &Descriptor, mut scores: View) -> Answer<View> {
        let from_the_end = operation.flag(H::SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT)
            || operation.number(H::SDPA_FWD_DIAGONAL_ALIGNMENT_EXT) == Some(DiagonalAlignment::BOTTOM_RIGHT_EXT.0);
        let is_causal =
            operation.flag(H::SDPA_FWD_CAUSAL_MASK_EXT) || operation.flag(H::SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT);
        let bound = |name| operation.i64s(name).first().copied();
        let left = bound(H::SDPA_FWD_LEFT_BOUND_EXT);
        let right = if is_causal { Some(0) } else { bound(H::SDPA_FWD_RIGHT_BOUND_EXT) };
        let (rows, columns) = (scores.dims[2], scores.dims[3]);
        let shift = if from_the_end { columns - rows } else { 0 };
        let first = |row: i64| left.map_or(0, |left| row + shift - left + 1).max(0);
        let last = |row: i64| right.map_or(columns - 1, |right| row + shift + right).min(columns - 1);
        if (0..rows).any(|row| first(row) > last(row)) {
            return Err("cuDNN gives no numbers for a query that sees no key".into());
        }
        // Column `c` is seen by row `r` if r + shift + right >= c, and if r + shift - left < c.
        if let Some(right) = right {
            scores = self.masked(scores, C::CMP_GE, shift + right);
        }
        if let Some(left) = left {
            scores = self.masked(scores, C::CMP_LT, shift - left);
        }
        Ok(scores)
    }

    /// Scores where `row + offset` compares with the column, minus infinity elsewhere.
    fn masked(&mut self, scores: View, compare: C, offset: i64) -> View {
        if self.variant == Variant::Apart {
            return self.penalized(scores, compare, offset);
        }
        let (rows, columns) = (self.indices(&scores, 2, DataType::INT32), self.indices(&scores, 3, DataType::INT32));
        let rows = if offset == 0 {
            rows
        } else {
            let offset = self.whole_number(offset);
            let shifted = self.packed(DataType::INT32, &scores.dims);
            self.map_with(C::ADD, &[&rows, &offset], &shifted, DataType::INT32, Vec::new());
            shifted
        };
        let sees = self.packed(DataType::BOOLEAN, &scores.dims);
        self.map_with(compare, &[&rows, &columns], &sees, DataType::INT32, Vec::new());
        let nothing = self.number(f64::NEG_INFINITY);
        let masked = self.packed(self.compute, &scores.dims);
        self.map(C::BINARY_SELECT, &[&scores, &nothing, &sees], &masked);
        masked
    }

    /// As `masked`, without booleans, which cuDNN's engines take for multiples of eight elements only: the logarithm of 1
    /// where a key is seen and of 0 where it is not.
    fn penalized(&mut self, scores: View, compare: C, offset: i64) -> View {
        let (rows, columns) = (self.indices(&scores, 2, self.compute), self.indices(&scores, 3, self.compute));
        // One more than the distance within what is seen, so that it is at least 1 there and at most 0 beyond.
        let (near, far, more) =
            if compare == C::CMP_GE { (&rows, &columns, offset + 1) } else { (&columns, &rows, -offset) };
        let distance = self.mapped(C::SUB, &[near, far]);
        let (more, zero, one) = (self.number(more as f64), self.number(0.0), self.number(1.0));
        let distance = self.mapped(C::ADD, &[&distance, &more]);
        let seen = self.mapped(C::MAX, &[&distance, &zero]);
        let seen = self.mapped(C::MIN, &[&seen, &one]);
        let penalty = self.mapped(C::LOG, &[&seen]);
        self.mapped(C::ADD, &[&scores, &penalty])
    }

    fn indices(&mut self, like: &View, axis: i64, data_type: DataType) -> View {
        let to = self.packed(data_type, &like.dims);
        let axis = vec![(A::POINTWISE_AXIS, Setting::I64s(vec![axis]))];
        self.map_with(C::GEN_INDEX, &[like], &to, data_type, axis);
        to
    }
}

fn refuse_unknown(operation: &Descriptor) -> Answer {
    for row in operation.kind.rows {
        let is_set = match row.kind {
            AttributeType::BACKEND_DESCRIPTOR => operation.descriptor(row.name).is_some() && !KNOWN.contains(&row.name),
            _ => {
                [H::SDPA_FWD_ALIBI_MASK_EXT, H::SDPA_FWD_PADDING_MASK_EXT].contains(&row.name)
                    && operation.flag(row.name)
            }
        };
        if is_set {
            return Err(format!("the cuDNN bridge has no attention with {}", row.name));
        }
    }
    if operation.f32(H::SDPA_FWD_DROPOUT_PROBABILITY_EXT).is_some_and(|probability| probability != 0.0) {
        return Err("the cuDNN bridge has no attention with dropout".into());
    }
    Ok(())
}
