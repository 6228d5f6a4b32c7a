//! Parts of a tensor: Slice, Split, Compress.
use smallvec::SmallVec;

use crate::lower::{Lower, SliceSpec};
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Val, shape};

/// Where a Slice's parameters come from.
#[derive(Debug)]
enum Bounds {
    /// Attributes, before opset 10.
    Attributes { starts: Vec<i64>, ends: Vec<i64>, axes: Option<Vec<i64>> },
    /// Inputs 1 to 4.
    Inputs,
}

#[derive(Debug)]
struct Slice {
    bounds: Bounds,
}

impl Slice {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        if node.since_version >= 10 {
            return Ok(Box::new(Self { bounds: Bounds::Inputs }));
        }
        let list = |name: &str| node.attributes.ints(name).map(|list| list.map(<[i64]>::to_vec));
        let missing = |name: &str| Declined::new(format!("attribute {name} is missing"));
        let starts = list("starts")?.ok_or_else(|| missing("starts"))?;
        let ends = list("ends")?.ok_or_else(|| missing("ends"))?;
        Ok(Box::new(Self { bounds: Bounds::Attributes { starts, ends, axes: list("axes")? } }))
    }
}

impl Op for Slice {
    fn name(&self) -> &'static str {
        "Slice"
    }

    fn host_inputs(&self) -> &[usize] {
        match self.bounds {
            Bounds::Attributes { .. } => &[],
            Bounds::Inputs => &[1, 2, 3, 4],
        }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let (starts, ends, axes, steps) = match &self.bounds {
            Bounds::Attributes { starts, ends, axes } => (starts.clone(), ends.clone(), axes.clone(), None),
            Bounds::Inputs => (
                cx.known(inputs, 1)?.to_i64s(),
                cx.known(inputs, 2)?.to_i64s(),
                cx.known_i64s(inputs, 3)?,
                cx.known_i64s(inputs, 4)?,
            ),
        };
        let count = starts.len();
        let axes = axes.unwrap_or_else(|| (0..count as i64).collect());
        let steps = steps.unwrap_or_else(|| vec![1; count]);
        if [ends.len(), axes.len(), steps.len()] != [count; 3] {
            return Err(cx.invalid(format!(
                "got {count} starts, {} ends, {} axes and {} steps",
                ends.len(),
                axes.len(),
                steps.len()
            )));
        }
        let axes = shape::axes(&axes, data.rank())
            .ok_or_else(|| cx.invalid(format!("invalid axes {axes:?} for rank {}", data.rank())))?;
        let mut result = data.clone();
        for (at, &axis) in axes.iter().enumerate() {
            result = cx.slice(&result, axis, SliceSpec { start: starts[at], end: ends[at], step: steps[at] })?;
        }
        Ok(vec![result])
    }
}

/// How a Split's parts are given.
#[derive(Debug)]
enum Parts {
    /// Their extents, before opset 13.
    Attribute(Vec<i64>),
    /// Their extents as input 1.
    Input,
    /// Equal parts; with `uneven` the last may be smaller (opset 18).
    Equal { uneven: bool },
}

#[derive(Debug)]
struct Split {
    axis: i64,
    parts: Parts,
    outputs: usize,
}

impl Split {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        let outputs = node.outputs.len();
        let parts = match node.attributes.ints("split")? {
            Some(list) if node.since_version < 13 => Parts::Attribute(list.to_vec()),
            _ if node.since_version >= 13 && node.optional(1).is_some() => Parts::Input,
            _ => Parts::Equal { uneven: node.since_version >= 18 },
        };
        // Unused trailing outputs may be missing from the node, but they count.
        let outputs = match node.attributes.get("num_outputs") {
            Some(_) if matches!(parts, Parts::Equal { .. }) => {
                let count = node.attributes.int("num_outputs", 0)?;
                usize::try_from(count).ok().filter(|&count| count >= outputs && count > 0).ok_or_else(|| {
                    Declined::new(format!("attribute num_outputs is {count}, but there are {outputs} outputs"))
                })?
            }
            _ => outputs,
        };
        Ok(Box::new(Self { axis: node.attributes.int("axis", 0)?, parts, outputs }))
    }

    fn extents(&self, cx: &Lower<'_>, inputs: &[Option<Val>], whole: usize) -> Result<Vec<usize>, LowerError> {
        let list = match &self.parts {
            Parts::Attribute(list) => list.clone(),
            Parts::Input => cx.known(inputs, 1)?.to_i64s(),
            Parts::Equal { uneven } => {
                let part = whole.div_ceil(self.outputs.max(1));
                let last = whole.checked_sub(part * self.outputs.saturating_sub(1));
                let Some(last) = last.filter(|&last| *uneven || last == part) else {
                    return Err(cx.invalid(format!("{whole} elements cannot be split into {} parts", self.outputs)));
                };
                let mut extents = vec![part; self.outputs];
                if let Some(end) = extents.last_mut() {
                    *end = last;
                }
                return Ok(extents);
            }
        };
        let extents = cx.extents(&list)?;
        let sum = extents.iter().try_fold(0usize, |sum, &extent| sum.checked_add(extent));
        if sum != Some(whole) || extents.len() < self.outputs {
            return Err(cx.invalid(format!("parts of {list:?} do not split {whole} elements into {}", self.outputs)));
        }
        Ok(extents.to_vec())
    }
}

impl Op for Split {
    fn name(&self) -> &'static str {
        "Split"
    }

    fn host_inputs(&self) -> &[usize] {
        match self.parts {
            Parts::Input => &[1],
            _ => &[],
        }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?;
        let axis = cx.axis(self.axis, data.rank())?;
        let mut start = 0;
        let extents = self.extents(cx, inputs, data.shape()[axis])?;
        let parts = extents.into_iter().map(|count| {
            let part = data.sliced(axis, start, 1, count);
            start += count;
            part
        });
        Ok(parts.collect())
    }
}

/// The most elements that the planner examines to determine a shape.
const MAX_SEARCHED_ELEMS: usize = 1 << 24;

#[derive(Debug)]
struct Compress {
    axis: Option<i64>,
}

impl Op for Compress {
    fn name(&self) -> &'static str {
        "Compress"
    }

    fn host_inputs(&self) -> &[usize] {
        &[1]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let data = cx.required(inputs, 0)?.clone();
        let (data, axis) = match self.axis {
            Some(axis) => (data.clone(), cx.axis(axis, data.rank())?),
            None => (cx.reshape(&data, &[data.elems()])?, 0),
        };
        let condition = searched(cx, inputs, 1)?;
        // A shorter condition leaves out the rest; entries beyond the axis are ignored.
        let places: SmallVec<[usize; 16]> = condition
            .into_iter()
            .take(data.shape()[axis])
            .enumerate()
            .filter(|(_, keep)| *keep)
            .map(|(at, _)| at)
            .collect();
        Ok(vec![cx.take(&data, axis, &places)?])
    }
}

/// Declines a node whose output shape depends on the elements of an input, unless these are constant: replanning for
/// every run's values would cost more than it gains.
pub(super) fn require_constant(node: &NodeInfo<'_>, index: usize) -> Result<(), Declined> {
    match node.input(index)?.constant {
        Some(_) => Ok(()),
        None => Err(Declined::new(format!("the output shape depends on the values of input {index}"))),
    }
}

/// Which elements of a known input are not zero, in row-major order.
pub(super) fn searched(cx: &Lower<'_>, inputs: &[Option<Val>], index: usize) -> Result<Vec<bool>, LowerError> {
    let elems = cx.required(inputs, index)?.elems();
    if elems > MAX_SEARCHED_ELEMS {
        return Err(cx.invalid(format!("input {index} has {elems} elements, too many to determine a shape from")));
    }
    Ok(cx.known(inputs, index)?.scalars().map(crate::Scalar::as_bool).collect())
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "Slice", parse: Slice::parse },
    Entry { domain: "", op_type: "Split", parse: Split::parse },
    Entry {
        domain: "",
        op_type: "Compress",
        parse: |node| {
            node.accept(1, |dtype| dtype == DType::Bool)?;
            require_constant(node, 1)?;
            let axis = node.attributes.get("axis").map(|_| node.attributes.int("axis", 0)).transpose()?;
            Ok(Box::new(Compress { axis }))
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::trial::{Given, Trial, ints};

    const SIX: Given<'_> = Given::I64(&[0, 1, 2, 3, 4, 5], &[2, 3]);

    fn one(value: &i64) -> Given<'_> {
        Given::I64(std::slice::from_ref(value), &[1])
    }

    #[test]
    fn slices_clamp_and_run_backwards() {
        for (start, end, axis, step, want) in [
            (0, 2, 1, 1, vec![0, 1, 3, 4]),
            (-1, i64::MIN, 1, -1, vec![2, 1, 0, 5, 4, 3]),
            (1, i64::MAX, -1, 1, vec![1, 2, 4, 5]),
            (0, i64::MAX, 1, 2, vec![0, 2, 3, 5]),
            (5, 9, 0, 1, vec![]),
            (2, 1, 1, 1, vec![]),
        ] {
            let trial = Trial::new("Slice", 13).input(SIX).input(one(&start)).input(one(&end)).input(one(&axis));
            assert_eq!(ints(trial.input(one(&step))).0, want, "{start}:{end}:{step} of {axis}");
        }
    }

    #[test]
    fn slices_of_opset_one_have_attributes() {
        let trial = Trial::new("Slice", 1).ints("starts", &[1, 0]).ints("ends", &[2, -1]).input(SIX);
        assert_eq!(ints(trial), (vec![3, 4], vec![1, 2]));
        assert!(Trial::new("Slice", 1).input(SIX).shapes().is_err());
    }

    #[test]
    fn slices_reject_a_step_of_zero_and_mismatched_lists() {
        let slice = Trial::new("Slice", 13).input(SIX).input(one(&0)).input(one(&1));
        let error = slice.clone().input(one(&0)).input(one(&0)).shapes().unwrap_err();
        assert_eq!(error, "Slice: the slice of axis 0 has a step of 0");
        assert!(slice.clone().input(Given::I64(&[0, 1], &[2])).shapes().is_err());
        assert!(slice.input(one(&2)).shapes().is_err());
    }

    #[test]
    fn splits_by_sizes_from_attribute_and_input_or_equally() {
        let two = [DType::F32; 2];
        let split =
            |since| Trial::new("Split", since).gives(&two).int("axis", -1).input(Given::Device(DType::F32, &[2, 6]));
        assert_eq!(split(11).ints("split", &[2, 4]).shapes().unwrap(), [[2, 2], [2, 4]]);
        assert_eq!(split(13).input(Given::I64(&[5, 1], &[2])).shapes().unwrap(), [[2, 5], [2, 1]]);
        assert_eq!(split(13).input(Given::I64(&[6, 0], &[2])).shapes().unwrap(), [[2, 6], [2, 0]]);
        assert_eq!(split(11).shapes().unwrap(), [[2, 3], [2, 3]]);
        assert_eq!(split(18).int("num_outputs", 2).steps().unwrap(), Vec::<&str>::new());
        assert!(split(13).input(Given::I64(&[5, 2], &[2])).shapes().is_err());
    }

    #[test]
    fn only_from_opset_18_on_the_last_part_may_be_smaller() {
        let three = [DType::F32; 3];
        let split = |since| Trial::new("Split", since).gives(&three).input(Given::Device(DType::F32, &[7]));
        assert_eq!(split(18).int("num_outputs", 3).shapes().unwrap(), [[3], [3], [1]]);
        assert!(split(13).shapes().is_err());
    }

    #[test]
    fn compress_keeps_the_selected_elements() {
        let keep = |values, shape| Given::Numbers(DType::Bool, values, shape);
        let trial = Trial::new("Compress", 11).input(SIX);
        let rows = trial.clone().int("axis", 0).input(keep(&[0.0, 1.0], &[2]));
        assert_eq!(ints(rows), (vec![3, 4, 5], vec![1, 3]));
        let flat = trial.clone().input(keep(&[0.0, 1.0, 0.0, 1.0, 1.0], &[5]));
        assert_eq!(ints(flat), (vec![1, 3, 4], vec![3]));
        let unknown = trial.input(Given::Device(DType::Bool, &[2]));
        assert_eq!(unknown.shapes().unwrap_err(), "the output shape depends on the values of input 1");
    }
}
