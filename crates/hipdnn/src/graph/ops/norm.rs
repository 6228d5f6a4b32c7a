//! Normalisations over trailing axes: layer norm and RMS norm, forward and backward.

use crate::Result;
use crate::graph::operation::{Operation, Setting, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttributeName as A, AttributeType, DescriptorType, NormFwdPhase};

/// The kind of a normalisation over trailing axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::graph) enum NormKind {
    Layer,
    Rms,
}

impl NormKind {
    fn name(self) -> &'static str {
        match self {
            Self::Layer => "layer norm",
            Self::Rms => "RMS norm",
        }
    }
}

/// A scale or bias has the extents of the last `axes` axes of the data, and 1 before them.
fn require_parameter(tensors: &Tensors, x: TensorId, parameter: TensorId, axes: usize) -> Result<()> {
    let data = tensors.dims(x);
    if axes == 0 || axes >= data.len() {
        return tensors
            .refuse(x, format!("{axes} of its {} axes cannot be normalised: the first axis must remain", data.len()));
    }
    let first = data.len() - axes;
    let wanted: Vec<i64> =
        data.iter().enumerate().map(|(axis, &extent)| if axis < first { 1 } else { extent }).collect();
    tensors.require_dims(parameter, &wanted)
}

/// The extents of a statistic: those of the data, but 1 on normalised axes.
fn statistic_dims(tensors: &Tensors, x: TensorId, axes: usize) -> Vec<i64> {
    let data = tensors.dims(x);
    let first = data.len().saturating_sub(axes);
    data.iter().enumerate().map(|(axis, &extent)| if axis < first { extent } else { 1 }).collect()
}

/// The inputs and results of a normalisation.
#[derive(Clone, Debug)]
pub(in crate::graph) struct NormTensors {
    pub x: TensorId,
    pub scale: TensorId,
    pub bias: Option<TensorId>,
    pub epsilon: TensorId,
    pub y: TensorId,
    /// Mean and inverse standard deviation of a layer norm, or inverse root mean square of an RMS norm; empty in
    /// inference.
    pub statistics: Vec<TensorId>,
}

/// A normalisation over the last `axes` axes.
pub(in crate::graph) fn norm(kind: NormKind, tensors: NormTensors, axes: usize) -> Operation {
    let NormTensors { x, scale, bias, epsilon, y, statistics } = tensors;
    let phase = if statistics.is_empty() { NormFwdPhase::INFERENCE } else { NormFwdPhase::TRAINING };
    let phase = Setting::Mode(AttributeType::NORM_FWD_PHASE, phase.0);
    let (descriptor, compute_type, reads, made, of_statistics, settings) = match kind {
        NormKind::Layer => (
            DescriptorType::OPERATION_LAYERNORM_DESCRIPTOR_EXT,
            A::LAYERNORM_COMP_TYPE_EXT,
            [
                Some((A::OPERATION_LAYERNORM_X_EXT, x)),
                Some((A::OPERATION_LAYERNORM_SCALE_EXT, scale)),
                bias.map(|bias| (A::OPERATION_LAYERNORM_BIAS_EXT, bias)),
                Some((A::OPERATION_LAYERNORM_EPSILON_EXT, epsilon)),
            ],
            A::OPERATION_LAYERNORM_Y_EXT,
            vec![A::OPERATION_LAYERNORM_MEAN_EXT, A::OPERATION_LAYERNORM_INV_VARIANCE_EXT],
            vec![
                (A::OPERATION_LAYERNORM_FWD_PHASE_EXT, phase),
                (A::OPERATION_LAYERNORM_NORMALIZED_DIM_COUNT_EXT, Setting::I64s(vec![axes as i64])),
            ],
        ),
        NormKind::Rms => (
            DescriptorType::OPERATION_RMSNORM_DESCRIPTOR_EXT,
            A::RMSNORM_COMP_TYPE_EXT,
            [
                Some((A::OPERATION_RMSNORM_X_EXT, x)),
                Some((A::OPERATION_RMSNORM_SCALE_EXT, scale)),
                bias.map(|bias| (A::OPERATION_RMSNORM_BIAS_EXT, bias)),
                Some((A::OPERATION_RMSNORM_EPSILON_EXT, epsilon)),
            ],
            A::OPERATION_RMSNORM_Y_EXT,
            vec![A::OPERATION_RMSNORM_INV_RMS_EXT],
            vec![(A::OPERATION_RMSNORM_FWD_PHASE_EXT, phase)],
        ),
    };
    let makes = [(made, y)].into_iter().chain(of_statistics.into_iter().zip(statistics.clone())).collect();
    let rule = move |tensors: &mut Tensors| {
        tensors.require_scalar(epsilon)?;
        [scale].into_iter().chain(bias).try_for_each(|parameter| require_parameter(tensors, x, parameter, axes))?;
        let data = tensors.dims(x).to_vec();
        tensors.set_result(y, &data, Some(x))?;
        let dims = statistic_dims(tensors, x, axes);
        statistics.iter().try_for_each(|&statistic| tensors.set_result(statistic, &dims, Some(x)))
    };
    let reads = reads.into_iter().flatten().collect();
    Operation { name: kind.name(), descriptor, compute_type, reads, makes, settings, rule: Box::new(rule) }
}

/// The inputs and results of the gradient of a normalisation.
#[derive(Clone, Debug)]
pub(in crate::graph) struct NormGradients {
    pub dy: TensorId,
    pub x: TensorId,
    pub scale: TensorId,
    /// As [`NormTensors::statistics`].
    pub statistics: Vec<TensorId>,
    pub dx: TensorId,
    pub dscale: TensorId,
    pub dbias: Option<TensorId>,
}

/// The gradient of a normalisation over the last `axes` axes.
pub(in crate::graph) fn norm_backward(kind: NormKind, tensors: NormGradients, axes: usize) -> Operation {
    let NormGradients { dy, x, scale, statistics, dx, dscale, dbias } = tensors;
    let (name, descriptor, compute_type, inputs, of_statistics, outputs, settings) = match kind {
        NormKind::Layer => (
            "layer norm backward",
            DescriptorType::OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT,
            A::LAYERNORM_BACKWARD_COMP_TYPE_EXT,
            [
                A::OPERATION_LAYERNORM_BACKWARD_DY_EXT,
                A::OPERATION_LAYERNORM_BACKWARD_X_EXT,
                A::OPERATION_LAYERNORM_BACKWARD_SCALE_EXT,
            ],
            vec![A::OPERATION_LAYERNORM_BACKWARD_MEAN_EXT, A::OPERATION_LAYERNORM_BACKWARD_INV_VARIANCE_EXT],
            [
                A::OPERATION_LAYERNORM_BACKWARD_DX_EXT,
                A::OPERATION_LAYERNORM_BACKWARD_DSCALE_EXT,
                A::OPERATION_LAYERNORM_BACKWARD_DBIAS_EXT,
            ],
            vec![(A::LAYERNORM_BACKWARD_NORMALIZED_DIM_COUNT_EXT, Setting::I64s(vec![axes as i64]))],
        ),
        NormKind::Rms => (
            "RMS norm backward",
            DescriptorType::OPERATION_RMSNORM_BACKWARD_DESCRIPTOR_EXT,
            A::RMSNORM_BACKWARD_COMP_TYPE_EXT,
            [
                A::OPERATION_RMSNORM_BACKWARD_DY_EXT,
                A::OPERATION_RMSNORM_BACKWARD_X_EXT,
                A::OPERATION_RMSNORM_BACKWARD_SCALE_EXT,
            ],
            vec![A::OPERATION_RMSNORM_BACKWARD_INV_RMS_EXT],
            [
                A::OPERATION_RMSNORM_BACKWARD_DX_EXT,
                A::OPERATION_RMSNORM_BACKWARD_DSCALE_EXT,
                A::OPERATION_RMSNORM_BACKWARD_DBIAS_EXT,
            ],
            Vec::new(),
        ),
    };
    let reads =
        inputs.into_iter().zip([dy, x, scale]).chain(of_statistics.into_iter().zip(statistics.clone())).collect();
    let made = [Some(dx), Some(dscale), dbias];
    let makes = outputs.into_iter().zip(made).filter_map(|(name, id)| Some((name, id?))).collect();
    let rule = move |tensors: &mut Tensors| {
        let data = tensors.dims(x).to_vec();
        tensors.require_dims(dy, &data)?;
        require_parameter(tensors, x, scale, axes)?;
        let dims = statistic_dims(tensors, x, axes);
        statistics.iter().try_for_each(|&statistic| tensors.require_dims(statistic, &dims))?;
        tensors.set_result(dx, &data, Some(x))?;
        let parameter = tensors.dims(scale).to_vec();
        [dscale].into_iter().chain(dbias).try_for_each(|made| tensors.set_result(made, &parameter, Some(scale)))
    };
    Operation { name, descriptor, compute_type, reads, makes, settings, rule: Box::new(rule) }
}
