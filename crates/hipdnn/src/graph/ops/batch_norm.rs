//! Batch normalisation: inference with either kind of statistics, training, backward.

use crate::Result;
use crate::graph::operation::{Operation, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttributeName as A, DescriptorType};

/// The statistics of a batch norm in inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchNormStatistics {
    /// One divided by the square root of variance plus epsilon, precomputed.
    InverseDeviation(TensorId),
    /// The variance, and an epsilon to add to it.
    Variance {
        /// The variance.
        variance: TensorId,
        /// The epsilon: a scalar.
        epsilon: TensorId,
    },
}

/// The running statistics of a batch norm in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningStatistics {
    /// The previous mean.
    pub mean: TensorId,
    /// The previous variance.
    pub variance: TensorId,
    /// The weight of the new statistics: a scalar.
    pub momentum: TensorId,
}

/// The extents of a tensor with one element per channel.
fn per_channel(tensors: &Tensors, x: TensorId) -> Result<Vec<i64>> {
    tensors.require_rank(x, 2)?;
    let data = tensors.dims(x);
    Ok((0..data.len()).map(|axis| if axis == 1 { data[1] } else { 1 }).collect())
}

/// A batch norm with given statistics.
pub(in crate::graph) fn batch_norm_inference(
    x: TensorId,
    mean: TensorId,
    statistics: BatchNormStatistics,
    [scale, bias]: [TensorId; 2],
    y: TensorId,
) -> Operation {
    let (descriptor, compute_type, reads, made, spread, epsilon) = match statistics {
        BatchNormStatistics::InverseDeviation(inverse) => (
            DescriptorType::OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT,
            A::BATCHNORM_INF_COMP_TYPE_EXT,
            vec![
                (A::OPERATION_BATCHNORM_INFERENCE_X_EXT, x),
                (A::OPERATION_BATCHNORM_INFERENCE_MEAN_EXT, mean),
                (A::OPERATION_BATCHNORM_INFERENCE_INV_VARIANCE_EXT, inverse),
                (A::OPERATION_BATCHNORM_INFERENCE_SCALE_EXT, scale),
                (A::OPERATION_BATCHNORM_INFERENCE_BIAS_EXT, bias),
            ],
            A::OPERATION_BATCHNORM_INFERENCE_Y_EXT,
            inverse,
            None,
        ),
        BatchNormStatistics::Variance { variance, epsilon } => (
            DescriptorType::OPERATION_BATCHNORM_INFERENCE_VARIANCE_DESCRIPTOR_EXT,
            A::BATCHNORM_INF_VAR_COMP_TYPE_EXT,
            vec![
                (A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_X_EXT, x),
                (A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_MEAN_EXT, mean),
                (A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_VARIANCE_EXT, variance),
                (A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_SCALE_EXT, scale),
                (A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_BIAS_EXT, bias),
                (A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_EPSILON_EXT, epsilon),
            ],
            A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_Y_EXT,
            variance,
            Some(epsilon),
        ),
    };
    let rule = move |tensors: &mut Tensors| {
        let wanted = per_channel(tensors, x)?;
        [mean, spread, scale, bias].into_iter().try_for_each(|id| tensors.require_dims(id, &wanted))?;
        epsilon.map_or(Ok(()), |epsilon| tensors.require_scalar(epsilon))?;
        let data = tensors.dims(x).to_vec();
        tensors.set_result(y, &data, Some(x))
    };
    let (name, makes) = ("batch norm inference", vec![(made, y)]);
    Operation { name, descriptor, compute_type, reads, makes, settings: Vec::new(), rule: Box::new(rule) }
}

/// The inputs and results of a batch norm in training.
#[derive(Clone, Copy, Debug)]
pub(in crate::graph) struct TrainingTensors {
    pub x: TensorId,
    pub scale: TensorId,
    pub bias: TensorId,
    pub epsilon: TensorId,
    pub y: TensorId,
    pub mean: TensorId,
    pub inverse_deviation: TensorId,
    /// The previous running statistics, and the new mean and variance.
    pub running: Option<(RunningStatistics, [TensorId; 2])>,
}

/// A batch norm that computes its statistics.
pub(in crate::graph) fn batch_norm_training(tensors: TrainingTensors) -> Operation {
    let TrainingTensors { x, scale, bias, epsilon, y, mean, inverse_deviation, running } = tensors;
    let mut reads = vec![
        (A::OPERATION_BATCHNORM_X_EXT, x),
        (A::OPERATION_BATCHNORM_SCALE_EXT, scale),
        (A::OPERATION_BATCHNORM_BIAS_EXT, bias),
        (A::OPERATION_BATCHNORM_EPSILON_EXT, epsilon),
    ];
    let mut makes = vec![
        (A::OPERATION_BATCHNORM_Y_EXT, y),
        (A::OPERATION_BATCHNORM_MEAN_EXT, mean),
        (A::OPERATION_BATCHNORM_INV_VARIANCE_EXT, inverse_deviation),
    ];
    if let Some((before, [next_mean, next_variance])) = running {
        reads.extend([
            (A::OPERATION_BATCHNORM_PREV_RUNNING_MEAN_EXT, before.mean),
            (A::OPERATION_BATCHNORM_PREV_RUNNING_VARIANCE_EXT, before.variance),
            (A::OPERATION_BATCHNORM_MOMENTUM_EXT, before.momentum),
        ]);
        makes.extend([
            (A::OPERATION_BATCHNORM_NEXT_RUNNING_MEAN_EXT, next_mean),
            (A::OPERATION_BATCHNORM_NEXT_RUNNING_VARIANCE_EXT, next_variance),
        ]);
    }
    let rule = move |tensors: &mut Tensors| {
        let wanted = per_channel(tensors, x)?;
        [scale, bias].into_iter().try_for_each(|id| tensors.require_dims(id, &wanted))?;
        tensors.require_scalar(epsilon)?;
        let data = tensors.dims(x).to_vec();
        if data == wanted {
            return tensors.refuse(x, "a single element per channel has no variance");
        }
        tensors.set_result(y, &data, Some(x))?;
        let mut statistics = vec![mean, inverse_deviation];
        if let Some((before, after)) = running {
            [before.mean, before.variance].into_iter().try_for_each(|id| tensors.require_dims(id, &wanted))?;
            tensors.require_scalar(before.momentum)?;
            statistics.extend(after);
        }
        statistics.into_iter().try_for_each(|id| tensors.set_result(id, &wanted, Some(scale)))
    };
    Operation {
        name: "batch norm training",
        descriptor: DescriptorType::OPERATION_BATCHNORM_DESCRIPTOR_EXT,
        compute_type: A::BATCHNORM_COMP_TYPE_EXT,
        reads,
        makes,
        settings: Vec::new(),
        rule: Box::new(rule),
    }
}

/// The gradient of a batch norm: `dx`, `dscale` and `dbias` from `dy` and the tensors saved by the forward pass.
pub(in crate::graph) fn batch_norm_backward(
    [dy, x, scale]: [TensorId; 3],
    statistics: Option<[TensorId; 2]>,
    [dx, dscale, dbias]: [TensorId; 3],
) -> Operation {
    let mut reads = vec![
        (A::OPERATION_BATCHNORM_BACKWARD_DY_EXT, dy),
        (A::OPERATION_BATCHNORM_BACKWARD_X_EXT, x),
        (A::OPERATION_BATCHNORM_BACKWARD_SCALE_EXT, scale),
    ];
    let names = [A::OPERATION_BATCHNORM_BACKWARD_MEAN_EXT, A::OPERATION_BATCHNORM_BACKWARD_INV_VARIANCE_EXT];
    reads.extend(names.into_iter().zip(statistics.into_iter().flatten()));
    let rule = move |tensors: &mut Tensors| {
        let wanted = per_channel(tensors, x)?;
        let data = tensors.dims(x).to_vec();
        tensors.require_dims(dy, &data)?;
        [scale]
            .into_iter()
            .chain(statistics.into_iter().flatten())
            .try_for_each(|id| tensors.require_dims(id, &wanted))?;
        tensors.set_result(dx, &data, Some(x))?;
        [dscale, dbias].into_iter().try_for_each(|id| tensors.set_result(id, &wanted, Some(scale)))
    };
    Operation {
        name: "batch norm backward",
        descriptor: DescriptorType::OPERATION_BATCHNORM_BACKWARD_DESCRIPTOR_EXT,
        compute_type: A::BATCHNORM_BACKWARD_COMP_TYPE_EXT,
        reads,
        makes: vec![
            (A::OPERATION_BATCHNORM_BACKWARD_DX_EXT, dx),
            (A::OPERATION_BATCHNORM_BACKWARD_DSCALE_EXT, dscale),
            (A::OPERATION_BATCHNORM_BACKWARD_DBIAS_EXT, dbias),
        ],
        settings: Vec::new(),
        rule: Box::new(rule),
    }
}
