//! One node on its own, for the tests of the families.
use crate::{
    DType, Graph, Node, Scalar, Shape, Tensor,
    lower::{self, InputSpec, Lowered},
    ops::{self, Attribute, Attributes, InputInfo, NodeInfo},
};

/// An input of a trial.
#[derive(Clone, Copy, Debug)]
pub(super) enum Given<'a> {
    /// Left out.
    Absent,
    /// Known to the device only.
    Device(DType, &'a [usize]),
    /// Known 64-bit integers.
    I64(&'a [i64], &'a [usize]),
    /// Known numbers of any type.
    Numbers(DType, &'a [f64], &'a [usize]),
}

/// One node with its inputs.
#[derive(Clone, Debug)]
pub(super) struct Trial<'a> {
    op_type: &'a str,
    since_version: i32,
    attributes: Attributes,
    inputs: Vec<Given<'a>>,
    outputs: Vec<DType>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(op_type: &'a str, since_version: i32) -> Self {
        let attributes = Attributes::default();
        Self { op_type, since_version, attributes, inputs: Vec::new(), outputs: Vec::new() }
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

    /// Says which types come out; without it there is one output of the first input's type.
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
            domain: "",
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

    /// The names of the primitives that are emitted.
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
