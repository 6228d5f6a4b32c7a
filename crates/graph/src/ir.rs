//! Nodes and values of one partition, before shapes are known.
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

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
    last_rows: Vec<usize>,
    unread: Unread,
}

/// What becomes of an output's rows that nobody reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unread {
    /// They are zeros.
    #[default]
    Zeros,
    /// They are left out: the output has one row for each sequence.
    LeftOut,
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

    /// Says by number of which outputs `[batch, tokens, …]` nobody reads more than the row of each sequence's last token, and
    /// what may become of the others.
    pub fn set_last_rows(&mut self, outputs: Vec<usize>, unread: Unread) {
        (self.last_rows, self.unread) = (outputs, unread);
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

    /// The graph with other tensors in place of constants, where `other` has some; `None` if it has none at all. It is asked
    /// once for values that share their bytes.
    pub fn with_constants(&self, other: impl Fn(&Tensor) -> Option<Tensor>) -> Option<Self> {
        let mut known: HashMap<u64, Option<Tensor>> = HashMap::new();
        let mut others = Vec::new();
        for (at, value) in self.values.iter().enumerate() {
            let Some(constant) = &value.constant else { continue };
            let found = known.entry(constant.id()).or_insert_with(|| other(constant)).as_ref();
            others.extend(found.and_then(|found| found.reshaped(constant.shape())).map(|found| (at, found)));
        }
        if others.is_empty() {
            return None;
        }
        let mut graph = self.clone();
        others.into_iter().for_each(|(at, other)| graph.values[at].constant = Some(other));
        Some(graph)
    }

    /// The graph without its constants: what is needed to name its nodes and values.
    #[must_use]
    pub fn without_constants(&self) -> Self {
        let bare = |value: &Value| Value { constant: None, ..value.clone() };
        Self { values: self.values.iter().map(bare).collect(), ..self.clone() }
    }

    /// Values wanted outside of which the rows of last tokens will do.
    pub fn last_rows(&self) -> impl Iterator<Item = ValueId> {
        self.last_rows.iter().filter_map(|&output| self.outputs.get(output).copied())
    }

    /// What may become of their other rows.
    pub fn unread(&self) -> Unread {
        self.unread
    }

    /// A name that no value has, which begins as given.
    pub(crate) fn unused_name(&self, start: &str) -> String {
        let taken: HashSet<&str> = self.values.iter().map(|value| value.name.as_str()).collect();
        let mut number = 1;
        loop {
            let name = format!("{start} {number}");
            if !taken.contains(name.as_str()) {
                return name;
            }
            number += 1;
        }
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

    /// Puts another node in a node's place.
    pub(crate) fn set_node(&mut self, id: NodeId, node: Node) {
        self.nodes[id.0 as usize] = node;
    }

    /// Puts other nodes, in topological order, in the place of all.
    pub(crate) fn set_nodes(&mut self, nodes: Vec<Node>) {
        self.nodes = nodes;
    }

    /// All nodes, to be changed in place.
    pub(crate) fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Values wanted outside, to be changed in place.
    pub(crate) fn outputs_mut(&mut self) -> &mut [ValueId] {
        &mut self.outputs
    }

    /// Drops nodes, and then the values that nothing names any more.
    pub(crate) fn keep_nodes(&mut self, mut keep: impl FnMut(NodeId) -> bool) {
        let mut at = 0;
        self.nodes.retain(|_| {
            at += 1;
            keep(NodeId(at - 1))
        });
        let mut named = vec![false; self.values.len()];
        let of_nodes = self.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs).flatten());
        for id in of_nodes.chain(&self.inputs).chain(&self.outputs) {
            named[id.0 as usize] = true;
        }
        let mut next = 0;
        let mut numbers = Vec::with_capacity(named.len());
        for &named in &named {
            numbers.push(ValueId(next));
            next += u32::from(named);
        }
        let mut named = named.into_iter();
        self.values.retain(|_| named.next() == Some(true));
        let of_nodes = self.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs).flatten());
        for id in of_nodes.chain(&mut self.inputs).chain(&mut self.outputs) {
            *id = numbers[id.0 as usize];
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
