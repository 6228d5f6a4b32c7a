//! Scaled dot-product attention, forward and backward.

use crate::Result;
use crate::graph::operation::{Operation, Setting, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttentionImplementation, AttributeName as A, AttributeType, DescriptorType, DiagonalAlignment};

/// The parameters of attention over `[batch, heads, sequence, depth]`. Several query heads may share a key head.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// The factor of the scores; without it and [`scale_by`](Self::scale_by) the backend's default.
    pub scale: Option<f32>,
    /// The same as a tensor with one element.
    pub scale_by: Option<TensorId>,
    /// Whether a query attends only to keys up to its own position.
    pub is_causal: bool,
    /// Whether the diagonal is aligned to the last query and key instead of the first.
    pub aligns_ends: bool,
    /// The number of keys that a query attends to, up to and including its own position.
    pub left_bound: Option<i64>,
    /// The number of keys after its own position that a query attends to.
    pub right_bound: Option<i64>,
    /// A tensor that is added to the scores; it may broadcast over batch, heads, queries or keys.
    pub mask: Option<TensorId>,
    /// The number of valid queries and keys in each batch: two integer tensors `[batch, 1, 1, 1]`.
    pub lengths: Option<[TensorId; 2]>,
    /// Whether scores get an ALiBi penalty, which grows with the distance and has a slope per head.
    pub has_alibi: bool,
    /// Dropout of attention weights.
    pub dropout: Option<Dropout>,
    /// How the forward pass is computed; `None` leaves it to the backend.
    pub implementation: Option<AttentionImplementation>,
}

/// Dropout of attention weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability of dropping a weight: at least 0 and below 1.
    pub probability: f32,
    /// The seed of the random numbers: a scalar.
    pub seed: TensorId,
    /// The offset into the random numbers: a scalar.
    pub offset: TensorId,
}

/// The attributes of one direction.
struct Names {
    mask: A,
    scale_by: A,
    lengths: [A; 2],
    seed: A,
    offset: A,
    has_alibi: A,
    has_padding: A,
    is_causal: A,
    is_causal_from_end: A,
    dropout: A,
    scale: A,
    left_bound: A,
    right_bound: A,
    alignment: A,
}

const FORWARD: Names = Names {
    mask: A::OPERATION_SDPA_FWD_ATTN_MASK_EXT,
    scale_by: A::OPERATION_SDPA_FWD_SCALEDESC,
    lengths: [A::OPERATION_SDPA_FWD_SEQ_LEN_QDESC, A::OPERATION_SDPA_FWD_SEQ_LEN_KVDESC],
    seed: A::OPERATION_SDPA_FWD_SEED_EXT,
    offset: A::OPERATION_SDPA_FWD_OFFSET_EXT,
    has_alibi: A::SDPA_FWD_ALIBI_MASK_EXT,
    has_padding: A::SDPA_FWD_PADDING_MASK_EXT,
    is_causal: A::SDPA_FWD_CAUSAL_MASK_EXT,
    is_causal_from_end: A::SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT,
    dropout: A::SDPA_FWD_DROPOUT_PROBABILITY_EXT,
    scale: A::SDPA_FWD_ATTN_SCALE_VALUE_EXT,
    left_bound: A::SDPA_FWD_LEFT_BOUND_EXT,
    right_bound: A::SDPA_FWD_RIGHT_BOUND_EXT,
    alignment: A::SDPA_FWD_DIAGONAL_ALIGNMENT_EXT,
};

const BACKWARD: Names = Names {
    mask: A::OPERATION_SDPA_BWD_ATTN_MASK_EXT,
    scale_by: A::OPERATION_SDPA_BWD_SCALE_EXT,
    lengths: [A::OPERATION_SDPA_BWD_SEQ_LEN_Q_EXT, A::OPERATION_SDPA_BWD_SEQ_LEN_KV_EXT],
    seed: A::OPERATION_SDPA_BWD_SEED_EXT,
    offset: A::OPERATION_SDPA_BWD_OFFSET_EXT,
    has_alibi: A::SDPA_BWD_ALIBI_MASK_EXT,
    has_padding: A::SDPA_BWD_PADDING_MASK_EXT,
    is_causal: A::SDPA_BWD_CAUSAL_MASK_EXT,
    is_causal_from_end: A::SDPA_BWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT,
    dropout: A::SDPA_BWD_DROPOUT_PROBABILITY_EXT,
    scale: A::SDPA_BWD_ATTN_SCALE_VALUE_EXT,
    left_bound: A::SDPA_BWD_LEFT_BOUND_EXT,
    right_bound: A::SDPA_BWD_RIGHT_BOUND_EXT,
    alignment: A::SDPA_BWD_DIAGONAL_ALIGNMENT_EXT,
};

/// The extents that determine a result.
struct Sizes {
    batch: i64,
    heads: i64,
    rows: i64,
    width: i64,
}

impl Attention {
    fn settings(&self, names: &Names) -> Vec<(A, Setting)> {
        let alignment =
            if self.aligns_ends { DiagonalAlignment::BOTTOM_RIGHT_EXT } else { DiagonalAlignment::TOP_LEFT_EXT };
        let number = |name, value: Option<f32>| Some((name, Setting::F32(value?)));
        let bound = |name, value: Option<i64>| Some((name, Setting::I64s(vec![value?])));
        [
            Some((names.has_alibi, Setting::Bool(self.has_alibi))),
            Some((names.has_padding, Setting::Bool(self.lengths.is_some()))),
            Some((names.is_causal, Setting::Bool(self.is_causal && !self.aligns_ends))),
            Some((names.is_causal_from_end, Setting::Bool(self.is_causal && self.aligns_ends))),
            number(names.dropout, self.dropout.map(|dropout| dropout.probability)),
            number(names.scale, self.scale),
            bound(names.left_bound, self.left_bound),
            bound(names.right_bound, self.right_bound),
            Some((names.alignment, Setting::Mode(AttributeType::DIAGONAL_ALIGNMENT_EXT, alignment.0))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn reads(&self, names: &Names) -> impl Iterator<Item = (A, TensorId)> {
        let lengths = self.lengths.map(|ids| names.lengths.into_iter().zip(ids)).into_iter().flatten();
        let dropout = self.dropout.map(|dropout| [(names.seed, dropout.seed), (names.offset, dropout.offset)]);
        let (mask, scale) = (self.mask.map(|id| (names.mask, id)), self.scale_by.map(|id| (names.scale_by, id)));
        mask.into_iter().chain(scale).chain(lengths).chain(dropout.into_iter().flatten())
    }

    fn check(&self, tensors: &Tensors, [q, k, v]: [TensorId; 3]) -> Result<Sizes> {
        let [queries, keys, values] = [q, k, v].map(|id| <[i64; 4]>::try_from(tensors.dims(id)).ok());
        let Some([batch, heads, rows, depth]) = queries else { return tensors.refuse(q, FOUR_AXES) };
        let Some([key_batch, key_heads, columns, key_depth]) = keys else { return tensors.refuse(k, FOUR_AXES) };
        let Some([value_batch, value_heads, value_rows, width]) = values else { return tensors.refuse(v, FOUR_AXES) };
        if key_batch != batch || key_depth != depth || heads % key_heads != 0 {
            return tensors.refuse(k, format!("{:?} does not match queries of {:?}", tensors.dims(k), tensors.dims(q)));
        }
        if value_batch != batch || value_heads != key_heads || value_rows != columns {
            return tensors.refuse(v, format!("{:?} does not match keys of {:?}", tensors.dims(v), tensors.dims(k)));
        }
        if let Some(mask) = self.mask {
            let dims = tensors.dims(mask);
            let wanted = &[batch, heads, rows, columns][4 - dims.len().min(4)..];
            let fits = |(&extent, &wanted): (&i64, &i64)| extent == 1 || extent == wanted;
            if dims.len() > 4 || !dims.iter().zip(wanted).all(fits) {
                return tensors.refuse(mask, format!("{dims:?} does not broadcast to scores of {wanted:?}"));
            }
        }
        if let Some(scale) = self.scale_by {
            tensors.require_scalar(scale)?;
            if self.scale.is_some() {
                return tensors.refuse(scale, "a scale is also set as a number");
            }
        }
        for length in self.lengths.into_iter().flatten() {
            tensors.require_dims(length, &[batch, 1, 1, 1])?;
        }
        let bounds = [("left", self.left_bound, 1), ("right", self.right_bound, 0)];
        for (side, bound, least) in bounds {
            if let Some(bound) = bound.filter(|&bound| bound < least) {
                return tensors.refuse(q, format!("a {side} bound of {bound} is below {least}"));
            }
        }
        if self.is_causal && self.right_bound.is_some_and(|bound| bound > 0) {
            return tensors.refuse(q, "causal attention does not attend to keys after the query's own");
        }
        if let Some(Dropout { probability, seed, offset }) = self.dropout {
            if !(0.0..1.0).contains(&probability) {
                return tensors.refuse(q, format!("a dropout probability of {probability} is not in 0..1"));
            }
            [seed, offset].into_iter().try_for_each(|id| tensors.require_scalar(id))?;
        }
        Ok(Sizes { batch, heads, rows, width })
    }
}

/// Attention of the queries `q` over keys `k` and values `v`.
pub(in crate::graph) fn attention(
    what: Attention,
    qkv: [TensorId; 3],
    o: TensorId,
    statistics: Option<TensorId>,
) -> Operation {
    let mut settings = vec![(A::SDPA_FWD_GENERATE_STATS_EXT, Setting::Bool(statistics.is_some()))];
    settings.extend(what.settings(&FORWARD));
    let implementation = |value: AttentionImplementation| {
        (A::SDPA_FWD_IMPLEMENTATION_EXT, Setting::Mode(AttributeType::ATTENTION_IMPLEMENTATION_EXT, value.0))
    };
    settings.extend(what.implementation.map(implementation));
    let names = [A::OPERATION_SDPA_FWD_QDESC, A::OPERATION_SDPA_FWD_KDESC, A::OPERATION_SDPA_FWD_VDESC];
    let makes = [Some((A::OPERATION_SDPA_FWD_ODESC, o)), statistics.map(|id| (A::OPERATION_SDPA_FWD_STATSDESC, id))];
    let rule = move |tensors: &mut Tensors| {
        let Sizes { batch, heads, rows, width } = what.check(tensors, qkv)?;
        tensors.set_result(o, &[batch, heads, rows, width], None)?;
        statistics.map_or(Ok(()), |id| tensors.set_result(id, &[batch, heads, rows, 1], None))
    };
    Operation {
        name: "attention",
        descriptor: DescriptorType::OPERATION_SDPA_FWD_DESCRIPTOR,
        compute_type: A::SDPA_FWD_COMP_TYPE_EXT,
        reads: names.into_iter().zip(qkv).chain(what.reads(&FORWARD)).collect(),
        makes: makes.into_iter().flatten().collect(),
        settings,
        rule: Box::new(rule),
    }
}

/// The inputs of the gradient of attention other than queries, keys and values, and its results.
#[derive(Clone, Copy, Debug)]
pub(in crate::graph) struct AttentionGradients {
    /// The forward result and its statistics.
    pub o: TensorId,
    pub statistics: TensorId,
    /// The gradient of the result.
    pub d_o: TensorId,
    /// The gradients of queries, keys and values.
    pub made: [TensorId; 3],
}

/// The gradient of attention.
pub(in crate::graph) fn attention_backward(what: Attention, qkv: [TensorId; 3], of: AttentionGradients) -> Operation {
    let AttentionGradients { o, statistics, d_o, made } = of;
    let reads = [
        (A::OPERATION_SDPA_BWD_Q_EXT, qkv[0]),
        (A::OPERATION_SDPA_BWD_K_EXT, qkv[1]),
        (A::OPERATION_SDPA_BWD_V_EXT, qkv[2]),
        (A::OPERATION_SDPA_BWD_O_EXT, o),
        (A::OPERATION_SDPA_BWD_DO_EXT, d_o),
        (A::OPERATION_SDPA_BWD_STATS_EXT, statistics),
    ];
    let names = [A::OPERATION_SDPA_BWD_DQ_EXT, A::OPERATION_SDPA_BWD_DK_EXT, A::OPERATION_SDPA_BWD_DV_EXT];
    let rule = move |tensors: &mut Tensors| {
        let Sizes { batch, heads, rows, width } = what.check(tensors, qkv)?;
        [o, d_o].into_iter().try_for_each(|id| tensors.require_dims(id, &[batch, heads, rows, width]))?;
        tensors.require_dims(statistics, &[batch, heads, rows, 1])?;
        for (gradient, of) in made.into_iter().zip(qkv) {
            let dims = tensors.dims(of).to_vec();
            tensors.set_result(gradient, &dims, Some(of))?;
        }
        Ok(())
    };
    Operation {
        name: "attention backward",
        descriptor: DescriptorType::OPERATION_SDPA_BWD_DESCRIPTOR_EXT,
        compute_type: A::SDPA_BWD_COMP_TYPE_EXT,
        reads: reads.into_iter().chain(what.reads(&BACKWARD)).collect(),
        makes: names.into_iter().zip(made).collect(),
        settings: what.settings(&BACKWARD),
        rule: Box::new(rule),
    }
}

const FOUR_AXES: &str = "it must have four axes: batch, heads, sequence, depth";
