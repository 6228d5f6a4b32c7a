//! Windows sliding over spatial axes: what convolutions and pools share.
use crate::lower::Lower;
use crate::ops::Attributes;
use crate::shape::Strides;
use crate::{Declined, LowerError, Shape};

/// Larger attributes make no sense and would overflow sums of extents.
const MAX_ATTRIBUTE: i64 = 1 << 31;

/// What determines the padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoPad {
    /// The `pads` attribute.
    Explicit,
    /// No padding.
    Valid,
    /// As much as an output of `ceil(input / stride)` needs; the odd element goes at the end.
    SameUpper,
    /// The same; the odd element goes at the start.
    SameLower,
}

/// The attributes of a window; the defaults of absent ones depend on the rank and are filled in when that is known.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub auto_pad: AutoPad,
    kernel: Option<Vec<i64>>,
    strides: Option<Vec<i64>>,
    dilations: Option<Vec<i64>>,
    pads: Option<Vec<i64>>,
    pub ceil: bool,
}

/// A window over concrete extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub strides: Shape,
    pub dilations: Shape,
    pub pads: Strides,
    pub pads_end: Strides,
    pub output: Shape,
}

impl Placed {
    /// Replaces the padding by that of a list: before each axis, then after each.
    pub fn set_pads(&mut self, cx: &Lower<'_>, pads: &[i64]) -> Result<(), LowerError> {
        let rank = self.pads.len();
        if pads.len() != 2 * rank || pads.iter().any(|pad| !(0..MAX_ATTRIBUTE).contains(pad)) {
            return Err(cx.invalid(format!("pads {pads:?} for {rank} spatial axes")));
        }
        self.pads = pads[..rank].iter().map(|&pad| pad as isize).collect();
        self.pads_end = pads[rank..].iter().map(|&pad| pad as isize).collect();
        Ok(())
    }
}

impl Window {
    /// Reads the attributes.
    pub fn parse(attributes: &Attributes) -> Result<Self, Declined> {
        let auto_pad = match attributes.text("auto_pad", "NOTSET")? {
            "" | "NOTSET" => AutoPad::Explicit,
            "VALID" => AutoPad::Valid,
            "SAME_UPPER" => AutoPad::SameUpper,
            "SAME_LOWER" => AutoPad::SameLower,
            other => return Err(Declined::new(format!("unsupported auto_pad {other}"))),
        };
        let list = |name: &str, least: i64| -> Result<Option<Vec<i64>>, Declined> {
            let Some(values) = attributes.ints(name)?.filter(|values| !values.is_empty()) else { return Ok(None) };
            if values.iter().all(|value| (least..MAX_ATTRIBUTE).contains(value)) {
                Ok(Some(values.to_vec()))
            } else {
                Err(Declined::new(format!("{name} {values:?}")))
            }
        };
        Ok(Self {
            auto_pad,
            kernel: list("kernel_shape", 1)?,
            strides: list("strides", 1)?,
            dilations: list("dilations", 1)?,
            pads: list("pads", -MAX_ATTRIBUTE)?,
            ceil: attributes.flag("ceil_mode")?,
        })
    }

    /// The extents of the window, if the attribute gives them.
    pub fn kernel(&self) -> Option<Shape> {
        self.kernel.as_ref().map(|list| list.iter().map(|&extent| extent as usize).collect())
    }

    /// True if some dilation is not 1.
    pub fn is_dilated(&self) -> bool {
        self.dilations.as_ref().is_some_and(|list| list.iter().any(|&dilation| dilation != 1))
    }

    /// True if some padding is negative.
    pub fn crops(&self) -> bool {
        self.pads.as_ref().is_some_and(|list| list.iter().any(|&pad| pad < 0))
    }

    /// Strides, dilations, and the padding before and after, for a number of spatial axes.
    pub fn spread(&self, cx: &Lower<'_>, rank: usize) -> Result<Placed, LowerError> {
        let list = |name: &str, values: &Option<Vec<i64>>, count: usize, default: i64| match values {
            None => Ok(vec![default; count]),
            Some(values) if values.len() == count => Ok(values.clone()),
            Some(values) => Err(cx.invalid(format!("{name} {values:?} does not match {rank} spatial axes"))),
        };
        let extents = |values: Vec<i64>| -> Shape { values.into_iter().map(|value| value as usize).collect() };
        let pads = match self.auto_pad {
            AutoPad::Explicit => list("pads", &self.pads, 2 * rank, 0)?,
            _ => vec![0; 2 * rank],
        };
        Ok(Placed {
            strides: extents(list("strides", &self.strides, rank, 1)?),
            dilations: extents(list("dilations", &self.dilations, rank, 1)?),
            pads: pads[..rank].iter().map(|&pad| pad as isize).collect(),
            pads_end: pads[rank..].iter().map(|&pad| pad as isize).collect(),
            output: Shape::new(),
        })
    }

    /// The window over spatial extents.
    pub fn place(&self, cx: &Lower<'_>, input: &[usize], kernel: &[usize]) -> Result<Placed, LowerError> {
        let mut placed = self.spread(cx, input.len())?;
        if kernel.len() != input.len() {
            return Err(cx.invalid(format!("kernel {kernel:?} does not match spatial axes {input:?}")));
        }
        for axis in 0..input.len() {
            let extent = input[axis] as i128;
            let stride = placed.strides[axis] as i128;
            let reach = (kernel[axis] as i128 - 1) * placed.dilations[axis] as i128 + 1;
            if matches!(self.auto_pad, AutoPad::SameUpper | AutoPad::SameLower) {
                let output = extent.div_euclid(stride) + i128::from(extent % stride != 0);
                let total = ((output - 1) * stride + reach - extent).max(0);
                let (front, back) = split(total as isize, self.auto_pad);
                placed.pads[axis] = front;
                placed.pads_end[axis] = back;
                placed.output.push(output as usize);
                continue;
            }
            let front = placed.pads[axis] as i128;
            let room = extent + front + placed.pads_end[axis] as i128 - reach;
            if room < 0 {
                return Err(
                    cx.invalid(format!("a window of {reach} is larger than axis {axis} of {input:?} with its padding"))
                );
            }
            let mut output = room / stride + 1;
            if self.ceil {
                output += i128::from(room % stride != 0);
                // The last window may extend past the end, but must start within the input or its leading padding.
                output -= i128::from((output - 1) * stride >= extent + front);
            }
            placed.output.push(output as usize);
        }
        Ok(placed)
    }
}

/// Padding before and after from their sum: `SAME_UPPER` puts the odd element at the end, all others at the start.
pub(super) fn split(total: isize, auto_pad: AutoPad) -> (isize, isize) {
    let half = total / 2;
    if auto_pad == AutoPad::SameUpper { (half, total - half) } else { (total - half, half) }
}

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial};

    /// The output extent of a pool along one axis.
    fn extent(input: usize, build: impl FnOnce(Trial<'_>) -> Trial<'_>) -> Result<usize, String> {
        let shape = [1, 1, input];
        let shapes = build(Trial::new("MaxPool", 12).input(Given::Device(DType::F32, &shape))).shapes()?;
        Ok(shapes[0][2])
    }

    #[test]
    fn windows_past_the_end_count_only_in_ceil_mode() {
        for (input, kernel, stride, pads, ceil, want) in [
            (4, 3, 2, [0, 0], 0, 1),
            (4, 3, 2, [0, 0], 1, 2),
            (5, 3, 2, [0, 0], 1, 2),
            // A window that would start in the trailing padding is dropped.
            (2, 1, 2, [0, 0], 1, 1),
            (1, 2, 2, [1, 1], 1, 1),
            (4, 3, 2, [0, 2], 1, 2),
        ] {
            let found = extent(input, |trial| {
                trial
                    .ints("kernel_shape", &[kernel])
                    .ints("strides", &[stride])
                    .ints("pads", &pads)
                    .int("ceil_mode", ceil)
            });
            assert_eq!(found, Ok(want), "{input} {kernel} {stride} {pads:?} {ceil}");
        }
    }

    #[test]
    fn same_padding_keeps_the_rounded_up_ratio() {
        for mode in ["SAME_UPPER", "SAME_LOWER"] {
            let found =
                extent(7, |trial| trial.ints("kernel_shape", &[4]).ints("strides", &[3]).text("auto_pad", mode));
            assert_eq!(found, Ok(3));
        }
        let valid = extent(7, |trial| trial.ints("kernel_shape", &[4]).ints("strides", &[3]).text("auto_pad", "VALID"));
        assert_eq!(valid, Ok(2));
    }

    #[test]
    fn invalid_attributes_are_rejected() {
        let found = extent(7, |trial| trial.ints("kernel_shape", &[0]));
        assert_eq!(found, Err("kernel_shape [0]".to_owned()));
        let found = extent(7, |trial| trial.ints("kernel_shape", &[3]).ints("strides", &[i64::MAX]));
        assert_eq!(found, Err(format!("strides [{}]", i64::MAX)));
        let found = extent(7, |trial| trial.ints("kernel_shape", &[3, 3]));
        assert_eq!(found, Err("MaxPool: kernel [3, 3] does not match spatial axes [7]".to_owned()));
        let found = extent(2, |trial| trial.ints("kernel_shape", &[3]));
        assert_eq!(found, Err("MaxPool: a window of 3 is larger than axis 0 of [2] with its padding".to_owned()));
        let found =
            extent(7, |trial| trial.ints("kernel_shape", &[3]).ints("dilations", &[2]).text("auto_pad", "SAME_UPPER"));
        assert_eq!(found, Err("ONNX does not define dilations with auto_pad".to_owned()));
    }
}
