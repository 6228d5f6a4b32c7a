//! The tables of serialised graphs and plans; the order of the fields determines their numbers.

use hipdnn::sys::{AttributeName as A, DescriptorType as D};

/// What a field holds, and its form as an attribute.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A boolean.
    Bool,
    /// A value of an enumeration, with this offset from the C interface's.
    Byte(i64),
    /// An element type, with its own numbering.
    DataType,
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
    /// A single-precision number.
    Float,
    /// A string.
    Text,
    /// Bytes.
    Bytes,
    /// 64-bit integers.
    Longs,
    /// 32-bit integers.
    Ints,
    /// A tensor's uid.
    Uid,
    /// Tensors' uids.
    Uids,
    /// A list of tables.
    Tables(&'static [Field]),
    /// One of [`NODES`], as two fields: which, and its table.
    Node,
    /// A scalar, as two fields: its kind, and its location.
    Scalar,
    /// Three numbers, inline.
    Version,
}

/// A field of a table.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// The default of a missing field; `None` if a missing field has no value.
    pub default: Option<i64>,
    /// The attribute it represents, in the tables of operations.
    pub attribute: A,
}

const fn field(name: &'static str, kind: Kind, default: Option<i64>, attribute: A) -> Field {
    Field { name, kind, default, attribute }
}

/// Fields that are not attributes.
const NO_ATTRIBUTE: A = A(0);

const fn plain(name: &'static str, kind: Kind) -> Field {
    field(name, kind, None, NO_ATTRIBUTE)
}

const fn uid(name: &'static str, attribute: A) -> Field {
    field(name, Kind::Uid, Some(0), attribute)
}

const fn maybe(name: &'static str, attribute: A) -> Field {
    field(name, Kind::Uid, None, attribute)
}

const fn list(name: &'static str, attribute: A) -> Field {
    field(name, Kind::Longs, None, attribute)
}

const fn float(name: &'static str, attribute: A) -> Field {
    field(name, Kind::Float, None, attribute)
}

const fn flag(name: &'static str, attribute: A) -> Field {
    field(name, Kind::Bool, None, attribute)
}

const fn long(name: &'static str, attribute: A) -> Field {
    field(name, Kind::Long, None, attribute)
}

const fn mode(name: &'static str, attribute: A) -> Field {
    field(name, Kind::Byte(0), None, attribute)
}

/// A graph.
pub const GRAPH: &[Field] = &[
    plain("name", Kind::Text),
    plain("compute_data_type", Kind::DataType),
    plain("intermediate_data_type", Kind::DataType),
    plain("io_data_type", Kind::DataType),
    plain("tensors", Kind::Tables(TENSOR)),
    plain("nodes", Kind::Tables(NODE)),
    plain("preferred_engine_id", Kind::Long),
    plain("is_override_shape_enabled", Kind::Bool),
    plain("min_required_engine_api_version", Kind::Version),
];

/// A tensor of a graph.
pub const TENSOR: &[Field] = &[
    field("uid", Kind::Long, Some(0), A::TENSOR_UNIQUE_ID),
    field("name", Kind::Text, None, A::TENSOR_NAME_EXT),
    field("data_type", Kind::DataType, None, A::TENSOR_DATA_TYPE),
    list("strides", A::TENSOR_STRIDES),
    list("dims", A::TENSOR_DIMENSIONS),
    flag("virtual", A::TENSOR_IS_VIRTUAL),
    plain("value", Kind::Scalar),
    flag("is_runtime_pass_by_value", A::TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT),
    maybe("ragged_offset_tensor_uid", A::TENSOR_RAGGED_OFFSET_DESC),
    long("alignment", A::TENSOR_BYTE_ALIGNMENT),
    long("ragged_offset_multiplier", A::TENSOR_RAGGED_OFFSET_MULTIPLIER),
];

/// An operation of a graph.
pub const NODE: &[Field] = &[
    field("name", Kind::Text, None, A::OPERATION_NAME_EXT),
    plain("compute_data_type", Kind::DataType),
    plain("attributes", Kind::Node),
];

/// An execution plan; the payload is its graph.
pub const PLAN: &[Field] = &[
    plain("version", Kind::Int),
    plain("engine_id", Kind::Long),
    plain("workspace_size", Kind::Long),
    plain("tensor_uids", Kind::Longs),
    plain("plugin_payload", Kind::Bytes),
];

/// A graph and a plan.
pub const CONTAINER: &[Field] = &[plain("graph_blob", Kind::Bytes), plain("plan_blob", Kind::Bytes)];

/// The attributes of one kind of operation.
#[derive(Clone, Copy)]
pub struct Node {
    /// The kind.
    pub descriptor: D,
    /// The fields.
    pub fields: &'static [Field],
}

macro_rules! convolution {
    ($($tensor:expr),*) => {
        &[
            $($tensor,)*
            list("pre_padding", A::CONVOLUTION_PRE_PADDINGS),
            list("post_padding", A::CONVOLUTION_POST_PADDINGS),
            list("stride", A::CONVOLUTION_FILTER_STRIDES),
            list("dilation", A::CONVOLUTION_DILATIONS),
            field("conv_mode", Kind::Byte(1), None, A::CONVOLUTION_CONV_MODE),
        ]
    };
}

/// Every kind; its number is the index plus one.
pub const NODES: [Node; 23] = [
    Node {
        descriptor: D::OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT,
        fields: &[
            uid("x_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_X_EXT),
            uid("mean_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_MEAN_EXT),
            uid("inv_variance_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_INV_VARIANCE_EXT),
            uid("scale_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_SCALE_EXT),
            uid("bias_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_BIAS_EXT),
            uid("y_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_Y_EXT),
        ],
    },
    Node {
        descriptor: D::OPERATION_POINTWISE_DESCRIPTOR,
        fields: &[
            mode("operation", A::POINTWISE_MODE),
            float("relu_lower_clip", A::POINTWISE_RELU_LOWER_CLIP),
            float("relu_upper_clip", A::POINTWISE_RELU_UPPER_CLIP),
            float("relu_lower_clip_slope", A::POINTWISE_RELU_LOWER_CLIP_SLOPE),
            // An axis, despite its name.
            long("axis_tensor_uid", A::POINTWISE_AXIS),
            uid("in_0_tensor_uid", A::OPERATION_POINTWISE_IN_0_EXT),
            maybe("in_1_tensor_uid", A::OPERATION_POINTWISE_IN_1_EXT),
            maybe("in_2_tensor_uid", A::OPERATION_POINTWISE_IN_2_EXT),
            uid("out_0_tensor_uid", A::OPERATION_POINTWISE_OUT_0_EXT),
            float("swish_beta", A::POINTWISE_SWISH_BETA),
            float("elu_alpha", A::POINTWISE_ELU_ALPHA),
            float("softplus_beta", A::POINTWISE_SOFTPLUS_BETA),
        ],
    },
    Node {
        descriptor: D::OPERATION_BATCHNORM_BACKWARD_DESCRIPTOR_EXT,
        fields: &[
            uid("dy_tensor_uid", A::OPERATION_BATCHNORM_BACKWARD_DY_EXT),
            uid("x_tensor_uid", A::OPERATION_BATCHNORM_BACKWARD_X_EXT),
            maybe("mean_tensor_uid", A::OPERATION_BATCHNORM_BACKWARD_MEAN_EXT),
            maybe("inv_variance_tensor_uid", A::OPERATION_BATCHNORM_BACKWARD_INV_VARIANCE_EXT),
            uid("scale_tensor_uid", A::OPERATION_BATCHNORM_BACKWARD_SCALE_EXT),
            field("peer_stats_tensor_uid", Kind::Uids, None, A::OPERATION_BATCHNORM_BACKWARD_PEER_STATS_EXT),
            uid("dx_tensor_uid", A::OPERATION_BATCHNORM_BACKWARD_DX_EXT),
            uid("dscale_tensor_uid", A::OPERATION_BATCHNORM_BACKWARD_DSCALE_EXT),
            uid("dbias_tensor_uid", A::OPERATION_BATCHNORM_BACKWARD_DBIAS_EXT),
        ],
    },
    Node {
        descriptor: D::OPERATION_BATCHNORM_DESCRIPTOR_EXT,
        fields: &[
            uid("x_tensor_uid", A::OPERATION_BATCHNORM_X_EXT),
            uid("scale_tensor_uid", A::OPERATION_BATCHNORM_SCALE_EXT),
            uid("bias_tensor_uid", A::OPERATION_BATCHNORM_BIAS_EXT),
            uid("epsilon_tensor_uid", A::OPERATION_BATCHNORM_EPSILON_EXT),
            field("peer_stats_tensor_uid", Kind::Uids, None, A::OPERATION_BATCHNORM_PEER_STATS_EXT),
            maybe("prev_running_mean_tensor_uid", A::OPERATION_BATCHNORM_PREV_RUNNING_MEAN_EXT),
            maybe("prev_running_variance_tensor_uid", A::OPERATION_BATCHNORM_PREV_RUNNING_VARIANCE_EXT),
            maybe("momentum_tensor_uid", A::OPERATION_BATCHNORM_MOMENTUM_EXT),
            uid("y_tensor_uid", A::OPERATION_BATCHNORM_Y_EXT),
            maybe("mean_tensor_uid", A::OPERATION_BATCHNORM_MEAN_EXT),
            maybe("inv_variance_tensor_uid", A::OPERATION_BATCHNORM_INV_VARIANCE_EXT),
            maybe("next_running_mean_tensor_uid", A::OPERATION_BATCHNORM_NEXT_RUNNING_MEAN_EXT),
            maybe("next_running_variance_tensor_uid", A::OPERATION_BATCHNORM_NEXT_RUNNING_VARIANCE_EXT),
        ],
    },
    Node {
        descriptor: D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        fields: convolution!(
            uid("x_tensor_uid", A::OPERATION_CONVOLUTION_FORWARD_X),
            uid("w_tensor_uid", A::OPERATION_CONVOLUTION_FORWARD_W),
            uid("y_tensor_uid", A::OPERATION_CONVOLUTION_FORWARD_Y)
        ),
    },
    Node {
        descriptor: D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        fields: convolution!(
            uid("dy_tensor_uid", A::OPERATION_CONVOLUTION_BWD_DATA_DY),
            uid("w_tensor_uid", A::OPERATION_CONVOLUTION_BWD_DATA_W),
            uid("dx_tensor_uid", A::OPERATION_CONVOLUTION_BWD_DATA_DX)
        ),
    },
    Node {
        descriptor: D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        fields: convolution!(
            uid("x_tensor_uid", A::OPERATION_CONVOLUTION_BWD_FILTER_X),
            uid("dy_tensor_uid", A::OPERATION_CONVOLUTION_BWD_FILTER_DY),
            uid("dw_tensor_uid", A::OPERATION_CONVOLUTION_BWD_FILTER_DW)
        ),
    },
    Node {
        descriptor: D::OPERATION_BATCHNORM_INFERENCE_VARIANCE_DESCRIPTOR_EXT,
        fields: &[
            uid("x_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_X_EXT),
            uid("mean_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_MEAN_EXT),
            uid("variance_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_VARIANCE_EXT),
            uid("scale_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_SCALE_EXT),
            uid("bias_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_BIAS_EXT),
            uid("y_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_Y_EXT),
            uid("epsilon_tensor_uid", A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_EPSILON_EXT),
        ],
    },
    Node {
        descriptor: D::OPERATION_MATMUL_DESCRIPTOR,
        fields: &[
            uid("a_tensor_uid", A::OPERATION_MATMUL_ADESC),
            uid("b_tensor_uid", A::OPERATION_MATMUL_BDESC),
            uid("c_tensor_uid", A::OPERATION_MATMUL_CDESC),
        ],
    },
    Node {
        descriptor: D::OPERATION_RMSNORM_DESCRIPTOR_EXT,
        fields: &[
            uid("x_tensor_uid", A::OPERATION_RMSNORM_X_EXT),
            uid("scale_tensor_uid", A::OPERATION_RMSNORM_SCALE_EXT),
            uid("epsilon_tensor_uid", A::OPERATION_RMSNORM_EPSILON_EXT),
            uid("y_tensor_uid", A::OPERATION_RMSNORM_Y_EXT),
            maybe("bias_tensor_uid", A::OPERATION_RMSNORM_BIAS_EXT),
            maybe("inv_rms_tensor_uid", A::OPERATION_RMSNORM_INV_RMS_EXT),
            mode("forward_phase", A::OPERATION_RMSNORM_FWD_PHASE_EXT),
        ],
    },
    Node {
        descriptor: D::OPERATION_LAYERNORM_DESCRIPTOR_EXT,
        fields: &[
            uid("x_tensor_uid", A::OPERATION_LAYERNORM_X_EXT),
            uid("scale_tensor_uid", A::OPERATION_LAYERNORM_SCALE_EXT),
            uid("bias_tensor_uid", A::OPERATION_LAYERNORM_BIAS_EXT),
            uid("epsilon_tensor_uid", A::OPERATION_LAYERNORM_EPSILON_EXT),
            uid("y_tensor_uid", A::OPERATION_LAYERNORM_Y_EXT),
            long("normalized_dim_count", A::OPERATION_LAYERNORM_NORMALIZED_DIM_COUNT_EXT),
            maybe("mean_tensor_uid", A::OPERATION_LAYERNORM_MEAN_EXT),
            maybe("inv_variance_tensor_uid", A::OPERATION_LAYERNORM_INV_VARIANCE_EXT),
            mode("forward_phase", A::OPERATION_LAYERNORM_FWD_PHASE_EXT),
        ],
    },
    Node { descriptor: D::OPERATION_SDPA_FWD_DESCRIPTOR, fields: super::schema_attention::FORWARD },
    Node {
        descriptor: D::OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR,
        fields: &[
            uid("x_tensor_uid", A::OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC),
            uid("scale_tensor_uid", A::OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC),
            uid("y_tensor_uid", A::OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC),
            field("block_size", Kind::Ints, None, A::OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE),
            flag("is_negative_scale", A::OPERATION_BLOCK_SCALE_DEQUANTIZE_NEG_SCALE),
        ],
    },
    Node {
        descriptor: D::OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR,
        fields: &[
            uid("x_tensor_uid", A::OPERATION_BLOCK_SCALE_QUANTIZE_XDESC),
            uid("y_tensor_uid", A::OPERATION_BLOCK_SCALE_QUANTIZE_YDESC),
            uid("scale_tensor_uid", A::OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC),
            field("block_size", Kind::Int, None, A::OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE),
            long("axis", A::OPERATION_BLOCK_SCALE_QUANTIZE_AXIS_EXT),
            flag("transpose", A::OPERATION_BLOCK_SCALE_QUANTIZE_TRANSPOSE_EXT),
        ],
    },
    Node { descriptor: D::OPERATION_SDPA_BWD_DESCRIPTOR_EXT, fields: super::schema_attention::BACKWARD },
    Node {
        descriptor: D::OPERATION_CUSTOM_OP_DESCRIPTOR_EXT,
        fields: &[
            field("custom_op_id", Kind::Text, None, A::OPERATION_CUSTOM_OP_ID_EXT),
            field("input_tensor_uids", Kind::Uids, None, A::OPERATION_CUSTOM_OP_INPUTS_EXT),
            field("output_tensor_uids", Kind::Uids, None, A::OPERATION_CUSTOM_OP_OUTPUTS_EXT),
            field("data", Kind::Bytes, None, A::OPERATION_CUSTOM_OP_DATA_EXT),
        ],
    },
    Node {
        descriptor: D::OPERATION_RMSNORM_BACKWARD_DESCRIPTOR_EXT,
        fields: &[
            uid("dy_tensor_uid", A::OPERATION_RMSNORM_BACKWARD_DY_EXT),
            uid("x_tensor_uid", A::OPERATION_RMSNORM_BACKWARD_X_EXT),
            uid("scale_tensor_uid", A::OPERATION_RMSNORM_BACKWARD_SCALE_EXT),
            uid("inv_rms_tensor_uid", A::OPERATION_RMSNORM_BACKWARD_INV_RMS_EXT),
            uid("dx_tensor_uid", A::OPERATION_RMSNORM_BACKWARD_DX_EXT),
            uid("dscale_tensor_uid", A::OPERATION_RMSNORM_BACKWARD_DSCALE_EXT),
            maybe("dbias_tensor_uid", A::OPERATION_RMSNORM_BACKWARD_DBIAS_EXT),
        ],
    },
    Node {
        descriptor: D::OPERATION_REDUCTION_DESCRIPTOR,
        fields: &[
            mode("mode", A::REDUCTION_OPERATOR),
            uid("in_tensor_uid", A::OPERATION_REDUCTION_XDESC),
            uid("out_tensor_uid", A::OPERATION_REDUCTION_YDESC),
            flag("is_deterministic", A::REDUCTION_IS_DETERMINISTIC),
        ],
    },
    Node {
        descriptor: D::OPERATION_RESAMPLE_FWD_DESCRIPTOR,
        fields: &[
            uid("x_tensor_uid", A::OPERATION_RESAMPLE_FWD_XDESC),
            uid("y_tensor_uid", A::OPERATION_RESAMPLE_FWD_YDESC),
            maybe("index_tensor_uid", A::OPERATION_RESAMPLE_FWD_IDXDESC),
            list("pre_padding", A::RESAMPLE_PRE_PADDINGS),
            list("post_padding", A::RESAMPLE_POST_PADDINGS),
            list("stride", A::RESAMPLE_STRIDES),
            list("window", A::RESAMPLE_WINDOW_DIMS),
            mode("resample_mode", A::RESAMPLE_MODE),
            field("padding_mode", Kind::Byte(0), Some(0), A::RESAMPLE_PADDING_MODE),
            flag("generate_index", A::RESAMPLE_GENERATE_INDEX_EXT),
        ],
    },
    Node {
        descriptor: D::OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT,
        fields: &[
            uid("dy_tensor_uid", A::OPERATION_LAYERNORM_BACKWARD_DY_EXT),
            uid("x_tensor_uid", A::OPERATION_LAYERNORM_BACKWARD_X_EXT),
            uid("scale_tensor_uid", A::OPERATION_LAYERNORM_BACKWARD_SCALE_EXT),
            maybe("mean_tensor_uid", A::OPERATION_LAYERNORM_BACKWARD_MEAN_EXT),
            maybe("inv_variance_tensor_uid", A::OPERATION_LAYERNORM_BACKWARD_INV_VARIANCE_EXT),
            maybe("epsilon_tensor_uid", A::OPERATION_LAYERNORM_BACKWARD_EPSILON_EXT),
            uid("dx_tensor_uid", A::OPERATION_LAYERNORM_BACKWARD_DX_EXT),
            uid("dscale_tensor_uid", A::OPERATION_LAYERNORM_BACKWARD_DSCALE_EXT),
            uid("dbias_tensor_uid", A::OPERATION_LAYERNORM_BACKWARD_DBIAS_EXT),
            long("normalized_dim_count", A::LAYERNORM_BACKWARD_NORMALIZED_DIM_COUNT_EXT),
        ],
    },
    Node {
        descriptor: D::OPERATION_RESAMPLE_BWD_DESCRIPTOR,
        fields: &[
            uid("dy_tensor_uid", A::OPERATION_RESAMPLE_BWD_DYDESC),
            uid("dx_tensor_uid", A::OPERATION_RESAMPLE_BWD_DXDESC),
            maybe("index_tensor_uid", A::OPERATION_RESAMPLE_BWD_IDXDESC),
            list("pre_padding", A::RESAMPLE_PRE_PADDINGS),
            list("post_padding", A::RESAMPLE_POST_PADDINGS),
            list("stride", A::RESAMPLE_STRIDES),
            list("window", A::RESAMPLE_WINDOW_DIMS),
            mode("resample_mode", A::RESAMPLE_MODE),
            field("padding_mode", Kind::Byte(0), Some(0), A::RESAMPLE_PADDING_MODE),
        ],
    },
    Node {
        descriptor: D::OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR,
        fields: &[
            uid("token_tensor_uid", A::OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC),
            uid("weight_tensor_uid", A::OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC),
            uid("first_token_offset_tensor_uid", A::OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC),
            maybe("token_index_tensor_uid", A::OPERATION_MOE_GROUPED_MATMUL_TOKEN_INDEX_DESC),
            maybe("token_ks_tensor_uid", A::OPERATION_MOE_GROUPED_MATMUL_TOKEN_KS_DESC),
            uid("output_tensor_uid", A::OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC),
            field("mode", Kind::Byte(0), Some(0), A::OPERATION_MOE_GROUPED_MATMUL_MODE),
            field("top_k", Kind::Int, None, A::OPERATION_MOE_GROUPED_MATMUL_TOP_K),
        ],
    },
    Node {
        descriptor: D::OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR,
        fields: &[
            uid("doutput_tensor_uid", A::OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC),
            uid("token_tensor_uid", A::OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC),
            uid("first_token_offset_tensor_uid", A::OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC),
            uid("dweight_tensor_uid", A::OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC),
        ],
    },
];
