//! Products of matrices.

use hipdnn::sys::AttributeName as H;
use hipdnn_abi::Descriptor;

use super::{Answer, Lowering};
use crate::descriptor::Setting;
use crate::graph::{Operation, Parameters, View};
use crate::sys::{AttributeName as A, AttributeType as T, DescriptorType as D};

impl Lowering {
    pub(super) fn matmul(&mut self, operation: &Descriptor) -> Answer {
        let a = self.view(operation, H::OPERATION_MATMUL_ADESC)?;
        let b = self.view(operation, H::OPERATION_MATMUL_BDESC)?;
        let c = self.view(operation, H::OPERATION_MATMUL_CDESC)?;
        self.product(a, b, c);
        Ok(())
    }

    pub(super) fn product(&mut self, a: View, b: View, c: View) {
        self.push(Operation {
            kind: D::OPERATION_MATMUL_DESCRIPTOR,
            parameters: Some(Parameters {
                kind: D::MATMUL_DESCRIPTOR,
                held_by: A::OPERATION_MATMUL_DESC,
                settings: vec![(A::MATMUL_COMP_TYPE, Setting::Code(T::DATA_TYPE, self.compute.0))],
            }),
            settings: Vec::new(),
            reads: vec![(A::OPERATION_MATMUL_ADESC, a), (A::OPERATION_MATMUL_BDESC, b)],
            writes: vec![(A::OPERATION_MATMUL_CDESC, c)],
        });
    }
}
