//! Nodes and values of one partition, before the shapes are known.
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::ops::Op;
use crate::{DType, Tensor};

/// A node's number; nodes are in topological order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A value's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A tensor of the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// The name in the model, unique within the graph.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The contents, if they are the same in every run.
    pub constant: Option<Tensor>,
}

/// An operation of the graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name in the model; may be empty.
    pub name: String,
    /// The operator.
    pub op: Arc<dyn Op>,
    /// The inputs; omitted optional inputs are `None`.
    pub inputs: Vec<Option<ValueId>>,
    /// The outputs; unused outputs are `None`.
    pub outputs: Vec<Option<ValueId>>,
}

impl Node {
    /// How messages name the node.
    pub fn label(&self) -> String {
        if self.name.is_empty() { self.op.name().to_owned() } else { format!("{} {:?}", self.op.name(), self.name) }
    }
}

/// A partition of a model.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    values: Vec<Value>,
    nodes: Vec<Node>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    last_rows: Vec<usize>,
    unread: Unread,
    padded_masks: bool,
}

/// What may be done with an output's unread rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unread {
    /// Fill them with zeros.
    #[default]
    Zeros,
    /// Leave them out: the output has one row per sequence.
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

    /// Adds a node after all others.
    pub fn add_node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Sets the graph's inputs, in order.
    pub fn set_inputs(&mut self, inputs: Vec<ValueId>) {
        self.inputs = inputs;
    }

    /// Sets the graph's outputs, in order.
    pub fn set_outputs(&mut self, outputs: Vec<ValueId>) {
        self.outputs = outputs;
    }

    /// Sets which outputs `[batch, tokens, …]`, by index, are only read at the row of each sequence's last token, and
    /// what may be done with the other rows.
    pub fn set_last_rows(&mut self, outputs: Vec<usize>, unread: Unread) {
        (self.last_rows, self.unread) = (outputs, unread);
    }

    /// Says that the application pads attention masks to a fixed width: a total length that follows from a mask's width
    /// may exceed the true length of every sequence.
    pub fn set_padded_masks(&mut self) {
        self.padded_masks = true;
    }

    /// Whether attention masks may be wider than the longest sequence.
    pub fn has_padded_masks(&self) -> bool {
        self.padded_masks
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

    /// The graph's inputs.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The graph's outputs.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// The graph with constants replaced where `other` returns a tensor; `None` if it never does. `other` is called
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

    /// The graph without its constants: enough to name its nodes and values.
    #[must_use]
    pub fn without_constants(&self) -> Self {
        let bare = |value: &Value| Value { constant: None, ..value.clone() };
        Self { values: self.values.iter().map(bare).collect(), ..self.clone() }
    }

    /// Outputs that are read only at the rows of last tokens.
    pub fn last_rows(&self) -> impl Iterator<Item = ValueId> {
        self.last_rows.iter().filter_map(|&output| self.outputs.get(output).copied())
    }

    /// What may be done with the other rows of these outputs.
    pub fn unread(&self) -> Unread {
        self.unread
    }

    /// A name starting with `start` that no value has.
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

    /// For each input, whether an operator needs its value to plan shapes.
    pub fn inputs_with_needed_values(&self) -> Vec<bool> {
        let needed = self.needed_values();
        self.inputs.iter().map(|input| needed[input.0 as usize]).collect()
    }

    /// For each value, whether an operator needs it to plan shapes.
    pub(crate) fn needed_values(&self) -> Vec<bool> {
        let mut needed = vec![false; self.values.len()];
        for node in self.nodes.iter().rev() {
            let wanted = node.outputs.iter().flatten().any(|output| needed[output.0 as usize]);
            for (index, input) in node.inputs.iter().enumerate() {
                let Some(input) = input else { continue };
                // A shape is known without knowing the tensor's contents.
                if node.op.host_inputs().contains(&index) || wanted && !node.op.reads_only_shapes() {
                    needed[input.0 as usize] = true;
                }
            }
        }
        needed
    }

    /// Replaces a node.
    pub(crate) fn set_node(&mut self, id: NodeId, node: Node) {
        self.nodes[id.0 as usize] = node;
    }

    /// Replaces all nodes with others, in topological order.
    pub(crate) fn set_nodes(&mut self, nodes: Vec<Node>) {
        self.nodes = nodes;
    }

    /// All nodes, mutable.
    pub(crate) fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// The graph's outputs, mutable.
    pub(crate) fn outputs_mut(&mut self) -> &mut [ValueId] {
        &mut self.outputs
    }

    /// Removes nodes, and then the values that are no longer referenced.
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
    /// One line per node: its outputs, its operator, its inputs.
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
