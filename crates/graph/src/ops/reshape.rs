//! The same elements with another shape: Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Expand, Tile.
use smallvec::SmallVec;

use crate::lower::Lower;
use crate::ops::{Entry, Meaning, NodeInfo, Op};
use crate::{Declined, LowerError, Shape, Val, shape};

/// Where a node's axes come from: an attribute in older opsets, an input in newer ones, or nowhere.
#[derive(Debug, Clone)]
pub(super) enum AxesFrom {
    /// An attribute, or nothing.
    Attribute(Option<Vec<i64>>),
    /// An optional input.
    Input(usize),
}

impl AxesFrom {
    /// Where a node's axes come from; they became input `index` with version `since`.
    pub(super) fn read(node: &NodeInfo<'_>, index: usize, since: i32) -> Result<Self, Declined> {
        if node.since_version >= since {
            return Ok(Self::Input(index));
        }
        Ok(Self::Attribute(node.attributes.ints("axes")?.map(<[i64]>::to_vec)))
    }

    /// The axes as indices from the start; `None` if omitted.
    pub(super) fn resolve(
        &self,
        cx: &Lower<'_>,
        inputs: &[Option<Val>],
        rank: usize,
    ) -> Result<Option<SmallVec<[usize; 6]>>, LowerError> {
        let list = match self {
            Self::Attribute(list) => list.clone(),
            Self::Input(index) => cx.known_i64s(inputs, *index)?,
        };
        let Some(list) = list else { return Ok(None) };
        match shape::axes(&list, rank) {
            Some(axes) => Ok(Some(axes)),
            None => Err(cx.invalid(format!("invalid axes {list:?} for rank {rank}"))),
        }
    }

    fn host_inputs(&self) -> &'static [usize] {
        match self {
            Self::Attribute(_) => &[],
            // Every operator here takes its axes as the second input.
            Self::Input(_) => &[1],
        }
    }
}

impl Lower<'_> {
    /// An axis of a value; negative counts from the end.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize, LowerError> {
        shape::axis(axis, rank).ok_or_else(|| self.invalid(format!("axis {axis} is out of range for rank {rank}")))
    }

    /// Extents given as numbers by the model.
    pub(super) fn extents(&self, numbers: &[i64]) -> Result<Shape, LowerError> {
        let extents: Option<Shape> = numbers.iter().map(|&number| usize::try_from(number).ok()).collect();
        extents.ok_or_else(|| self.invalid(format!("shape {numbers:?} has a negative extent")))
    }
}

#[derive(Debug)]
struct Reshape {
    allow_zero: bool,
}

impl Reshape {
    fn shape(&self, from: &[usize], wanted: &[i64]) -> Result<Shape, String> {
        let mut to = Shape::new();
        let mut open = None;
        for (at, &number) in wanted.iter().enumerate() {
            to.push(match number {
                0 if self.allow_zero => 0,
                0 => *from
                    .get(at)
                    .ok_or_else(|| format!("extent {at} of {wanted:?} is copied from {from:?}, which is too short"))?,
                -1 if open.is_none() => {
                    open = Some(at);
                    1
                }
                1.. => number as usize,
                _ => return Err(format!("{wanted:?} is not a valid shape")),
            });
        }
        if let Some(at) = open {
            let (have, rest) = (shape::elems(from).unwrap_or(0), shape::elems(&to).unwrap_or(0));
            to[at] = have
                .checked_div(rest)
                .filter(|open| open * rest == have)
                .ok_or_else(|| format!("shape {from:?} cannot be reshaped to {wanted:?}"))?;
        }
        Ok(to)
    }
}

impl Op for Reshape {
    fn name(&self) -> &'static str {
        "Reshape"
    }

    fn host_inputs(&self) -> &[usize] {
        &[1]
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Reshape { copies_zeros: !self.allow_zero }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let wanted = cx.known(inputs, 1)?.to_i64s();
        let to = self.shape(data.shape(), &wanted).map_err(|reason| cx.invalid(reason))?;
        Ok(vec![cx.reshape(data, &to)?])
    }
}

#[derive(Debug)]
struct Flatten {
    axis: i64,
}

impl Op for Flatten {
    fn name(&self) -> &'static str {
        "Flatten"
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Reshaped
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        // The axis may be one past the last.
        let rank = data.rank() as i64;
        let axis = if self.axis < 0 { self.axis + rank } else { self.axis };
        if !(0..=rank).contains(&axis) {
            return Err(cx.invalid(format!("axis {} is out of range for rank {rank}", self.axis)));
        }
        let (outer, inner) = data.shape().split_at(axis as usize);
        let to = [shape::elems(outer).unwrap_or(usize::MAX), shape::elems(inner).unwrap_or(usize::MAX)];
        Ok(vec![cx.reshape(data, &to)?])
    }
}

#[derive(Debug)]
struct Squeeze {
    axes: AxesFrom,
}

impl Op for Squeeze {
    fn name(&self) -> &'static str {
        "Squeeze"
    }

    fn host_inputs(&self) -> &[usize] {
        self.axes.host_inputs()
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Reshaped
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let axes = self.axes.resolve(cx, inputs, data.rank())?;
        let axes = axes.unwrap_or_else(|| (0..data.rank()).filter(|&axis| data.shape()[axis] == 1).collect());
        if let Some(axis) = axes.iter().find(|&&axis| data.shape()[axis] != 1) {
            return Err(cx.invalid(format!("axis {axis} of {:?} cannot be squeezed", data.shape())));
        }
        let mut result = data.clone();
        for axis in (0..data.rank()).rev().filter(|axis| axes.contains(axis)) {
            result = result.squeezed(axis);
        }
        Ok(vec![result])
    }
}

#[derive(Debug)]
struct Unsqueeze {
    axes: AxesFrom,
}

impl Op for Unsqueeze {
    fn name(&self) -> &'static str {
        "Unsqueeze"
    }

    fn host_inputs(&self) -> &[usize] {
        self.axes.host_inputs()
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Reshaped
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let count = match &self.axes {
            AxesFrom::Attribute(axes) => axes.as_ref().map_or(0, Vec::len),
            AxesFrom::Input(index) => cx.required(inputs, *index)?.elems(),
        };
        let mut axes = self.axes.resolve(cx, inputs, data.rank() + count)?.unwrap_or_default();
        axes.sort_unstable();
        let result = axes.iter().fold(data.clone(), |value, &axis| value.unsqueezed(axis));
        Ok(vec![result])
    }
}

#[derive(Debug)]
struct Transpose {
    order: Option<Vec<i64>>,
}

impl Op for Transpose {
    fn name(&self) -> &'static str {
        "Transpose"
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Transpose(self.order.as_deref())
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let order = match &self.order {
            None => (0..data.rank()).rev().collect(),
            Some(order) => shape::axes(order, data.rank())
                .filter(|axes| axes.len() == data.rank())
                .ok_or_else(|| cx.invalid(format!("{order:?} is not a permutation of {} axes", data.rank())))?,
        };
        Ok(vec![data.permuted(&order)])
    }
}

#[derive(Debug)]
struct Expand;

impl Op for Expand {
    fn name(&self) -> &'static str {
        "Expand"
    }

    fn host_inputs(&self) -> &[usize] {
        &[1]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let wanted = cx.extents(&cx.known(inputs, 1)?.to_i64s())?;
        let to = shape::broadcast(data.shape(), &wanted).ok_or_else(|| {
            cx.invalid(format!("shapes {:?} and {:?} cannot be broadcast together", data.shape(), wanted.as_slice()))
        })?;
        Ok(vec![cx.expand(data, &to)?])
    }
}

#[derive(Debug)]
struct Tile;

impl Op for Tile {
    fn name(&self) -> &'static str {
        "Tile"
    }

    fn host_inputs(&self) -> &[usize] {
        &[1]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let repeats = cx.extents(&cx.known(inputs, 1)?.to_i64s())?;
        if repeats.len() != data.rank() {
            return Err(cx.invalid(format!("got {} repeats for {} axes", repeats.len(), data.rank())));
        }
        // A repeated axis becomes two, the outer of which is broadcast; an axis of one element is broadcast itself.
        let (mut view, mut spread, mut to) = (data.clone(), Shape::new(), Shape::new());
        for (axis, (&extent, &times)) in data.shape().iter().zip(&repeats).enumerate() {
            let whole = extent.checked_mul(times);
            to.push(whole.ok_or_else(|| cx.invalid(format!("axis {axis} repeated {times} times is too large")))?);
            if times != 1 && extent != 1 {
                view = view.unsqueezed(spread.len());
                spread.push(times);
                spread.push(extent);
            } else {
                spread.push(times * extent);
            }
        }
        let view = cx.expand(&view, &spread)?;
        Ok(vec![cx.reshape(&view, &to)?])
    }
}

pub(super) const OPS: &[Entry] = &[
    Entry {
        domain: "",
        op_type: "Reshape",
        parse: |node| Ok(Box::new(Reshape { allow_zero: node.attributes.flag("allowzero")? })),
    },
    Entry {
        domain: "",
        op_type: "Flatten",
        parse: |node| Ok(Box::new(Flatten { axis: node.attributes.int("axis", 1)? })),
    },
    Entry {
        domain: "",
        op_type: "Squeeze",
        parse: |node| Ok(Box::new(Squeeze { axes: AxesFrom::read(node, 1, 13)? })),
    },
    Entry {
        domain: "",
        op_type: "Unsqueeze",
        parse: |node| {
            let axes = AxesFrom::read(node, 1, 13)?;
            match axes {
                AxesFrom::Attribute(None) => Err(Declined::new("attribute axes is missing")),
                _ => Ok(Box::new(Unsqueeze { axes })),
            }
        },
    },
    Entry {
        domain: "",
        op_type: "Transpose",
        parse: |node| Ok(Box::new(Transpose { order: node.attributes.ints("perm")?.map(<[i64]>::to_vec) })),
    },
    Entry { domain: "", op_type: "Expand", parse: |_| Ok(Box::new(Expand)) },
    Entry {
        domain: "",
        op_type: "Tile",
        parse: |node| {
            // Opset 1 repeated one axis, given by two scalars.
            if node.since_version < 6 {
                Err(Declined::new("Tile of opset 1 is not supported"))
            } else {
                Ok(Box::new(Tile))
            }
        },
    },
];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial, ints};

    #[test]
    fn reshape_resolves_zeros_and_minus_one() {
        for (from, wanted, allow_zero, want) in [
            (&[2, 3, 4][..], &[4, 6][..], 0, Some(&[4, 6][..])),
            (&[2, 3, 4], &[0, -1], 0, Some(&[2, 12])),
            (&[2, 3, 4], &[-1, 0, 0], 0, Some(&[2, 3, 4])),
            (&[0, 3], &[0, 3], 0, Some(&[0, 3])),
            (&[0, 3], &[3, 0], 1, Some(&[3, 0])),
            (&[0, 3], &[3, 0], 0, None),
            (&[0, 3], &[0, -1], 1, None),
            (&[1], &[], 0, Some(&[])),
            (&[2, 3], &[-1, -1], 0, None),
            (&[2, 3], &[-2, 3], 0, None),
            (&[2, 3], &[4, -1], 0, None),
            (&[2], &[2, 0], 0, None),
        ] {
            let trial = Trial::new("Reshape", 14).int("allowzero", allow_zero);
            let extent = [wanted.len()];
            let trial = trial.input(Given::Device(DType::F32, from)).input(Given::I64(wanted, &extent));
            let shape = trial.shapes().map(|shapes| shapes[0].clone());
            assert_eq!(shape.ok().as_deref(), want, "{from:?} to {wanted:?}, allowzero {allow_zero}");
        }
    }

    #[test]
    fn flatten_accepts_an_axis_one_past_the_last() {
        for (axis, want) in [(0, [1, 24]), (1, [2, 12]), (-1, [6, 4]), (3, [24, 1])] {
            let trial = Trial::new("Flatten", 13).int("axis", axis).input(Given::Device(DType::F32, &[2, 3, 4]));
            assert_eq!(trial.shapes().unwrap(), [want], "axis {axis}");
        }
        let scalar = Trial::new("Flatten", 13).int("axis", 0).input(Given::Device(DType::F32, &[]));
        assert_eq!(scalar.shapes().unwrap(), [[1, 1]]);
        let outside = Trial::new("Flatten", 13).int("axis", 4).input(Given::Device(DType::F32, &[2, 3, 4]));
        assert!(outside.shapes().is_err());
    }

    #[test]
    fn squeeze_and_unsqueeze_take_axes_from_attribute_or_input() {
        let data = Given::Device(DType::F32, &[1, 3, 1, 5]);
        let squeeze = |since| Trial::new("Squeeze", since).input(data);
        assert_eq!(squeeze(11).ints("axes", &[0]).shapes().unwrap(), [[3, 1, 5]]);
        assert_eq!(squeeze(13).input(Given::I64(&[-2], &[1])).shapes().unwrap(), [[1, 3, 5]]);
        assert_eq!(squeeze(13).shapes().unwrap(), [[3, 5]]);
        assert!(squeeze(11).ints("axes", &[1]).shapes().is_err());
        let unsqueeze = |since| Trial::new("Unsqueeze", since).input(Given::Device(DType::F32, &[3, 4]));
        assert_eq!(unsqueeze(11).ints("axes", &[0, 3]).shapes().unwrap(), [[1, 3, 4, 1]]);
        assert_eq!(unsqueeze(13).input(Given::I64(&[-1, 0, 2], &[3])).shapes().unwrap(), [[1, 3, 1, 4, 1]]);
        assert!(unsqueeze(13).input(Given::I64(&[0, 0], &[2])).shapes().is_err());
        assert!(unsqueeze(11).shapes().is_err());
    }

    #[test]
    fn views_take_no_step() {
        for trial in [
            Trial::new("Transpose", 13).input(Given::Device(DType::F32, &[2, 3])),
            Trial::new("Expand", 13).input(Given::Device(DType::F32, &[2, 1])).input(Given::I64(&[3, 1, 4], &[3])),
            Trial::new("Tile", 13).input(Given::Device(DType::F32, &[2, 1])).input(Given::I64(&[1, 4], &[2])),
        ] {
            assert_eq!(trial.steps().unwrap(), Vec::<&str>::new(), "{trial:?}");
        }
    }

    #[test]
    fn known_values_move_as_numpy_moves_them() {
        let six = Given::I64(&[0, 1, 2, 3, 4, 5], &[2, 3]);
        assert_eq!(ints(Trial::new("Transpose", 13).input(six)), (vec![0, 3, 1, 4, 2, 5], vec![3, 2]));
        let order = Trial::new("Transpose", 13).ints("perm", &[1, 0]).input(six);
        assert_eq!(ints(order), (vec![0, 3, 1, 4, 2, 5], vec![3, 2]));
        assert!(Trial::new("Transpose", 13).ints("perm", &[0]).input(six).shapes().is_err());
        let tile = Trial::new("Tile", 13).input(Given::I64(&[1, 2], &[1, 2])).input(Given::I64(&[2, 2], &[2]));
        assert_eq!(ints(tile), (vec![1, 2, 1, 2, 1, 2, 1, 2], vec![2, 4]));
        let nothing = Trial::new("Tile", 13).input(six).input(Given::I64(&[0, 1], &[2]));
        assert_eq!(ints(nothing), (vec![], vec![0, 3]));
        let expand = Trial::new("Expand", 13).input(Given::I64(&[7, 8], &[2, 1])).input(Given::I64(&[1, 2], &[2]));
        assert_eq!(ints(expand), (vec![7, 7, 8, 8], vec![2, 2]));
    }
}
