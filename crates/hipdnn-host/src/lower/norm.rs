//! Normalisations as elementary operators: the engine fuses those between the reductions.

use hipdnn::sys::AttributeName as A;
use hipdnn_abi::Descriptor;

use super::{Answer, LoweredValue, Lowering};

/// The trailing axes on which the scale has the data's extents; never the first axis.
fn trailing_axes(x: &LoweredValue, scale: &LoweredValue) -> Answer<Vec<usize>> {
    if scale.dims.len() != x.dims.len() {
        return Err(format!("a scale {:?} does not match data {:?}", scale.dims, x.dims));
    }
    let fits = |&axis: &usize| scale.dims[axis] == x.dims[axis];
    let first = (0..x.dims.len()).rev().take_while(fits).last().unwrap_or(x.dims.len()).max(1);
    if scale.dims[..first].iter().any(|&extent| extent != 1) {
        return Err(format!("a scale {:?} does not match data {:?}", scale.dims, x.dims));
    }
    Ok((first..x.dims.len()).collect())
}

/// All axes but the channels.
fn channel_axes(x: &LoweredValue) -> Answer<Vec<usize>> {
    if x.dims.len() < 2 {
        Err(format!("a tensor {:?} has no channels", x.dims))
    } else {
        Ok((0..x.dims.len()).filter(|&axis| axis != 1).collect())
    }
}

/// The parts of a normalised tensor.
struct Normalized {
    mean: LoweredValue,
    variance: LoweredValue,
    inverse: LoweredValue,
    /// Data minus mean, times the inverse standard deviation.
    unit: LoweredValue,
}

impl Lowering {
    /// A scalar input, reshaped to rank 1 to broadcast against data of any rank.
    fn scalar_input(&mut self, operation: &Descriptor, name: A) -> Answer<LoweredValue> {
        let made = self.read(operation, name)?;
        if made.dims.iter().any(|&extent| extent != 1) {
            return Err(format!("{name} must be a scalar"));
        }
        self.reshape(&made, &[1])
    }

    fn inverse_root(&mut self, of: &LoweredValue, epsilon: &LoweredValue) -> Answer<LoweredValue> {
        let sum = self.elementwise("Add", &[of, epsilon])?;
        let root = self.elementwise("Sqrt", &[&sum])?;
        self.elementwise("Reciprocal", &[&root])
    }

    fn normalize(&mut self, x: &LoweredValue, axes: &[usize], epsilon: &LoweredValue) -> Answer<Normalized> {
        let mean = self.reduce("ReduceMean", x, axes)?;
        let centered = self.elementwise("Sub", &[x, &mean])?;
        let square = self.elementwise("Mul", &[&centered, &centered])?;
        let variance = self.reduce("ReduceMean", &square, axes)?;
        let inverse = self.inverse_root(&variance, epsilon)?;
        let unit = self.elementwise("Mul", &[&centered, &inverse])?;
        Ok(Normalized { mean, variance, inverse, unit })
    }

    fn scale_and_shift(
        &mut self,
        unit: &LoweredValue,
        scale: &LoweredValue,
        bias: Option<&LoweredValue>,
    ) -> Answer<LoweredValue> {
        let scaled = self.elementwise("Mul", &[unit, scale])?;
        bias.map_or(Ok(scaled.clone()), |bias| self.elementwise("Add", &[&scaled, bias]))
    }

    pub(super) fn layer_norm(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_LAYERNORM_X_EXT)?;
        let scale = self.read(operation, A::OPERATION_LAYERNORM_SCALE_EXT)?;
        let bias = self.read(operation, A::OPERATION_LAYERNORM_BIAS_EXT)?;
        let epsilon = self.scalar_input(operation, A::OPERATION_LAYERNORM_EPSILON_EXT)?;
        let axes = match operation.i64s(A::OPERATION_LAYERNORM_NORMALIZED_DIM_COUNT_EXT).first() {
            Some(&count) if count > 0 && (count as usize) < x.dims.len() => {
                (x.dims.len() - count as usize..x.dims.len()).collect()
            }
            _ => trailing_axes(&x, &scale)?,
        };
        let parts = self.normalize(&x, &axes, &epsilon)?;
        let y = self.scale_and_shift(&parts.unit, &scale, Some(&bias))?;
        self.write(operation, A::OPERATION_LAYERNORM_Y_EXT, &y)?;
        self.write_optional(operation, A::OPERATION_LAYERNORM_MEAN_EXT, &parts.mean)?;
        self.write_optional(operation, A::OPERATION_LAYERNORM_INV_VARIANCE_EXT, &parts.inverse)
    }

    pub(super) fn rms_norm(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_RMSNORM_X_EXT)?;
        let scale = self.read(operation, A::OPERATION_RMSNORM_SCALE_EXT)?;
        let bias = self.read_optional(operation, A::OPERATION_RMSNORM_BIAS_EXT)?;
        let epsilon = self.scalar_input(operation, A::OPERATION_RMSNORM_EPSILON_EXT)?;
        let axes = trailing_axes(&x, &scale)?;
        let square = self.elementwise("Mul", &[&x, &x])?;
        let mean = self.reduce("ReduceMean", &square, &axes)?;
        let inverse = self.inverse_root(&mean, &epsilon)?;
        let unit = self.elementwise("Mul", &[&x, &inverse])?;
        let y = self.scale_and_shift(&unit, &scale, bias.as_ref())?;
        self.write(operation, A::OPERATION_RMSNORM_Y_EXT, &y)?;
        self.write_optional(operation, A::OPERATION_RMSNORM_INV_RMS_EXT, &inverse)
    }

    /// With `u` the normalised data and `g = dy · scale`: `dx = inverse · (g - mean(g) - u · mean(g · u))`.
    fn norm_gradient(
        &mut self,
        upstream: &LoweredValue,
        unit: &LoweredValue,
        inverse: &LoweredValue,
        axes: &[usize],
        centers: bool,
    ) -> Answer<LoweredValue> {
        let product = self.elementwise("Mul", &[upstream, unit])?;
        let along = self.reduce("ReduceMean", &product, axes)?;
        let part = self.elementwise("Mul", &[unit, &along])?;
        let mut rest = self.elementwise("Sub", &[upstream, &part])?;
        if centers {
            let mean = self.reduce("ReduceMean", upstream, axes)?;
            rest = self.elementwise("Sub", &[&rest, &mean])?;
        }
        self.elementwise("Mul", &[&rest, inverse])
    }

    /// The gradients of a norm's data, scale and bias. `axes` are the last ones, from its first normalised axis on.
    fn norm_gradients(
        &mut self,
        dy: &LoweredValue,
        scale: &LoweredValue,
        unit: &LoweredValue,
        inverse: &LoweredValue,
        axes: &[usize],
        centers: bool,
    ) -> Answer<[LoweredValue; 3]> {
        let rest: Vec<usize> = (0..axes[0]).collect();
        let upstream = self.elementwise("Mul", &[dy, scale])?;
        let dx = self.norm_gradient(&upstream, unit, inverse, axes, centers)?;
        let product = self.elementwise("Mul", &[dy, unit])?;
        let dscale = self.reduce("ReduceSum", &product, &rest)?;
        let dbias = self.reduce("ReduceSum", dy, &rest)?;
        Ok([dx, dscale, dbias])
    }

    pub(super) fn layer_norm_backward(&mut self, operation: &Descriptor) -> Answer {
        let dy = self.read(operation, A::OPERATION_LAYERNORM_BACKWARD_DY_EXT)?;
        let x = self.read(operation, A::OPERATION_LAYERNORM_BACKWARD_X_EXT)?;
        let scale = self.read(operation, A::OPERATION_LAYERNORM_BACKWARD_SCALE_EXT)?;
        let mean = self.read_optional(operation, A::OPERATION_LAYERNORM_BACKWARD_MEAN_EXT)?;
        let inverse = self.read_optional(operation, A::OPERATION_LAYERNORM_BACKWARD_INV_VARIANCE_EXT)?;
        let axes = trailing_axes(&x, &scale)?;
        let (unit, inverse) = match (mean, inverse) {
            (Some(mean), Some(inverse)) => {
                let centered = self.elementwise("Sub", &[&x, &mean])?;
                (self.elementwise("Mul", &[&centered, &inverse])?, inverse)
            }
            _ if operation.descriptor(A::OPERATION_LAYERNORM_BACKWARD_EPSILON_EXT).is_some() => {
                let epsilon = self.scalar_input(operation, A::OPERATION_LAYERNORM_BACKWARD_EPSILON_EXT)?;
                let parts = self.normalize(&x, &axes, &epsilon)?;
                (parts.unit, parts.inverse)
            }
            _ => return Err("the gradient of a layer norm needs statistics or an epsilon".into()),
        };
        let [dx, dscale, dbias] = self.norm_gradients(&dy, &scale, &unit, &inverse, &axes, true)?;
        self.write(operation, A::OPERATION_LAYERNORM_BACKWARD_DX_EXT, &dx)?;
        self.write(operation, A::OPERATION_LAYERNORM_BACKWARD_DSCALE_EXT, &dscale)?;
        self.write(operation, A::OPERATION_LAYERNORM_BACKWARD_DBIAS_EXT, &dbias)
    }

    pub(super) fn rms_norm_backward(&mut self, operation: &Descriptor) -> Answer {
        let dy = self.read(operation, A::OPERATION_RMSNORM_BACKWARD_DY_EXT)?;
        let x = self.read(operation, A::OPERATION_RMSNORM_BACKWARD_X_EXT)?;
        let scale = self.read(operation, A::OPERATION_RMSNORM_BACKWARD_SCALE_EXT)?;
        let inverse = self.read(operation, A::OPERATION_RMSNORM_BACKWARD_INV_RMS_EXT)?;
        let axes = trailing_axes(&x, &scale)?;
        let unit = self.elementwise("Mul", &[&x, &inverse])?;
        let [dx, dscale, dbias] = self.norm_gradients(&dy, &scale, &unit, &inverse, &axes, false)?;
        self.write(operation, A::OPERATION_RMSNORM_BACKWARD_DX_EXT, &dx)?;
        self.write(operation, A::OPERATION_RMSNORM_BACKWARD_DSCALE_EXT, &dscale)?;
        self.write_optional(operation, A::OPERATION_RMSNORM_BACKWARD_DBIAS_EXT, &dbias)
    }

    pub(super) fn batch_norm_inference(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_BATCHNORM_INFERENCE_X_EXT)?;
        let mean = self.read(operation, A::OPERATION_BATCHNORM_INFERENCE_MEAN_EXT)?;
        let inverse = self.read(operation, A::OPERATION_BATCHNORM_INFERENCE_INV_VARIANCE_EXT)?;
        let scale = self.read(operation, A::OPERATION_BATCHNORM_INFERENCE_SCALE_EXT)?;
        let bias = self.read(operation, A::OPERATION_BATCHNORM_INFERENCE_BIAS_EXT)?;
        let centered = self.elementwise("Sub", &[&x, &mean])?;
        let unit = self.elementwise("Mul", &[&centered, &inverse])?;
        let y = self.scale_and_shift(&unit, &scale, Some(&bias))?;
        self.write(operation, A::OPERATION_BATCHNORM_INFERENCE_Y_EXT, &y)
    }

    pub(super) fn batch_norm_inference_variance(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_X_EXT)?;
        let mean = self.read(operation, A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_MEAN_EXT)?;
        let variance = self.read(operation, A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_VARIANCE_EXT)?;
        let scale = self.read(operation, A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_SCALE_EXT)?;
        let bias = self.read(operation, A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_BIAS_EXT)?;
        let epsilon = self.scalar_input(operation, A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_EPSILON_EXT)?;
        let inverse = self.inverse_root(&variance, &epsilon)?;
        let centered = self.elementwise("Sub", &[&x, &mean])?;
        let unit = self.elementwise("Mul", &[&centered, &inverse])?;
        let y = self.scale_and_shift(&unit, &scale, Some(&bias))?;
        self.write(operation, A::OPERATION_BATCHNORM_INFERENCE_VARIANCE_Y_EXT, &y)
    }

    pub(super) fn batch_norm_training(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_BATCHNORM_X_EXT)?;
        let scale = self.read(operation, A::OPERATION_BATCHNORM_SCALE_EXT)?;
        let bias = self.read(operation, A::OPERATION_BATCHNORM_BIAS_EXT)?;
        let epsilon = self.scalar_input(operation, A::OPERATION_BATCHNORM_EPSILON_EXT)?;
        if !operation.descriptors(A::OPERATION_BATCHNORM_PEER_STATS_EXT).is_empty() {
            return Err("statistics of peer devices are not supported".into());
        }
        let axes = channel_axes(&x)?;
        let parts = self.normalize(&x, &axes, &epsilon)?;
        let y = self.scale_and_shift(&parts.unit, &scale, Some(&bias))?;
        self.write(operation, A::OPERATION_BATCHNORM_Y_EXT, &y)?;
        self.write_optional(operation, A::OPERATION_BATCHNORM_MEAN_EXT, &parts.mean)?;
        self.write_optional(operation, A::OPERATION_BATCHNORM_INV_VARIANCE_EXT, &parts.inverse)?;
        let count: i64 = axes.iter().map(|&axis| x.dims[axis]).product();
        let unbiased = self.scalar(count as f64 / (count - 1).max(1) as f64);
        let variance = self.elementwise("Mul", &[&parts.variance, &unbiased])?;
        let running = [
            (A::OPERATION_BATCHNORM_PREV_RUNNING_MEAN_EXT, A::OPERATION_BATCHNORM_NEXT_RUNNING_MEAN_EXT, &parts.mean),
            (
                A::OPERATION_BATCHNORM_PREV_RUNNING_VARIANCE_EXT,
                A::OPERATION_BATCHNORM_NEXT_RUNNING_VARIANCE_EXT,
                &variance,
            ),
        ];
        for (before, after, new) in running {
            if operation.descriptor(after).is_none() {
                continue;
            }
            let before = self.read(operation, before)?;
            let momentum = self.scalar_input(operation, A::OPERATION_BATCHNORM_MOMENTUM_EXT)?;
            let step = self.elementwise("Sub", &[new, &before])?;
            let step = self.elementwise("Mul", &[&step, &momentum])?;
            let next = self.elementwise("Add", &[&before, &step])?;
            self.write(operation, after, &next)?;
        }
        Ok(())
    }

    pub(super) fn batch_norm_backward(&mut self, operation: &Descriptor) -> Answer {
        let dy = self.read(operation, A::OPERATION_BATCHNORM_BACKWARD_DY_EXT)?;
        let x = self.read(operation, A::OPERATION_BATCHNORM_BACKWARD_X_EXT)?;
        let scale = self.read(operation, A::OPERATION_BATCHNORM_BACKWARD_SCALE_EXT)?;
        let mean = self.read_optional(operation, A::OPERATION_BATCHNORM_BACKWARD_MEAN_EXT)?;
        let inverse = self.read_optional(operation, A::OPERATION_BATCHNORM_BACKWARD_INV_VARIANCE_EXT)?;
        let (Some(mean), Some(inverse)) = (mean, inverse) else {
            return Err("the gradient of a batch norm needs the mean and the inverse standard deviation".into());
        };
        let axes = channel_axes(&x)?;
        let centered = self.elementwise("Sub", &[&x, &mean])?;
        let unit = self.elementwise("Mul", &[&centered, &inverse])?;
        let upstream = self.elementwise("Mul", &[&dy, &scale])?;
        let dx = self.norm_gradient(&upstream, &unit, &inverse, &axes, true)?;
        let product = self.elementwise("Mul", &[&dy, &unit])?;
        let dscale = self.reduce("ReduceSum", &product, &axes)?;
        let dbias = self.reduce("ReduceSum", &dy, &axes)?;
        self.write(operation, A::OPERATION_BATCHNORM_BACKWARD_DX_EXT, &dx)?;
        self.write(operation, A::OPERATION_BATCHNORM_BACKWARD_DSCALE_EXT, &dscale)?;
        self.write(operation, A::OPERATION_BATCHNORM_BACKWARD_DBIAS_EXT, &dbias)
    }
}
