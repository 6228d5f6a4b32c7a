//! Reductions.

use crate::graph::operation::{Operation, Setting, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttributeName, AttributeType, DescriptorType, ReduceOp};

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The operator.
    pub op: ReduceOp,
    /// Whether equal inputs give bit-identical results, which may be slower.
    pub is_deterministic: bool,
}

impl From<ReduceOp> for Reduction {
    fn from(op: ReduceOp) -> Self {
        Self { op, is_deterministic: false }
    }
}

/// A reduction over the axes that have extent 1 in the result and another extent in the input.
pub(in crate::graph) fn reduction(what: Reduction, x: TensorId, y: TensorId) -> Operation {
    let rule = move |tensors: &mut Tensors| {
        let (data, result) = (tensors.dims(x), tensors.dims(y));
        if data.len() != result.len() {
            return tensors.refuse(y, format!("it has {} axes, but the input has {}", result.len(), data.len()));
        }
        if let Some(axis) = (0..data.len()).find(|&axis| result[axis] != data[axis] && result[axis] != 1) {
            let rule = format!("extent {} of axis {axis} is neither {} nor 1", result[axis], data[axis]);
            return tensors.refuse(y, rule);
        }
        if data == result {
            return tensors.refuse(y, "no axis is reduced");
        }
        tensors.complete(y, x)
    };
    Operation {
        name: "reduction",
        descriptor: DescriptorType::OPERATION_REDUCTION_DESCRIPTOR,
        compute_type: AttributeName::REDUCTION_COMP_TYPE,
        reads: vec![(AttributeName::OPERATION_REDUCTION_XDESC, x)],
        makes: vec![(AttributeName::OPERATION_REDUCTION_YDESC, y)],
        settings: vec![
            (AttributeName::REDUCTION_OPERATOR, Setting::Mode(AttributeType::REDUCTION_OPERATOR_TYPE, what.op.0)),
            (AttributeName::REDUCTION_IS_DETERMINISTIC, Setting::Bool(what.is_deterministic)),
        ],
        rule: Box::new(rule),
    }
}
