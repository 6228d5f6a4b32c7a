//! Batched matrix products.

use crate::graph::operation::{Operation, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttributeName, DescriptorType};

/// A product: the last two axes are matrices, those before are batches. Strides express transposed operands.
pub(in crate::graph) fn matmul(a: TensorId, b: TensorId, c: TensorId) -> Operation {
    let rule = move |tensors: &mut Tensors| {
        tensors.require_rank(a, 2)?;
        let (left, right) = (tensors.dims(a), tensors.dims(b));
        if left.len() != right.len() {
            return tensors.refuse(b, format!("it has {} axes, but the left operand has {}", right.len(), left.len()));
        }
        let batch = left.len() - 2;
        if left[batch + 1] != right[batch] {
            return tensors.refuse(
                b,
                format!("its {} rows do not match the left operand's {} columns", right[batch], left[batch + 1]),
            );
        }
        let mut dims = Vec::with_capacity(left.len());
        for axis in 0..batch {
            if left[axis] % right[axis] != 0 && right[axis] % left[axis] != 0 {
                return tensors.refuse(b, format!("batch {} cannot be broadcast to {}", right[axis], left[axis]));
            }
            dims.push(left[axis].max(right[axis]));
        }
        dims.extend([left[batch], right[batch + 1]]);
        tensors.set_result(c, &dims, None)
    };
    Operation {
        name: "matmul",
        descriptor: DescriptorType::OPERATION_MATMUL_DESCRIPTOR,
        compute_type: AttributeName::MATMUL_COMP_TYPE,
        reads: vec![(AttributeName::OPERATION_MATMUL_ADESC, a), (AttributeName::OPERATION_MATMUL_BDESC, b)],
        makes: vec![(AttributeName::OPERATION_MATMUL_CDESC, c)],
        settings: Vec::new(),
        rule: Box::new(rule),
    }
}
