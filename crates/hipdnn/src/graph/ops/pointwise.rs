//! Element-wise operations.

use crate::graph::operation::{Operation, Setting, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttributeName, AttributeType, DescriptorType, PointwiseMode};
use crate::{Error, Result};

/// A pointwise operation with the parameters of its mode; those that are `None` keep the backend's default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pointwise {
    /// The mode.
    pub mode: PointwiseMode,
    /// The lower clip of a ReLU.
    pub relu_lower_clip: Option<f32>,
    /// The upper clip of a ReLU.
    pub relu_upper_clip: Option<f32>,
    /// The slope below the lower clip.
    pub relu_lower_clip_slope: Option<f32>,
    /// The factor in Swish's sigmoid.
    pub swish_beta: Option<f32>,
    /// ELU's scale for negative values.
    pub elu_alpha: Option<f32>,
    /// Softplus's sharpness.
    pub softplus_beta: Option<f32>,
    /// The axis of a generated index.
    pub axis: Option<i64>,
}

impl From<PointwiseMode> for Pointwise {
    fn from(mode: PointwiseMode) -> Self {
        Self {
            mode,
            relu_lower_clip: None,
            relu_upper_clip: None,
            relu_lower_clip_slope: None,
            swish_beta: None,
            elu_alpha: None,
            softplus_beta: None,
            axis: None,
        }
    }
}

/// A pointwise operation: axes are matched from the left, and an extent of 1 broadcasts.
pub(in crate::graph) fn pointwise(what: Pointwise, inputs: &[TensorId], output: TensorId) -> Operation {
    use AttributeName as A;
    let slots = [A::OPERATION_POINTWISE_IN_0_EXT, A::OPERATION_POINTWISE_IN_1_EXT, A::OPERATION_POINTWISE_IN_2_EXT];
    let numbers = [
        (A::POINTWISE_RELU_LOWER_CLIP, what.relu_lower_clip),
        (A::POINTWISE_RELU_UPPER_CLIP, what.relu_upper_clip),
        (A::POINTWISE_RELU_LOWER_CLIP_SLOPE, what.relu_lower_clip_slope),
        (A::POINTWISE_SWISH_BETA, what.swish_beta),
        (A::POINTWISE_ELU_ALPHA, what.elu_alpha),
        (A::POINTWISE_SOFTPLUS_BETA, what.softplus_beta),
    ];
    let mut settings = vec![(A::POINTWISE_MODE, Setting::Mode(AttributeType::POINTWISE_MODE, what.mode.0))];
    settings.extend(numbers.into_iter().filter_map(|(name, value)| Some((name, Setting::F32(value?)))));
    settings.extend(what.axis.map(|axis| (A::POINTWISE_AXIS, Setting::I64s(vec![axis]))));
    let read = inputs.to_vec();
    Operation {
        name: "pointwise",
        descriptor: DescriptorType::OPERATION_POINTWISE_DESCRIPTOR,
        compute_type: A::POINTWISE_MATH_PREC,
        reads: slots.into_iter().zip(inputs.iter().copied()).collect(),
        makes: vec![(A::OPERATION_POINTWISE_OUT_0_EXT, output)],
        settings,
        rule: Box::new(move |tensors| infer(tensors, what, &read, output)),
    }
}

fn infer(tensors: &mut Tensors, what: Pointwise, inputs: &[TensorId], output: TensorId) -> Result<()> {
    let mode = what.mode;
    let wanted = mode.inputs().unwrap_or(inputs.len().clamp(1, 3));
    if wanted != inputs.len() {
        let rule = format!("{mode:?} expects {wanted} tensors, found {}", inputs.len());
        return Err(Error::invalid("pointwise", rule));
    }
    let rank = inputs.iter().map(|&input| tensors.dims(input).len()).max().unwrap_or(0);
    let mut dims = vec![1; rank];
    for &input in inputs {
        for (axis, &extent) in tensors.dims(input).iter().enumerate() {
            if dims[axis] != extent && dims[axis] != 1 && extent != 1 {
                return tensors.refuse(input, format!("extent {extent} of axis {axis} does not match {}", dims[axis]));
            }
            dims[axis] = dims[axis].max(extent);
        }
    }
    if mode == PointwiseMode::GEN_INDEX
        && let Some(axis) = what.axis.filter(|&axis| usize::try_from(axis).map_or(true, |axis| axis >= rank))
    {
        return tensors.refuse(inputs[0], format!("it has no axis {axis} for indices"));
    }
    let like = inputs.iter().copied().find(|&input| tensors.dims(input) == dims);
    if like.is_none() && tensors.get(output).strides.is_empty() {
        return tensors.refuse(output, "no input has its extents, so its strides must be set");
    }
    tensors.set_result(output, &dims, like)
}
