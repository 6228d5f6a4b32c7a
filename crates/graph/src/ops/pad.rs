//! Borders: Pad, CenterCropPad.
use smallvec::SmallVec;

use crate::lower::{Lower, Outside};
use crate::ops::reshape::AxesFrom;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{Declined, LowerError, Scalar, Val};

/// Where a Pad's parameters come from.
#[derive(Debug)]
enum Amounts {
    /// Attributes, before opset 11.
    Attributes { pads: Vec<i64>, fill: f32 },
    /// Pads as input 1, the fill as input 2, axes as input 3.
    Inputs,
}

#[derive(Debug)]
struct Pad {
    amounts: Amounts,
    /// How a tensor is padded with its own elements; `None` for a constant.
    outside: Option<Outside>,
}

impl Pad {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        let outside = match node.attributes.text("mode", "constant")? {
            "constant" => None,
            "edge" => Some(Outside::Edge),
            "reflect" => Some(Outside::Reflect),
            "wrap" => Some(Outside::Wrap),
            other => return Err(Declined::new(format!("unsupported mode {other:?}"))),
        };
        let amounts = if node.since_version >= 11 {
            Amounts::Inputs
        } else {
            let pads = node.attributes.ints("pads")?.ok_or_else(|| Declined::new("attribute pads is missing"))?;
            Amounts::Attributes { pads: pads.to_vec(), fill: node.attributes.float("value", 0.0)? }
        };
        Ok(Box::new(Self { amounts, outside }))
    }
}

impl Op for Pad {
    fn name(&self) -> &'static str {
        "Pad"
    }

    fn host_inputs(&self) -> &[usize] {
        match self.amounts {
            Amounts::Attributes { .. } => &[],
            Amounts::Inputs => &[1, 3],
        }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let (pads, fill, axes) = match &self.amounts {
            Amounts::Attributes { pads, fill } => {
                (pads.clone(), Some(Val::scalar(data.dtype(), Scalar::Float(f64::from(*fill)))), None)
            }
            Amounts::Inputs => {
                let axes = AxesFrom::Input(3).resolve(cx, inputs, data.rank())?;
                (cx.known(inputs, 1)?.to_i64s(), inputs.get(2).cloned().flatten(), axes)
            }
        };
        let axes = axes.unwrap_or_else(|| (0..data.rank()).collect());
        if pads.len() != axes.len() * 2 {
            return Err(cx.invalid(format!("got {} pads for {} axes", pads.len(), axes.len())));
        }
        let mut inside = data.clone();
        let mut around = [SmallVec::<[usize; 6]>::from_elem(0, data.rank()), SmallVec::from_elem(0, data.rank())];
        for (at, &axis) in axes.iter().enumerate() {
            let amounts = [pads[at], pads[axes.len() + at]];
            // Negative pads crop first; the positive ones then pad the rest.
            let [before, after] = amounts.map(|amount| usize::try_from(-i128::from(amount)).unwrap_or(0));
            let left = data.shape()[axis].checked_sub(before).and_then(|left| left.checked_sub(after));
            let left = left.ok_or_else(|| {
                cx.invalid(format!(
                    "pads {amounts:?} remove more than the {} elements of axis {axis}",
                    data.shape()[axis]
                ))
            })?;
            inside = inside.sliced(axis, before, 1, left);
            for (side, amount) in around.iter_mut().zip(amounts) {
                side[axis] = usize::try_from(amount).unwrap_or(0);
            }
        }
        let [before, after] = around;
        let result = match self.outside {
            Some(outside) => cx.pad_with_itself(&inside, &before, &after, outside)?,
            None => {
                let fill = fill.unwrap_or_else(|| Val::scalar(data.dtype(), Scalar::zero(data.dtype())));
                cx.pad_constant(&inside, &before, &after, &fill)?
            }
        };
        Ok(vec![result])
    }
}

#[derive(Debug)]
struct CenterCropPad {
    axes: Option<Vec<i64>>,
}

impl Op for CenterCropPad {
    fn name(&self) -> &'static str {
        "CenterCropPad"
    }

    fn host_inputs(&self) -> &[usize] {
        &[1]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let wanted = cx.extents(&cx.known(inputs, 1)?.to_i64s())?;
        let axes = AxesFrom::Attribute(self.axes.clone()).resolve(cx, inputs, data.rank())?;
        let axes = axes.unwrap_or_else(|| (0..data.rank()).collect());
        if wanted.len() != axes.len() {
            return Err(cx.invalid(format!("got {} extents for {} axes", wanted.len(), axes.len())));
        }
        let mut inside = data.clone();
        let mut before: SmallVec<[usize; 6]> = SmallVec::from_elem(0, data.rank());
        let mut after = before.clone();
        for (&axis, &wanted) in axes.iter().zip(&wanted) {
            let extent = data.shape()[axis];
            let excess = extent.saturating_sub(wanted);
            inside = inside.sliced(axis, excess / 2, 1, extent - excess);
            let missing = wanted.saturating_sub(extent);
            (before[axis], after[axis]) = (missing / 2, missing - missing / 2);
        }
        let zero = Val::scalar(data.dtype(), Scalar::zero(data.dtype()));
        Ok(vec![cx.pad_constant(&inside, &before, &after, &zero)?])
    }
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "Pad", parse: Pad::parse },
    Entry {
        domain: "",
        op_type: "CenterCropPad",
        parse: |node| Ok(Box::new(CenterCropPad { axes: node.attributes.ints("axes")?.map(<[i64]>::to_vec) })),
    },
];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial, ints, numbers};

    const FOUR: Given<'_> = Given::I64(&[1, 2, 3, 4], &[4]);

    fn pad<'a>(mode: &str, pads: &'a [i64]) -> Trial<'a> {
        Trial::new("Pad", 19).text("mode", mode).input(FOUR).input(Given::I64(pads, &[2]))
    }

    #[test]
    fn each_mode_pads_as_numpy_does() {
        assert_eq!(ints(pad("constant", &[1, 2])).0, [0, 1, 2, 3, 4, 0, 0]);
        assert_eq!(ints(pad("constant", &[1, 0]).input(Given::I64(&[9], &[]))).0, [9, 1, 2, 3, 4]);
        assert_eq!(ints(pad("edge", &[2, 1])).0, [1, 1, 1, 2, 3, 4, 4]);
        assert_eq!(ints(pad("reflect", &[2, 1])).0, [3, 2, 1, 2, 3, 4, 3]);
        assert_eq!(ints(pad("reflect", &[4, 5])).0, [3, 4, 3, 2, 1, 2, 3, 4, 3, 2, 1, 2, 3]);
        assert_eq!(ints(pad("wrap", &[1, 5])).0, [4, 1, 2, 3, 4, 1, 2, 3, 4, 1]);
        assert!(pad("circular", &[1, 1]).shapes().is_err());
    }

    #[test]
    fn negative_pads_crop_before_positive_pads_are_added() {
        assert_eq!(ints(pad("constant", &[-1, -2])).0, [2]);
        assert_eq!(ints(pad("constant", &[-2, 1])).0, [3, 4, 0]);
        assert_eq!(ints(pad("edge", &[-1, 2])).0, [2, 3, 4, 4, 4]);
        assert!(pad("constant", &[-3, -2]).shapes().is_err());
        assert!(pad("constant", &[i64::MIN, 0]).shapes().is_err());
    }

    #[test]
    fn pads_follow_the_order_of_the_axes() {
        let data = Given::I64(&[1, 2, 3, 4], &[2, 2]);
        let pads = Given::I64(&[1, 0, 0, 1], &[4]);
        let pad = Trial::new("Pad", 18).input(data).input(pads).input(Given::Absent).input(Given::I64(&[-1, 0], &[2]));
        assert_eq!(ints(pad), (vec![0, 1, 2, 0, 3, 4, 0, 0, 0], vec![3, 3]));
    }

    #[test]
    fn pads_of_opset_two_are_attributes() {
        let data = Given::Numbers(DType::F32, &[1.0, 2.0], &[2]);
        let pad = Trial::new("Pad", 2).ints("pads", &[1, 0]).float("value", 0.5).input(data);
        assert_eq!(numbers(pad), [0.5, 1.0, 2.0]);
    }

    #[test]
    fn absurd_pads_are_rejected() {
        for mode in ["constant", "edge", "reflect", "wrap"] {
            assert!(pad(mode, &[i64::MAX, i64::MAX]).shapes().is_err(), "{mode}");
        }
        let empty = Trial::new("Pad", 18).text("mode", "edge").input(Given::Device(DType::F32, &[0]));
        assert!(empty.input(Given::I64(&[1, 1], &[2])).shapes().is_err());
    }

    #[test]
    fn a_border_around_several_axes_is_filled_once() {
        let image = Given::Device(DType::F32, &[1, 3, 8, 8]);
        let pad = Trial::new("Pad", 18).input(image).input(Given::I64(&[0, 0, 1, 1, 0, 0, 1, 1], &[8]));
        assert_eq!((pad.shapes().unwrap(), pad.steps().unwrap()), (vec![vec![1, 3, 10, 10]], vec!["map", "map"]));
    }

    #[test]
    fn centre_crop_pad_keeps_the_middle() {
        let crop_pad = |shape| ints(Trial::new("CenterCropPad", 18).ints("axes", &[0]).input(FOUR).input(shape)).0;
        assert_eq!(crop_pad(Given::I64(&[2], &[1])), [2, 3]);
        assert_eq!(crop_pad(Given::I64(&[1], &[1])), [2]);
        assert_eq!(crop_pad(Given::I64(&[7], &[1])), [0, 1, 2, 3, 4, 0, 0]);
    }
}
