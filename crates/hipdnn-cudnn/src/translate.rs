//! Translates hipDNN's constants to cuDNN's.

use hipdnn::sys as hipdnn_sys;

use crate::sys::{DataType, PointwiseMode as C, ReduceOp, ResampleMode};

/// cuDNN's data type for one of hipDNN's; `None` for the FP6 and FNUZ types, which cuDNN does not have.
pub fn data_type(of: hipdnn_sys::DataType) -> Option<DataType> {
    use hipdnn_sys::DataType as H;
    Some(match of {
        H::FLOAT => DataType::FLOAT,
        H::DOUBLE => DataType::DOUBLE,
        H::HALF => DataType::HALF,
        H::INT8 => DataType::INT8,
        H::INT32 => DataType::INT32,
        H::UINT8 => DataType::UINT8,
        H::BFLOAT16 => DataType::BFLOAT16,
        H::FP8_E4M3 => DataType::FP8_E4M3,
        H::FP8_E5M2 => DataType::FP8_E5M2,
        H::FP8_E8M0 => DataType::FP8_E8M0,
        H::FP4_E2M1 => DataType::FP4_E2M1,
        H::INT4 => DataType::INT4,
        H::INT64 => DataType::INT64,
        H::BOOLEAN => DataType::BOOLEAN,
        _ => return None,
    })
}

/// cuDNN's mode for one of hipDNN's.
pub fn pointwise(mode: hipdnn_sys::PointwiseMode) -> Option<C> {
    use hipdnn_sys::PointwiseMode as H;
    Some(match mode {
        H::ABS => C::ABS,
        H::ADD => C::ADD,
        H::ADD_SQUARE => C::ADD_SQUARE,
        H::BINARY_SELECT => C::BINARY_SELECT,
        H::CEIL => C::CEIL,
        H::CMP_EQ => C::CMP_EQ,
        H::CMP_GE => C::CMP_GE,
        H::CMP_GT => C::CMP_GT,
        H::CMP_LE => C::CMP_LE,
        H::CMP_LT => C::CMP_LT,
        H::CMP_NEQ => C::CMP_NEQ,
        H::DIV => C::DIV,
        H::ELU_BWD => C::ELU_BWD,
        H::ELU_FWD => C::ELU_FWD,
        H::ERF => C::ERF,
        H::EXP => C::EXP,
        H::FLOOR => C::FLOOR,
        H::GELU_APPROX_TANH_BWD => C::GELU_APPROX_TANH_BWD,
        H::GELU_APPROX_TANH_FWD => C::GELU_APPROX_TANH_FWD,
        H::GELU_BWD => C::GELU_BWD,
        H::GELU_FWD => C::GELU_FWD,
        H::GEN_INDEX => C::GEN_INDEX,
        H::IDENTITY => C::IDENTITY,
        H::LOG => C::LOG,
        H::LOGICAL_AND => C::LOGICAL_AND,
        H::LOGICAL_NOT => C::LOGICAL_NOT,
        H::LOGICAL_OR => C::LOGICAL_OR,
        H::MAX => C::MAX,
        H::MIN => C::MIN,
        H::MUL => C::MUL,
        H::NEG => C::NEG,
        H::RECIPROCAL => C::RECIPROCAL,
        H::RELU_BWD => C::RELU_BWD,
        H::RELU_FWD => C::RELU_FWD,
        H::RSQRT => C::RSQRT,
        H::SIGMOID_BWD => C::SIGMOID_BWD,
        H::SIGMOID_FWD => C::SIGMOID_FWD,
        H::SIN => C::SIN,
        H::SOFTPLUS_BWD => C::SOFTPLUS_BWD,
        H::SOFTPLUS_FWD => C::SOFTPLUS_FWD,
        H::SQRT => C::SQRT,
        H::SUB => C::SUB,
        H::SWISH_BWD => C::SWISH_BWD,
        H::SWISH_FWD => C::SWISH_FWD,
        H::TAN => C::TAN,
        H::TANH_BWD => C::TANH_BWD,
        H::TANH_FWD => C::TANH_FWD,
        _ => return None,
    })
}

/// True for modes that multiply a gradient by the slope of an activation.
pub fn is_backward(mode: C) -> bool {
    (C::RELU_BWD.0..C::CMP_EQ.0).contains(&mode.0)
}

/// cuDNN's reduction for one of hipDNN's.
pub fn reduction(of: hipdnn_sys::ReduceOp) -> Option<ReduceOp> {
    use hipdnn_sys::ReduceOp as H;
    Some(match of {
        H::ADD => ReduceOp::ADD,
        H::MUL => ReduceOp::MUL,
        H::MIN => ReduceOp::MIN,
        H::MAX => ReduceOp::MAX,
        H::AMAX => ReduceOp::AMAX,
        H::AVG => ReduceOp::AVG,
        H::NORM1 => ReduceOp::NORM1,
        H::NORM2 => ReduceOp::NORM2,
        H::MUL_NO_ZEROS => ReduceOp::MUL_NO_ZEROS,
        _ => return None,
    })
}

/// cuDNN's kind of pooling for one of hipDNN's.
pub fn resample(of: hipdnn_sys::ResampleMode) -> Option<ResampleMode> {
    use hipdnn_sys::ResampleMode as H;
    Some(match of {
        H::MAXPOOL => ResampleMode::MAXPOOL,
        H::AVGPOOL_EXCLUDE_PADDING => ResampleMode::AVGPOOL_EXCLUDE_PADDING,
        H::AVGPOOL_INCLUDE_PADDING => ResampleMode::AVGPOOL_INCLUDE_PADDING,
        _ => return None,
    })
}

/// Bytes of one element; `None` for types smaller than a byte.
pub fn bytes_of(of: DataType) -> Option<usize> {
    Some(match of {
        DataType::DOUBLE | DataType::INT64 => 8,
        DataType::FLOAT | DataType::INT32 => 4,
        DataType::HALF | DataType::BFLOAT16 => 2,
        DataType::FP4_E2M1 | DataType::INT4 => return None,
        _ => 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of hipDNN's modes as cuDNN's numbers, from the published headers of both.
    #[test]
    fn pointwise_modes_have_cudnns_numbers() {
        let wanted = [
            10, 0, 5, 601, 11, 300, 303, 302, 305, 304, 301, 6, 203, 103, 20, 13, 14, 207, 107, 204, 104, 501, 21, 15,
            400, 402, 401, 3, 2, 1, 16, 22, 200, 100, 17, 202, 102, 18, 205, 105, 4, 9, 206, 106, 19, 201, 101,
        ];
        for (at, &number) in wanted.iter().enumerate() {
            let mode = hipdnn_sys::PointwiseMode(at as i32 + 1);
            assert_eq!(pointwise(mode).map(|mode| mode.0), Some(number), "{mode:?}");
        }
        assert_eq!(hipdnn_sys::PointwiseMode::ALL.len(), wanted.len());
        assert_eq!(pointwise(hipdnn_sys::PointwiseMode(99)), None);
    }

    #[test]
    fn reductions_keep_their_names() {
        for &of in hipdnn_sys::ReduceOp::ALL {
            let wanted = format!("CUDNN_REDUCE_TENSOR_{}", of.name().unwrap());
            assert_eq!(reduction(of).map(|of| format!("{of:?}")), Some(wanted));
        }
        assert_eq!(reduction(hipdnn_sys::ReduceOp(0)), None);
    }

    #[test]
    fn types_that_cudnn_lacks_are_refused() {
        let refused: Vec<_> = hipdnn_sys::DataType::ALL.iter().filter(|of| data_type(**of).is_none()).collect();
        use hipdnn_sys::DataType as H;
        assert_eq!(refused, [&H::FP6_E2M3_EXT, &H::FP6_E3M2_EXT, &H::FP8_E4M3_FNUZ, &H::FP8_E5M2_FNUZ]);
    }
}
