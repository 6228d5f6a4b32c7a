//! Scaled dot-product attention.

use crate::graph::operation::{Operation, Setting, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttributeName as A, AttributeType, DescriptorType, DiagonalAlignment};

/// The parameters of attention over `[batch, heads, sequence, depth]`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// What scores are multiplied by; `None` keeps the backend's default.
    pub scale: Option<f32>,
    /// Whether a query sees only keys up to its own place.
    pub is_causal: bool,
    /// With `is_causal`: whether the last query, not the first, meets its counterpart on the diagonal.
    pub aligns_ends: bool,
    /// How many keys up to and with its own a query sees.
    pub left_bound: Option<i64>,
    /// A tensor that is added to the scores; it may repeat over batch, heads, queries or keys.
    pub mask: Option<TensorId>,
}

/// Attention of the queries `q` over keys `k` and values `v`; there may be several query heads for each key head.
pub(in crate::graph) fn attention(
    what: Attention,
    [q, k, v]: [TensorId; 3],
    o: TensorId,
    statistics: Option<TensorId>,
) -> Operation {
    let alignment =
        if what.aligns_ends { DiagonalAlignment::BOTTOM_RIGHT_EXT } else { DiagonalAlignment::TOP_LEFT_EXT };
    let mut settings = vec![
        (A::SDPA_FWD_GENERATE_STATS_EXT, Setting::Bool(statistics.is_some())),
        (A::SDPA_FWD_ALIBI_MASK_EXT, Setting::Bool(false)),
        (A::SDPA_FWD_PADDING_MASK_EXT, Setting::Bool(false)),
        (A::SDPA_FWD_CAUSAL_MASK_EXT, Setting::Bool(what.is_causal && !what.aligns_ends)),
        (A::SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT, Setting::Bool(what.is_causal && what.aligns_ends)),
        (A::SDPA_FWD_DIAGONAL_ALIGNMENT_EXT, Setting::Mode(AttributeType::DIAGONAL_ALIGNMENT_EXT, alignment.0)),
    ];
    settings.extend(what.scale.map(|scale| (A::SDPA_FWD_ATTN_SCALE_VALUE_EXT, Setting::F32(scale))));
    settings.extend(what.left_bound.map(|bound| (A::SDPA_FWD_LEFT_BOUND_EXT, Setting::I64s(vec![bound]))));
    let mut reads =
        vec![(A::OPERATION_SDPA_FWD_QDESC, q), (A::OPERATION_SDPA_FWD_KDESC, k), (A::OPERATION_SDPA_FWD_VDESC, v)];
    reads.extend(what.mask.map(|mask| (A::OPERATION_SDPA_FWD_ATTN_MASK_EXT, mask)));
    let makes = [Some((A::OPERATION_SDPA_FWD_ODESC, o)), statistics.map(|id| (A::OPERATION_SDPA_FWD_STATSDESC, id))];
    let rule = move |tensors: &mut Tensors| {
        let [queries, keys, values] = [q, k, v].map(|id| <[i64; 4]>::try_from(tensors.dims(id)).ok());
        let Some([batch, heads, rows, depth]) = queries else { return tensors.refuse(q, FOUR_AXES) };
        let Some([key_batch, key_heads, columns, key_depth]) = keys else { return tensors.refuse(k, FOUR_AXES) };
        let Some([value_batch, value_heads, value_rows, width]) = values else { return tensors.refuse(v, FOUR_AXES) };
        if key_batch != batch || key_depth != depth || heads % key_heads != 0 {
            return tensors.refuse(k, format!("{:?} does not fit queries of {:?}", tensors.dims(k), tensors.dims(q)));
        }
        if value_batch != batch || value_heads != key_heads || value_rows != columns {
            return tensors.refuse(v, format!("{:?} does not fit keys of {:?}", tensors.dims(v), tensors.dims(k)));
        }
        if let Some(mask) = what.mask {
            let dims = tensors.dims(mask);
            let wanted = &[batch, heads, rows, columns][4 - dims.len().min(4)..];
            let fits = |(&extent, &wanted): (&i64, &i64)| extent == 1 || extent == wanted;
            if dims.len() > 4 || !dims.iter().zip(wanted).all(fits) {
                return tensors.refuse(mask, format!("{dims:?} does not repeat over scores of {wanted:?}"));
            }
        }
        tensors.set_result(o, &[batch, heads, rows, width], None)?;
        statistics.map_or(Ok(()), |id| tensors.set_result(id, &[batch, heads, rows, 1], None))
    };
    Operation {
        name: "attention",
        descriptor: DescriptorType::OPERATION_SDPA_FWD_DESCRIPTOR,
        compute_type: A::SDPA_FWD_COMP_TYPE_EXT,
        reads,
        makes: makes.into_iter().flatten().collect(),
        settings,
        rule: Box::new(rule),
    }
}

const FOUR_AXES: &str = "it must have four axes: batch, heads, sequence, depth";
