//! Attention as products around a softmax: the pattern that cuDNN's fused engines recognise.

use hipdnn::sys::{AttributeName as H, AttributeType, DiagonalAlignment};
use hipdnn_abi::Descriptor;

use super::{Answer, Lowering, Variant};
use crate::graph::View;
use crate::safe::Setting;
use crate::sys::{AttributeName as A, DataType, PointwiseMode as C, ReduceOp};

/// Attribute names that forward and backward share.
struct Names {
    q: H,
    k: H,
    scale: H,
    scale_value: H,
    mask: H,
    is_causal: H,
    is_causal_from_the_end: H,
    left: H,
    right: H,
    alignment: H,
    dropout: H,
    refused: [H; 2],
    /// All supported tensors.
    tensors: &'static [H],
}

const FORWARD: Names = Names {
    q: H::OPERATION_SDPA_FWD_QDESC,
    k: H::OPERATION_SDPA_FWD_KDESC,
    scale: H::OPERATION_SDPA_FWD_SCALEDESC,
    scale_value: H::SDPA_FWD_ATTN_SCALE_VALUE_EXT,
    mask: H::OPERATION_SDPA_FWD_ATTN_MASK_EXT,
    is_causal: H::SDPA_FWD_CAUSAL_MASK_EXT,
    is_causal_from_the_end: H::SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT,
    left: H::SDPA_FWD_LEFT_BOUND_EXT,
    right: H::SDPA_FWD_RIGHT_BOUND_EXT,
    alignment: H::SDPA_FWD_DIAGONAL_ALIGNMENT_EXT,
    dropout: H::SDPA_FWD_DROPOUT_PROBABILITY_EXT,
    refused: [H::SDPA_FWD_ALIBI_MASK_EXT, H::SDPA_FWD_PADDING_MASK_EXT],
    tensors: &[
        H::OPERATION_SDPA_FWD_QDESC,
        H::OPERATION_SDPA_FWD_KDESC,
        H::OPERATION_SDPA_FWD_VDESC,
        H::OPERATION_SDPA_FWD_ODESC,
        H::OPERATION_SDPA_FWD_ATTN_MASK_EXT,
        H::OPERATION_SDPA_FWD_SCALEDESC,
        H::OPERATION_SDPA_FWD_STATSDESC,
    ],
};

const BACKWARD: Names = Names {
    q: H::OPERATION_SDPA_BWD_Q_EXT,
    k: H::OPERATION_SDPA_BWD_K_EXT,
    scale: H::OPERATION_SDPA_BWD_SCALE_EXT,
    scale_value: H::SDPA_BWD_ATTN_SCALE_VALUE_EXT,
    mask: H::OPERATION_SDPA_BWD_ATTN_MASK_EXT,
    is_causal: H::SDPA_BWD_CAUSAL_MASK_EXT,
    is_causal_from_the_end: H::SDPA_BWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT,
    left: H::SDPA_BWD_LEFT_BOUND_EXT,
    right: H::SDPA_BWD_RIGHT_BOUND_EXT,
    alignment: H::SDPA_BWD_DIAGONAL_ALIGNMENT_EXT,
    dropout: H::SDPA_BWD_DROPOUT_PROBABILITY_EXT,
    refused: [H::SDPA_BWD_ALIBI_MASK_EXT, H::SDPA_BWD_PADDING_MASK_EXT],
    tensors: &[
        H::OPERATION_SDPA_BWD_Q_EXT,
        H::OPERATION_SDPA_BWD_K_EXT,
        H::OPERATION_SDPA_BWD_V_EXT,
        H::OPERATION_SDPA_BWD_O_EXT,
        H::OPERATION_SDPA_BWD_DO_EXT,
        H::OPERATION_SDPA_BWD_STATS_EXT,
        H::OPERATION_SDPA_BWD_DQ_EXT,
        H::OPERATION_SDPA_BWD_DK_EXT,
        H::OPERATION_SDPA_BWD_DV_EXT,
        H::OPERATION_SDPA_BWD_ATTN_MASK_EXT,
        H::OPERATION_SDPA_BWD_SCALE_EXT,
    ],
};

/// The scores of queries and keys, with their inputs.
struct Scores {
    q: View,
    k: View,
    scale: Option<View>,
    /// Query heads for each key head.
    shared: i64,
    scores: View,
}

impl Lowering {
    pub(super) fn attention(&mut self, operation: &Descriptor) -> Answer {
        let v = self.view(operation, H::OPERATION_SDPA_FWD_VDESC)?;
        let o = self.view(operation, H::OPERATION_SDPA_FWD_ODESC)?;
        let Scores { q, shared, scores, .. } = self.scores(operation, &FORWARD)?;
        let largest = self.reduced(ReduceOp::MAX, &scores, &[3]);
        let less = self.mapped(C::SUB, &[&scores, &largest]);
        let powers = self.mapped(C::EXP, &[&less]);
        let sums = self.reduced(ReduceOp::ADD, &powers, &[3]);
        let statistics = self.view_optional(operation, H::OPERATION_SDPA_FWD_STATSDESC)?;
        // cuDNN's fused engines recognise only the pattern with statistics, whether or not they are requested.
        if statistics.is_some() || self.variant == Variant::Whole {
            let logarithm = self.mapped(C::LOG, &[&sums]);
            match statistics {
                Some(statistics) if self.data_type(&statistics) == self.compute => {
                    self.map(C::ADD, &[&largest, &logarithm], &statistics);
                }
                statistics => {
                    let wide = self.mapped(C::ADD, &[&largest, &logarithm]);
                    if let Some(statistics) = statistics {
                        self.map(C::IDENTITY, &[&wide], &statistics);
                    }
                }
            }
        }
        // Products read the type of the queries.
        let weights = self.packed(self.data_type(&q), &scores.dims);
        self.map(C::DIV, &[&powers, &sums], &weights);
        self.headwise(&weights, v, &o, shared);
        Ok(())
    }

    /// The gradients of attention, expanded for pieces.
    pub(super) fn attention_backward(&mut self, operation: &Descriptor) -> Answer {
        if self.variant == Variant::Whole {
            return Err("the cuDNN bridge runs gradients of attention only in pieces".into());
        }
        let v = self.view(operation, H::OPERATION_SDPA_BWD_V_EXT)?;
        let o = self.view(operation, H::OPERATION_SDPA_BWD_O_EXT)?;
        let d_o = self.view(operation, H::OPERATION_SDPA_BWD_DO_EXT)?;
        let statistics = self.view(operation, H::OPERATION_SDPA_BWD_STATS_EXT)?;
        let Scores { q, k, scale, shared, scores } = self.scores(operation, &BACKWARD)?;
        let less = self.mapped(C::SUB, &[&scores, &statistics]);
        let weights = self.mapped(C::EXP, &[&less]);
        let along = self.mapped(C::MUL, &[&d_o, &o]);
        let along = self.reduced(ReduceOp::ADD, &along, &[3]);
        let slopes = self.packed(self.compute, &scores.dims);
        self.headwise(&d_o, turned(&v), &slopes, shared);
        let slopes = self.mapped(C::SUB, &[&slopes, &along]);
        let mut slopes = self.mapped(C::MUL, &[&slopes, &weights]);
        if let Some(scale) = scale {
            slopes = self.mapped(C::MUL, &[&slopes, &scale]);
        }
        let d_q = self.view(operation, H::OPERATION_SDPA_BWD_DQ_EXT)?;
        let wide = self.packed(self.compute, &d_q.dims);
        self.headwise(&slopes, k, &wide, shared);
        self.map(C::IDENTITY, &[&wide], &d_q);
        let gradients = [(H::OPERATION_SDPA_BWD_DK_EXT, &slopes, &q), (H::OPERATION_SDPA_BWD_DV_EXT, &weights, &d_o)];
        for (name, by, of) in gradients {
            let to = self.view(operation, name)?;
            let wide = self.packed(self.compute, &to.dims);
            // One product sums the rows of all heads that share a key.
            let (by, of) = (self.in_rows(by), self.in_rows(of));
            self.product(turned(&stacked(&by, shared)), stacked(&of, shared), wide.clone());
            self.map(C::IDENTITY, &[&wide], &to);
        }
        Ok(())
    }

    /// The product of queries and keys, scaled and masked.
    fn scores(&mut self, operation: &Descriptor, names: &Names) -> Answer<Scores> {
        refuse_unknown(operation, names)?;
        let (q, k) = (self.view(operation, names.q)?, self.view(operation, names.k)?);
        if q.dims.len() != 4 || k.dims.len() != 4 {
            return Err("attention needs four axes".into());
        }
        let (heads, key_heads) = (q.dims[1], k.dims[1]);
        if heads % key_heads != 0 {
            return Err(format!("{heads} query heads cannot share {key_heads} key heads"));
        }
        let shared = heads / key_heads;
        let mut scores = self.packed(self.compute, &[q.dims[0], heads, q.dims[2], k.dims[2]]);
        self.headwise(&q, turned(&k), &scores, shared);
        let scale = match operation.f32(names.scale_value) {
            Some(scale) => Some(self.number(scale.into())),
            None => self.view_optional(operation, names.scale)?,
        };
        if let Some(scale) = &scale {
            scores = self.mapped(C::MUL, &[&scores, scale]);
        }
        if let Some(mask) = self.view_optional(operation, names.mask)? {
            if self.graph.tensors[mask.tensor].is_boolean {
                return Err("the cuDNN bridge does not support attention with a boolean mask".into());
            }
            scores = self.mapped(C::ADD, &[&scores, &mask]);
        }
        scores = self.diagonal(operation, names, scores)?;
        Ok(Scores { q, k, scale, shared, scores })
    }

    /// A packed intermediate tensor.
    fn packed(&mut self, data_type: DataType, dims: &[i64]) -> View {
        let like = View { tensor: 0, dims: Vec::new(), strides: Vec::new() };
        self.inside(data_type, dims, &like)
    }

    /// A product per head. In pieces, query heads that share a key head become rows of one matrix.
    fn headwise(&mut self, a: &View, b: View, c: &View, shared: i64) {
        if shared == 1 || self.variant == Variant::Whole {
            return self.product(a.clone(), b, c.clone());
        }
        let (rows, product) = (self.in_rows(a), self.rows(c));
        let to = stacked(product.as_ref().unwrap_or(c), shared);
        self.product(stacked(&rows, shared), b, to);
        if let Some(product) = product {
            self.map(C::IDENTITY, &[&product], c);
        }
    }

    /// Minus infinity where a query must not see a key, according to the diagonal and its bounds.
    fn diagonal(&mut self, operation: &Descriptor, names: &Names, mut scores: View) -> Answer<View> {
        let from_the_end = operation.flag(names.is_causal_from_the_end)
            || operation.number(names.alignment) == Some(DiagonalAlignment::BOTTOM_RIGHT_EXT.0);
        let is_causal = operation.flag(names.is_causal) || operation.flag(names.is_causal_from_the_end);
        let bound = |name| operation.i64s(name).first().copied();
        let left = bound(names.left);
        let right = if is_causal { Some(0) } else { bound(names.right) };
        let (rows, columns) = (scores.dims[2], scores.dims[3]);
        let shift = if from_the_end { columns - rows } else { 0 };
        let first = |row: i64| left.map_or(0, |left| row + shift - left + 1).max(0);
        let last = |row: i64| right.map_or(columns - 1, |right| row + shift + right).min(columns - 1);
        if (0..rows).any(|row| first(row) > last(row)) {
            return Err("cuDNN returns NaN for a query that attends to no key".into());
        }
        if self.variant == Variant::Whole && left.is_some() && rows > columns {
            return Err("cuDNN supports a left bound only with at most as many queries as keys".into());
        }
        if self.variant == Variant::Whole && shift != 0 && operation.descriptor(names.mask).is_some() {
            return Err("cuDNN does not support a mask with a diagonal aligned to the end".into());
        }
        // Row `r` sees column `c` if r + shift + right >= c, and if r + shift - left < c.
        if let Some(right) = right {
            scores = match self.variant {
                Variant::Whole => self.bounded_behind(&scores, from_the_end && shift != 0, right),
                Variant::Apart => self.penalized(scores, C::CMP_GE, shift + right),
            };
        }
        if let Some(left) = left {
            scores = match self.variant {
                Variant::Whole => self.bounded_before(&scores, left - shift),
                Variant::Apart => self.penalized(scores, C::CMP_LT, shift - left),
            };
        }
        Ok(scores)
    }

    /// Scores of the columns up to `right` after a row's own. This, and the left bound, are written as in cuDNN's own
    /// frontend: if its engines recognise the pattern, they skip tiles that no row sees.
    fn bounded_behind(&mut self, scores: &View, from_the_end: bool, right: i64) -> View {
        let (mut row, column) = (self.indices(scores, 2, DataType::INT32), self.indices(scores, 3, DataType::INT32));
        let ends = [(C::ADD, scores.dims[3]), (C::SUB, scores.dims[2])];
        let ends = if from_the_end { &ends[..] } else { &[] };
        let bound = [(C::ADD, right)];
        for &(mode, by) in ends.iter().chain(bound.iter().filter(|_| right != 0)) {
            let (by, shifted) = (self.whole_number(by), self.packed(DataType::INT32, &scores.dims));
            self.map_with(mode, &[&row, &by], &shifted, DataType::INT32, Vec::new());
            row = shifted;
        }
        self.seen(scores, C::CMP_GE, [&row, &column])
    }

    /// Scores of the last `left` columns up to a row's own.
    fn bounded_before(&mut self, scores: &View, left: i64) -> View {
        let (row, column) = (self.indices(scores, 2, DataType::INT32), self.indices(scores, 3, DataType::INT32));
        let left = self.number(left as f64);
        let near = self.mapped(C::ADD, &[&column, &left]);
        self.seen(scores, C::CMP_GT, [&near, &row])
    }

    /// Scores where the first index compares with the second, minus infinity elsewhere.
    fn seen(&mut self, scores: &View, compare: C, indices: [&View; 2]) -> View {
        let sees = self.packed(DataType::BOOLEAN, &scores.dims);
        self.map_with(compare, &indices, &sees, DataType::BOOLEAN, Vec::new());
        let nothing = self.number(f64::NEG_INFINITY);
        let masked = self.packed(self.compute, &scores.dims);
        self.map(C::BINARY_SELECT, &[scores, &nothing, &sees], &masked);
        masked
    }

    /// Like `seen`, but without booleans, which cuDNN's engines support only for multiples of eight elements: the
    /// logarithm of 1 where a key is seen and of 0 where it is not.
    fn penalized(&mut self, scores: View, compare: C, offset: i64) -> View {
        let (rows, columns) = (self.indices(&scores, 2, self.compute), self.indices(&scores, 3, self.compute));
        // The distance plus one: at least 1 for keys that are seen, at most 0 for the others.
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
        self.map_with(C::GEN_INDEX, &[like], &to, self.compute, axis);
        to
    }
}

/// The view with rows and columns swapped.
fn turned(view: &View) -> View {
    let mut turned = view.clone();
    turned.dims.swap(2, 3);
    turned.strides.swap(2, 3);
    turned
}

/// Packed heads that share a key head as rows of one matrix.
fn stacked(view: &View, shared: i64) -> View {
    let [batch, heads, rows, columns] = [0, 1, 2, 3].map(|axis| view.dims[axis]);
    View {
        tensor: view.tensor,
        dims: vec![batch, heads / shared, rows * shared, columns],
        strides: vec![heads * rows * columns, rows * shared * columns, columns, 1],
    }
}

fn refuse_unknown(operation: &Descriptor, names: &Names) -> Answer {
    for row in operation.kind.rows {
        let is_set = match row.kind {
            AttributeType::BACKEND_DESCRIPTOR => {
                operation.descriptor(row.name).is_some() && !names.tensors.contains(&row.name)
            }
            _ => names.refused.contains(&row.name) && operation.flag(row.name),
        };
        if is_set {
            return Err(format!("the cuDNN bridge does not support attention with {}", row.name));
        }
    }
    if operation.f32(names.dropout).is_some_and(|probability| probability != 0.0) {
        return Err("the cuDNN bridge does not support attention with dropout".into());
    }
    Ok(())
}
