//! Normalisation over the last axes: LayerNormalization, RMSNormalization, SimplifiedLayerNormalization.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op, RowWise};
use crate::prim::{Norm, ReduceKind};
use crate::{DType, Declined, LowerError, Prim, Scalar, Shape, Val, shape};

/// A normalisation over the axes from `axis` to the last.
#[derive(Debug)]
struct LayerNormOp {
    name: &'static str,
    axis: i64,
    layer: Layer,
    /// Types of the requested statistics, in the order of the outputs.
    statistics: [Option<DType>; 2],
}

impl Op for LayerNormOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn row_wise(&self) -> RowWise {
        let plain = self.axis == -1 && self.statistics == [None; 2];
        if plain { RowWise::Norm(1) } else { RowWise::No }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let scale = cx.required(inputs, 1)?;
        let bias = inputs.get(2).and_then(Option::as_ref);
        let axis = shape::axis(self.axis, x.rank())
            .ok_or_else(|| cx.invalid(format!("axis {} is out of range for rank {}", self.axis, x.rank())))?;
        let mut results = vec![self.layer.lower(cx, x, x.rank() - axis, Some(scale), bias)?];
        if self.statistics.iter().any(Option::is_some) {
            let axes: Vec<usize> = (axis..x.rank()).collect();
            let (mean, inverse) = self.layer.statistics(cx, x, &axes)?;
            // Without a mean to subtract, only the inverse is an output.
            let list = mean.into_iter().chain([inverse]);
            for (value, dtype) in list.zip(self.statistics) {
                results.push(cx.cast(&value, dtype.unwrap_or(value.dtype()))?);
            }
        }
        Ok(results)
    }
}

/// How a layer is normalised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    /// The number added to the variance.
    pub epsilon: f32,
    /// Subtracts the mean first.
    pub centre: bool,
    /// As in [`Norm`].
    pub round_before_scale: bool,
}

impl Layer {
    /// Normalises the last axes; scale and bias are broadcast to `x`.
    pub fn lower(
        self,
        cx: &mut Lower<'_>,
        x: &Val,
        axes: usize,
        scale: Option<&Val>,
        bias: Option<&Val>,
    ) -> Result<Val, LowerError> {
        let layer = &x.shape()[x.rank() - axes..];
        let mut inputs = vec![x.clone()];
        let mut direct = true;
        for value in [scale, bias].into_iter().flatten() {
            match within(value, layer) {
                Some(view) => inputs.push(cx.dense(&view)?),
                None => direct = false,
            }
        }
        inputs.truncate(if direct { inputs.len() } else { 1 });
        let prim = Prim::Norm(Norm {
            axes,
            epsilon: self.epsilon,
            centre: self.centre,
            scale: direct && scale.is_some(),
            bias: direct && bias.is_some(),
            round_before_scale: self.round_before_scale,
        });
        let inputs: Vec<&Val> = inputs.iter().collect();
        let result = cx.apply(prim, &inputs, x.dtype(), x.shape())?;
        if direct { Ok(result) } else { scale_and_shift(cx, &result, scale, bias) }
    }

    /// The mean, if one is subtracted, and the inverse standard deviation over some axes, which stay with extent 1;
    /// computed at least in single precision.
    fn statistics(self, cx: &mut Lower<'_>, x: &Val, axes: &[usize]) -> Result<(Option<Val>, Val), LowerError> {
        let dtype = x.dtype().compute();
        let x = cx.cast(x, dtype)?;
        let mean = if self.centre { Some(cx.reduce(&x, axes, true, ReduceKind::Mean)?) } else { None };
        let centred = match &mean {
            Some(mean) => cx.binary(Binary::Sub, &x, mean)?,
            None => x,
        };
        let square = cx.binary(Binary::Mul, &centred, &centred)?;
        let variance = cx.reduce(&square, axes, true, ReduceKind::Mean)?;
        let inverse = cx.map(&[&variance], dtype, |expr, arguments| {
            let epsilon = expr.constant(Scalar::Float(self.epsilon.into()), dtype);
            let sum = expr.binary(Binary::Add, arguments[0], epsilon);
            expr.unary(Unary::Rsqrt, sum)
        })?;
        Ok((mean, inverse))
    }
}

/// The value broadcast to a layer's shape, if it is the same for all layers.
fn within(value: &Val, layer: &[usize]) -> Option<Val> {
    let mut value = value.clone();
    while value.rank() > layer.len() {
        if value.shape()[0] != 1 {
            return None;
        }
        value = value.squeezed(0);
    }
    value.expanded(layer)
}

/// `x · scale + bias`, with both broadcast to `x`.
pub(super) fn scale_and_shift(
    cx: &mut Lower<'_>,
    x: &Val,
    scale: Option<&Val>,
    bias: Option<&Val>,
) -> Result<Val, LowerError> {
    let inputs: Vec<&Val> = [Some(x), scale, bias].into_iter().flatten().collect();
    let to: Shape = x.shape().into();
    cx.map_to(&inputs, x.dtype(), &to, |expr, arguments| {
        let mut rest = arguments[1..].iter().copied();
        let mut result = arguments[0];
        if let Some(factor) = scale.and_then(|_| rest.next()) {
            result = expr.binary(Binary::Mul, result, factor);
        }
        if let Some(term) = bias.and_then(|_| rest.next()) {
            result = expr.binary(Binary::Add, result, term);
        }
        result
    })
}

/// Declines inputs whose type differs from the first one's floating-point type.
pub(super) fn one_float_type(node: &NodeInfo<'_>) -> Result<DType, Declined> {
    let dtype = node.accept(0, |dtype| dtype.is_float())?;
    match node.inputs.iter().flatten().find(|input| input.dtype != dtype) {
        Some(other) => Err(Declined::new(format!("inputs have different types {dtype} and {}", other.dtype))),
        None => Ok(dtype),
    }
}

/// Declines statistics in anything but single precision, the only type that other providers produce.
pub(super) fn single_precision_statistics(node: &NodeInfo<'_>) -> Result<(), Declined> {
    match node.attributes.int("stash_type", 1)? {
        1 => Ok(()),
        other => Err(Declined::new(format!("stash_type {other}"))),
    }
}

fn parse(
    node: &NodeInfo<'_>,
    name: &'static str,
    centre: bool,
    round_before_scale: bool,
) -> Result<Box<dyn Op>, Declined> {
    one_float_type(node)?;
    single_precision_statistics(node)?;
    let wanted = |index: usize| node.outputs.get(index).copied().flatten();
    Ok(Box::new(LayerNormOp {
        name,
        axis: node.attributes.int("axis", -1)?,
        layer: Layer { epsilon: node.attributes.float("epsilon", 1e-5)?, centre, round_before_scale },
        statistics: [wanted(1), wanted(2)],
    }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "LayerNormalization", parse: |node| parse(node, "LayerNormalization", true, false) },
    Entry { domain: "", op_type: "RMSNormalization", parse: |node| parse(node, "RMSNormalization", false, true) },
    Entry {
        domain: "",
        op_type: "SimplifiedLayerNormalization",
        parse: |node| parse(node, "SimplifiedLayerNormalization", false, false),
    },
];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial};

    fn trial<'a>(op_type: &'a str, scale: &'a [usize]) -> Trial<'a> {
        let device = |shape| Given::Device(DType::F16, shape);
        Trial::new(op_type, 17).input(device(&[2, 3, 4])).input(device(scale))
    }

    #[test]
    fn a_layer_is_one_step() {
        for op_type in ["LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"] {
            assert_eq!(trial(op_type, &[4]).steps().unwrap(), ["norm"]);
            assert_eq!(trial(op_type, &[1, 1, 4]).steps().unwrap(), ["norm"]);
            assert_eq!(trial(op_type, &[3, 4]).int("axis", 1).steps().unwrap(), ["norm"]);
        }
    }

    #[test]
    fn a_scale_across_layers_is_applied_afterwards() {
        assert_eq!(trial("RMSNormalization", &[3, 4]).steps().unwrap(), ["norm", "map"]);
    }

    #[test]
    fn mismatched_scales_are_rejected() {
        assert!(trial("LayerNormalization", &[3]).steps().is_err());
        assert!(trial("LayerNormalization", &[5, 3, 4]).steps().is_err());
    }

    #[test]
    fn statistics_have_extent_one_along_normalised_axes() {
        let wanted = trial("LayerNormalization", &[3, 4]).int("axis", -2).gives(&[DType::F16, DType::F32, DType::F32]);
        assert_eq!(wanted.shapes().unwrap(), [vec![2, 3, 4], vec![2, 1, 1], vec![2, 1, 1]]);
    }
}
