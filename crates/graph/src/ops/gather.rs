//! Reading by index: Gather, GatherElements, GatherND, ReverseSequence, and NonZero.
use smallvec::SmallVec;

use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::slice::{require_constant, searched};
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Shape, Val};

pub(super) const fn is_index(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::I64)
}

#[derive(Debug)]
struct Gather {
    axis: i64,
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        "Gather"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (data, indices) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let axis = cx.axis(self.axis, data.rank())?;
        Ok(vec![cx.gather(data, indices, axis)?])
    }
}

#[derive(Debug)]
struct GatherElements {
    axis: i64,
}

impl Op for GatherElements {
    fn name(&self) -> &'static str {
        "GatherElements"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (data, indices) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let axis = cx.axis(self.axis, data.rank())?;
        Ok(vec![cx.gather_elements(data, indices, axis)?])
    }
}

#[derive(Debug)]
struct GatherNd {
    batch_dims: usize,
}

impl GatherNd {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        node.accept(1, is_index)?;
        let batch = node.attributes.int("batch_dims", 0)?;
        let batch_dims = usize::try_from(batch).map_err(|_| Declined::new(format!("batch_dims {batch}")))?;
        Ok(Box::new(Self { batch_dims }))
    }
}

impl Op for GatherNd {
    fn name(&self) -> &'static str {
        "GatherND"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (data, indices) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        Ok(vec![cx.gather_nd(data, indices, self.batch_dims)?])
    }
}

#[derive(Debug)]
struct ReverseSequence {
    batch_axis: usize,
    time_axis: usize,
}

impl ReverseSequence {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        node.accept(1, is_index)?;
        let axes = (node.attributes.int("batch_axis", 1)?, node.attributes.int("time_axis", 0)?);
        match axes {
            (0, 1) => Ok(Box::new(Self { batch_axis: 0, time_axis: 1 })),
            (1, 0) => Ok(Box::new(Self { batch_axis: 1, time_axis: 0 })),
            (batch, time) => Err(Declined::new(format!("batch_axis {batch} with time_axis {time} is not supported"))),
        }
    }
}

impl Op for ReverseSequence {
    fn name(&self) -> &'static str {
        "ReverseSequence"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (data, lengths) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        if data.rank() < 2 || lengths.shape() != &data.shape()[self.batch_axis..=self.batch_axis] {
            return Err(cx.invalid(format!(
                "lengths of shape {:?} do not match data of shape {:?}",
                lengths.shape(),
                data.shape()
            )));
        }
        // The source of step t: the step mirrored within the sequence, or t itself after its end.
        let lengths = cx.cast(lengths, DType::I64)?;
        let lengths = if self.batch_axis == 0 { lengths.unsqueezed(1) } else { lengths };
        let mut places = cx.map_to(&[&lengths], DType::I64, &data.shape()[..2], |expr, arguments| {
            let step = expr.index(self.time_axis as u16);
            let one = expr.constant(crate::Scalar::Int(1), DType::I64);
            let last = expr.binary(Binary::Sub, arguments[0], one);
            let mirrored = expr.binary(Binary::Sub, last, step);
            let inside = expr.binary(Binary::Lt, step, arguments[0]);
            expr.select(inside, mirrored, step)
        })?;
        for axis in 2..data.rank() {
            places = places.unsqueezed(axis);
        }
        let places = cx.expand(&places, &Shape::from(data.shape()))?;
        Ok(vec![cx.gather_elements(data, &places, self.time_axis)?])
    }
}

/// The indices of non-zero elements, axis by axis; for constants only.
#[derive(Debug)]
struct NonZero;

impl Op for NonZero {
    fn name(&self) -> &'static str {
        "NonZero"
    }

    fn host_inputs(&self) -> &[usize] {
        &[0]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let shape: Shape = cx.required(inputs, 0)?.shape().into();
        let flags = searched(cx, inputs, 0)?;
        // A scalar counts as a vector of one element.
        let extents: SmallVec<[usize; 6]> = if shape.is_empty() { SmallVec::from_slice(&[1]) } else { shape };
        let found: Vec<usize> = flags.iter().enumerate().filter(|(_, flag)| **flag).map(|(at, _)| at).collect();
        let mut coordinates = Vec::with_capacity(found.len() * extents.len());
        for axis in 0..extents.len() {
            let inner: usize = extents[axis + 1..].iter().product();
            coordinates.extend(found.iter().map(|at| (at / inner % extents[axis]) as i64));
        }
        let vector = Val::i64s(&coordinates);
        Ok(vec![cx.reshape(&vector, &[extents.len(), found.len()])?])
    }
}

pub(super) const OPS: &[Entry] = &[
    Entry {
        domain: "",
        op_type: "Gather",
        parse: |node| {
            node.accept(1, is_index)?;
            Ok(Box::new(Gather { axis: node.attributes.int("axis", 0)? }))
        },
    },
    Entry {
        domain: "",
        op_type: "GatherElements",
        parse: |node| {
            node.accept(1, is_index)?;
            Ok(Box::new(GatherElements { axis: node.attributes.int("axis", 0)? }))
        },
    },
    Entry { domain: "", op_type: "GatherND", parse: GatherNd::parse },
    // From before ONNX had it.
    Entry { domain: "com.microsoft", op_type: "GatherND", parse: GatherNd::parse },
    Entry { domain: "", op_type: "ReverseSequence", parse: ReverseSequence::parse },
    Entry {
        domain: "",
        op_type: "NonZero",
        parse: |node| {
            require_constant(node, 0)?;
            Ok(Box::new(NonZero))
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::trial::{Given, Trial, ints};

    const SIX: Given<'_> = Given::I64(&[0, 1, 2, 3, 4, 5], &[2, 3]);

    fn gather(axis: i64, indices: Given<'static>) -> Trial<'static> {
        Trial::new("Gather", 13).int("axis", axis).input(SIX).input(indices)
    }

    #[test]
    fn gather_replaces_the_axis_by_the_axes_of_the_indices() {
        assert_eq!(ints(gather(1, Given::I64(&[2, 0, -2, 2], &[2, 2]))), (vec![2, 0, 1, 2, 5, 3, 4, 5], vec![2, 2, 2]));
        assert_eq!(ints(gather(0, Given::I64(&[-1], &[]))), (vec![3, 4, 5], vec![3]));
        assert_eq!(ints(gather(-1, Given::I64(&[], &[0]))), (vec![], vec![2, 0]));
        let error = gather(1, Given::I64(&[3], &[1])).shapes().unwrap_err();
        assert_eq!(error, "Gather: index 3 is out of range for an axis of 3 elements");
    }

    #[test]
    fn gathering_evenly_spaced_known_indices_is_a_view() {
        let data = Given::Device(DType::F32, &[4, 5]);
        for (indices, steps) in [
            (Given::I64(&[2], &[]), vec![]),
            (Given::I64(&[0, 2], &[2]), vec![]),
            (Given::I64(&[1, 1, 1, 1], &[2, 2]), vec![]),
            (Given::I64(&[0, 1, 3], &[3]), vec!["gather"]),
            (Given::Device(DType::I32, &[3]), vec!["gather"]),
        ] {
            let trial = Trial::new("Gather", 13).input(data).input(indices);
            assert_eq!(trial.steps().unwrap(), steps, "{indices:?}");
        }
    }

    #[test]
    fn gathering_from_an_empty_axis_is_an_error() {
        let gather = |indices| Trial::new("Gather", 13).input(Given::Device(DType::F32, &[0, 2])).input(indices);
        assert!(gather(Given::Device(DType::I64, &[1])).shapes().is_err());
        assert_eq!(gather(Given::Device(DType::I64, &[0])).shapes().unwrap(), [[0, 2]]);
    }

    #[test]
    fn gather_elements_takes_one_element_for_each_index() {
        let trial = Trial::new("GatherElements", 13).int("axis", 1).input(SIX);
        assert_eq!(ints(trial.clone().input(Given::I64(&[2, 0, -1, 1], &[2, 2]))), (vec![2, 0, 5, 4], vec![2, 2]));
        assert!(trial.clone().input(Given::I64(&[0; 3], &[3, 1])).shapes().is_err());
        assert!(trial.clone().input(Given::I64(&[0], &[1])).shapes().is_err());
        assert_eq!(trial.input(Given::Device(DType::I64, &[1, 7])).steps().unwrap(), ["gather_elements"]);
    }

    #[test]
    fn gather_nd_takes_slices_by_tuples() {
        let trial = |batch| Trial::new("GatherND", 13).int("batch_dims", batch).input(SIX);
        assert_eq!(ints(trial(0).input(Given::I64(&[1, 0, 0, -1], &[2, 2]))), (vec![3, 2], vec![2]));
        assert_eq!(ints(trial(0).input(Given::I64(&[1], &[1, 1]))), (vec![3, 4, 5], vec![1, 3]));
        assert_eq!(ints(trial(1).input(Given::I64(&[2, 1], &[2, 1]))), (vec![2, 4], vec![2]));
        assert!(trial(0).input(Given::I64(&[0; 3], &[1, 3])).shapes().is_err());
        assert!(trial(1).input(Given::I64(&[0], &[1, 1])).shapes().is_err());
        assert!(trial(0).input(Given::I64(&[2, 0], &[1, 2])).shapes().is_err());
    }

    #[test]
    fn reversal_stops_at_each_length() {
        let data = Given::I64(&[0, 1, 2, 3, 4, 5, 6, 7], &[4, 2]);
        let trial = |batch, time| Trial::new("ReverseSequence", 10).int("batch_axis", batch).int("time_axis", time);
        let by_column = trial(1, 0).input(data).input(Given::I64(&[3, 1], &[2]));
        assert_eq!(ints(by_column).0, [4, 1, 2, 3, 0, 5, 6, 7]);
        let by_row = trial(0, 1).input(data).input(Given::I64(&[2, 1, 0, 2], &[4]));
        assert_eq!(ints(by_row).0, [1, 0, 2, 3, 4, 5, 7, 6]);
        let too_long = trial(1, 0).input(data).input(Given::I64(&[5, 1], &[2]));
        assert!(too_long.shapes().is_err());
    }

    #[test]
    fn non_zero_lists_coordinates_by_axis() {
        let trial = |given| Trial::new("NonZero", 13).gives(&[DType::I64]).input(given);
        assert_eq!(ints(trial(SIX)), (vec![0, 0, 1, 1, 1, 1, 2, 0, 1, 2], vec![2, 5]));
        assert_eq!(ints(trial(Given::Numbers(DType::Bool, &[1.0], &[]))), (vec![0], vec![1, 1]));
        assert_eq!(ints(trial(Given::Numbers(DType::F32, &[0.0; 2], &[2]))), (vec![], vec![1, 0]));
        assert!(trial(Given::Device(DType::F32, &[2])).shapes().is_err());
    }
}
