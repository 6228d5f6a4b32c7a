//! Convolutions: forward, backward data and backward filter.

use hipdnn::sys::AttributeName as H;
use hipdnn_abi::Descriptor;

use super::{Answer, Lowering};
use crate::graph::{Operation, Parameters, View};
use crate::safe::Setting;
use crate::sys::{AttributeName as A, AttributeType as T, DataType, DescriptorType as D};

/// A direction: cuDNN's operation, and its attributes for tensors and parameters.
pub struct Direction {
    kind: D,
    held_by: A,
    alpha: A,
    beta: A,
    reads: [(H, A); 2],
    writes: (H, A),
}

pub const FORWARD: Direction = Direction {
    kind: D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    held_by: A::OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
    alpha: A::OPERATION_CONVOLUTION_FORWARD_ALPHA,
    beta: A::OPERATION_CONVOLUTION_FORWARD_BETA,
    reads: [
        (H::OPERATION_CONVOLUTION_FORWARD_X, A::OPERATION_CONVOLUTION_FORWARD_X),
        (H::OPERATION_CONVOLUTION_FORWARD_W, A::OPERATION_CONVOLUTION_FORWARD_W),
    ],
    writes: (H::OPERATION_CONVOLUTION_FORWARD_Y, A::OPERATION_CONVOLUTION_FORWARD_Y),
};

pub const TO_DATA: Direction = Direction {
    kind: D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    held_by: A::OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    alpha: A::OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    beta: A::OPERATION_CONVOLUTION_BWD_DATA_BETA,
    reads: [
        (H::OPERATION_CONVOLUTION_BWD_DATA_DY, A::OPERATION_CONVOLUTION_BWD_DATA_DY),
        (H::OPERATION_CONVOLUTION_BWD_DATA_W, A::OPERATION_CONVOLUTION_BWD_DATA_W),
    ],
    writes: (H::OPERATION_CONVOLUTION_BWD_DATA_DX, A::OPERATION_CONVOLUTION_BWD_DATA_DX),
};

pub const TO_FILTER: Direction = Direction {
    kind: D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    held_by: A::OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
    alpha: A::OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    beta: A::OPERATION_CONVOLUTION_BWD_FILTER_BETA,
    reads: [
        (H::OPERATION_CONVOLUTION_BWD_FILTER_X, A::OPERATION_CONVOLUTION_BWD_FILTER_X),
        (H::OPERATION_CONVOLUTION_BWD_FILTER_DY, A::OPERATION_CONVOLUTION_BWD_FILTER_DY),
    ],
    writes: (H::OPERATION_CONVOLUTION_BWD_FILTER_DW, A::OPERATION_CONVOLUTION_BWD_FILTER_DW),
};

impl Lowering {
    pub(super) fn convolution(&mut self, operation: &Descriptor, direction: &Direction) -> Answer {
        let reads = direction.reads.map(|(from, _)| self.view(operation, from));
        let reads = reads.into_iter().collect::<Answer<Vec<_>>>()?;
        let to = self.view(operation, direction.writes.0)?;
        let spatial = self.rank - 2;
        let list = |name, filler: i64| -> Answer<Vec<i64>> {
            let mut values = operation.i64s(name);
            if self.inserts_axis {
                values.insert(0, filler);
            }
            if values.len() == spatial { Ok(values) } else { Err(format!("{name} must have {spatial} numbers")) }
        };
        let lists = [
            list(H::CONVOLUTION_PRE_PADDINGS, 0)?,
            list(H::CONVOLUTION_POST_PADDINGS, 0)?,
            list(H::CONVOLUTION_FILTER_STRIDES, 1)?,
            list(H::CONVOLUTION_DILATIONS, 1)?,
        ];
        let mode = operation.number(H::CONVOLUTION_CONV_MODE).unwrap_or(0);
        self.push_convolution(direction, reads, to, lists, mode);
        Ok(())
    }

    /// A convolution with its padding before and after, strides and dilations.
    pub(super) fn push_convolution(
        &mut self,
        direction: &Direction,
        reads: Vec<View>,
        to: View,
        [before, behind, strides, dilations]: [Vec<i64>; 4],
        mode: i32,
    ) {
        let parameters = Parameters {
            kind: D::CONVOLUTION_DESCRIPTOR,
            held_by: direction.held_by,
            settings: vec![
                (A::CONVOLUTION_COMP_TYPE, Setting::Code(T::DATA_TYPE, self.compute.0)),
                (A::CONVOLUTION_CONV_MODE, Setting::Code(T::CONVOLUTION_MODE, mode)),
                (A::CONVOLUTION_SPATIAL_DIMS, Setting::I64s(vec![strides.len() as i64])),
                (A::CONVOLUTION_PRE_PADDINGS, Setting::I64s(before)),
                (A::CONVOLUTION_POST_PADDINGS, Setting::I64s(behind)),
                (A::CONVOLUTION_FILTER_STRIDES, Setting::I64s(strides)),
                (A::CONVOLUTION_DILATIONS, Setting::I64s(dilations)),
            ],
        };
        let factor = |value: f64| match self.compute {
            DataType::DOUBLE => Setting::F64(value),
            _ => Setting::F32(value as f32),
        };
        let settings = vec![(direction.alpha, factor(1.0)), (direction.beta, factor(0.0))];
        let reads = direction.reads.iter().map(|(_, name)| *name).zip(reads).collect();
        let writes = vec![(direction.writes.1, to)];
        self.push(Operation { kind: direction.kind, parameters: Some(parameters), settings, reads, writes });
    }
}
