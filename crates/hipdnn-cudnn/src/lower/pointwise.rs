//! Elementwise operations. cuDNN compares into its own booleans, and only uses those to select and combine.

use hipdnn::sys::{AttributeName as H, PointwiseMode};
use hipdnn_abi::Descriptor;

use super::{Answer, Lowering};
use crate::graph::View;
use crate::safe::Setting;
use crate::sys::{AttributeName as A, DataType, PointwiseMode as C};
use crate::translate;

impl Lowering {
    pub(super) fn pointwise(&mut self, operation: &Descriptor) -> Answer {
        let hip_mode = PointwiseMode(operation.number(H::POINTWISE_MODE).unwrap_or(0));
        let mode = translate::pointwise(hip_mode).ok_or_else(|| format!("cuDNN has no {hip_mode}"))?;
        let wanted = hip_mode.inputs().unwrap_or(1);
        let names = [H::OPERATION_POINTWISE_IN_0_EXT, H::OPERATION_POINTWISE_IN_1_EXT, H::OPERATION_POINTWISE_IN_2_EXT];
        let reads = names[..wanted].iter().map(|&name| self.view(operation, name)).collect::<Answer<Vec<_>>>()?;
        let to = self.view(operation, H::OPERATION_POINTWISE_OUT_0_EXT)?;
        if [DataType::FP8_E4M3, DataType::FP8_E5M2, DataType::FP8_E8M0].contains(&self.data_type(&to)) {
            return Err("cuDNN converts values out of the 8-bit range to NaN instead of saturating".into());
        }
        match mode {
            C::GEN_INDEX => self.index(operation, &reads[0], &to),
            C::CMP_EQ | C::CMP_NEQ | C::CMP_GT | C::CMP_GE | C::CMP_LT | C::CMP_LE => {
                let truth = self.boolean_for(&to);
                self.map(mode, &reads.iter().collect::<Vec<_>>(), &truth);
                self.unpack(&truth, &to);
            }
            C::LOGICAL_AND | C::LOGICAL_OR | C::LOGICAL_NOT => {
                let reads: Vec<View> = reads.iter().map(|view| self.as_boolean(view)).collect();
                let truth = self.boolean_for(&to);
                self.map_with(mode, &reads.iter().collect::<Vec<_>>(), &truth, DataType::BOOLEAN, Vec::new());
                self.unpack(&truth, &to);
            }
            C::BINARY_SELECT => {
                let by = self.as_boolean(&reads[2]);
                self.map(mode, &[&reads[0], &reads[1], &by], &to);
            }
            _ if self.graph.tensors[to.tensor].is_boolean => {
                let further = self.activation(operation);
                let numbers = self.inside(self.compute, &to.dims, &to);
                self.map_with(mode, &reads.iter().collect::<Vec<_>>(), &numbers, self.compute, further);
                let truth = self.as_boolean(&numbers);
                self.unpack(&truth, &to);
            }
            _ => {
                let further = self.activation(operation);
                self.map_with(mode, &reads.iter().collect::<Vec<_>>(), &to, self.compute, further);
            }
        }
        Ok(())
    }

    fn activation(&self, operation: &Descriptor) -> Vec<(A, Setting)> {
        let names = [
            (H::POINTWISE_RELU_LOWER_CLIP, A::POINTWISE_RELU_LOWER_CLIP),
            (H::POINTWISE_RELU_UPPER_CLIP, A::POINTWISE_RELU_UPPER_CLIP),
            (H::POINTWISE_RELU_LOWER_CLIP_SLOPE, A::POINTWISE_RELU_LOWER_CLIP_SLOPE),
            (H::POINTWISE_ELU_ALPHA, A::POINTWISE_ELU_ALPHA),
            (H::POINTWISE_SOFTPLUS_BETA, A::POINTWISE_SOFTPLUS_BETA),
            (H::POINTWISE_SWISH_BETA, A::POINTWISE_SWISH_BETA),
        ];
        let value = |(from, to)| Some((to, Setting::F64(operation.f32(from)?.into())));
        names.into_iter().filter_map(value).collect()
    }

    fn index(&mut self, operation: &Descriptor, from: &View, to: &View) {
        let axis = self.axis(operation.i64s(H::POINTWISE_AXIS).first().copied().unwrap_or(0));
        // Engines generate indices only in the compute type.
        let is_direct = self.data_type(to) == self.compute;
        let numbers = if is_direct { to.clone() } else { self.inside(self.compute, &to.dims, to) };
        let axis = vec![(A::POINTWISE_AXIS, Setting::I64s(vec![axis]))];
        self.map_with(C::GEN_INDEX, &[from], &numbers, self.compute, axis);
        if !is_direct {
            self.map(C::IDENTITY, &[&numbers], to);
        }
    }

    /// A cuDNN boolean for a result: the result itself if it is one.
    fn boolean_for(&mut self, to: &View) -> View {
        if self.data_type(to) == DataType::BOOLEAN { to.clone() } else { self.inside(DataType::BOOLEAN, &to.dims, to) }
    }

    /// Converts numbers to cuDNN's booleans.
    fn as_boolean(&mut self, view: &View) -> View {
        if self.data_type(view) == DataType::BOOLEAN {
            return view.clone();
        }
        let zero = self.number(0.0);
        let truth = self.inside(DataType::BOOLEAN, &view.dims, view);
        self.map(C::CMP_NEQ, &[view, &zero], &truth);
        truth
    }

    /// Converts cuDNN's booleans to the numbers 1 and 0.
    fn unpack(&mut self, truth: &View, to: &View) {
        if truth != to {
            self.map(C::IDENTITY, &[truth], to);
        }
    }
}
