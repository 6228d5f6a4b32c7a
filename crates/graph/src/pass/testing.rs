//! Small graphs for the tests of passes.
use crate::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use crate::{DType, Graph, Node, Scalar, Tensor, ValueId};

/// A scalar.
pub(crate) fn scalar(value: f64) -> Tensor {
    Tensor::scalar(DType::F32, Scalar::Float(value))
}

/// A row of single-precision numbers.
pub(crate) fn row(values: &[f64]) -> Tensor {
    Tensor::from_scalars(DType::F32, &[values.len()], values.iter().map(|&value| Scalar::Float(value))).unwrap()
}

/// A graph under construction; names are derived from operators and positions.
pub(crate) struct Build {
    graph: Graph,
    inputs: Vec<ValueId>,
}

impl Build {
    pub fn new() -> Self {
        Self { graph: Graph::new(), inputs: Vec::new() }
    }

    pub fn input(&mut self, name: &str, dtype: DType) -> ValueId {
        let id = self.graph.add_value(name, dtype, None);
        self.inputs.push(id);
        id
    }

    pub fn constant(&mut self, name: &str, value: Tensor) -> ValueId {
        self.graph.add_value(name, value.dtype(), Some(value))
    }

    /// A constant scalar, named after its value and position.
    pub fn number(&mut self, value: f64) -> ValueId {
        let name = format!("{value}_{}", self.graph.values().len());
        self.constant(&name, scalar(value))
    }

    /// A node of opset 18 that produces one value of its first input's type.
    pub fn node(&mut self, op_type: &str, inputs: &[ValueId]) -> ValueId {
        self.with(op_type, inputs, &[])
    }

    /// Like `node`, with attributes.
    pub fn with(&mut self, op_type: &str, inputs: &[ValueId], attributes: &[(&str, Attribute)]) -> ValueId {
        let dtype = self.graph.value(inputs[0]).dtype;
        self.add(op_type, 18, inputs, &[dtype], attributes)[0]
    }

    /// Like `with`, with another result type.
    pub fn to(&mut self, op_type: &str, inputs: &[ValueId], dtype: DType, attributes: &[(&str, Attribute)]) -> ValueId {
        self.add(op_type, 18, inputs, &[dtype], attributes)[0]
    }

    /// A node with several outputs.
    pub fn add(
        &mut self,
        op_type: &str,
        since_version: i32,
        inputs: &[ValueId],
        outputs: &[DType],
        attributes: &[(&str, Attribute)],
    ) -> Vec<ValueId> {
        self.of(("", op_type, since_version), inputs, outputs, attributes)
    }

    /// Like `add`, with the operator's domain, name and version.
    pub fn of(
        &mut self,
        (domain, op_type, since_version): (&str, &str, i32),
        inputs: &[ValueId],
        outputs: &[DType],
        attributes: &[(&str, Attribute)],
    ) -> Vec<ValueId> {
        let attributes = Attributes::from(attributes);
        let infos: Vec<_> = inputs.iter().map(|&id| Some(InputInfo::from(self.graph.value(id)))).collect();
        let wanted: Vec<_> = outputs.iter().map(|&dtype| Some(dtype)).collect();
        let info =
            NodeInfo { domain, op_type, since_version, attributes: &attributes, inputs: &infos, outputs: &wanted };
        let op = ops::parse(&info).unwrap().into();
        let at = self.graph.nodes().len();
        let name = |number: usize| {
            let tail = if number == 0 { String::new() } else { format!("_{number}") };
            format!("{}{at}{tail}", op_type.to_lowercase())
        };
        let made: Vec<ValueId> = outputs
            .iter()
            .enumerate()
            .map(|(number, &dtype)| self.graph.add_value(name(number), dtype, None))
            .collect();
        let inputs = inputs.iter().map(|&id| Some(id)).collect();
        self.graph.add_node(Node { name: name(0), op, inputs, outputs: made.iter().map(|&id| Some(id)).collect() });
        made
    }

    /// The finished graph.
    pub fn outputs(&self, outputs: &[ValueId]) -> Graph {
        let mut graph = self.graph.clone();
        graph.set_inputs(self.inputs.clone());
        graph.set_outputs(outputs.to_vec());
        graph
    }
}

/// The operators of a graph, in order.
pub(crate) fn names(graph: &Graph) -> Vec<&'static str> {
    graph.nodes().iter().map(|node| node.op.name()).collect()
}
