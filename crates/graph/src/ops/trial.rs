//! One node alone, for the tests of the operator families.
use crate::lower::{self, InputSpec, Lowered};
use crate::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use crate::{DType, Graph, Node, Scalar, Shape, Tensor};

/// An input of a trial.
#[derive(Clone, Copy, Debug)]
pub(super) enum Given<'a> {
    /// Left out.
    Absent,
    /// Known only on the device.
    Device(DType, &'a [usize]),
    /// Known 64-bit integers.
    I64(&'a [i64], &'a [usize]),
    /// Known numbers of any type.
    Numbers(DType, &'a [f64], &'a [usize]),
}

/// Floats known only on the device.
pub(super) fn device(shape: &[usize]) -> Given<'_> {
    Given::Device(DType::F32, shape)
}

/// One node with its inputs.
#[derive(Clone, Debug)]
pub(super) struct Trial<'a> {
    domain: &'a str,
    op_type: &'a str,
    since_version: i32,
    attributes: Attributes,
    inputs: Vec<Given<'a>>,
    outputs: Vec<DType>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(op_type: &'a str, since_version: i32) -> Self {
        let attributes = Attributes::default();
        Self { domain: "", op_type, since_version, attributes, inputs: Vec::new(), outputs: Vec::new() }
    }

    /// The same operator of another domain.
    pub(super) fn domain(mut self, domain: &'a str) -> Self {
        self.domain = domain;
        self
    }

    fn attribute(mut self, name: &str, value: Attribute) -> Self {
        self.attributes.0.insert(name.to_owned(), value);
        self
    }

    pub(super) fn int(self, name: &str, value: i64) -> Self {
        self.attribute(name, Attribute::Int(value))
    }

    pub(super) fn ints(self, name: &str, values: &[i64]) -> Self {
        self.attribute(name, Attribute::Ints(values.to_vec()))
    }

    pub(super) fn float(self, name: &str, value: f32) -> Self {
        self.attribute(name, Attribute::Float(value))
    }

    pub(super) fn text(self, name: &str, value: &str) -> Self {
        self.attribute(name, Attribute::Text(value.to_owned()))
    }

    pub(super) fn tensor(self, name: &str, value: Tensor) -> Self {
        self.attribute(name, Attribute::Tensor(value))
    }

    pub(super) fn input(mut self, given: Given<'a>) -> Self {
        self.inputs.push(given);
        self
    }

    /// Sets the output types; the default is one output of the first input's type.
    pub(super) fn gives(mut self, outputs: &[DType]) -> Self {
        self.outputs = outputs.to_vec();
        self
    }

    fn constant(given: Given<'_>) -> Option<Tensor> {
        match given {
            Given::I64(values, shape) => Tensor::from_i64s(values).reshaped(shape),
            Given::Numbers(dtype, values, shape) => {
                Tensor::from_scalars(dtype, shape, values.iter().map(|&value| Scalar::Float(value)))
            }
            Given::Absent | Given::Device(..) => None,
        }
    }

    /// Parses and lowers the node.
    fn lower(&self) -> Result<Lowered, String> {
        let constants: Vec<Option<Tensor>> = self.inputs.iter().map(|&given| Self::constant(given)).collect();
        let dtype = |given: &Given<'_>| match *given {
            Given::Absent => None,
            Given::Device(dtype, _) | Given::Numbers(dtype, ..) => Some(dtype),
            Given::I64(..) => Some(DType::I64),
        };
        let rank = |given: &Given<'_>| match *given {
            Given::Absent => None,
            Given::Device(_, shape) | Given::Numbers(_, _, shape) | Given::I64(_, shape) => Some(shape.len()),
        };
        let infos: Vec<Option<InputInfo<'_>>> = self
            .inputs
            .iter()
            .zip(&constants)
            .map(|(given, constant)| {
                Some(InputInfo { dtype: dtype(given)?, rank: rank(given), constant: constant.as_ref() })
            })
            .collect();
        let first = self.inputs.first().and_then(dtype).unwrap_or(DType::F32);
        let outputs = if self.outputs.is_empty() { vec![first] } else { self.outputs.clone() };
        let wanted: Vec<Option<DType>> = outputs.iter().map(|&dtype| Some(dtype)).collect();
        let info = NodeInfo {
            domain: self.domain,
            op_type: self.op_type,
            since_version: self.since_version,
            attributes: &self.attributes,
            inputs: &infos,
            outputs: &wanted,
        };
        let op = ops::parse(&info).map_err(|declined| declined.to_string())?;
        let mut graph = Graph::new();
        let (mut specs, mut given_ids, mut input_ids) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (given, constant)) in self.inputs.iter().zip(&constants).enumerate() {
            let Some(dtype) = dtype(given) else {
                input_ids.push(None);
                continue;
            };
            let id = graph.add_value(format!("in{at}"), dtype, constant.clone());
            input_ids.push(Some(id));
            if let Given::Device(_, shape) = given {
                given_ids.push(id);
                specs.push(InputSpec { shape: Shape::from_slice(shape), known: None });
            }
        }
        let made: Vec<_> =
            outputs.iter().enumerate().map(|(at, &dtype)| graph.add_value(format!("out{at}"), dtype, None)).collect();
        graph.set_inputs(given_ids);
        graph.set_outputs(made.clone());
        let outputs = made.into_iter().map(Some).collect();
        graph.add_node(Node { name: String::new(), op: op.into(), inputs: input_ids, outputs });
        graph.verify()?;
        lower::lower(&graph, &specs).map_err(|error| error.to_string())
    }

    /// The shapes of the outputs.
    pub(super) fn shapes(&self) -> Result<Vec<Vec<usize>>, String> {
        Ok(self.lower()?.outputs.iter().map(|value| value.shape().to_vec()).collect())
    }

    /// The names of the emitted primitives.
    pub(super) fn steps(&self) -> Result<Vec<&'static str>, String> {
        Ok(self.lower()?.steps.iter().map(|step| step.prim.name()).collect())
    }

    /// The outputs, if the planner knows all of them and no step was emitted.
    pub(super) fn known(&self) -> Result<Vec<Tensor>, String> {
        let lowered = self.lower()?;
        if !lowered.steps.is_empty() {
            return Err(format!("{} steps were emitted: {:?}", lowered.steps.len(), lowered.steps));
        }
        let tensors = lowered.outputs.iter().map(|value| value.to_tensor().ok_or("an output is not known"));
        tensors.collect::<Result<_, _>>().map_err(str::to_owned)
    }
}

/// Values and shape of the first output, which the planner must know.
pub(super) fn ints(trial: Trial<'_>) -> (Vec<i64>, Vec<usize>) {
    let known = trial.known().unwrap();
    (known[0].to_i64s(), known[0].shape().to_vec())
}

/// Values of the first output as numbers, which the planner must know.
pub(super) fn numbers(trial: Trial<'_>) -> Vec<f64> {
    trial.known().unwrap()[0].scalars().map(Scalar::as_f64).collect()
}

mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers at which sums, products and casts overflow or round.
    fn number() -> impl Strategy<Value = i64> {
        prop::sample::select(vec![i64::MIN, i64::MIN + 1, -1 << 40, -2, -1, 0, 1, 2, 3, 1 << 33, 1 << 62, i64::MAX])
    }

    #[test]
    fn excessive_ranks_are_declined() {
        let shape = [1; ops::MAX_RANK + 1];
        assert!(Trial::new("Relu", 14).input(device(&shape[1..])).shapes().is_ok());
        assert_eq!(
            Trial::new("Relu", 14).input(device(&shape)).shapes().unwrap_err(),
            "rank 65 exceeds the maximum of 64"
        );
    }

    proptest! {
        /// A result or a reason, but never a panic, a hang or exhausted memory.
        #[test]
        fn absurd_numbers_give_a_result_or_an_error(
            numbers in prop::collection::vec(number(), 0..5),
            more in prop::collection::vec(number(), 0..5),
            axis in number(),
            mode in 0usize..4,
        ) {
            let (data, rank) = (Given::Device(DType::F32, &[2, 3]), [numbers.len()]);
            let (given, more_rank) = (Given::I64(&numbers, &rank), [more.len()]);
            let more = Given::I64(&more, &more_rank);
            let mode = ["constant", "edge", "reflect", "wrap"][mode];
            let two = [DType::F32; 2];
            for trial in [
                Trial::new("Reshape", 14).int("allowzero", axis & 1).input(data).input(given),
                Trial::new("Expand", 13).input(data).input(given),
                Trial::new("Tile", 13).input(data).input(given),
                Trial::new("Squeeze", 13).input(data).input(given),
                Trial::new("Unsqueeze", 13).input(data).input(given),
                Trial::new("Transpose", 13).ints("perm", &numbers).input(data),
                Trial::new("Flatten", 13).int("axis", axis).input(data),
                Trial::new("Slice", 13).input(data).input(given).input(more).input(Given::Absent).input(given),
                Trial::new("Slice", 13).input(data).input(given).input(more).input(Given::I64(&[0, 1], &[2])),
                Trial::new("Split", 13).int("axis", axis).input(data).input(given).gives(&two),
                Trial::new("Split", 18).int("num_outputs", axis).input(data).gives(&two),
                Trial::new("Concat", 13).int("axis", axis).input(data).input(data),
                Trial::new("Pad", 19).text("mode", mode).input(data).input(given),
                Trial::new("Pad", 19).text("mode", mode).input(data).input(given).input(Given::Absent).input(more),
                Trial::new("CenterCropPad", 18).input(data).input(given),
                Trial::new("ConstantOfShape", 9).input(given).gives(&[DType::F32]),
                Trial::new("Gather", 13).int("axis", axis).input(data).input(given),
                Trial::new("GatherND", 13).int("batch_dims", axis).input(data).input(given),
                Trial::new("ScatterND", 13).input(data).input(given).input(Given::Device(DType::F32, &[])),
                Trial::new("Shape", 15).int("start", axis).int("end", numbers.len() as i64).input(data).gives(&[DType::I64]),
                Trial::new("EyeLike", 9).int("k", axis).input(data),
                Trial::new("DepthToSpace", 13).int("blocksize", axis).input(Given::Device(DType::F32, &[1, 4, 1, 1])),
                Trial::new("SpaceToDepth", 13).int("blocksize", axis).input(Given::Device(DType::F32, &[1, 4, 2, 2])),
            ] {
                let _ = trial.shapes();
            }
            let limit = [axis];
            for start in &numbers {
                let start = [*start];
                let range = Trial::new("Range", 11).input(Given::I64(&start, &[])).input(Given::I64(&limit, &[]));
                let _ = range.input(Given::I64(&[1], &[])).shapes();
                let one_hot = Trial::new("OneHot", 11).gives(&[DType::F32]).input(Given::Device(DType::I64, &[2]));
                let _ = one_hot.input(Given::I64(&start, &[])).input(Given::Device(DType::F32, &[2])).shapes();
            }
        }
    }
}
