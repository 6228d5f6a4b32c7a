//! One node with known inputs, for numeric tests of the operator families: the planner computes its outputs.
use std::sync::Arc;

use crate::lower::{self, InputSpec};
use crate::ops::{self, Attribute, Attributes, InputInfo, NodeInfo, Op};
use crate::{DType, Graph, Node, Scalar, Tensor};

/// A node under test.
pub(super) struct Case {
    op_type: &'static str,
    domain: &'static str,
    version: i32,
    attributes: Attributes,
    inputs: Vec<Option<Tensor>>,
    outputs: Vec<DType>,
    constant: bool,
}

impl Case {
    /// A node of an operator whose schema appeared in opset `version`.
    pub fn new(op_type: &'static str, version: i32) -> Self {
        let (attributes, inputs, outputs) = (Attributes::default(), Vec::new(), Vec::new());
        Self { op_type, domain: "", version, attributes, inputs, outputs, constant: true }
    }

    /// The same operator of another domain.
    pub fn domain(mut self, domain: &'static str) -> Self {
        self.domain = domain;
        self
    }

    /// With an attribute.
    pub fn with(mut self, name: &str, value: Attribute) -> Self {
        self.attributes.0.insert(name.to_owned(), value);
        self
    }

    /// With another input.
    pub fn input(mut self, tensor: Tensor) -> Self {
        self.inputs.push(Some(tensor));
        self
    }

    /// With an omitted input.
    pub fn left_out(mut self) -> Self {
        self.inputs.push(None);
        self
    }

    /// With another output.
    pub fn output(mut self, dtype: DType) -> Self {
        self.outputs.push(dtype);
        self
    }

    /// Parses the node without the values of its inputs.
    pub fn without_constants(mut self) -> Self {
        self.constant = false;
        self
    }

    /// Parses the node, or says why it was declined.
    pub fn parse(&self) -> Result<Arc<dyn Op>, String> {
        let infos: Vec<_> = self.inputs.iter().map(|input| input.as_ref().map(|tensor| self.info(tensor))).collect();
        let outputs: Vec<_> = self.outputs.iter().map(|&dtype| Some(dtype)).collect();
        let info = NodeInfo {
            domain: self.domain,
            op_type: self.op_type,
            since_version: self.version,
            attributes: &self.attributes,
            inputs: &infos,
            outputs: &outputs,
        };
        ops::parse(&info).map(Arc::from).map_err(|declined| declined.to_string())
    }

    fn info<'t>(&self, tensor: &'t Tensor) -> InputInfo<'t> {
        let constant = self.constant.then_some(tensor);
        InputInfo { dtype: tensor.dtype(), rank: Some(tensor.shape().len()), constant }
    }

    /// Lowers the node, or says what is wrong. With `known` the planner knows the inputs' values, otherwise only their
    /// shapes.
    pub fn lower(&self, known: bool) -> Result<lower::Lowered, String> {
        let op = self.parse()?;
        let mut graph = Graph::new();
        let (mut given, mut specs, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
        for (at, tensor) in self.inputs.iter().enumerate() {
            inputs.push(tensor.as_ref().map(|tensor| {
                let id = graph.add_value(format!("in{at}"), tensor.dtype(), None);
                given.push(id);
                specs.push(InputSpec { shape: tensor.shape().into(), known: known.then(|| tensor.clone()) });
                id
            }));
        }
        graph.set_inputs(given);
        let types = self.outputs.iter().enumerate();
        let outputs: Vec<_> = types.map(|(at, &dtype)| graph.add_value(format!("out{at}"), dtype, None)).collect();
        graph.set_outputs(outputs.clone());
        let outputs = outputs.into_iter().map(Some).collect();
        graph.add_node(Node { name: String::new(), op, inputs, outputs });
        lower::lower(&graph, &specs).map_err(|error| error.to_string())
    }

    /// The outputs, which the planner must be able to compute.
    pub fn run(&self) -> Result<Vec<Tensor>, String> {
        let lowered = self.lower(true)?;
        Ok(lowered.outputs.iter().map(|value| value.to_tensor().expect("the planner computes it")).collect())
    }

    /// The elements of the only output.
    pub fn floats(&self) -> Vec<f64> {
        let outputs = self.run().unwrap();
        assert_eq!(outputs.len(), 1);
        outputs[0].scalars().map(Scalar::as_f64).collect()
    }
}

/// A vector of numbers in a type.
pub(super) fn vector(dtype: DType, values: &[f64]) -> Tensor {
    tensor(dtype, &[values.len()], values)
}

/// Numbers in a type and shape.
pub(super) fn tensor(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_scalars(dtype, shape, values.iter().map(|&value| Scalar::Float(value))).unwrap()
}

/// Fails unless both lists agree within a relative and absolute error; NaN equals NaN.
pub(super) fn assert_close(found: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(found.len(), wanted.len(), "{found:?} {wanted:?}");
    for (at, (a, b)) in found.iter().zip(wanted).enumerate() {
        let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(1.0);
        assert!(same, "element {at} is {a}, not {b}");
    }
}
