//! Normalisation by channel or over chosen axes: BatchNormalization, InstanceNormalization, GroupNormalization, LRN,
//! MeanVarianceNormalization, LpNormalization.
use crate::expr::{Binary, Expr, Ref, Unary};
use crate::lower::Lower;
use crate::ops::norm::{Layer, one_float_type, scale_and_shift, single_precision_statistics};
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::{Lrn, ReduceKind};
use crate::{DType, Declined, LowerError, Prim, Scalar, Shape, Val, shape};

/// A vector with one element per channel, shaped to broadcast to `[n, c, spatial…]`.
fn per_channel(cx: &mut Lower<'_>, value: &Val, channels: usize, spatial: usize) -> Result<Val, LowerError> {
    if value.shape() != [channels] {
        return Err(cx.invalid(format!(
            "shape {:?} does not have one number per channel, of {channels} channels",
            value.shape()
        )));
    }
    let mut to = Shape::from_elem(1, spatial + 1);
    to[0] = channels;
    cx.reshape(value, &to)
}

#[derive(Debug)]
struct BatchNormOp {
    epsilon: f32,
}

impl Op for BatchNormOp {
    fn name(&self) -> &'static str {
        "BatchNormalization"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let channels = x.shape().get(1).copied().unwrap_or(1);
        let mut vectors = Vec::with_capacity(4);
        for index in 1..5 {
            let vector = cx.required(inputs, index)?;
            vectors.push(per_channel(cx, vector, channels, x.rank().saturating_sub(2))?);
        }
        let [scale, bias, mean, variance] = &vectors[..] else { return Err(cx.invalid("an input is missing")) };
        // The factor and offset of each channel; the planner computes them itself if the four vectors are weights.
        let dtype = x.dtype().compute();
        let factor = cx.map(&[scale, variance], dtype, |expr, arguments| {
            let [scale, variance] = [0, 1].map(|at| in_type(expr, arguments[at], dtype));
            let epsilon = expr.constant(Scalar::Float(self.epsilon.into()), dtype);
            let sum = expr.binary(Binary::Add, variance, epsilon);
            let deviation = expr.unary(Unary::Sqrt, sum);
            expr.binary(Binary::Div, scale, deviation)
        })?;
        let term = cx.map(&[bias, mean, &factor], dtype, |expr, arguments| {
            let [bias, mean, factor] = [0, 1, 2].map(|at| in_type(expr, arguments[at], dtype));
            let moved = expr.binary(Binary::Mul, mean, factor);
            expr.binary(Binary::Sub, bias, moved)
        })?;
        Ok(vec![scale_and_shift(cx, x, Some(&factor), Some(&term))?])
    }
}

fn in_type(expr: &mut Expr, value: Ref, dtype: DType) -> Ref {
    if expr.dtype(value) == dtype { value } else { expr.cast(value, dtype) }
}

fn parse_batch_norm(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    for index in 0..5 {
        node.accept(index, |dtype| dtype.is_float())?;
    }
    if !node.attributes.flag_or("spatial", true)? {
        return Err(Declined::new("per-position statistics (spatial 0, opset 8) are not supported"));
    }
    let epsilon = node.attributes.float("epsilon", 1e-5)?;
    // Before opset 14, a node trains if it has more than one output, and these outputs differ.
    if node.attributes.flag("training_mode")? && node.since_version >= 14 {
        let momentum = node.attributes.float("momentum", 0.9)?;
        return Ok(Box::new(TrainedBatchNorm { epsilon, momentum }));
    }
    if node.attributes.flag("training_mode")? || (1..5).any(|index| node.wants(index)) {
        return Err(Declined::new("training mode before opset 14 is not supported"));
    }
    Ok(Box::new(BatchNormOp { epsilon }))
}

/// BatchNormalization with the statistics of the batch, which also updates the running ones.
#[derive(Debug)]
struct TrainedBatchNorm {
    epsilon: f32,
    momentum: f32,
}

impl Op for TrainedBatchNorm {
    fn name(&self) -> &'static str {
        "BatchNormalization"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let channels = x.shape().get(1).copied().unwrap_or(1);
        let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != 1).collect();
        let dtype = x.dtype().compute();
        let wide = cx.cast(x, dtype)?;
        let mean = cx.reduce(&wide, &axes, true, ReduceKind::Mean)?;
        let distance = cx.binary(Binary::Sub, &wide, &mean)?;
        let square = cx.binary(Binary::Mul, &distance, &distance)?;
        let variance = cx.reduce(&square, &axes, true, ReduceKind::Mean)?;
        let [mean, variance] = [mean, variance].map(|value| cx.reshape(&value, &[channels]));
        let (mean, variance) = (mean?, variance?);
        let mut given: Vec<Option<Val>> = inputs.iter().take(3).cloned().collect();
        given.extend([Some(mean.clone()), Some(variance.clone())]);
        let mut outputs = BatchNormOp { epsilon: self.epsilon }.lower(cx, &given)?;
        for (index, found) in [(3, mean), (4, variance)] {
            let running = cx.required(inputs, index)?;
            if running.shape() != [channels] {
                return Err(cx.invalid(format!("{:?} for {channels} channels", running.shape())));
            }
            outputs.push(cx.map(&[running, &found], running.dtype(), |expr, operands| {
                let [kept, new] = [self.momentum, 1.0 - self.momentum]
                    .map(|share| expr.constant(Scalar::Float(f64::from(share)), dtype));
                let [old, found] = [0, 1].map(|at| in_type(expr, operands[at], dtype));
                let old = expr.binary(Binary::Mul, old, kept);
                let found = expr.binary(Binary::Mul, found, new);
                expr.binary(Binary::Add, old, found)
            })?);
        }
        Ok(outputs)
    }
}

/// InstanceNormalization, or GroupNormalization with groups.
#[derive(Debug)]
struct GroupNormOp {
    /// How many groups of channels are normalised together; `None` gives each channel its own.
    groups: Option<usize>,
    /// Scale and bias are per group instead of per channel.
    scale_by_group: bool,
    epsilon: f32,
}

impl Op for GroupNormOp {
    fn name(&self) -> &'static str {
        if self.groups.is_some() { "GroupNormalization" } else { "InstanceNormalization" }
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let (scale, bias) = (cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let full: Shape = x.shape().into();
        let [batch, channels, ..] = full[..] else {
            return Err(cx.invalid(format!("shape {full:?} has no channels")));
        };
        let groups = self.groups.unwrap_or(channels);
        if groups == 0 || channels % groups != 0 {
            return Err(cx.invalid(format!("{channels} channels cannot be split into {groups} groups")));
        }
        let positions = shape::elems(&full[2..]).unwrap_or(0);
        let rows = cx.reshape(x, &[batch, groups, channels / groups * positions])?;
        let layer = Layer { epsilon: self.epsilon, centre: true, round_before_scale: false };
        let normal = layer.lower(cx, &rows, 1, None, None)?;
        let (view, vectors) = if self.scale_by_group {
            (normal, groups)
        } else {
            (cx.reshape(&normal, &[batch, channels, positions])?, channels)
        };
        let scale = per_channel(cx, scale, vectors, 1)?;
        let bias = per_channel(cx, bias, vectors, 1)?;
        let result = scale_and_shift(cx, &view, Some(&scale), Some(&bias))?;
        Ok(vec![cx.reshape(&result, &full)?])
    }
}

fn parse_instance_norm(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    one_float_type(node)?;
    let epsilon = node.attributes.float("epsilon", 1e-5)?;
    Ok(Box::new(GroupNormOp { groups: None, scale_by_group: false, epsilon }))
}

fn parse_group_norm(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    one_float_type(node)?;
    single_precision_statistics(node)?;
    let groups = node.attributes.int("num_groups", 0)?;
    let groups = usize::try_from(groups).ok().filter(|&groups| groups > 0);
    Ok(Box::new(GroupNormOp {
        groups: Some(groups.ok_or_else(|| Declined::new("num_groups is missing or not positive"))?),
        scale_by_group: node.since_version < 21,
        epsilon: node.attributes.float("epsilon", 1e-5)?,
    }))
}

#[derive(Debug)]
struct LrnOp(Lrn);

impl Op for LrnOp {
    fn name(&self) -> &'static str {
        "LRN"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        if x.rank() < 2 {
            return Err(cx.invalid(format!("shape {:?} has no channels", x.shape())));
        }
        Ok(vec![cx.apply(Prim::Lrn(self.0.clone()), &[x], x.dtype(), x.shape())?])
    }
}

fn parse_lrn(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype.is_float())?;
    let size = node.attributes.int("size", 0)?;
    let size = usize::try_from(size).ok().filter(|&size| size > 0);
    Ok(Box::new(LrnOp(Lrn {
        alpha: node.attributes.float("alpha", 1e-4)?,
        beta: node.attributes.float("beta", 0.75)?,
        bias: node.attributes.float("bias", 1.0)?,
        size: size.ok_or_else(|| Declined::new("size is missing or not positive"))?,
    })))
}

#[derive(Debug)]
struct MeanVarianceNormOp {
    axes: Vec<i64>,
}

impl Op for MeanVarianceNormOp {
    fn name(&self) -> &'static str {
        "MeanVarianceNormalization"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let input = cx.required(inputs, 0)?;
        let axes = shape::axes(&self.axes, input.rank())
            .ok_or_else(|| cx.invalid(format!("invalid axes {:?} for rank {}", self.axes, input.rank())))?;
        let dtype = input.dtype().compute();
        let x = cx.cast(input, dtype)?;
        let mean = cx.reduce(&x, &axes, true, ReduceKind::Mean)?;
        let centred = cx.binary(Binary::Sub, &x, &mean)?;
        let square = cx.binary(Binary::Mul, &centred, &centred)?;
        let variance = cx.reduce(&square, &axes, true, ReduceKind::Mean)?;
        // ONNX adds its 1e-9 to the standard deviation, not to the variance.
        let result = cx.map(&[&centred, &variance], input.dtype(), |expr, arguments| {
            let epsilon = expr.constant(Scalar::Float(1e-9), dtype);
            let deviation = expr.unary(Unary::Sqrt, arguments[1]);
            let divisor = expr.binary(Binary::Add, deviation, epsilon);
            expr.binary(Binary::Div, arguments[0], divisor)
        })?;
        Ok(vec![result])
    }
}

fn parse_mean_variance_norm(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    if node.since_version < 9 {
        return Err(Declined::new("before opset 9 this operator has other attributes"));
    }
    node.accept(0, |dtype| dtype.is_float())?;
    Ok(Box::new(MeanVarianceNormOp { axes: node.attributes.ints("axes")?.unwrap_or(&[0, 2, 3]).to_vec() }))
}

#[derive(Debug)]
struct LpNormOp {
    axis: i64,
    kind: ReduceKind,
}

impl Op for LpNormOp {
    fn name(&self) -> &'static str {
        "LpNormalization"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let input = cx.required(inputs, 0)?;
        let axis = shape::axis(self.axis, input.rank())
            .ok_or_else(|| cx.invalid(format!("axis {} is out of range for rank {}", self.axis, input.rank())))?;
        let dtype = input.dtype().compute();
        let x = cx.cast(input, dtype)?;
        let norm = cx.reduce(&x, &[axis], true, self.kind)?;
        // Where the norm is zero, the result is zero too.
        let result = cx.map(&[&x, &norm], input.dtype(), |expr, arguments| {
            let zero = expr.constant(Scalar::zero(dtype), dtype);
            let nothing = expr.binary(Binary::Eq, arguments[1], zero);
            let quotient = expr.binary(Binary::Div, arguments[0], arguments[1]);
            expr.select(nothing, zero, quotient)
        })?;
        Ok(vec![result])
    }
}

fn parse_lp_norm(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype.is_float())?;
    let kind = match node.attributes.int("p", 2)? {
        1 => ReduceKind::L1,
        2 => ReduceKind::L2,
        other => return Err(Declined::new(format!("unsupported p {other}"))),
    };
    Ok(Box::new(LpNormOp { axis: node.attributes.int("axis", -1)?, kind }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "BatchNormalization", parse: parse_batch_norm },
    Entry { domain: "", op_type: "InstanceNormalization", parse: parse_instance_norm },
    Entry { domain: "", op_type: "GroupNormalization", parse: parse_group_norm },
    Entry { domain: "", op_type: "LRN", parse: parse_lrn },
    Entry { domain: "", op_type: "MeanVarianceNormalization", parse: parse_mean_variance_norm },
    Entry { domain: "", op_type: "LpNormalization", parse: parse_lp_norm },
];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial};

    #[test]
    fn constant_statistics_become_one_map() {
        let mut trial = Trial::new("BatchNormalization", 15).input(Given::Device(DType::F32, &[1, 2, 5]));
        for _ in 0..4 {
            trial = trial.input(Given::Numbers(DType::F32, &[1.0, 2.0], &[2]));
        }
        assert_eq!(trial.steps().unwrap(), ["map"]);
    }

    #[test]
    fn groups_are_one_norm_and_a_map() {
        let device = |shape| Given::Device(DType::F32, shape);
        let trial = |groups, version| {
            let vector: &[usize] = if version < 21 { &[2] } else { &[4] };
            let trial = Trial::new("GroupNormalization", version).int("num_groups", groups);
            trial.input(device(&[1, 4, 5])).input(device(vector)).input(device(vector))
        };
        assert_eq!(trial(2, 18).steps().unwrap(), ["norm", "map"]);
        assert_eq!(trial(2, 21).steps().unwrap(), ["norm", "map"]);
        assert!(trial(3, 21).steps().unwrap_err().contains("4 channels cannot be split into 3 groups"));
        assert!(trial(0, 21).steps().unwrap_err().contains("num_groups"));
        // Four scales for two groups are only valid in the later version.
        assert!(trial(4, 18).steps().unwrap_err().contains("one number per channel, of 4 channels"));
    }

    #[test]
    fn unsupported_norms_are_declined() {
        let trial = Trial::new("LpNormalization", 1).int("p", 3).input(Given::Device(DType::F32, &[2]));
        assert_eq!(trial.steps().unwrap_err(), "unsupported p 3");
        let trial = Trial::new("LRN", 13).input(Given::Device(DType::F32, &[1, 2, 3]));
        assert_eq!(trial.steps().unwrap_err(), "size is missing or not positive");
    }
}
