//! One node that replaces several: the result of the patterns in [`pass`](crate::pass).
use std::fmt;

use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::activation::Activation;
use crate::ops::attention::{scores, weighted};
use crate::ops::norm::Layer;
use crate::ops::{Op, RowWise};
use crate::{Graph, LowerError, Val, shape};

/// A fused operator with the nodes it was recognised from. It is lowered as a whole if the shapes allow it, else part
/// by part.
pub(crate) struct Fused {
    whole: Whole,
    /// The original nodes; the graph's inputs are this operator's, its one output is the result.
    parts: Graph,
}

/// What the nodes compute together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Whole {
    /// `0.5 · x · (1 + erf(x / √2))`, of x.
    Gelu,
    /// The tanh approximation of the same.
    TanhGelu,
    /// `x · sigmoid(alpha · x)`, of x.
    Swish { alpha: f32 },
    /// `(x - mean) / √(variance + epsilon) · scale + bias` over some axes, of x and the optional scale and bias.
    LayerNorm { axes: Vec<i64>, epsilon: f32, scale: bool, bias: bool },
    /// `x / √(mean of squares + epsilon) · scale`, of x and the optional scale.
    RmsNorm { axes: Vec<i64>, epsilon: f32, scale: bool },
    /// `softmax(q · k · scale + mask) · v` with the softmax along an axis, of q, transposed k, v, and the optional
    /// mask.
    Attention { scale: f32, axis: i64, mask: bool },
}

impl Fused {
    pub fn new(whole: Whole, parts: Graph) -> Self {
        Self { whole, parts }
    }

    /// The highest rank of a constant in the parts. Constants may have axes of extent 1, which broadcast an operand
    /// with fewer axes.
    fn number_rank(&self) -> usize {
        let constants = self.parts.values().iter().filter_map(|value| value.constant.as_ref());
        constants.map(|tensor| tensor.shape().len()).max().unwrap_or(0)
    }

    fn lower_parts(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let known = |value: &crate::Value| value.constant.clone().map(Val::known);
        let mut values: Vec<Option<Val>> = self.parts.values().iter().map(known).collect();
        for (id, input) in self.parts.inputs().iter().zip(inputs) {
            values[id.0 as usize].clone_from(input);
        }
        for node in self.parts.nodes() {
            let arguments: Vec<Option<Val>> =
                node.inputs.iter().map(|id| id.and_then(|id| values[id.0 as usize].clone())).collect();
            let results = node.op.lower(cx, &arguments)?;
            for (id, result) in node.outputs.iter().zip(results) {
                if let Some(id) = id {
                    values[id.0 as usize] = Some(result);
                }
            }
        }
        let made = self.parts.outputs().iter().map(|id| values[id.0 as usize].clone());
        made.collect::<Option<Vec<Val>>>().ok_or_else(|| cx.invalid("a part's value is never produced"))
    }
}

impl fmt::Debug for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} nodes", self.whole, self.parts.nodes().len())?;
        if f.alternate() { write!(f, " {:#?}", self.parts) } else { Ok(()) }
    }
}

impl Op for Fused {
    fn name(&self) -> &'static str {
        match self.whole {
            Whole::Gelu | Whole::TanhGelu => "Gelu",
            Whole::Swish { .. } => "Swish",
            Whole::LayerNorm { .. } => "LayerNormalization",
            Whole::RmsNorm { .. } => "RMSNormalization",
            Whole::Attention { .. } => "Attention",
        }
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn row_wise(&self) -> RowWise {
        match &self.whole {
            Whole::Gelu | Whole::TanhGelu | Whole::Swish { .. } if self.number_rank() <= 3 => RowWise::Elements,
            Whole::LayerNorm { axes, .. } | Whole::RmsNorm { axes, .. } if *axes == [-1] && self.number_rank() <= 3 => {
                RowWise::Norm(1)
            }
            _ => RowWise::No,
        }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let first = cx.required(inputs, 0)?;
        let whole = if first.rank() < self.number_rank() { None } else { self.whole.lower(cx, inputs)? };
        match whole {
            Some(result) => Ok(vec![result]),
            None => self.lower_parts(cx, inputs),
        }
    }
}

impl Whole {
    /// The result; `None` if the whole does not apply to the given shapes.
    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Option<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let activation = match *self {
            Self::Gelu => Activation::Gelu,
            Self::TanhGelu => Activation::TanhGelu,
            Self::Swish { alpha } => Activation::Swish { alpha },
            Self::LayerNorm { ref axes, epsilon, scale, bias } => {
                let layer = Layer { epsilon, centre: true, round_before_scale: false };
                return normalised(cx, layer, axes, inputs, [scale, bias]);
            }
            Self::RmsNorm { ref axes, epsilon, scale } => {
                let layer = Layer { epsilon, centre: false, round_before_scale: false };
                return normalised(cx, layer, axes, inputs, [scale, false]);
            }
            Self::Attention { scale, axis, mask } => return attended(cx, inputs, scale, axis, mask),
        };
        cx.map(&[x], x.dtype(), |expr, arguments| activation.build(expr, arguments[0])).map(Some)
    }
}

/// Normalises the last axes, if `axes` are those and scale and bias broadcast to no more than x.
fn normalised(
    cx: &mut Lower<'_>,
    layer: Layer,
    axes: &[i64],
    inputs: &[Option<Val>],
    [scale, bias]: [bool; 2],
) -> Result<Option<Val>, LowerError> {
    let x = cx.required(inputs, 0)?;
    let mut rest = inputs.iter().skip(1).flatten();
    let scale = if scale { rest.next() } else { None };
    let bias = if bias { rest.next() } else { None };
    let fits = |value: &Val| shape::broadcast(x.shape(), value.shape()).as_deref() == Some(x.shape());
    let Some(mut axes) = shape::axes(axes, x.rank()) else { return Ok(None) };
    axes.sort_unstable();
    let last = axes.iter().rev().zip((0..x.rank()).rev()).all(|(&axis, last)| axis == last);
    if !last || !scale.is_none_or(fits) || !bias.is_none_or(fits) {
        return Ok(None);
    }
    layer.lower(cx, x, axes.len(), scale, bias).map(Some)
}

/// Attention of `[batch, heads, …]`, if the shapes match.
fn attended(
    cx: &mut Lower<'_>,
    inputs: &[Option<Val>],
    scale: f32,
    axis: i64,
    mask: bool,
) -> Result<Option<Val>, LowerError> {
    let (q, k, v) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
    let mask = if mask { Some(cx.required(inputs, 3)?) } else { None };
    let (&[batch, heads, rows, size], &[k_batch, k_heads, k_size, total]) = (q.shape(), k.shape()) else {
        return Ok(None);
    };
    let &[v_batch, v_heads, v_total, _] = v.shape() else { return Ok(None) };
    let alike = [k_batch, v_batch, k_heads, v_heads, k_size, v_total] == [batch, batch, heads, heads, size, total];
    let to = [batch, heads, rows, total];
    let fits = |mask: &Val| shape::broadcast(&to, mask.shape()).as_deref() == Some(&to);
    // Empty products are zeros; the parts handle them.
    let empty = to.contains(&0) || size == 0;
    if !alike || empty || shape::axis(axis, 4) != Some(3) || !mask.is_none_or(fits) {
        return Ok(None);
    }
    let mut weights = scores(cx, q, &k.transposed(), scale)?;
    if let Some(mask) = mask {
        weights = cx.binary(Binary::Add, &weights, mask)?;
    }
    let weights = cx.softmax(&weights, 3, false)?;
    weighted(cx, &weights, v).map(Some)
}
