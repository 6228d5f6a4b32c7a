//! The gradient of attention, from the statistics that the forward pass saved.

use hipdnn::sys::AttributeName as A;
use hipdnn_abi::Descriptor;

use super::attention::Names;
use super::{Answer, LoweredValue, Lowering};

const BACKWARD: Names = Names {
    q: A::OPERATION_SDPA_BWD_Q_EXT,
    k: A::OPERATION_SDPA_BWD_K_EXT,
    v: A::OPERATION_SDPA_BWD_V_EXT,
    scale: A::OPERATION_SDPA_BWD_SCALE_EXT,
    mask: A::OPERATION_SDPA_BWD_ATTN_MASK_EXT,
    queries: A::OPERATION_SDPA_BWD_SEQ_LEN_Q_EXT,
    keys: A::OPERATION_SDPA_BWD_SEQ_LEN_KV_EXT,
    alibi: A::SDPA_BWD_ALIBI_MASK_EXT,
    padding: A::SDPA_BWD_PADDING_MASK_EXT,
    causal: A::SDPA_BWD_CAUSAL_MASK_EXT,
    causal_from_the_end: A::SDPA_BWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT,
    dropout: A::SDPA_BWD_DROPOUT_PROBABILITY_EXT,
    scale_value: A::SDPA_BWD_ATTN_SCALE_VALUE_EXT,
    left: A::SDPA_BWD_LEFT_BOUND_EXT,
    right: A::SDPA_BWD_RIGHT_BOUND_EXT,
    alignment: A::SDPA_BWD_DIAGONAL_ALIGNMENT_EXT,
    known: &[
        A::OPERATION_SDPA_BWD_O_EXT,
        A::OPERATION_SDPA_BWD_DO_EXT,
        A::OPERATION_SDPA_BWD_STATS_EXT,
        A::OPERATION_SDPA_BWD_DQ_EXT,
        A::OPERATION_SDPA_BWD_DK_EXT,
        A::OPERATION_SDPA_BWD_DV_EXT,
        A::OPERATION_SDPA_BWD_DBIAS_EXT,
    ],
};

impl Lowering {
    /// With weights `p = exp(scores - stats)` and `g = dO · Vᵀ`, the scores' gradient is `p (g - Σ dO O)`. The
    /// gradients of keys and values are summed over the query heads that share them.
    pub(super) fn attention_backward(&mut self, operation: &Descriptor) -> Answer {
        let scores = self.scores(operation, &BACKWARD)?;
        let [batch, heads, rows, columns] = scores.dims;
        let (shared, key_heads) = (scores.shared, heads / scores.shared);
        let (depth, width) = (scores.q.dims[4], scores.v.dims[4]);
        let split = |of: i64| [batch, key_heads, shared, rows, of];
        let mut read = |name, of| {
            let made = self.read(operation, name)?;
            self.reshape(&made, &split(of))
        };
        let o = read(A::OPERATION_SDPA_BWD_O_EXT, width)?;
        let d_o = read(A::OPERATION_SDPA_BWD_DO_EXT, width)?;
        let statistics = read(A::OPERATION_SDPA_BWD_STATS_EXT, 1)?;
        let centered = self.elementwise("Sub", &[&scores.values, &statistics])?;
        let mut weights = self.elementwise("Exp", &[&centered])?;
        if let Some(is_blind) = &scores.is_blind {
            let zero = self.scalar(0.0);
            weights = self.elementwise("Where", &[is_blind, &zero, &weights])?;
        }
        let weights_turned = self.turned(&weights)?;
        let dv = self.product(&weights_turned, &d_o)?;
        self.write_shared(operation, A::OPERATION_SDPA_BWD_DV_EXT, &dv, [batch, key_heads, columns, width])?;
        let v_turned = self.turned(&scores.v)?;
        let upstream = self.product(&d_o, &v_turned)?;
        let both = self.elementwise("Mul", &[&d_o, &o])?;
        let along = self.reduce("ReduceSum", &both, &[4])?;
        let rest = self.elementwise("Sub", &[&upstream, &along])?;
        let d_scores = self.elementwise("Mul", &[&weights, &rest])?;
        if let Some(bias) = operation.descriptor(A::OPERATION_SDPA_BWD_DBIAS_EXT) {
            let whole = self.reshape(&d_scores, &[batch, heads, rows, columns])?;
            let dims = bias.i64s(A::TENSOR_DIMENSIONS);
            if dims.len() != 4 {
                return Err(format!("the gradient of a mask must have four axes, not dimensions {dims:?}"));
            }
            let summed = self.sum_to(&whole, &dims)?;
            self.write(operation, A::OPERATION_SDPA_BWD_DBIAS_EXT, &summed)?;
        }
        let scaled = self.elementwise("Mul", &[&d_scores, &scores.scale])?;
        let dq = self.product(&scaled, &scores.k)?;
        let dq = self.reshape(&dq, &[batch, heads, rows, depth])?;
        self.write(operation, A::OPERATION_SDPA_BWD_DQ_EXT, &dq)?;
        let scaled_turned = self.turned(&scaled)?;
        let dk = self.product(&scaled_turned, &scores.q)?;
        self.write_shared(operation, A::OPERATION_SDPA_BWD_DK_EXT, &dk, [batch, key_heads, columns, depth])
    }

    /// Writes a gradient, summed over the query heads that share a key head.
    fn write_shared(&mut self, operation: &Descriptor, name: A, made: &LoweredValue, dims: [i64; 4]) -> Answer {
        let summed = self.reduce("ReduceSum", made, &[2])?;
        let summed = self.reshape(&summed, &dims)?;
        self.write(operation, name, &summed)
    }
}
