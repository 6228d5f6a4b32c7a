//! Runs graphs on the device under test.
#![allow(dead_code, clippy::unwrap_used)]
pub mod device;
pub mod run;

use graph::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use graph::{DType, Graph, Node, Scalar, Tensor};

/// A node to run.
pub struct Case {
    pub domain: &'static str,
    pub op_type: &'static str,
    pub since_version: i32,
    pub attributes: Vec<(&'static str, Attribute)>,
    pub inputs: Vec<Option<Tensor>>,
    /// Inputs that are constants of the model instead of runtime inputs.
    pub constants: Vec<usize>,
    pub outputs: Vec<DType>,
}

impl Case {
    /// A node of the ONNX domain with all inputs given at run time.
    pub fn new(op_type: &'static str, since_version: i32, inputs: Vec<Tensor>, outputs: &[DType]) -> Self {
        let inputs = inputs.into_iter().map(Some).collect();
        Self {
            domain: "",
            op_type,
            since_version,
            attributes: Vec::new(),
            inputs,
            constants: Vec::new(),
            outputs: outputs.to_vec(),
        }
    }

    /// Adds an attribute.
    pub fn attribute(mut self, name: &'static str, value: Attribute) -> Self {
        self.attributes.push((name, value));
        self
    }

    /// Plans and runs it.
    pub fn run(&self) -> Result<Vec<Tensor>, String> {
        let (graph, given) = self.graph()?;
        device::run_once(graph, &given).map_err(|error| error.to_string())
    }

    /// The node as a graph, and its runtime inputs.
    pub fn graph(&self) -> Result<(Graph, Vec<Tensor>), String> {
        let attributes = Attributes::from(&*self.attributes);
        let infos: Vec<_> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(at, input)| {
                input.as_ref().map(|tensor| InputInfo {
                    dtype: tensor.dtype(),
                    rank: Some(tensor.shape().len()),
                    constant: self.constants.contains(&at).then_some(tensor),
                })
            })
            .collect();
        let outputs: Vec<_> = self.outputs.iter().map(|dtype| Some(*dtype)).collect();
        let info = NodeInfo {
            domain: self.domain,
            op_type: self.op_type,
            since_version: self.since_version,
            attributes: &attributes,
            inputs: &infos,
            outputs: &outputs,
        };
        let op = ops::parse(&info).map_err(|declined| declined.to_string())?;
        let mut graph = Graph::new();
        let (mut given, mut node_inputs, mut graph_inputs) = (Vec::new(), Vec::new(), Vec::new());
        for (at, input) in self.inputs.iter().enumerate() {
            node_inputs.push(input.as_ref().map(|tensor| {
                let constant = self.constants.contains(&at).then(|| tensor.clone());
                let is_given = constant.is_none();
                let value = graph.add_value(format!("in{at}"), tensor.dtype(), constant);
                if is_given {
                    graph_inputs.push(value);
                    given.push(tensor.clone());
                }
                value
            }));
        }
        let made: Vec<_> = self
            .outputs
            .iter()
            .enumerate()
            .map(|(at, dtype)| graph.add_value(format!("out{at}"), *dtype, None))
            .collect();
        let node_outputs = made.iter().map(|id| Some(*id)).collect();
        graph.add_node(Node { name: "node".into(), op: op.into(), inputs: node_inputs, outputs: node_outputs });
        graph.set_inputs(graph_inputs);
        graph.set_outputs(made);
        graph.verify()?;
        Ok((graph, given))
    }
}

/// A tensor with these values.
pub fn tensor(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_scalars(dtype, shape, values.iter().map(|&value| Scalar::Float(value))).unwrap()
}

/// The values of a tensor.
pub fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.scalars().map(Scalar::as_f64).collect()
}

/// Deterministic numbers between -2 and 2.
pub fn random(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64 * 4.0 - 2.0
        })
        .collect()
}

/// Fails unless both lists agree to within `relative` of the larger magnitude, with NaN equal to NaN.
pub fn assert_close(found: &[f64], wanted: &[f64], relative: f64) {
    assert_eq!(found.len(), wanted.len());
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let close = (found - wanted).abs() <= relative * wanted.abs().max(1.0)
            || found == wanted
            || found.is_nan() && wanted.is_nan();
        assert!(close, "element {at}: {found} instead of {wanted}");
    }
}
