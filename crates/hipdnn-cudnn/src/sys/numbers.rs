//! cuDNN's constants, by cuDNN's names. Those that need a newer release than 9.0 say which.

macro_rules! codes {
    ($(#[$doc:meta])* $type:ident, $prefix:literal, { $($name:ident = $value:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $type(pub i32);

        impl $type {
            $(
                #[doc = concat!("`", $prefix, stringify!($name), "`")]
                pub const $name: Self = Self($value);
            )*

            /// cuDNN's name of each number.
            pub const ALL: &[(&str, i32)] = &[$((concat!($prefix, stringify!($name)), $value)),*];
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match Self::ALL.iter().find(|(_, value)| *value == self.0) {
                    Some((name, _)) => f.write_str(name),
                    None => write!(f, concat!(stringify!($type), "({})"), self.0),
                }
            }
        }
    };
}

codes! {
    /// `cudnnStatus_t`
    Status, "CUDNN_STATUS_", {
        SUCCESS = 0,
    }
}

codes! {
    /// `cudnnBackendDescriptorType_t`
    DescriptorType, "CUDNN_BACKEND_", {
        POINTWISE_DESCRIPTOR = 0,
        CONVOLUTION_DESCRIPTOR = 1,
        ENGINE_DESCRIPTOR = 2,
        ENGINECFG_DESCRIPTOR = 3,
        ENGINEHEUR_DESCRIPTOR = 4,
        EXECUTION_PLAN_DESCRIPTOR = 5,
        OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 10,
        OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR = 11,
        OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR = 12,
        OPERATION_POINTWISE_DESCRIPTOR = 13,
        OPERATIONGRAPH_DESCRIPTOR = 15,
        VARIANT_PACK_DESCRIPTOR = 16,
        TENSOR_DESCRIPTOR = 17,
        MATMUL_DESCRIPTOR = 18,
        OPERATION_MATMUL_DESCRIPTOR = 19,
        REDUCTION_DESCRIPTOR = 21,
        OPERATION_REDUCTION_DESCRIPTOR = 22,
        RESAMPLE_DESCRIPTOR = 24,
        OPERATION_RESAMPLE_FWD_DESCRIPTOR = 25,
        OPERATION_RESAMPLE_BWD_DESCRIPTOR = 26,
        OPERATION_NORM_FORWARD_DESCRIPTOR = 29,
        OPERATION_NORM_BACKWARD_DESCRIPTOR = 30,
        // Since 9.8.
        DEVICEPROP_DESCRIPTOR = 38,
    }
}

codes! {
    /// `cudnnBackendAttributeType_t`
    AttributeType, "CUDNN_TYPE_", {
        HANDLE = 0,
        DATA_TYPE = 1,
        BOOLEAN = 2,
        INT64 = 3,
        FLOAT = 4,
        DOUBLE = 5,
        VOID_PTR = 6,
        CONVOLUTION_MODE = 7,
        HEUR_MODE = 8,
        NAN_PROPOGATION = 10,
        NUMERICAL_NOTE = 11,
        POINTWISE_MODE = 14,
        BACKEND_DESCRIPTOR = 15,
        REDUCTION_OPERATOR_TYPE = 18,
        RESAMPLE_MODE = 21,
        PADDING_MODE = 22,
        CHAR = 24,
        NORM_MODE = 27,
        NORM_FWD_PHASE = 28,
    }
}

codes! {
    /// `cudnnBackendAttributeName_t`
    AttributeName, "CUDNN_ATTR_", {
        POINTWISE_MODE = 0,
        POINTWISE_MATH_PREC = 1,
        POINTWISE_RELU_LOWER_CLIP = 3,
        POINTWISE_RELU_UPPER_CLIP = 4,
        POINTWISE_RELU_LOWER_CLIP_SLOPE = 5,
        POINTWISE_ELU_ALPHA = 6,
        POINTWISE_SOFTPLUS_BETA = 7,
        POINTWISE_SWISH_BETA = 8,
        POINTWISE_AXIS = 9,
        CONVOLUTION_COMP_TYPE = 100,
        CONVOLUTION_CONV_MODE = 101,
        CONVOLUTION_DILATIONS = 102,
        CONVOLUTION_FILTER_STRIDES = 103,
        CONVOLUTION_POST_PADDINGS = 104,
        CONVOLUTION_PRE_PADDINGS = 105,
        CONVOLUTION_SPATIAL_DIMS = 106,
        ENGINEHEUR_MODE = 200,
        ENGINEHEUR_OPERATION_GRAPH = 201,
        ENGINEHEUR_RESULTS = 202,
        ENGINEHEUR_DEVICEPROP = 204,
        ENGINECFG_ENGINE = 300,
        ENGINECFG_WORKSPACE_SIZE = 303,
        EXECUTION_PLAN_HANDLE = 400,
        EXECUTION_PLAN_ENGINE_CONFIG = 401,
        EXECUTION_PLAN_WORKSPACE_SIZE = 402,
        EXECUTION_PLAN_JSON_REPRESENTATION = 405,
        EXECUTION_PLAN_DEVICEPROP = 407,
        OPERATION_CONVOLUTION_FORWARD_ALPHA = 700,
        OPERATION_CONVOLUTION_FORWARD_BETA = 701,
        OPERATION_CONVOLUTION_FORWARD_CONV_DESC = 702,
        OPERATION_CONVOLUTION_FORWARD_W = 703,
        OPERATION_CONVOLUTION_FORWARD_X = 704,
        OPERATION_CONVOLUTION_FORWARD_Y = 705,
        OPERATION_CONVOLUTION_BWD_DATA_ALPHA = 706,
        OPERATION_CONVOLUTION_BWD_DATA_BETA = 707,
        OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC = 708,
        OPERATION_CONVOLUTION_BWD_DATA_W = 709,
        OPERATION_CONVOLUTION_BWD_DATA_DX = 710,
        OPERATION_CONVOLUTION_BWD_DATA_DY = 711,
        OPERATION_CONVOLUTION_BWD_FILTER_ALPHA = 712,
        OPERATION_CONVOLUTION_BWD_FILTER_BETA = 713,
        OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC = 714,
        OPERATION_CONVOLUTION_BWD_FILTER_DW = 715,
        OPERATION_CONVOLUTION_BWD_FILTER_X = 716,
        OPERATION_CONVOLUTION_BWD_FILTER_DY = 717,
        OPERATION_POINTWISE_PW_DESCRIPTOR = 750,
        OPERATION_POINTWISE_XDESC = 751,
        OPERATION_POINTWISE_BDESC = 752,
        OPERATION_POINTWISE_YDESC = 753,
        OPERATION_POINTWISE_DXDESC = 756,
        OPERATION_POINTWISE_DYDESC = 757,
        OPERATION_POINTWISE_TDESC = 758,
        OPERATIONGRAPH_HANDLE = 800,
        OPERATIONGRAPH_OPS = 801,
        TENSOR_BYTE_ALIGNMENT = 900,
        TENSOR_DATA_TYPE = 901,
        TENSOR_DIMENSIONS = 902,
        TENSOR_STRIDES = 903,
        TENSOR_UNIQUE_ID = 906,
        TENSOR_IS_VIRTUAL = 907,
        TENSOR_IS_BY_VALUE = 908,
        VARIANT_PACK_UNIQUE_IDS = 1000,
        VARIANT_PACK_DATA_POINTERS = 1001,
        VARIANT_PACK_WORKSPACE = 1003,
        ENGINE_NUMERICAL_NOTE = 1303,
        MATMUL_COMP_TYPE = 1500,
        OPERATION_MATMUL_ADESC = 1520,
        OPERATION_MATMUL_BDESC = 1521,
        OPERATION_MATMUL_CDESC = 1522,
        OPERATION_MATMUL_DESC = 1523,
        REDUCTION_OPERATOR = 1600,
        REDUCTION_COMP_TYPE = 1601,
        OPERATION_REDUCTION_XDESC = 1610,
        OPERATION_REDUCTION_YDESC = 1611,
        OPERATION_REDUCTION_DESC = 1612,
        RESAMPLE_MODE = 1700,
        RESAMPLE_COMP_TYPE = 1701,
        RESAMPLE_SPATIAL_DIMS = 1702,
        RESAMPLE_POST_PADDINGS = 1703,
        RESAMPLE_PRE_PADDINGS = 1704,
        RESAMPLE_STRIDES = 1705,
        RESAMPLE_WINDOW_DIMS = 1706,
        RESAMPLE_NAN_PROPAGATION = 1707,
        RESAMPLE_PADDING_MODE = 1708,
        OPERATION_RESAMPLE_FWD_XDESC = 1710,
        OPERATION_RESAMPLE_FWD_YDESC = 1711,
        OPERATION_RESAMPLE_FWD_DESC = 1716,
        OPERATION_RESAMPLE_BWD_DXDESC = 1720,
        OPERATION_RESAMPLE_BWD_DYDESC = 1721,
        OPERATION_RESAMPLE_BWD_DESC = 1725,
        OPERATION_NORM_FWD_MODE = 2000,
        OPERATION_NORM_FWD_PHASE = 2001,
        OPERATION_NORM_FWD_XDESC = 2002,
        OPERATION_NORM_FWD_MEAN_DESC = 2003,
        OPERATION_NORM_FWD_INV_VARIANCE_DESC = 2004,
        OPERATION_NORM_FWD_SCALE_DESC = 2005,
        OPERATION_NORM_FWD_BIAS_DESC = 2006,
        OPERATION_NORM_FWD_EPSILON_DESC = 2007,
        OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC = 2008,
        OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC = 2009,
        OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC = 2010,
        OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC = 2011,
        OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC = 2012,
        OPERATION_NORM_FWD_YDESC = 2013,
        OPERATION_NORM_BWD_MODE = 2100,
        OPERATION_NORM_BWD_XDESC = 2101,
        OPERATION_NORM_BWD_MEAN_DESC = 2102,
        OPERATION_NORM_BWD_INV_VARIANCE_DESC = 2103,
        OPERATION_NORM_BWD_DYDESC = 2104,
        OPERATION_NORM_BWD_SCALE_DESC = 2105,
        OPERATION_NORM_BWD_DSCALE_DESC = 2107,
        OPERATION_NORM_BWD_DBIAS_DESC = 2108,
        OPERATION_NORM_BWD_DXDESC = 2109,
        // Since 9.8.
        DEVICEPROP_HANDLE = 2701,
        DEVICEPROP_JSON_REPRESENTATION = 2702,
    }
}

codes! {
    /// `cudnnDataType_t`
    DataType, "CUDNN_DATA_", {
        FLOAT = 0,
        DOUBLE = 1,
        HALF = 2,
        INT8 = 3,
        INT32 = 4,
        UINT8 = 6,
        BFLOAT16 = 9,
        INT64 = 10,
        BOOLEAN = 11,
        FP8_E4M3 = 12,
        FP8_E5M2 = 13,
        FP8_E8M0 = 15,
        FP4_E2M1 = 16,
        INT4 = 17,
    }
}

codes! {
    /// `cudnnPointwiseMode_t`
    PointwiseMode, "CUDNN_POINTWISE_", {
        ADD = 0,
        MUL = 1,
        MIN = 2,
        MAX = 3,
        SQRT = 4,
        ADD_SQUARE = 5,
        DIV = 6,
        SUB = 9,
        ABS = 10,
        CEIL = 11,
        EXP = 13,
        FLOOR = 14,
        LOG = 15,
        NEG = 16,
        RSQRT = 17,
        SIN = 18,
        TAN = 19,
        ERF = 20,
        IDENTITY = 21,
        RECIPROCAL = 22,
        RELU_FWD = 100,
        TANH_FWD = 101,
        SIGMOID_FWD = 102,
        ELU_FWD = 103,
        GELU_FWD = 104,
        SOFTPLUS_FWD = 105,
        SWISH_FWD = 106,
        GELU_APPROX_TANH_FWD = 107,
        RELU_BWD = 200,
        TANH_BWD = 201,
        SIGMOID_BWD = 202,
        ELU_BWD = 203,
        GELU_BWD = 204,
        SOFTPLUS_BWD = 205,
        SWISH_BWD = 206,
        GELU_APPROX_TANH_BWD = 207,
        CMP_EQ = 300,
        CMP_NEQ = 301,
        CMP_GT = 302,
        CMP_GE = 303,
        CMP_LT = 304,
        CMP_LE = 305,
        LOGICAL_AND = 400,
        LOGICAL_OR = 401,
        LOGICAL_NOT = 402,
        GEN_INDEX = 501,
        BINARY_SELECT = 601,
    }
}

codes! {
    /// `cudnnReduceTensorOp_t`
    ReduceOp, "CUDNN_REDUCE_TENSOR_", {
        ADD = 0,
        MUL = 1,
        MIN = 2,
        MAX = 3,
        AMAX = 4,
        // The backend interface rejects these, the older one accepts them.
        AVG = 5,
        NORM1 = 6,
        NORM2 = 7,
        MUL_NO_ZEROS = 8,
    }
}

codes! {
    /// `cudnnResampleMode_t`
    ResampleMode, "CUDNN_RESAMPLE_", {
        AVGPOOL_INCLUDE_PADDING = 2,
        MAXPOOL = 3,
        AVGPOOL_EXCLUDE_PADDING = 4,
    }
}

codes! {
    /// `cudnnPaddingMode_t`
    PaddingMode, "CUDNN_", {
        ZERO_PAD = 0,
        NEG_INF_PAD = 1,
    }
}

codes! {
    /// `cudnnBackendNormMode_t`
    NormMode, "CUDNN_", {
        LAYER_NORM = 0,
        BATCH_NORM = 2,
        RMS_NORM = 4,
    }
}

codes! {
    /// `cudnnBackendNormFwdPhase_t`
    NormPhase, "CUDNN_NORM_FWD_", {
        INFERENCE = 0,
        TRAINING = 1,
    }
}

codes! {
    /// `cudnnBackendHeurMode_t`
    HeurMode, "CUDNN_HEUR_MODE_", {
        FALLBACK = 2,
        A = 3,
    }
}

codes! {
    /// `cudnnBackendNumericalNote_t`
    NumericalNote, "CUDNN_NUMERICAL_NOTE_", {
        TENSOR_CORE = 0,
        DOWN_CONVERT_INPUTS = 1,
    }
}

/// `CUDNN_PROPAGATE_NAN`
pub const PROPAGATE_NAN: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: &[&[(&str, i32)]] = &[
        Status::ALL,
        DescriptorType::ALL,
        AttributeType::ALL,
        AttributeName::ALL,
        DataType::ALL,
        PointwiseMode::ALL,
        ReduceOp::ALL,
        ResampleMode::ALL,
        PaddingMode::ALL,
        NormMode::ALL,
        NormPhase::ALL,
        HeurMode::ALL,
        NumericalNote::ALL,
    ];

    #[test]
    fn no_number_stands_for_two_names() {
        for kind in KINDS {
            let numbers: std::collections::HashSet<i32> = kind.iter().map(|(_, value)| *value).collect();
            assert_eq!(numbers.len(), kind.len(), "{kind:?}");
        }
    }

    /// Compares with NVIDIA's header, if there is one: its folder is in `CUDNN_INCLUDE_PATH`.
    #[test]
    fn numbers_are_those_of_the_header() {
        let Some(folder) = std::env::var_os("CUDNN_INCLUDE_PATH") else {
            eprintln!("skipped: CUDNN_INCLUDE_PATH names no folder with cudnn_graph.h");
            return;
        };
        let header = std::fs::read_to_string(std::path::Path::new(&folder).join("cudnn_graph.h")).unwrap();
        let declared: std::collections::HashMap<&str, i32> = header
            .lines()
            .filter_map(|line| {
                let (name, value) = line.split_once('=')?;
                let name = name.split_whitespace().next()?;
                let value = value.trim().split(|c: char| !c.is_ascii_digit()).next()?;
                Some((name, value.parse().ok()?))
            })
            .collect();
        for (name, value) in KINDS.iter().copied().flatten() {
            assert_eq!(declared.get(name), Some(value), "{name}");
        }
    }
}
