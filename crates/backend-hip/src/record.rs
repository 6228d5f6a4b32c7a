//! A partition as plain data: read from ONNX Runtime, or from a saved partition.
//!
//! Both sources produce the same record, so both become a graph in the same way.
use graph::ops::{self, Attributes, InputInfo, NodeInfo};
use graph::{DType, Declined, Graph, Node, Op, Tensor, ValueId};

/// Constants up to this size are read when nodes are offered; larger ones are read when the partition is compiled.
pub(crate) const SMALL_CONSTANT_BYTES: usize = 4096;

/// A partition. Values are identified by their index.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    pub values: Vec<ValueRecord>,
    /// In topological order.
    pub nodes: Vec<NodeRecord>,
    /// Values supplied from outside, in order.
    pub inputs: Vec<u32>,
    /// Values used outside, in order.
    pub outputs: Vec<u32>,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueRecord {
    pub name: String,
    pub dtype: DType,
    /// The rank, if ONNX Runtime knows it.
    pub rank: Option<usize>,
    pub constant: Option<Tensor>,
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeRecord {
    pub name: String,
    pub domain: String,
    pub op_type: String,
    pub since_version: i32,
    pub attributes: Attributes,
    /// Omitted optional inputs are `None`.
    pub inputs: Vec<Option<u32>>,
    /// Unused outputs are `None`.
    pub outputs: Vec<Option<u32>>,
}

impl NodeRecord {
    /// The operator of a node, or why it stays with other providers.
    pub fn parse(&self, values: &[ValueRecord]) -> Result<Box<dyn Op>, Declined> {
        let value = |id: Option<u32>| match id {
            None => Ok(None),
            Some(id) => match values.get(id as usize) {
                Some(value) => Ok(Some(value)),
                None => Err(Declined::new(format!("it refers to value {id}, but there are only {}", values.len()))),
            },
        };
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for &id in &self.inputs {
            inputs.push(value(id)?.map(|value| InputInfo {
                dtype: value.dtype,
                rank: value.rank,
                constant: value.constant.as_ref().filter(|constant| constant.len_bytes() <= SMALL_CONSTANT_BYTES),
            }));
        }
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for &id in &self.outputs {
            outputs.push(value(id)?.map(|value| value.dtype));
        }
        ops::parse(&NodeInfo {
            domain: &self.domain,
            op_type: &self.op_type,
            since_version: self.since_version,
            attributes: &self.attributes,
            inputs: &inputs,
            outputs: &outputs,
        })
    }
}

impl Record {
    /// Converts the partition to an engine graph.
    ///
    /// # Errors
    /// A message if a node is not supported, or if nodes and values are inconsistent.
    pub fn into_graph(self) -> Result<Graph, String> {
        let known = |id: &u32| (*id as usize) < self.values.len();
        if let Some(id) = self.inputs.iter().chain(&self.outputs).find(|id| !known(id)) {
            return Err(format!("an input or output refers to value {id}, but there are only {}", self.values.len()));
        }
        let ids = |list: Vec<Option<u32>>| list.into_iter().map(|id| id.map(ValueId)).collect();
        let mut graph = Graph::new();
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in self.nodes {
            let op = node.parse(&self.values).map_err(|reason| format!("{}: {reason}", node.op_type))?;
            nodes.push(Node { name: node.name, op: op.into(), inputs: ids(node.inputs), outputs: ids(node.outputs) });
        }
        for value in self.values {
            graph.add_value(value.name, value.dtype, value.constant);
        }
        for node in nodes {
            graph.add_node(node);
        }
        graph.set_inputs(self.inputs.into_iter().map(ValueId).collect());
        graph.set_outputs(self.outputs.into_iter().map(ValueId).collect());
        graph.verify()?;
        Ok(graph)
    }
}
