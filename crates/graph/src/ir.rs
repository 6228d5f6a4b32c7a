//! Nodes and values of one partition, before shapes are known.
use std::{collections::HashMap, fmt, sync::Arc};

use crate::{DType, Tensor, ops::Op};

/// A node's number; nodes are in topological order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A value's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A tensor of the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its name in the model; unique within the graph.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Its value, if that is the same in every run.
    pub constant: Option<Tensor>,
}

/// One operation of the graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name in the model; may be empty.
    pub name: String,
    /// What it does.
    pub op: Arc<dyn Op>,
    /// What it reads; optional inputs that are left out are `None`.
    pub inputs: Vec<Option<ValueId>>,
    /// What it makes; outputs that nobody wants are `None`.
    pub outputs: Vec<Option<ValueId>>,
}

impl Node {
    /// The node as messages name it.
    pub fn label(&self) -> String {
        if self.name.is_empty() { self.op.name().to_owned() } else { format!("{} {:?}", self.op.name(), self.name) }
    }
}

/// One partition of a model.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    values: Vec<Value>,
    nodes: Vec<Node>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value.
    pub fn add_value(&mut self, name: impl Into<String>, dtype: DType, constant: Option<Tensor>) -> ValueId {
        self.values.push(Value { name: name.into(), dtype, constant });
        ValueId(self.values.len() as u32 - 1)
    }

    /// Adds a node behind all others.
    pub fn add_node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Says which values are given from outside, in order.
    pub fn set_inputs(&mut self, inputs: Vec<ValueId>) {
        self.inputs = inputs;
    }

    /// Says which values are wanted outside, in order.
    pub fn set_outputs(&mut self, outputs: Vec<ValueId>) {
        self.outputs = outputs;
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// All values.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// All nodes in topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Values given from outside.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// Values wanted outside.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// For each input, whether an operator must know its value when shapes are planned.
    pub fn inputs_with_needed_values(&self) -> Vec<bool> {
        let needed = self.needed_values();
        self.inputs.iter().map(|input| needed[input.0 as usize]).collect()
    }

    /// For each value, whether an operator must know it when shapes are planned.
    pub(crate) fn needed_values(&self) -> Vec<bool> {
        let mut needed = vec![false; self.values.len()];
        for node in self.nodes.iter().rev() {
            let wanted = node.outputs.iter().flatten().any(|output| needed[output.0 as usize]);
            for (index, input) in node.inputs.iter().enumerate() {
                let Some(input) = input else { continue };
                // A shape is known without knowing what has it.
                if node.op.host_inputs().contains(&index) || wanted && !node.op.reads_only_shapes() {
                    needed[input.0 as usize] = true;
                }
            }
        }
        needed
    }

    /// Checks what every stage counts on: references exist, each value is made once and before its use, constants have
    /// their value's type.
    ///
    /// # Errors
    /// The first rule that is broken, with the names involved.
    pub fn verify(&self) -> Result<(), String> {
        let known = |id: ValueId| (id.0 as usize) < self.values.len();
        let mut made: HashMap<ValueId, String> = HashMap::new();
        for &input in &self.inputs {
            if !known(input) {
                return Err(format!("input {input:?} does not exist"));
            }
            if made.insert(input, "an input".to_owned()).is_some() {
                return Err(format!("{:?} is an input twice", self.value(input).name));
            }
        }
        for (at, value) in self.values.iter().enumerate() {
            if let Some(constant) = &value.constant {
                if constant.dtype() != value.dtype {
                    return Err(format!("{:?} is {} but its value is {constant:?}", value.name, value.dtype));
                }
                made.entry(ValueId(at as u32)).or_insert_with(|| "a constant".to_owned());
            }
        }
        for node in &self.nodes {
            for &input in node.inputs.iter().flatten() {
                if !known(input) || !made.contains_key(&input) {
                    return Err(format!("{} uses {input:?} before it is made", node.label()));
                }
            }
            for &output in node.outputs.iter().flatten() {
                if !known(output) {
                    return Err(format!("{} makes {output:?}, which does not exist", node.label()));
                }
                if let Some(maker) = made.insert(output, node.label()) {
                    return Err(format!("{:?} is made by {maker} and by {}", self.value(output).name, node.label()));
                }
            }
        }
        match self.outputs.iter().find(|output| !made.contains_key(output)) {
            Some(output) => Err(format!("output {output:?} is never made")),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Graph {
    /// One line per node: what it makes, what it does, what it reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |id: &Option<ValueId>| {
            id.map_or_else(|| "-".to_owned(), |id| format!("{}:{}", self.value(id).name, self.value(id).dtype))
        };
        let list = |ids: &[Option<ValueId>]| ids.iter().map(show).collect::<Vec<_>>().join(", ");
        let some = |ids: &[ValueId]| list(&ids.iter().map(|&id| Some(id)).collect::<Vec<_>>());
        writeln!(f, "in {}", some(&self.inputs))?;
        for node in &self.nodes {
            writeln!(f, "{} = {:?} {}", list(&node.outputs), node.op, list(&node.inputs))?;
        }
        writeln!(f, "out {}", some(&self.outputs))
    }
}
