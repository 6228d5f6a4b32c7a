//! The attributes of each kind of descriptor, as data.

use hipdnn::sys::{AttributeName as A, AttributeType as T, DescriptorType as D, OperationType as O};

use crate::table_attention;

/// An attribute of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name.
    pub name: A,
    /// The element type.
    pub kind: T,
    /// How many elements it has.
    pub count: Count,
    /// Whether the attribute is required.
    pub is_required: bool,
}

/// How many elements an attribute has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Exactly one.
    One,
    /// One or more.
    Some,
    /// Any number; setting it again adds to it.
    Appended,
}

pub(crate) const fn row(name: A, kind: T, count: Count, is_required: bool) -> Row {
    Row { name, kind, count, is_required }
}

pub(crate) const fn tensor(name: A) -> Row {
    row(name, T::BACKEND_DESCRIPTOR, Count::One, true)
}

pub(crate) const fn maybe(name: A) -> Row {
    row(name, T::BACKEND_DESCRIPTOR, Count::One, false)
}

pub(crate) const fn compute(name: A) -> Row {
    row(name, T::DATA_TYPE, Count::One, true)
}

pub(crate) const fn numbers(name: A) -> Row {
    row(name, T::INT64, Count::Some, true)
}

pub(crate) const fn number(name: A) -> Row {
    row(name, T::INT64, Count::One, false)
}

pub(crate) const fn float(name: A) -> Row {
    row(name, T::FLOAT, Count::One, false)
}

pub(crate) const fn flag(name: A) -> Row {
    row(name, T::BOOLEAN, Count::One, false)
}

pub(crate) const fn mode(name: A, kind: T) -> Row {
    row(name, kind, Count::One, true)
}

/// A kind of descriptor: its type, how it identifies itself, its attributes.
pub struct Kind {
    /// The kind.
    pub descriptor: D,
    /// An operation's value for `OPERATION_TYPE_EXT`; `NOT_SET_EXT` for everything else.
    pub operation: O,
    /// The name in error messages.
    pub class: &'static str,
    /// The attributes.
    pub rows: &'static [Row],
}

const CONVOLUTION_PARAMETERS: [Row; 6] = [
    numbers(A::CONVOLUTION_PRE_PADDINGS),
    numbers(A::CONVOLUTION_POST_PADDINGS),
    numbers(A::CONVOLUTION_FILTER_STRIDES),
    numbers(A::CONVOLUTION_DILATIONS),
    mode(A::CONVOLUTION_CONV_MODE, T::CONVOLUTION_MODE),
    compute(A::CONVOLUTION_COMP_TYPE),
];

const fn convolution(tensors: [A; 3]) -> [Row; 9] {
    let [a, b, c, d, e, f] = CONVOLUTION_PARAMETERS;
    [tensor(tensors[0]), tensor(tensors[1]), tensor(tensors[2]), a, b, c, d, e, f]
}

const FORWARD: [Row; 9] = convolution([
    A::OPERATION_CONVOLUTION_FORWARD_X,
    A::OPERATION_CONVOLUTION_FORWARD_W,
    A::OPERATION_CONVOLUTION_FORWARD_Y,
]);
const TO_DATA: [Row; 9] = convolution([
    A::OPERATION_CONVOLUTION_BWD_DATA_DY,
    A::OPERATION_CONVOLUTION_BWD_DATA_W,
    A::OPERATION_CONVOLUTION_BWD_DATA_DX,
]);
const TO_FILTER: [Row; 9] = convolution([
    A::OPERATION_CONVOLUTION_BWD_FILTER_X,
    A::OPERATION_CONVOLUTION_BWD_FILTER_DY,
    A::OPERATION_CONVOLUTION_BWD_FILTER_DW,
]);

const RESAMPLE: [Row; 8] = [
    row(A::RESAMPLE_PRE_PADDINGS, T::INT64, Count::Some, true),
    row(A::RESAMPLE_POST_PADDINGS, T::INT64, Count::Some, true),
    row(A::RESAMPLE_STRIDES, T::INT64, Count::Some, true),
    row(A::RESAMPLE_WINDOW_DIMS, T::INT64, Count::Some, true),
    mode(A::RESAMPLE_MODE, T::RESAMPLE_MODE),
    mode(A::RESAMPLE_PADDING_MODE, T::PADDING_MODE),
    flag(A::RESAMPLE_GENERATE_INDEX_EXT),
    compute(A::RESAMPLE_COMP_TYPE),
];

const fn resample(tensors: [A; 3]) -> [Row; 11] {
    let [a, b, c, d, e, f, g, h] = RESAMPLE;
    [tensor(tensors[0]), tensor(tensors[1]), maybe(tensors[2]), a, b, c, d, e, f, g, h]
}

const RESAMPLE_FORWARD: [Row; 11] =
    resample([A::OPERATION_RESAMPLE_FWD_XDESC, A::OPERATION_RESAMPLE_FWD_YDESC, A::OPERATION_RESAMPLE_FWD_IDXDESC]);
const RESAMPLE_BACKWARD: [Row; 11] =
    resample([A::OPERATION_RESAMPLE_BWD_DYDESC, A::OPERATION_RESAMPLE_BWD_DXDESC, A::OPERATION_RESAMPLE_BWD_IDXDESC]);

/// Every kind that can be created.
pub const KINDS: &[Kind] = &[
    Kind {
        descriptor: D::TENSOR_DESCRIPTOR,
        operation: O::NOT_SET_EXT,
        class: "TensorDescriptor",
        rows: &[
            number(A::TENSOR_UNIQUE_ID),
            row(A::TENSOR_NAME_EXT, T::CHAR, Count::Some, false),
            compute(A::TENSOR_DATA_TYPE),
            numbers(A::TENSOR_DIMENSIONS),
            numbers(A::TENSOR_STRIDES),
            flag(A::TENSOR_IS_VIRTUAL),
            row(A::TENSOR_VALUE_EXT, T::CHAR, Count::Some, false),
            number(A::TENSOR_BYTE_ALIGNMENT),
            flag(A::TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT),
            maybe(A::TENSOR_RAGGED_OFFSET_DESC),
            number(A::TENSOR_RAGGED_OFFSET_MULTIPLIER),
        ],
    },
    Kind {
        descriptor: D::OPERATIONGRAPH_DESCRIPTOR,
        operation: O::NOT_SET_EXT,
        class: "GraphDescriptor",
        rows: &[
            row(A::OPERATIONGRAPH_HANDLE, T::HANDLE, Count::One, true),
            row(A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR, Count::Appended, true),
            row(A::OPERATIONGRAPH_COMPUTE_DATA_TYPE_EXT, T::DATA_TYPE, Count::One, false),
            row(A::OPERATIONGRAPH_INTERMEDIATE_DATA_TYPE_EXT, T::DATA_TYPE, Count::One, false),
            row(A::OPERATIONGRAPH_IO_DATA_TYPE_EXT, T::DATA_TYPE, Count::One, false),
            number(A::OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT),
            flag(A::OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT),
            row(A::OPERATIONGRAPH_NAME_EXT, T::CHAR, Count::Some, false),
        ],
    },
    Kind {
        descriptor: D::ENGINE_DESCRIPTOR,
        operation: O::NOT_SET_EXT,
        class: "EngineDescriptor",
        rows: &[tensor(A::ENGINE_OPERATION_GRAPH), row(A::ENGINE_GLOBAL_INDEX, T::INT64, Count::One, true)],
    },
    Kind {
        descriptor: D::ENGINEHEUR_DESCRIPTOR,
        operation: O::NOT_SET_EXT,
        class: "EngineHeuristicDescriptor",
        rows: &[
            tensor(A::ENGINEHEUR_OPERATION_GRAPH),
            mode(A::ENGINEHEUR_MODE, T::HEUR_MODE),
            flag(A::ENGINEHEUR_FIND_FIRST_EXT),
            row(A::ENGINEHEUR_POLICY_ORDER_EXT, T::INT64, Count::Some, false),
        ],
    },
    Kind {
        descriptor: D::ENGINECFG_DESCRIPTOR,
        operation: O::NOT_SET_EXT,
        class: "EngineConfigDescriptor",
        rows: &[
            tensor(A::ENGINECFG_ENGINE),
            row(A::ENGINECFG_KNOB_CHOICES, T::BACKEND_DESCRIPTOR, Count::Appended, false),
        ],
    },
    Kind {
        descriptor: D::EXECUTION_PLAN_DESCRIPTOR,
        operation: O::NOT_SET_EXT,
        class: "ExecutionPlanDescriptor",
        rows: &[row(A::EXECUTION_PLAN_HANDLE, T::HANDLE, Count::One, false), tensor(A::EXECUTION_PLAN_ENGINE_CONFIG)],
    },
    Kind {
        descriptor: D::VARIANT_PACK_DESCRIPTOR,
        operation: O::NOT_SET_EXT,
        class: "VariantPackDescriptor",
        rows: &[
            row(A::VARIANT_PACK_UNIQUE_IDS, T::INT64, Count::Some, true),
            row(A::VARIANT_PACK_DATA_POINTERS, T::VOID_PTR, Count::Some, true),
            row(A::VARIANT_PACK_WORKSPACE, T::VOID_PTR, Count::One, false),
            row(A::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT, T::INT64, Count::Some, false),
            row(A::VARIANT_PACK_OVERRIDE_SHAPES_EXT, T::INT64, Count::Some, false),
            row(A::VARIANT_PACK_OVERRIDE_STRIDES_EXT, T::INT64, Count::Some, false),
            row(A::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, T::INT64, Count::Some, false),
        ],
    },
    Kind {
        descriptor: D::KNOB_CHOICE_DESCRIPTOR,
        operation: O::NOT_SET_EXT,
        class: "KnobChoiceDescriptor",
        rows: &[
            row(A::KNOB_CHOICE_KNOB_TYPE, T::CHAR, Count::Some, true),
            row(A::KNOB_CHOICE_KNOB_VALUE, T::INT64, Count::One, true),
        ],
    },
    Kind {
        descriptor: D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        operation: O::CONVOLUTION_FORWARD_EXT,
        class: "ConvolutionForwardOperation",
        rows: &FORWARD,
    },
    Kind {
        descriptor: D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        operation: O::CONVOLUTION_BACKWARD_DATA_EXT,
        class: "ConvolutionBackwardDataOperation",
        rows: &TO_DATA,
    },
    Kind {
        descriptor: D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        operation: O::CONVOLUTION_BACKWARD_WEIGHTS_EXT,
        class: "ConvolutionBackwardFilterOperation",
        rows: &TO_FILTER,
    },
    Kind {
        descriptor: D::OPERATION_MATMUL_DESCRIPTOR,
        operation: O::MATMUL_EXT,
        class: "MatmulOperation",
        rows: &[
            tensor(A::OPERATION_MATMUL_ADESC),
            tensor(A::OPERATION_MATMUL_BDESC),
            tensor(A::OPERATION_MATMUL_CDESC),
            compute(A::MATMUL_COMP_TYPE),
        ],
    },
    Kind {
        descriptor: D::OPERATION_POINTWISE_DESCRIPTOR,
        operation: O::POINTWISE_EXT,
        class: "PointwiseOperation",
        rows: &[
            tensor(A::OPERATION_POINTWISE_IN_0_EXT),
            maybe(A::OPERATION_POINTWISE_IN_1_EXT),
            maybe(A::OPERATION_POINTWISE_IN_2_EXT),
            tensor(A::OPERATION_POINTWISE_OUT_0_EXT),
            mode(A::POINTWISE_MODE, T::POINTWISE_MODE),
            float(A::POINTWISE_RELU_LOWER_CLIP),
            float(A::POINTWISE_RELU_UPPER_CLIP),
            float(A::POINTWISE_RELU_LOWER_CLIP_SLOPE),
            float(A::POINTWISE_SWISH_BETA),
            float(A::POINTWISE_ELU_ALPHA),
            float(A::POINTWISE_SOFTPLUS_BETA),
            number(A::POINTWISE_AXIS),
            compute(A::POINTWISE_MATH_PREC),
        ],
    },
    Kind {
        descriptor: D::OPERATION_REDUCTION_DESCRIPTOR,
        operation: O::REDUCTION_EXT,
        class: "ReductionOperation",
        rows: &[
            tensor(A::OPERATION_REDUCTION_XDESC),
            tensor(A::OPERATION_REDUCTION_YDESC),
            mode(A::REDUCTION_OPERATOR, T::REDUCTION_OPERATOR_TYPE),
            flag(A::REDUCTION_IS_DETERMINISTIC),
            compute(A::REDUCTION_COMP_TYPE),
        ],
    },
    Kind {
        descriptor: D::OPERATION_RMSNORM_DESCRIPTOR_EXT,
        operation: O::RMSNORM_EXT,
        class: "RmsNormOperation",
        rows: &[
            tensor(A::OPERATION_RMSNORM_X_EXT),
            tensor(A::OPERATION_RMSNORM_SCALE_EXT),
            maybe(A::OPERATION_RMSNORM_BIAS_EXT),
            tensor(A::OPERATION_RMSNORM_EPSILON_EXT),
            tensor(A::OPERATION_RMSNORM_Y_EXT),
            maybe(A::OPERATION_RMSNORM_INV_RMS_EXT),
            mode(A::OPERATION_RMSNORM_FWD_PHASE_EXT, T::NORM_FWD_PHASE),
            compute(A::RMSNORM_COMP_TYPE_EXT),
        ],
    },
    Kind {
        descriptor: D::OPERATION_RMSNORM_BACKWARD_DESCRIPTOR_EXT,
        operation: O::RMSNORM_BACKWARD_EXT,
        class: "RmsNormBackwardOperation",
        rows: &[
            tensor(A::OPERATION_RMSNORM_BACKWARD_DY_EXT),
            tensor(A::OPERATION_RMSNORM_BACKWARD_X_EXT),
            tensor(A::OPERATION_RMSNORM_BACKWARD_SCALE_EXT),
            tensor(A::OPERATION_RMSNORM_BACKWARD_INV_RMS_EXT),
            tensor(A::OPERATION_RMSNORM_BACKWARD_DX_EXT),
            tensor(A::OPERATION_RMSNORM_BACKWARD_DSCALE_EXT),
            maybe(A::OPERATION_RMSNORM_BACKWARD_DBIAS_EXT),
            compute(A::RMSNORM_BACKWARD_COMP_TYPE_EXT),
        ],
    },
    Kind {
        descriptor: D::OPERATION_LAYERNORM_DESCRIPTOR_EXT,
        operation: O::LAYERNORM_EXT,
        class: "LayerNormOperation",
        rows: &[
            tensor(A::OPERATION_LAYERNORM_X_EXT),
            tensor(A::OPERATION_LAYERNORM_SCALE_EXT),
            tensor(A::OPERATION_LAYERNORM_BIAS_EXT),
            tensor(A::OPERATION_LAYERNORM_EPSILON_EXT),
            tensor(A::OPERATION_LAYERNORM_Y_EXT),
            maybe(A::OPERATION_LAYERNORM_MEAN_EXT),
            maybe(A::OPERATION_LAYERNORM_INV_VARIANCE_EXT),
            mode(A::OPERATION_LAYERNORM_FWD_PHASE_EXT, T::NORM_FWD_PHASE),
            number(A::OPERATION_LAYERNORM_NORMALIZED_DIM_COUNT_EXT),
            compute(A::LAYERNORM_COMP_TYPE_EXT),
        ],
    },
    Kind {
        descriptor: D::OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT,
        operation: O::LAYERNORM_BACKWARD_EXT,
        class: "LayerNormBackwardOperation",
        rows: &[
            tensor(A::OPERATION_LAYERNORM_BACKWARD_DY_EXT),
            tensor(A::OPERATION_LAYERNORM_BACKWARD_X_EXT),
            tensor(A::OPERATION_LAYERNORM_BACKWARD_SCALE_EXT),
            maybe(A::OPERATION_LAYERNORM_BACKWARD_MEAN_EXT),
            maybe(A::OPERATION_LAYERNORM_BACKWARD_INV_VARIANCE_EXT),
            maybe(A::OPERATION_LAYERNORM_BACKWARD_EPSILON_EXT),
            tensor(A::OPERATION_LAYERNORM_BACKWARD_DX_EXT),
            tensor(A::OPERATION_LAYERNORM_BACKWARD_DSCALE_EXT),
            tensor(A::OPERATION_LAYERNORM_BACKWARD_DBIAS_EXT),
            number(A::LAYERNORM_BACKWARD_NORMALIZED_DIM_COUNT_EXT),
            compute(A::LAYERNORM_BACKWARD_COMP_TYPE_EXT),
        ],
    },
    Kind {
        descriptor: D::OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT,
        operation: O::BATCHNORM_INFERENCE_EXT,
        class: "BatchnormInferenceOperation",
        rows: &[
            tensor(A::OPERATION_BATCHNORM_INFERENCE_X_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_MEAN_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_INV_VARIANCE_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_SCALE_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_BIAS_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_Y_EXT),
            compute(A::BATCHNORM_INF_COMP_TYPE_EXT),
        ],
    },
    Kind {
        descriptor: D::OPERATION_BATCHNORM_INFERENCE_VARIANCE_DESCRIPTOR_EXT,
        operation: O::BATCHNORM_INFERENCE_VARIANCE_EXT,
        class: "BatchnormInferenceVarianceOperation",
        rows: &[
            tensor(A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_X_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_MEAN_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_VARIANCE_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_SCALE_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_BIAS_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_EPSILON_EXT),
            tensor(A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_Y_EXT),
            compute(A::BATCHNORM_INF_VAR_COMP_TYPE_EXT),
        ],
    },
    Kind {
        descriptor: D::OPERATION_BATCHNORM_DESCRIPTOR_EXT,
        operation: O::BATCHNORM_EXT,
        class: "BatchnormOperation",
        rows: &[
            tensor(A::OPERATION_BATCHNORM_X_EXT),
            tensor(A::OPERATION_BATCHNORM_SCALE_EXT),
            tensor(A::OPERATION_BATCHNORM_BIAS_EXT),
            tensor(A::OPERATION_BATCHNORM_EPSILON_EXT),
            maybe(A::OPERATION_BATCHNORM_PREV_RUNNING_MEAN_EXT),
            maybe(A::OPERATION_BATCHNORM_PREV_RUNNING_VARIANCE_EXT),
            maybe(A::OPERATION_BATCHNORM_MOMENTUM_EXT),
            tensor(A::OPERATION_BATCHNORM_Y_EXT),
            maybe(A::OPERATION_BATCHNORM_MEAN_EXT),
            maybe(A::OPERATION_BATCHNORM_INV_VARIANCE_EXT),
            maybe(A::OPERATION_BATCHNORM_NEXT_RUNNING_MEAN_EXT),
            maybe(A::OPERATION_BATCHNORM_NEXT_RUNNING_VARIANCE_EXT),
            row(A::OPERATION_BATCHNORM_PEER_STATS_EXT, T::BACKEND_DESCRIPTOR, Count::Some, false),
            compute(A::BATCHNORM_COMP_TYPE_EXT),
        ],
    },
    Kind {
        descriptor: D::OPERATION_BATCHNORM_BACKWARD_DESCRIPTOR_EXT,
        operation: O::BATCHNORM_BACKWARD_EXT,
        class: "BatchnormBackwardOperation",
        rows: &[
            tensor(A::OPERATION_BATCHNORM_BACKWARD_DY_EXT),
            tensor(A::OPERATION_BATCHNORM_BACKWARD_X_EXT),
            tensor(A::OPERATION_BATCHNORM_BACKWARD_SCALE_EXT),
            maybe(A::OPERATION_BATCHNORM_BACKWARD_MEAN_EXT),
            maybe(A::OPERATION_BATCHNORM_BACKWARD_INV_VARIANCE_EXT),
            tensor(A::OPERATION_BATCHNORM_BACKWARD_DX_EXT),
            tensor(A::OPERATION_BATCHNORM_BACKWARD_DSCALE_EXT),
            tensor(A::OPERATION_BATCHNORM_BACKWARD_DBIAS_EXT),
            row(A::OPERATION_BATCHNORM_BACKWARD_PEER_STATS_EXT, T::BACKEND_DESCRIPTOR, Count::Some, false),
            compute(A::BATCHNORM_BACKWARD_COMP_TYPE_EXT),
        ],
    },
    Kind {
        descriptor: D::OPERATION_RESAMPLE_FWD_DESCRIPTOR,
        operation: O::RESAMPLE_FWD,
        class: "ResampleForwardOperation",
        rows: &RESAMPLE_FORWARD,
    },
    Kind {
        descriptor: D::OPERATION_RESAMPLE_BWD_DESCRIPTOR,
        operation: O::RESAMPLE_BWD_EXT,
        class: "ResampleBackwardOperation",
        rows: &RESAMPLE_BACKWARD,
    },
    Kind {
        descriptor: D::OPERATION_SDPA_FWD_DESCRIPTOR,
        operation: O::SDPA_FORWARD_EXT,
        class: "SdpaForwardOperation",
        rows: table_attention::FORWARD,
    },
    Kind {
        descriptor: D::OPERATION_SDPA_BWD_DESCRIPTOR_EXT,
        operation: O::SDPA_BACKWARD_EXT,
        class: "SdpaBackwardOperation",
        rows: table_attention::BACKWARD,
    },
    Kind {
        descriptor: D::OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR,
        operation: O::MOE_GROUPED_MATMUL_EXT,
        class: "MoeGroupedMatmulOperation",
        rows: table_attention::EXPERTS,
    },
    Kind {
        descriptor: D::OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR,
        operation: O::MOE_GROUPED_MATMUL_BWD_EXT,
        class: "MoeGroupedMatmulBackwardOperation",
        rows: table_attention::EXPERTS_BACKWARD,
    },
    Kind {
        descriptor: D::OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR,
        operation: O::BLOCK_SCALE_QUANTIZE_EXT,
        class: "BlockScaleQuantizeOperation",
        rows: &[
            tensor(A::OPERATION_BLOCK_SCALE_QUANTIZE_XDESC),
            tensor(A::OPERATION_BLOCK_SCALE_QUANTIZE_YDESC),
            tensor(A::OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC),
            row(A::OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE, T::INT32, Count::One, true),
            number(A::OPERATION_BLOCK_SCALE_QUANTIZE_AXIS_EXT),
            flag(A::OPERATION_BLOCK_SCALE_QUANTIZE_TRANSPOSE_EXT),
            compute(A::OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC),
        ],
    },
    Kind {
        descriptor: D::OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR,
        operation: O::BLOCK_SCALE_DEQUANTIZE_EXT,
        class: "BlockScaleDequantizeOperation",
        rows: &[
            tensor(A::OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC),
            tensor(A::OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC),
            tensor(A::OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC),
            row(A::OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE, T::INT32, Count::Some, true),
            flag(A::OPERATION_BLOCK_SCALE_DEQUANTIZE_NEG_SCALE),
            compute(A::OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC),
        ],
    },
    Kind {
        descriptor: D::OPERATION_CUSTOM_OP_DESCRIPTOR_EXT,
        operation: O::CUSTOM_OP_EXT,
        class: "CustomOperation",
        rows: &[
            row(A::OPERATION_CUSTOM_OP_INPUTS_EXT, T::BACKEND_DESCRIPTOR, Count::Some, false),
            row(A::OPERATION_CUSTOM_OP_OUTPUTS_EXT, T::BACKEND_DESCRIPTOR, Count::Some, true),
            row(A::OPERATION_CUSTOM_OP_ID_EXT, T::CHAR, Count::Some, true),
            row(A::OPERATION_CUSTOM_OP_DATA_EXT, T::CHAR, Count::Some, false),
            compute(A::CUSTOM_OP_COMP_TYPE_EXT),
        ],
    },
];

/// Attributes that every operation has besides its own.
pub const OPERATION_NAME: Row = row(A::OPERATION_NAME_EXT, T::CHAR, Count::Some, false);

/// The kind of a descriptor, if it can be created.
pub fn kind_of(descriptor: D) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.descriptor == descriptor)
}

impl Kind {
    /// True for operations.
    pub fn is_operation(&self) -> bool {
        self.operation != O::NOT_SET_EXT
    }

    /// An attribute that can be set.
    pub fn row(&self, name: A) -> Option<&'static Row> {
        let own = self.rows.iter().find(|row| row.name == name);
        own.or_else(|| (self.is_operation() && name == A::OPERATION_NAME_EXT).then_some(&OPERATION_NAME))
    }
}
