//! Reductions.

use graph::DType;
use hipdnn::sys::{AttributeName as A, ReduceOp};

use hipdnn_abi::Descriptor;

use super::{Answer, Lowering};

impl Lowering {
    pub(super) fn reduction(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_REDUCTION_XDESC)?;
        let y = operation.descriptor(A::OPERATION_REDUCTION_YDESC).ok_or("no result")?.i64s(A::TENSOR_DIMENSIONS);
        if y.len() != x.dims.len() {
            return Err(format!("{:?} cannot be reduced to {y:?}", x.dims));
        }
        let axes: Vec<usize> = (0..y.len()).filter(|&axis| y[axis] == 1).collect();
        let mode = ReduceOp(operation.number(A::REDUCTION_OPERATOR).unwrap_or(0));
        let reduced = match mode {
            ReduceOp::ADD => self.reduce("ReduceSum", &x, &axes)?,
            ReduceOp::MUL => self.reduce("ReduceProd", &x, &axes)?,
            ReduceOp::MIN => self.reduce("ReduceMin", &x, &axes)?,
            ReduceOp::MAX => self.reduce("ReduceMax", &x, &axes)?,
            ReduceOp::AVG => self.reduce("ReduceMean", &x, &axes)?,
            ReduceOp::NORM1 => self.reduce("ReduceL1", &x, &axes)?,
            ReduceOp::NORM2 => self.reduce("ReduceL2", &x, &axes)?,
            ReduceOp::AMAX => {
                let size = self.elementwise("Abs", &[&x])?;
                self.reduce("ReduceMax", &size, &axes)?
            }
            ReduceOp::MUL_NO_ZEROS => {
                let (zero, one) = (self.scalar(0.0), self.scalar(1.0));
                let is_zero = self.elementwise_to("Equal", &[&x, &zero], DType::Bool)?;
                let kept = self.elementwise("Where", &[&is_zero, &one, &x])?;
                self.reduce("ReduceProd", &kept, &axes)?
            }
            other => return Err(format!("the reduction {other:?} is not supported")),
        };
        self.write(operation, A::OPERATION_REDUCTION_YDESC, &reduced)
    }
}
