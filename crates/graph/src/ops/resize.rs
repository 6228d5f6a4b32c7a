//! Resizing by interpolation: all versions of `Resize`, and `Upsample`.
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::{self, Coordinates, Interpolation, Nearest};
use crate::{DType, Declined, LowerError, Prim, Shape, Val, shape};

/// How `sizes` are interpreted when the aspect ratio is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proportions {
    Stretch,
    NotLarger,
    NotSmaller,
}

/// `Resize` and `Upsample`.
#[derive(Debug)]
struct Resize {
    name: &'static str,
    interpolation: Interpolation,
    coordinates: Coordinates,
    /// Scales from an attribute, as before opset 9.
    fixed_scales: Option<Vec<f32>>,
    /// Input indices.
    scales: Option<usize>,
    sizes: Option<usize>,
    roi: Option<usize>,
    host_inputs: Vec<usize>,
    /// The axes that scales, sizes and region apply to; all if absent.
    axes: Option<Vec<i64>>,
    proportions: Proportions,
    extrapolation: f32,
    antialias: bool,
    /// Nearest neighbour as before opset 11: rounds down if an axis grows, up if it shrinks.
    by_direction: bool,
}

impl Op for Resize {
    fn name(&self) -> &'static str {
        self.name
    }

    fn host_inputs(&self) -> &[usize] {
        &self.host_inputs
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let axes: Vec<usize> = match &self.axes {
            None => (0..x.rank()).collect(),
            Some(list) => shape::axes(list, x.rank())
                .ok_or_else(|| cx.invalid(format!("axes {list:?} of {:?}", x.shape())))?
                .to_vec(),
        };
        let (scales, to) = self.extents(cx, inputs, x, &axes)?;
        let roi = self.region(cx, inputs, x, &axes)?;
        if self.roi.is_none() && to[..] == *x.shape() && scales.iter().all(|&scale| scale == 1.0) {
            return Ok(vec![x.clone()]);
        }
        if x.elems() == 0 && to.iter().all(|&extent| extent != 0) {
            return Err(cx.invalid(format!("an empty input {:?} cannot be resized to {to:?}", x.shape())));
        }
        if !self.by_direction {
            return Ok(vec![self.emit(cx, x, self.interpolation, scales, roi, &to)?]);
        }
        let mut result = x.clone();
        for (grows, nearest) in [(true, Nearest::Floor), (false, Nearest::Ceil)] {
            let mut part: Shape = result.shape().into();
            let mut factors = vec![1.0; scales.len()];
            for axis in 0..scales.len() {
                if scales[axis] != 1.0 && (scales[axis] > 1.0) == grows {
                    part[axis] = to[axis];
                    factors[axis] = scales[axis];
                }
            }
            if factors.iter().any(|&factor| factor != 1.0) {
                result = self.emit(cx, &result, Interpolation::Nearest(nearest), factors, roi.clone(), &part)?;
            }
        }
        Ok(vec![result])
    }
}

impl Resize {
    /// The scale and the output's extent along every axis.
    fn extents(
        &self,
        cx: &Lower<'_>,
        inputs: &[Option<Val>],
        x: &Val,
        axes: &[usize],
    ) -> Result<(Vec<f32>, Shape), LowerError> {
        let mut scales = vec![1.0f32; x.rank()];
        let mut to: Shape = x.shape().into();
        let sizes = self.sizes.map(|at| cx.known_i64s(inputs, at)).transpose()?.flatten();
        if let Some(sizes) = sizes.filter(|sizes| !sizes.is_empty()) {
            if sizes.len() != axes.len() || sizes.iter().any(|&size| size < 0) {
                return Err(cx.invalid(format!("invalid sizes {sizes:?} for axes {axes:?} of {:?}", x.shape())));
            }
            let factor = |axis: usize, size: i64| size as f32 / x.shape()[axis].max(1) as f32;
            for (&axis, &size) in axes.iter().zip(&sizes) {
                scales[axis] = factor(axis, size);
                to[axis] = size as usize;
            }
            let factors = axes.iter().zip(&sizes).map(|(&axis, &size)| factor(axis, size));
            let common = match self.proportions {
                Proportions::Stretch => return Ok((scales, to)),
                Proportions::NotLarger => factors.fold(f32::INFINITY, f32::min),
                Proportions::NotSmaller => factors.fold(0.0, f32::max),
            };
            for &axis in axes {
                scales[axis] = common;
                to[axis] = (common * x.shape()[axis] as f32).round() as usize;
            }
            return Ok((scales, to));
        }
        let given = match (&self.fixed_scales, self.scales) {
            (Some(list), _) => list.clone(),
            (None, Some(at)) => cx.known(inputs, at)?.scalars().map(|scale| scale.as_f64() as f32).collect(),
            (None, None) => return Err(cx.invalid("neither scales nor sizes are given")),
        };
        if given.len() != axes.len() || given.iter().any(|&scale| !(scale > 0.0 && scale.is_finite())) {
            return Err(cx.invalid(format!("invalid scales {given:?} for axes {axes:?} of {:?}", x.shape())));
        }
        for (&axis, &scale) in axes.iter().zip(&given) {
            scales[axis] = scale;
            // In single precision, as in ONNX's own shape inference: there 10 · 0.7 is 7, not 6.
            to[axis] = (x.shape()[axis] as f32 * scale).floor() as usize;
        }
        Ok((scales, to))
    }

    /// The region of interest along every axis.
    fn region(
        &self,
        cx: &Lower<'_>,
        inputs: &[Option<Val>],
        x: &Val,
        axes: &[usize],
    ) -> Result<Vec<(f32, f32)>, LowerError> {
        let mut region = vec![(0.0, 1.0); x.rank()];
        let Some(at) = self.roi else { return Ok(region) };
        let list: Vec<f32> = cx.known(inputs, at)?.scalars().map(|bound| bound.as_f64() as f32).collect();
        if list.len() != 2 * axes.len() {
            return Err(cx.invalid(format!("invalid roi {list:?} for axes {axes:?}")));
        }
        for (number, &axis) in axes.iter().enumerate() {
            region[axis] = (list[number], list[axes.len() + number]);
        }
        Ok(region)
    }

    fn emit(
        &self,
        cx: &mut Lower<'_>,
        x: &Val,
        interpolation: Interpolation,
        scales: Vec<f32>,
        roi: Vec<(f32, f32)>,
        to: &[usize],
    ) -> Result<Val, LowerError> {
        let prim = Prim::Resize(prim::Resize {
            interpolation,
            coordinates: self.coordinates,
            scales,
            roi,
            extrapolation: self.extrapolation,
            antialias: self.antialias,
        });
        cx.apply(prim, &[x], x.dtype(), to)
    }
}

fn parse_upsample(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let fixed_scales = node.attributes.floats("scales")?.map(<[f32]>::to_vec);
    let scales = fixed_scales.is_none().then_some(1);
    legacy("Upsample", node, fixed_scales, scales)
}

/// `Upsample`, and `Resize` of opset 10: asymmetric coordinates, nearest or linear.
fn legacy(
    name: &'static str,
    node: &NodeInfo<'_>,
    fixed_scales: Option<Vec<f32>>,
    scales: Option<usize>,
) -> Result<Box<dyn Op>, Declined> {
    let interpolation = match node.attributes.text("mode", "nearest")? {
        "nearest" => Interpolation::Nearest(Nearest::Floor),
        "linear" | "bilinear" => Interpolation::Linear,
        other => return Err(Declined::new(format!("unsupported mode {other}"))),
    };
    accept(node, interpolation)?;
    Ok(Box::new(Resize {
        name,
        interpolation,
        coordinates: Coordinates::Asymmetric,
        fixed_scales,
        scales,
        sizes: None,
        roi: None,
        host_inputs: scales.into_iter().collect(),
        axes: None,
        proportions: Proportions::Stretch,
        extrapolation: 0.0,
        antialias: false,
        by_direction: matches!(interpolation, Interpolation::Nearest(_)),
    }))
}

fn parse_resize(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    if node.since_version < 11 {
        return legacy("Resize", node, None, Some(1));
    }
    let attributes = node.attributes;
    let interpolation = match attributes.text("mode", "nearest")? {
        "nearest" => Interpolation::Nearest(match attributes.text("nearest_mode", "round_prefer_floor")? {
            "round_prefer_floor" => Nearest::RoundPreferFloor,
            "round_prefer_ceil" => Nearest::RoundPreferCeil,
            "floor" => Nearest::Floor,
            "ceil" => Nearest::Ceil,
            other => return Err(Declined::new(format!("unsupported nearest_mode {other}"))),
        }),
        "linear" => Interpolation::Linear,
        "cubic" => Interpolation::Cubic {
            a: attributes.float("cubic_coeff_a", -0.75)?,
            exclude_outside: attributes.flag("exclude_outside")?,
        },
        other => return Err(Declined::new(format!("unsupported mode {other}"))),
    };
    accept(node, interpolation)?;
    if attributes.flag("exclude_outside")? && !matches!(interpolation, Interpolation::Cubic { .. }) {
        return Err(Declined::new("exclude_outside needs mode cubic"));
    }
    let coordinates = match attributes.text("coordinate_transformation_mode", "half_pixel")? {
        "half_pixel" => Coordinates::HalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        "tf_crop_and_resize" => Coordinates::TfCropAndResize,
        "tf_half_pixel_for_nn" => Coordinates::TfHalfPixelForNn,
        other => return Err(Declined::new(format!("unsupported coordinate_transformation_mode {other}"))),
    };
    let proportions = match attributes.text("keep_aspect_ratio_policy", "stretch")? {
        "stretch" => Proportions::Stretch,
        "not_larger" => Proportions::NotLarger,
        "not_smaller" => Proportions::NotSmaller,
        other => return Err(Declined::new(format!("unsupported keep_aspect_ratio_policy {other}"))),
    };
    let antialias = attributes.flag("antialias")?;
    if antialias && matches!(interpolation, Interpolation::Cubic { .. }) {
        return Err(Declined::new(
            "antialias with mode cubic is not supported: implementations disagree at the borders",
        ));
    }
    let given = |at: usize| node.optional(at).map(|_| at);
    let roi = if coordinates == Coordinates::TfCropAndResize { Some(1) } else { None };
    let (scales, sizes) = (given(2), given(3));
    Ok(Box::new(Resize {
        name: "Resize",
        interpolation,
        coordinates,
        fixed_scales: None,
        scales,
        sizes,
        roi,
        host_inputs: roi.into_iter().chain(scales).chain(sizes).collect(),
        axes: attributes.ints("axes")?.filter(|axes| !axes.is_empty()).map(<[i64]>::to_vec),
        proportions,
        extrapolation: attributes.float("extrapolation_value", 0.0)?,
        antialias,
        by_direction: false,
    }))
}

/// Integers support nearest neighbour only: no standard defines how to round in between.
fn accept(node: &NodeInfo<'_>, interpolation: Interpolation) -> Result<(), Declined> {
    let nearest = matches!(interpolation, Interpolation::Nearest(_));
    let copied: fn(DType) -> bool = |dtype| dtype.is_float() || matches!(dtype, DType::I8 | DType::U8 | DType::I32);
    node.accept(0, if nearest { copied } else { DType::is_float }).map(|_| ())
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "Resize", parse: parse_resize },
    Entry { domain: "", op_type: "Upsample", parse: parse_upsample },
];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial};

    const X: Given<'_> = Given::Device(DType::F32, &[1, 1, 10, 4]);

    fn resize(scales: &'static [f64]) -> Trial<'static> {
        let trial = Trial::new("Resize", 19).input(X).input(Given::Absent);
        if scales.is_empty() {
            return trial.input(Given::Absent);
        }
        trial.input(Given::Numbers(DType::F32, scales, if scales.len() == 2 { &[2] } else { &[4] }))
    }

    #[test]
    fn extents_are_rounded_down_in_single_precision() {
        assert_eq!(resize(&[1.0, 1.0, 0.7, 2.6]).shapes(), Ok(vec![vec![1, 1, 7, 10]]));
        assert_eq!(resize(&[2.0, 0.5]).ints("axes", &[3, 2]).shapes(), Ok(vec![vec![1, 1, 5, 8]]));
    }

    #[test]
    fn sizes_keep_the_aspect_ratio_on_request() {
        let sizes = Given::I64(&[7, 8], &[2]);
        for (policy, want) in [("stretch", [7, 8]), ("not_larger", [7, 3]), ("not_smaller", [20, 8])] {
            let trial = resize(&[]).input(sizes).ints("axes", &[2, 3]).text("keep_aspect_ratio_policy", policy);
            assert_eq!(trial.shapes(), Ok(vec![vec![1, 1, want[0], want[1]]]), "{policy}");
        }
    }

    #[test]
    fn unchanged_axes_need_no_step() {
        assert_eq!(resize(&[1.0, 1.0, 1.0, 1.0]).steps(), Ok(vec![]));
    }

    #[test]
    fn before_opset_11_growing_and_shrinking_axes_round_differently() {
        let scales = Given::Numbers(DType::F32, &[1.0, 1.0, 2.0, 0.5], &[4]);
        let trial = Trial::new("Resize", 10).input(X).input(scales);
        assert_eq!(trial.shapes(), Ok(vec![vec![1, 1, 20, 2]]));
        assert_eq!(trial.steps(), Ok(vec!["resize", "resize"]));
    }

    #[test]
    fn declined_and_rejected_nodes_name_the_cause() {
        assert_eq!(
            resize(&[2.0, 2.0]).shapes(),
            Err("Resize: invalid scales [2.0, 2.0] for axes [0, 1, 2, 3] of [1, 1, 10, 4]".to_owned())
        );
        assert_eq!(
            resize(&[1.0, 1.0, 0.0, 1.0]).shapes(),
            Err("Resize: invalid scales [1.0, 1.0, 0.0, 1.0] for axes [0, 1, 2, 3] of [1, 1, 10, 4]".to_owned())
        );
        assert_eq!(resize(&[]).shapes(), Err("Resize: neither scales nor sizes are given".to_owned()));
        assert_eq!(resize(&[2.0, 2.0]).text("mode", "area").shapes(), Err("unsupported mode area".to_owned()));
    }
}
