//! The tables of attention and its gradient.

use hipdnn::sys::AttributeName as A;

use super::schema::{Field, Kind};

const fn field(name: &'static str, kind: Kind, default: Option<i64>, attribute: A) -> Field {
    Field { name, kind, default, attribute }
}

const fn uid(name: &'static str, attribute: A) -> Field {
    field(name, Kind::Uid, Some(0), attribute)
}

const fn maybe(name: &'static str, attribute: A) -> Field {
    field(name, Kind::Uid, None, attribute)
}

const fn flag(name: &'static str, attribute: A) -> Field {
    field(name, Kind::Bool, None, attribute)
}

pub const FORWARD: &[Field] = &[
    uid("q_tensor_uid", A::OPERATION_SDPA_FWD_QDESC),
    uid("k_tensor_uid", A::OPERATION_SDPA_FWD_KDESC),
    uid("v_tensor_uid", A::OPERATION_SDPA_FWD_VDESC),
    uid("o_tensor_uid", A::OPERATION_SDPA_FWD_ODESC),
    maybe("attn_mask_tensor_uid", A::OPERATION_SDPA_FWD_ATTN_MASK_EXT),
    maybe("scale_tensor_uid", A::OPERATION_SDPA_FWD_SCALEDESC),
    maybe("seq_len_q_tensor_uid", A::OPERATION_SDPA_FWD_SEQ_LEN_QDESC),
    maybe("seq_len_kv_tensor_uid", A::OPERATION_SDPA_FWD_SEQ_LEN_KVDESC),
    maybe("seed_tensor_uid", A::OPERATION_SDPA_FWD_SEED_EXT),
    maybe("offset_tensor_uid", A::OPERATION_SDPA_FWD_OFFSET_EXT),
    maybe("dropout_mask_tensor_uid", A::OPERATION_SDPA_FWD_DROPOUT_MASK_EXT),
    maybe("dropout_scale_tensor_uid", A::OPERATION_SDPA_FWD_DROPOUT_SCALE_EXT),
    maybe("page_table_k_tensor_uid", A::OPERATION_SDPA_FWD_PAGE_TABLE_KDESC),
    maybe("page_table_v_tensor_uid", A::OPERATION_SDPA_FWD_PAGE_TABLE_VDESC),
    maybe("block_mask_tensor_uid", A::OPERATION_SDPA_FWD_BLOCK_MASK_DESC),
    maybe("sink_token_tensor_uid", A::OPERATION_SDPA_FWD_SINK_TOKEN_EXT),
    maybe("descale_q_tensor_uid", A::OPERATION_SDPA_FWD_DESCALE_Q_EXT),
    maybe("descale_k_tensor_uid", A::OPERATION_SDPA_FWD_DESCALE_K_EXT),
    maybe("descale_v_tensor_uid", A::OPERATION_SDPA_FWD_DESCALE_V_EXT),
    maybe("descale_s_tensor_uid", A::OPERATION_SDPA_FWD_DESCALE_S_EXT),
    maybe("scale_s_tensor_uid", A::OPERATION_SDPA_FWD_SCALE_S_EXT),
    maybe("scale_o_tensor_uid", A::OPERATION_SDPA_FWD_SCALE_O_EXT),
    maybe("stats_tensor_uid", A::OPERATION_SDPA_FWD_STATSDESC),
    maybe("max_tensor_uid", A::OPERATION_SDPA_FWD_MAX_EXT),
    maybe("sum_exp_tensor_uid", A::OPERATION_SDPA_FWD_SUM_EXP_EXT),
    maybe("rng_dump_tensor_uid", A::OPERATION_SDPA_FWD_RNG_DUMP_EXT),
    maybe("amax_s_tensor_uid", A::OPERATION_SDPA_FWD_AMAX_S_EXT),
    maybe("amax_o_tensor_uid", A::OPERATION_SDPA_FWD_AMAX_O_EXT),
    flag("generate_stats", A::SDPA_FWD_GENERATE_STATS_EXT),
    flag("alibi_mask", A::SDPA_FWD_ALIBI_MASK_EXT),
    flag("padding_mask", A::SDPA_FWD_PADDING_MASK_EXT),
    flag("causal_mask", A::SDPA_FWD_CAUSAL_MASK_EXT),
    flag("causal_mask_bottom_right", A::SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT),
    field("dropout_probability", Kind::Float, None, A::SDPA_FWD_DROPOUT_PROBABILITY_EXT),
    field("attn_scale_value", Kind::Float, None, A::SDPA_FWD_ATTN_SCALE_VALUE_EXT),
    field("left_bound", Kind::Long, None, A::SDPA_FWD_LEFT_BOUND_EXT),
    field("right_bound", Kind::Long, None, A::SDPA_FWD_RIGHT_BOUND_EXT),
    field("max_seq_len_kv", Kind::Int, None, A::SDPA_FWD_MAX_SEQ_LEN_KV_EXT),
    field("diagonal_alignment", Kind::Byte(0), None, A::SDPA_FWD_DIAGONAL_ALIGNMENT_EXT),
    field("mma_core_mode", Kind::DataType, None, A::SDPA_FWD_MMA_CORE_MODE_EXT),
    field("implementation", Kind::Byte(0), None, A::SDPA_FWD_IMPLEMENTATION_EXT),
];

pub const BACKWARD: &[Field] = &[
    uid("q_tensor_uid", A::OPERATION_SDPA_BWD_Q_EXT),
    uid("k_tensor_uid", A::OPERATION_SDPA_BWD_K_EXT),
    uid("v_tensor_uid", A::OPERATION_SDPA_BWD_V_EXT),
    uid("o_tensor_uid", A::OPERATION_SDPA_BWD_O_EXT),
    uid("do_tensor_uid", A::OPERATION_SDPA_BWD_DO_EXT),
    uid("stats_tensor_uid", A::OPERATION_SDPA_BWD_STATS_EXT),
    uid("dq_tensor_uid", A::OPERATION_SDPA_BWD_DQ_EXT),
    uid("dk_tensor_uid", A::OPERATION_SDPA_BWD_DK_EXT),
    uid("dv_tensor_uid", A::OPERATION_SDPA_BWD_DV_EXT),
    maybe("scale_tensor_uid", A::OPERATION_SDPA_BWD_SCALE_EXT),
    maybe("attn_mask_tensor_uid", A::OPERATION_SDPA_BWD_ATTN_MASK_EXT),
    maybe("seq_len_q_tensor_uid", A::OPERATION_SDPA_BWD_SEQ_LEN_Q_EXT),
    maybe("seq_len_kv_tensor_uid", A::OPERATION_SDPA_BWD_SEQ_LEN_KV_EXT),
    maybe("seed_tensor_uid", A::OPERATION_SDPA_BWD_SEED_EXT),
    maybe("offset_tensor_uid", A::OPERATION_SDPA_BWD_OFFSET_EXT),
    maybe("dropout_mask_tensor_uid", A::OPERATION_SDPA_BWD_DROPOUT_MASK_EXT),
    maybe("dropout_scale_tensor_uid", A::OPERATION_SDPA_BWD_DROPOUT_SCALE_EXT),
    maybe("dropout_scale_inv_tensor_uid", A::OPERATION_SDPA_BWD_DROPOUT_SCALE_INV_EXT),
    maybe("dbias_tensor_uid", A::OPERATION_SDPA_BWD_DBIAS_EXT),
    flag("alibi_mask", A::SDPA_BWD_ALIBI_MASK_EXT),
    flag("padding_mask", A::SDPA_BWD_PADDING_MASK_EXT),
    flag("causal_mask", A::SDPA_BWD_CAUSAL_MASK_EXT),
    flag("causal_mask_bottom_right", A::SDPA_BWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT),
    field("dropout_probability", Kind::Float, None, A::SDPA_BWD_DROPOUT_PROBABILITY_EXT),
    field("attn_scale_value", Kind::Float, None, A::SDPA_BWD_ATTN_SCALE_VALUE_EXT),
    field("left_bound", Kind::Long, None, A::SDPA_BWD_LEFT_BOUND_EXT),
    field("right_bound", Kind::Long, None, A::SDPA_BWD_RIGHT_BOUND_EXT),
    field("diagonal_alignment", Kind::Byte(0), None, A::SDPA_BWD_DIAGONAL_ALIGNMENT_EXT),
];
