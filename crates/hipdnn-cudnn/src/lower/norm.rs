//! Norms: cuDNN's own operations on data collapsed to rows, or expanded for pieces.

use hipdnn::sys::{AttributeName as H, NormFwdPhase};
use hipdnn_abi::Descriptor;

use super::{Answer, Lowering, Variant};
use crate::graph::{Operation, View};
use crate::safe::Setting;
use crate::sys::{AttributeName as A, AttributeType as T, DescriptorType as D, NormMode, NormPhase};
use crate::sys::{PointwiseMode as C, ReduceOp};

/// The given tensors of a norm over trailing axes.
struct Rows {
    x: View,
    scale: View,
    bias: Option<View>,
    epsilon: View,
    y: View,
    mean: Option<View>,
    inverse: Option<View>,
    is_training: bool,
}

/// The given tensors of its gradient.
struct RowGradients {
    dy: View,
    x: View,
    scale: View,
    mean: Option<View>,
    inverse: View,
    dx: View,
    dscale: View,
    dbias: Option<View>,
}

/// The first axis that a scale covers.
fn first_covered(x: &View, scale: &View) -> Answer<usize> {
    let same = |&axis: &usize| scale.dims.len() == x.dims.len() && scale.dims[axis] == x.dims[axis];
    let first = (0..x.dims.len()).rev().take_while(same).last().unwrap_or(x.dims.len()).max(1);
    if scale.dims.len() != x.dims.len() || scale.dims[..first].iter().any(|&extent| extent != 1) {
        return Err(format!("a scale of shape {:?} does not match data of shape {:?}", scale.dims, x.dims));
    }
    Ok(first)
}

/// Merges the axes before `first` and those from it on into one each, then adds two of extent 1; `None` if the strides
/// do not allow it.
fn collapsed(view: &View, first: usize) -> Option<View> {
    let merge = |axes: std::ops::Range<usize>| -> Option<(i64, i64)> {
        let (mut extent, mut stride) = (1, 1);
        for axis in axes.rev().filter(|&axis| view.dims[axis] != 1) {
            if extent == 1 {
                stride = view.strides[axis];
            } else if view.strides[axis] != extent * stride {
                return None;
            }
            extent *= view.dims[axis];
        }
        Some((extent, stride))
    };
    let ((rows, row), (width, step)) = (merge(0..first)?, merge(first..view.dims.len())?);
    let row = if rows == 1 { width * step } else { row };
    Some(View { tensor: view.tensor, dims: vec![rows, width, 1, 1], strides: vec![row, step, step, step] })
}

fn scalar(view: &View) -> View {
    View { tensor: view.tensor, dims: vec![1; 4], strides: vec![1; 4] }
}

fn strided() -> String {
    "cuDNN's norms require contiguous rows".to_owned()
}

impl Lowering {
    pub(super) fn layer_norm(&mut self, operation: &Descriptor) -> Answer {
        let rows = Rows {
            x: self.given(operation, H::OPERATION_LAYERNORM_X_EXT)?,
            scale: self.given(operation, H::OPERATION_LAYERNORM_SCALE_EXT)?,
            bias: self.given_optional(operation, H::OPERATION_LAYERNORM_BIAS_EXT)?,
            epsilon: self.given(operation, H::OPERATION_LAYERNORM_EPSILON_EXT)?,
            y: self.given(operation, H::OPERATION_LAYERNORM_Y_EXT)?,
            mean: self.given_optional(operation, H::OPERATION_LAYERNORM_MEAN_EXT)?,
            inverse: self.given_optional(operation, H::OPERATION_LAYERNORM_INV_VARIANCE_EXT)?,
            is_training: operation.number(H::OPERATION_LAYERNORM_FWD_PHASE_EXT) == Some(NormFwdPhase::TRAINING.0),
        };
        self.norm(NormMode::LAYER_NORM, rows)
    }

    pub(super) fn rms_norm(&mut self, operation: &Descriptor) -> Answer {
        let rows = Rows {
            x: self.given(operation, H::OPERATION_RMSNORM_X_EXT)?,
            scale: self.given(operation, H::OPERATION_RMSNORM_SCALE_EXT)?,
            bias: self.given_optional(operation, H::OPERATION_RMSNORM_BIAS_EXT)?,
            epsilon: self.given(operation, H::OPERATION_RMSNORM_EPSILON_EXT)?,
            y: self.given(operation, H::OPERATION_RMSNORM_Y_EXT)?,
            mean: None,
            inverse: self.given_optional(operation, H::OPERATION_RMSNORM_INV_RMS_EXT)?,
            is_training: operation.number(H::OPERATION_RMSNORM_FWD_PHASE_EXT) == Some(NormFwdPhase::TRAINING.0),
        };
        self.norm(NormMode::RMS_NORM, rows)
    }

    fn norm(&mut self, mode: NormMode, rows: Rows) -> Answer {
        let first = first_covered(&rows.x, &rows.scale)?;
        self.require_widest(&rows.x)?;
        if self.variant == Variant::Apart {
            return self.norm_apart(mode, rows, first);
        }
        let flat = |view: &View| collapsed(view, first).ok_or_else(strided);
        let mut reads = vec![
            (A::OPERATION_NORM_FWD_XDESC, flat(&rows.x)?),
            (A::OPERATION_NORM_FWD_SCALE_DESC, flat(&rows.scale)?),
            (A::OPERATION_NORM_FWD_EPSILON_DESC, scalar(&rows.epsilon)),
        ];
        if let Some(bias) = &rows.bias {
            reads.push((A::OPERATION_NORM_FWD_BIAS_DESC, flat(bias)?));
        }
        let mut writes = vec![(A::OPERATION_NORM_FWD_YDESC, flat(&rows.y)?)];
        let mut rounded = Vec::new();
        let statistics =
            [(A::OPERATION_NORM_FWD_MEAN_DESC, &rows.mean), (A::OPERATION_NORM_FWD_INV_VARIANCE_DESC, &rows.inverse)];
        for (name, statistic) in statistics {
            if let Some(statistic) = statistic.as_ref().filter(|_| rows.is_training) {
                let flat = flat(statistic)?;
                let wide = self.widened(&flat);
                if wide != flat {
                    rounded.push((wide.clone(), flat));
                }
                writes.push((name, wide));
            }
        }
        let phase = if rows.is_training { NormPhase::TRAINING } else { NormPhase::INFERENCE };
        let settings = vec![
            (A::OPERATION_NORM_FWD_MODE, Setting::Code(T::NORM_MODE, mode.0)),
            (A::OPERATION_NORM_FWD_PHASE, Setting::Code(T::NORM_FWD_PHASE, phase.0)),
        ];
        let kind = D::OPERATION_NORM_FORWARD_DESCRIPTOR;
        self.push(Operation { kind, parameters: None, settings, reads, writes });
        for (wide, flat) in rounded {
            self.map(C::IDENTITY, &[&wide], &flat);
        }
        Ok(())
    }

    /// Trailing axes keep their positions only if no tensor in the graph has more axes.
    fn require_widest(&self, x: &View) -> Answer {
        if x.dims.len() < self.widest {
            return Err("the cuDNN bridge does not support a norm in a graph with tensors of higher rank".into());
        }
        Ok(())
    }

    /// A tensor in the compute type in place of one with less precision: itself if it has that type.
    fn widened(&mut self, view: &View) -> View {
        if self.data_type(view) == self.compute { view.clone() } else { self.inside(self.compute, &view.dims, view) }
    }

    /// Writes a statistic to the caller's tensor.
    fn hand_out(&mut self, made: &View, to: Option<&View>) {
        if let Some(to) = to {
            let to = self.ranked(to);
            self.map(C::IDENTITY, &[made], &to);
        }
    }

    fn norm_apart(&mut self, mode: NormMode, rows: Rows, first: usize) -> Answer {
        let [x, y, scale, epsilon] = [&rows.x, &rows.y, &rows.scale, &rows.epsilon].map(|view| self.ranked(view));
        let axes: Vec<usize> = (first + self.rank - rows.x.dims.len()..self.rank).collect();
        let (centered, mean) = if mode == NormMode::LAYER_NORM {
            let mean = self.mean(&x, &axes);
            (self.mapped(C::SUB, &[&x, &mean]), Some(mean))
        } else {
            (x, None)
        };
        let inverse = self.inverse_deviation(&centered, &axes, &epsilon);
        self.scaled(&centered, &inverse, &scale, rows.bias.as_ref(), &y);
        if rows.is_training {
            if let Some(mean) = &mean {
                self.hand_out(mean, rows.mean.as_ref());
            }
            self.hand_out(&inverse, rows.inverse.as_ref());
        }
        Ok(())
    }

    fn inverse_deviation(&mut self, centered: &View, axes: &[usize], epsilon: &View) -> View {
        let square = self.mapped(C::MUL, &[centered, centered]);
        let variance = self.mean(&square, axes);
        let sum = self.mapped(C::ADD, &[&variance, epsilon]);
        self.mapped(C::RSQRT, &[&sum])
    }

    /// `centered * inverse * scale + bias`
    fn scaled(&mut self, centered: &View, inverse: &View, scale: &View, bias: Option<&View>, y: &View) {
        let unit = self.mapped(C::MUL, &[centered, inverse]);
        match bias {
            Some(bias) => {
                let bias = self.ranked(bias);
                let scaled = self.mapped(C::MUL, &[&unit, scale]);
                self.map(C::ADD, &[&scaled, &bias], y);
            }
            None => self.map(C::MUL, &[&unit, scale], y),
        }
    }

    pub(super) fn layer_norm_backward(&mut self, operation: &Descriptor) -> Answer {
        let statistics = "the gradients of a norm need its statistics";
        let gradients = RowGradients {
            dy: self.given(operation, H::OPERATION_LAYERNORM_BACKWARD_DY_EXT)?,
            x: self.given(operation, H::OPERATION_LAYERNORM_BACKWARD_X_EXT)?,
            scale: self.given(operation, H::OPERATION_LAYERNORM_BACKWARD_SCALE_EXT)?,
            mean: Some(self.given_optional(operation, H::OPERATION_LAYERNORM_BACKWARD_MEAN_EXT)?.ok_or(statistics)?),
            inverse: self
                .given_optional(operation, H::OPERATION_LAYERNORM_BACKWARD_INV_VARIANCE_EXT)?
                .ok_or(statistics)?,
            dx: self.given(operation, H::OPERATION_LAYERNORM_BACKWARD_DX_EXT)?,
            dscale: self.given(operation, H::OPERATION_LAYERNORM_BACKWARD_DSCALE_EXT)?,
            dbias: self.given_optional(operation, H::OPERATION_LAYERNORM_BACKWARD_DBIAS_EXT)?,
        };
        self.norm_backward(NormMode::LAYER_NORM, gradients)
    }

    pub(super) fn rms_norm_backward(&mut self, operation: &Descriptor) -> Answer {
        let gradients = RowGradients {
            dy: self.given(operation, H::OPERATION_RMSNORM_BACKWARD_DY_EXT)?,
            x: self.given(operation, H::OPERATION_RMSNORM_BACKWARD_X_EXT)?,
            scale: self.given(operation, H::OPERATION_RMSNORM_BACKWARD_SCALE_EXT)?,
            mean: None,
            inverse: self.given(operation, H::OPERATION_RMSNORM_BACKWARD_INV_RMS_EXT)?,
            dx: self.given(operation, H::OPERATION_RMSNORM_BACKWARD_DX_EXT)?,
            dscale: self.given(operation, H::OPERATION_RMSNORM_BACKWARD_DSCALE_EXT)?,
            dbias: self.given_optional(operation, H::OPERATION_RMSNORM_BACKWARD_DBIAS_EXT)?,
        };
        self.norm_backward(NormMode::RMS_NORM, gradients)
    }

    fn norm_backward(&mut self, mode: NormMode, of: RowGradients) -> Answer {
        let first = first_covered(&of.x, &of.scale)?;
        self.require_widest(&of.x)?;
        if self.variant == Variant::Apart {
            self.norm_backward_apart(&of, first);
            return Ok(());
        }
        let flat = |view: &View| collapsed(view, first).ok_or_else(strided);
        let mut reads = vec![
            (A::OPERATION_NORM_BWD_XDESC, flat(&of.x)?),
            (A::OPERATION_NORM_BWD_DYDESC, flat(&of.dy)?),
            (A::OPERATION_NORM_BWD_SCALE_DESC, flat(&of.scale)?),
            (A::OPERATION_NORM_BWD_INV_VARIANCE_DESC, flat(&of.inverse)?),
        ];
        if let Some(mean) = &of.mean {
            reads.push((A::OPERATION_NORM_BWD_MEAN_DESC, flat(mean)?));
        }
        let mut writes =
            vec![(A::OPERATION_NORM_BWD_DXDESC, flat(&of.dx)?), (A::OPERATION_NORM_BWD_DSCALE_DESC, flat(&of.dscale)?)];
        if let Some(dbias) = &of.dbias {
            writes.push((A::OPERATION_NORM_BWD_DBIAS_DESC, flat(dbias)?));
        }
        self.push(backward(mode, reads, writes));
        Ok(())
    }

    fn norm_backward_apart(&mut self, of: &RowGradients, first: usize) {
        let [dy, x, scale, inverse] = [&of.dy, &of.x, &of.scale, &of.inverse].map(|view| self.ranked(view));
        let [dx, dscale] = [&of.dx, &of.dscale].map(|view| self.ranked(view));
        let first = first + self.rank - of.x.dims.len();
        let (rows, covered): (Vec<usize>, Vec<usize>) = (0..self.rank).partition(|&axis| axis < first);
        let mean = of.mean.as_ref().map(|mean| self.ranked(mean));
        let centered = mean.as_ref().map(|mean| self.mapped(C::SUB, &[&x, mean]));
        let unit = self.mapped(C::MUL, &[centered.as_ref().unwrap_or(&x), &inverse]);
        let slope = self.mapped(C::MUL, &[&dy, &scale]);
        let along = self.mapped(C::MUL, &[&slope, &unit]);
        let along = self.mean(&along, &covered);
        let along = self.mapped(C::MUL, &[&unit, &along]);
        let mut rest = self.mapped(C::SUB, &[&slope, &along]);
        if mean.is_some() {
            let shift = self.mean(&slope, &covered);
            rest = self.mapped(C::SUB, &[&rest, &shift]);
        }
        self.map(C::MUL, &[&rest, &inverse], &dx);
        let share = self.mapped(C::MUL, &[&dy, &unit]);
        self.summed(&share, &rows, &dscale);
        if let Some(dbias) = &of.dbias {
            let dbias = self.ranked(dbias);
            self.summed(&dy, &rows, &dbias);
        }
    }

    /// Sums axes into a tensor of any type.
    fn summed(&mut self, from: &View, axes: &[usize], to: &View) {
        let sum = self.reduced(ReduceOp::ADD, from, axes);
        self.map(C::IDENTITY, &[&sum], to);
    }

    pub(super) fn batch_norm_inference(&mut self, operation: &Descriptor) -> Answer {
        let x = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_X_EXT)?;
        let mean = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_MEAN_EXT)?;
        let inverse = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_INV_VARIANCE_EXT)?;
        let scale = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_SCALE_EXT)?;
        let bias = self.given(operation, H::OPERATION_BATCHNORM_INFERENCE_BIAS_EXT)?;
        let y = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_Y_EXT)?;
        let centered = self.mapped(C::SUB, &[&x, &mean]);
        self.scaled(&centered, &inverse, &scale, Some(&bias), &y);
        Ok(())
    }

    pub(super) fn batch_norm_inference_variance(&mut self, operation: &Descriptor) -> Answer {
        let x = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_VARIANCE_X_EXT)?;
        let mean = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_VARIANCE_MEAN_EXT)?;
        let variance = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_VARIANCE_VARIANCE_EXT)?;
        let epsilon = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_VARIANCE_EPSILON_EXT)?;
        let scale = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_VARIANCE_SCALE_EXT)?;
        let bias = self.given(operation, H::OPERATION_BATCHNORM_INFERENCE_VARIANCE_BIAS_EXT)?;
        let y = self.view(operation, H::OPERATION_BATCHNORM_INFERENCE_VARIANCE_Y_EXT)?;
        let sum = self.mapped(C::ADD, &[&variance, &epsilon]);
        let inverse = self.mapped(C::RSQRT, &[&sum]);
        let centered = self.mapped(C::SUB, &[&x, &mean]);
        self.scaled(&centered, &inverse, &scale, Some(&bias), &y);
        Ok(())
    }

    /// All axes except the channels.
    fn channel_axes(&self) -> Vec<usize> {
        (0..self.rank).filter(|&axis| axis as i64 != self.axis(1)).collect()
    }

    pub(super) fn batch_norm_training(&mut self, operation: &Descriptor) -> Answer {
        if !operation.descriptors(H::OPERATION_BATCHNORM_PEER_STATS_EXT).is_empty() {
            return Err("peer statistics are not supported".into());
        }
        let x = self.view(operation, H::OPERATION_BATCHNORM_X_EXT)?;
        let scale = self.view(operation, H::OPERATION_BATCHNORM_SCALE_EXT)?;
        let epsilon = self.view(operation, H::OPERATION_BATCHNORM_EPSILON_EXT)?;
        let bias = self.given(operation, H::OPERATION_BATCHNORM_BIAS_EXT)?;
        let y = self.view(operation, H::OPERATION_BATCHNORM_Y_EXT)?;
        let mut optional = |name| self.view_optional(operation, name);
        let mean_to = optional(H::OPERATION_BATCHNORM_MEAN_EXT)?;
        let inverse_to = optional(H::OPERATION_BATCHNORM_INV_VARIANCE_EXT)?;
        let momentum = optional(H::OPERATION_BATCHNORM_MOMENTUM_EXT)?;
        let before = [
            optional(H::OPERATION_BATCHNORM_PREV_RUNNING_MEAN_EXT)?,
            optional(H::OPERATION_BATCHNORM_PREV_RUNNING_VARIANCE_EXT)?,
        ];
        let after = [
            optional(H::OPERATION_BATCHNORM_NEXT_RUNNING_MEAN_EXT)?,
            optional(H::OPERATION_BATCHNORM_NEXT_RUNNING_VARIANCE_EXT)?,
        ];
        if self.variant == Variant::Whole {
            let bias = self.ranked(&bias);
            let [mean, variance] = before;
            let reads = [
                (A::OPERATION_NORM_FWD_XDESC, Some(x)),
                (A::OPERATION_NORM_FWD_SCALE_DESC, Some(scale)),
                (A::OPERATION_NORM_FWD_BIAS_DESC, Some(bias)),
                (A::OPERATION_NORM_FWD_EPSILON_DESC, Some(epsilon)),
                (A::OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, momentum),
                (A::OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, mean),
                (A::OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, variance),
            ];
            let [mean, variance] = after;
            let writes = [
                (A::OPERATION_NORM_FWD_YDESC, Some(y)),
                (A::OPERATION_NORM_FWD_MEAN_DESC, mean_to),
                (A::OPERATION_NORM_FWD_INV_VARIANCE_DESC, inverse_to),
                (A::OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, mean),
                (A::OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, variance),
            ];
            let present = |(name, view): (A, Option<View>)| Some((name, view?));
            self.push(Operation {
                kind: D::OPERATION_NORM_FORWARD_DESCRIPTOR,
                parameters: None,
                settings: vec![
                    (A::OPERATION_NORM_FWD_MODE, Setting::Code(T::NORM_MODE, NormMode::BATCH_NORM.0)),
                    (A::OPERATION_NORM_FWD_PHASE, Setting::Code(T::NORM_FWD_PHASE, NormPhase::TRAINING.0)),
                ],
                reads: reads.into_iter().filter_map(present).collect(),
                writes: writes.into_iter().filter_map(present).collect(),
            });
            return Ok(());
        }
        let axes = self.channel_axes();
        let mean = self.mean(&x, &axes);
        let centered = self.mapped(C::SUB, &[&x, &mean]);
        let square = self.mapped(C::MUL, &[&centered, &centered]);
        let variance = self.mean(&square, &axes);
        let sum = self.mapped(C::ADD, &[&variance, &epsilon]);
        let inverse = self.mapped(C::RSQRT, &[&sum]);
        self.scaled(&centered, &inverse, &scale, Some(&bias), &y);
        self.hand_out(&mean, mean_to.as_ref());
        self.hand_out(&inverse, inverse_to.as_ref());
        let count = axes.iter().map(|&axis| x.dims[axis]).product::<i64>() as f64;
        let spread = self.number(count / (count - 1.0).max(1.0));
        let unbiased = self.mapped(C::MUL, &[&variance, &spread]);
        for ((before, after), new) in before.into_iter().zip(after).zip([&mean, &unbiased]) {
            if let (Some(before), Some(after), Some(momentum)) = (before, after, &momentum) {
                let step = self.mapped(C::SUB, &[new, &before]);
                let step = self.mapped(C::MUL, &[&step, momentum]);
                self.map(C::ADD, &[&step, &before], &after);
            }
        }
        Ok(())
    }

    pub(super) fn batch_norm_backward(&mut self, operation: &Descriptor) -> Answer {
        if !operation.descriptors(H::OPERATION_BATCHNORM_BACKWARD_PEER_STATS_EXT).is_empty() {
            return Err("peer statistics are not supported".into());
        }
        let dy = self.view(operation, H::OPERATION_BATCHNORM_BACKWARD_DY_EXT)?;
        let x = self.view(operation, H::OPERATION_BATCHNORM_BACKWARD_X_EXT)?;
        let scale = self.view(operation, H::OPERATION_BATCHNORM_BACKWARD_SCALE_EXT)?;
        let statistics = "the gradients of a norm need its statistics";
        let mean = self.view_optional(operation, H::OPERATION_BATCHNORM_BACKWARD_MEAN_EXT)?.ok_or(statistics)?;
        let inverse = self.view_optional(operation, H::OPERATION_BATCHNORM_BACKWARD_INV_VARIANCE_EXT)?;
        let inverse = inverse.ok_or(statistics)?;
        let dx = self.view(operation, H::OPERATION_BATCHNORM_BACKWARD_DX_EXT)?;
        let dscale = self.view(operation, H::OPERATION_BATCHNORM_BACKWARD_DSCALE_EXT)?;
        let dbias = self.view(operation, H::OPERATION_BATCHNORM_BACKWARD_DBIAS_EXT)?;
        if self.variant == Variant::Whole {
            let reads = vec![
                (A::OPERATION_NORM_BWD_XDESC, x),
                (A::OPERATION_NORM_BWD_DYDESC, dy),
                (A::OPERATION_NORM_BWD_SCALE_DESC, scale),
                (A::OPERATION_NORM_BWD_MEAN_DESC, mean),
                (A::OPERATION_NORM_BWD_INV_VARIANCE_DESC, inverse),
            ];
            let writes = vec![
                (A::OPERATION_NORM_BWD_DXDESC, dx),
                (A::OPERATION_NORM_BWD_DSCALE_DESC, dscale),
                (A::OPERATION_NORM_BWD_DBIAS_DESC, dbias),
            ];
            self.push(backward(NormMode::BATCH_NORM, reads, writes));
            return Ok(());
        }
        let axes = self.channel_axes();
        let centered = self.mapped(C::SUB, &[&x, &mean]);
        let unit = self.mapped(C::MUL, &[&centered, &inverse]);
        let share = self.mapped(C::MUL, &[&dy, &unit]);
        let along = self.mean(&share, &axes);
        let along = self.mapped(C::MUL, &[&unit, &along]);
        let shift = self.mean(&dy, &axes);
        let rest = self.mapped(C::SUB, &[&dy, &along]);
        let rest = self.mapped(C::SUB, &[&rest, &shift]);
        let factor = self.mapped(C::MUL, &[&scale, &inverse]);
        self.map(C::MUL, &[&rest, &factor], &dx);
        self.summed(&share, &axes, &dscale);
        self.summed(&dy, &axes, &dbias);
        Ok(())
    }
}

fn backward(mode: NormMode, reads: Vec<(A, View)>, writes: Vec<(A, View)>) -> Operation {
    let settings = vec![(A::OPERATION_NORM_BWD_MODE, Setting::Code(T::NORM_MODE, mode.0))];
    Operation { kind: D::OPERATION_NORM_BACKWARD_DESCRIPTOR, parameters: None, settings, reads, writes }
}
