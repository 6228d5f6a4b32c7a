//! The other enumerations: statuses, kinds of descriptors, element types and modes.

use super::numbers::numbers;

numbers! {
    /// The status of a call.
    pub struct Status("HIPDNN_STATUS_") {
        SUCCESS = 0,
        NOT_INITIALIZED = 1,
        BAD_PARAM = 2,
        BAD_PARAM_NULL_POINTER = 3,
        BAD_PARAM_NOT_FINALIZED = 4,
        BAD_PARAM_OUT_OF_BOUND = 5,
        BAD_PARAM_SIZE_INSUFFICIENT = 6,
        BAD_PARAM_STREAM_MISMATCH = 7,
        NOT_SUPPORTED = 8,
        INTERNAL_ERROR = 9,
        ALLOC_FAILED = 10,
        INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 11,
        INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 12,
        EXECUTION_FAILED = 13,
        PLUGIN_ERROR = 14,
        VERSION_MISMATCH = 15,
    }
}

numbers! {
    /// A kind of descriptor.
    pub struct DescriptorType("HIPDNN_BACKEND_") {
        INVALID_TYPE = 0,
        ENGINE_DESCRIPTOR = 1,
        ENGINECFG_DESCRIPTOR = 2,
        ENGINEHEUR_DESCRIPTOR = 3,
        EXECUTION_PLAN_DESCRIPTOR = 4,
        INTERMEDIATE_INFO_DESCRIPTOR = 5,
        KNOB_CHOICE_DESCRIPTOR = 6,
        KNOB_INFO_DESCRIPTOR = 7,
        LAYOUT_INFO_DESCRIPTOR = 8,
        OPERATION_GEN_STATS_DESCRIPTOR = 9,
        OPERATIONGRAPH_DESCRIPTOR = 10,
        VARIANT_PACK_DESCRIPTOR = 11,
        KERNEL_CACHE_DESCRIPTOR = 12,
        OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR = 13,
        TENSOR_DESCRIPTOR = 14,
        OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 15,
        OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR = 16,
        OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT = 17,
        OPERATION_POINTWISE_DESCRIPTOR = 18,
        OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR = 19,
        OPERATION_BATCHNORM_BACKWARD_DESCRIPTOR_EXT = 20,
        OPERATION_BATCHNORM_INFERENCE_VARIANCE_DESCRIPTOR_EXT = 21,
        OPERATION_MATMUL_DESCRIPTOR = 22,
        OPERATION_RMSNORM_DESCRIPTOR_EXT = 23,
        OPERATION_SDPA_FWD_DESCRIPTOR = 24,
        OPERATION_LAYERNORM_DESCRIPTOR_EXT = 25,
        OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR = 26,
        OPERATION_BATCHNORM_DESCRIPTOR_EXT = 27,
        OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR = 28,
        OPERATION_CUSTOM_OP_DESCRIPTOR_EXT = 29,
        OPERATION_SDPA_BWD_DESCRIPTOR_EXT = 30,
        OPERATION_REDUCTION_DESCRIPTOR = 31,
        OPERATION_RESAMPLE_FWD_DESCRIPTOR = 32,
        OPERATION_RMSNORM_BACKWARD_DESCRIPTOR_EXT = 33,
        PROFILING_CONTROL_EXT = 34,
        OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT = 35,
        OPERATION_RESAMPLE_BWD_DESCRIPTOR = 36,
        OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR = 37,
        OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR = 38,
    }
}

numbers! {
    /// The type of an attribute's elements.
    pub struct AttributeType("HIPDNN_TYPE_") {
        HANDLE = 0,
        DATA_TYPE = 1,
        BOOLEAN = 2,
        INT64 = 3,
        FLOAT = 4,
        DOUBLE = 5,
        VOID_PTR = 6,
        HEUR_MODE = 7,
        KNOB_TYPE = 8,
        NAN_PROPOGATION = 9,
        NUMERICAL_NOTE = 10,
        LAYOUT_TYPE = 11,
        ATTRIB_NAME = 12,
        BACKEND_DESCRIPTOR = 13,
        GENSTATS_MODE = 14,
        BN_FINALIZE_STATS_MODE = 15,
        BEHAVIOR_NOTE = 16,
        TENSOR_REORDERING_MODE = 17,
        INT32 = 18,
        CHAR = 19,
        SIGNAL_MODE = 20,
        FRACTION = 21,
        NORM_FWD_PHASE = 22,
        RNG_DISTRIBUTION = 23,
        CONVOLUTION_MODE = 24,
        POINTWISE_MODE = 25,
        DIAGONAL_ALIGNMENT_EXT = 26,
        ATTENTION_IMPLEMENTATION_EXT = 27,
        REDUCTION_OPERATOR_TYPE = 28,
        RESAMPLE_MODE = 29,
        PADDING_MODE = 30,
        MOE_GROUPED_MATMUL_MODE = 31,
        FLATBUFFER_DATA_STRUCT_EXT = 10000,
        OPERATION_TYPE_EXT = 10001,
    }
}

numbers! {
    /// The type of a tensor's elements.
    pub struct DataType("HIPDNN_DATA_") {
        FLOAT = 0,
        DOUBLE = 1,
        HALF = 2,
        INT8 = 3,
        INT32 = 4,
        UINT8 = 5,
        BFLOAT16 = 6,
        FP8_E4M3 = 7,
        FP8_E5M2 = 8,
        FP8_E8M0 = 9,
        FP4_E2M1 = 10,
        INT4 = 11,
        FP6_E2M3_EXT = 12,
        FP6_E3M2_EXT = 13,
        INT64 = 14,
        BOOLEAN = 15,
        FP8_E4M3_FNUZ = 16,
        FP8_E5M2_FNUZ = 17,
    }
}

impl DataType {
    /// The size of one element in bits; `None` for a type that this code does not know yet.
    pub fn bits(self) -> Option<usize> {
        Some(match self {
            Self::DOUBLE | Self::INT64 => 64,
            Self::FLOAT | Self::INT32 => 32,
            Self::HALF | Self::BFLOAT16 => 16,
            Self::INT8 | Self::UINT8 | Self::BOOLEAN | Self::FP8_E4M3 | Self::FP8_E5M2 | Self::FP8_E8M0 => 8,
            Self::FP8_E4M3_FNUZ | Self::FP8_E5M2_FNUZ => 8,
            Self::FP6_E2M3_EXT | Self::FP6_E3M2_EXT => 6,
            Self::FP4_E2M1 | Self::INT4 => 4,
            _ => return None,
        })
    }
}

numbers! {
    /// How engines are ranked.
    pub struct HeurMode("HIPDNN_HEUR_MODE_") {
        FALLBACK = 0,
    }
}

numbers! {
    /// Whether a filter is flipped.
    pub struct ConvolutionMode("HIPDNN_") {
        CONVOLUTION = 0,
        CROSS_CORRELATION = 1,
    }
}

numbers! {
    /// Whether a normalisation is used for inference or training.
    pub struct NormFwdPhase("HIPDNN_NORM_FWD_") {
        INFERENCE = 1,
        TRAINING = 2,
    }
}

numbers! {
    /// The operator of a reduction.
    pub struct ReduceOp("HIPDNN_REDUCE_TENSOR_") {
        ADD = 1,
        MUL = 2,
        MIN = 3,
        MAX = 4,
        AMAX = 5,
        AVG = 6,
        NORM1 = 7,
        NORM2 = 8,
        MUL_NO_ZEROS = 9,
    }
}

numbers! {
    /// The operation of a resampling window.
    pub struct ResampleMode("HIPDNN_RESAMPLE_") {
        MAXPOOL = 1,
        AVGPOOL_EXCLUDE_PADDING = 2,
        AVGPOOL_INCLUDE_PADDING = 3,
    }
}

numbers! {
    /// The values outside the border of a resampled tensor.
    pub struct PaddingMode("HIPDNN_PADDING_") {
        NOT_SET = 0,
        NEG_INF_PAD = 1,
        ZERO_PAD = 2,
    }
}

numbers! {
    /// The corner in which the diagonal of a causal mask starts.
    pub struct DiagonalAlignment("HIPDNN_DIAGONAL_ALIGNMENT_") {
        TOP_LEFT_EXT = 0,
        BOTTOM_RIGHT_EXT = 1,
    }
}

numbers! {
    /// How attention is computed.
    pub struct AttentionImplementation("HIPDNN_ATTENTION_IMPLEMENTATION_") {
        AUTO_EXT = 0,
        COMPOSITE_EXT = 1,
        UNIFIED_EXT = 2,
    }
}

numbers! {
    /// What a mixture-of-experts product does with its rows.
    pub struct MoeGroupedMatmulMode("HIPDNN_MOE_GROUPED_MATMUL_MODE_") {
        NONE = 0,
        GATHER = 1,
        SCATTER = 2,
    }
}

numbers! {
    /// The severity of a message.
    pub struct Severity("HIPDNN_SEV_") {
        INFO = 0,
        WARN = 1,
        ERROR = 2,
        FATAL = 3,
        OFF = 4,
    }
}

numbers! {
    /// When a log callback is called.
    pub struct LogCallbackMode("HIPDNN_LOG_CALLBACK_") {
        SYNC = 0,
        ASYNC = 1,
    }
}

numbers! {
    /// Whether plugin paths are added to the default ones or replace them.
    pub struct PluginLoadingMode("HIPDNN_PLUGIN_LOADING_") {
        ADDITIVE = 0,
        ABSOLUTE = 1,
    }
}

numbers! {
    /// When plugins are unloaded.
    pub struct PluginUnloadingMode("HIPDNN_PLUGIN_UNLOADING_") {
        LAZY = 0,
        EAGER = 1,
    }
}

numbers! {
    /// The result of writing an engine ranking.
    pub struct RankingOutcome("HIPDNN_AUTOTUNE_CACHE_WRITE_") {
        WRITTEN = 0,
        DECLINED_DISABLED = 1,
        DECLINED_UNKEYABLE_OR_UNFINALIZED = 2,
        DECLINED_NO_ENGINES = 3,
        UNCHANGED = 4,
    }
}

numbers! {
    /// A property of an engine.
    pub struct BehaviorNote("HIPDNN_BEHAVIOR_NOTE_") {
        RUNTIME_COMPILATION = 0,
        REQUIRES_LAYOUT_TRANSFORM = 1,
        SUPPORTS_GRAPH_CAPTURE = 2,
        EXTERNAL_LIBRARY_DEPENDENCY = 3,
        SUPPORTS_EXECUTION_PLAN_SERIALIZATION = 4,
    }
}

numbers! {
    /// The type that an operation descriptor reports.
    pub struct OperationType("HIPDNN_OPERATION_TYPE_") {
        NOT_SET_EXT = 0,
        CONVOLUTION_FORWARD_EXT = 1,
        CONVOLUTION_BACKWARD_DATA_EXT = 2,
        CONVOLUTION_BACKWARD_WEIGHTS_EXT = 3,
        BATCHNORM_INFERENCE_EXT = 4,
        BATCHNORM_BACKWARD_EXT = 5,
        BATCHNORM_INFERENCE_VARIANCE_EXT = 6,
        BATCHNORM_EXT = 7,
        POINTWISE_EXT = 8,
        MATMUL_EXT = 9,
        RMSNORM_EXT = 10,
        LAYERNORM_EXT = 11,
        SDPA_FORWARD_EXT = 12,
        BLOCK_SCALE_QUANTIZE_EXT = 13,
        SDPA_BACKWARD_EXT = 14,
        BLOCK_SCALE_DEQUANTIZE_EXT = 15,
        CUSTOM_OP_EXT = 16,
        REDUCTION_EXT = 17,
        RESAMPLE_FWD = 18,
        RMSNORM_BACKWARD_EXT = 19,
        LAYERNORM_BACKWARD_EXT = 20,
        RESAMPLE_BWD_EXT = 21,
        MOE_GROUPED_MATMUL_EXT = 22,
        MOE_GROUPED_MATMUL_BWD_EXT = 23,
    }
}

numbers! {
    /// The operation of a pointwise node.
    pub struct PointwiseMode("HIPDNN_POINTWISE_MODE_") {
        ABS = 1,
        ADD = 2,
        ADD_SQUARE = 3,
        BINARY_SELECT = 4,
        CEIL = 5,
        CMP_EQ = 6,
        CMP_GE = 7,
        CMP_GT = 8,
        CMP_LE = 9,
        CMP_LT = 10,
        CMP_NEQ = 11,
        DIV = 12,
        ELU_BWD = 13,
        ELU_FWD = 14,
        ERF = 15,
        EXP = 16,
        FLOOR = 17,
        GELU_APPROX_TANH_BWD = 18,
        GELU_APPROX_TANH_FWD = 19,
        GELU_BWD = 20,
        GELU_FWD = 21,
        GEN_INDEX = 22,
        IDENTITY = 23,
        LOG = 24,
        LOGICAL_AND = 25,
        LOGICAL_NOT = 26,
        LOGICAL_OR = 27,
        MAX = 28,
        MIN = 29,
        MUL = 30,
        NEG = 31,
        RECIPROCAL = 32,
        RELU_BWD = 33,
        RELU_FWD = 34,
        RSQRT = 35,
        SIGMOID_BWD = 36,
        SIGMOID_FWD = 37,
        SIN = 38,
        SOFTPLUS_BWD = 39,
        SOFTPLUS_FWD = 40,
        SQRT = 41,
        SUB = 42,
        SWISH_BWD = 43,
        SWISH_FWD = 44,
        TAN = 45,
        TANH_BWD = 46,
        TANH_FWD = 47,
    }
}

impl PointwiseMode {
    /// The number of tensors that the mode reads; `None` for a mode that this code does not know yet.
    pub fn inputs(self) -> Option<usize> {
        Some(match self {
            Self::BINARY_SELECT => 3,
            Self::ADD | Self::ADD_SQUARE | Self::DIV | Self::MAX | Self::MIN | Self::MUL | Self::SUB => 2,
            Self::CMP_EQ | Self::CMP_GE | Self::CMP_GT | Self::CMP_LE | Self::CMP_LT | Self::CMP_NEQ => 2,
            Self::LOGICAL_AND | Self::LOGICAL_OR => 2,
            Self::ELU_BWD | Self::GELU_APPROX_TANH_BWD | Self::GELU_BWD | Self::RELU_BWD | Self::SIGMOID_BWD => 2,
            Self::SOFTPLUS_BWD | Self::SWISH_BWD | Self::TANH_BWD => 2,
            known if known.name().is_some() => 1,
            _ => return None,
        })
    }
}
