//! Patterns: several nodes that compute one operation.
use std::collections::HashMap;
use std::sync::Arc;

use crate::expr::{Binary, Unary};
use crate::ops::Meaning;
use crate::ops::fused::{Fused, Whole};
use crate::pass::links::Links;
use crate::prim::ReduceKind;
use crate::{Graph, Node, NodeId, ValueId};

/// A graph to be searched.
#[derive(Clone, Copy)]
pub(super) struct Search<'g> {
    pub graph: &'g Graph,
    pub links: &'g Links,
}

/// Nodes that compute one operation together.
pub(super) struct Found {
    pub whole: Whole,
    /// The nodes; the last one produces the result.
    pub nodes: Vec<NodeId>,
    /// The inputs of the whole.
    pub inputs: Vec<ValueId>,
}

/// Replaces every occurrence of a pattern, which `find` matches from a node, with one node, and counts them.
pub(super) fn rewrite(graph: &mut Graph, find: impl Fn(Search<'_>, NodeId) -> Option<Found>) -> usize {
    let links = Links::new(graph);
    let needed = graph.needed_values();
    let mut gone = vec![false; graph.nodes().len()];
    let mut count = 0;
    for at in 0..gone.len() {
        let found = find(Search { graph, links: &links }, NodeId(at as u32));
        let Some(found) = found.filter(|found| found.nodes.iter().all(|node| !gone[node.0 as usize])) else { continue };
        let Some((last, node)) = found.fused(graph, &links, &needed) else { continue };
        graph.set_node(last, node);
        found.nodes.iter().filter(|&&node| node != last).for_each(|node| gone[node.0 as usize] = true);
        count += 1;
    }
    if count > 0 {
        graph.keep_nodes(|NodeId(at)| !gone[at as usize]);
    }
    count
}

impl Found {
    /// The node that replaces them all, and its position; `None` if an intermediate result is used elsewhere.
    fn fused(&self, graph: &Graph, links: &Links, needed: &[bool]) -> Option<(NodeId, Node)> {
        let last = *self.nodes.last()?;
        let result = graph.node(last).outputs.first().copied().flatten()?;
        let mut nodes = self.nodes.clone();
        nodes.sort_unstable();
        nodes.dedup();
        // The planner computes values that shapes depend on, and only the original nodes define how.
        if nodes.last() != Some(&last) || needed[result.0 as usize] {
            return None;
        }
        let inside = |value: ValueId| {
            !links.is_wanted(value) && links.readers(value).iter().all(|reader| nodes.contains(reader))
        };
        let mut parts = Parts::new(graph, &self.inputs);
        for &id in &nodes {
            let mut outputs = graph.node(id).outputs.iter().flatten();
            if id != last && !outputs.all(|&output| inside(output)) {
                return None;
            }
            parts.add(graph, id)?;
        }
        let parts = parts.finish(result)?;
        let op = Arc::new(Fused::new(self.whole.clone(), parts));
        let inputs = self.inputs.iter().map(|&input| Some(input)).collect();
        Some((last, Node { name: graph.node(last).name.clone(), op, inputs, outputs: vec![Some(result)] }))
    }
}

/// A separate graph made of some nodes of another.
struct Parts {
    graph: Graph,
    ids: HashMap<ValueId, ValueId>,
}

impl Parts {
    fn new(from: &Graph, inputs: &[ValueId]) -> Self {
        let mut parts = Self { graph: Graph::new(), ids: HashMap::new() };
        let mut given = Vec::with_capacity(inputs.len());
        for (at, &input) in inputs.iter().enumerate() {
            let value = from.value(input);
            // One value may appear as two inputs of the fused node; the parts read the first.
            let again = inputs[..at].contains(&input);
            let name = if again { format!("{} at {at}", value.name) } else { value.name.clone() };
            let id = parts.graph.add_value(name, value.dtype, None);
            parts.ids.entry(input).or_insert(id);
            given.push(id);
        }
        parts.graph.set_inputs(given);
        parts
    }

    /// Adds a node; `None` if it reads anything but inputs, constants and results of earlier nodes.
    fn add(&mut self, from: &Graph, id: NodeId) -> Option<()> {
        let mut node = from.node(id).clone();
        for input in node.inputs.iter_mut().flatten() {
            let known = self.ids.get(input).copied();
            *input = match known {
                Some(known) => known,
                None => {
                    let value = from.value(*input);
                    value.constant.as_ref().filter(|_| !from.inputs().contains(input))?;
                    let new = self.graph.add_value(value.name.clone(), value.dtype, value.constant.clone());
                    self.ids.insert(*input, new);
                    new
                }
            };
        }
        for output in node.outputs.iter_mut().flatten() {
            let value = from.value(*output);
            let new = self.graph.add_value(value.name.clone(), value.dtype, None);
            self.ids.insert(*output, new);
            *output = new;
        }
        self.graph.add_node(node);
        Some(())
    }

    fn finish(mut self, result: ValueId) -> Option<Graph> {
        self.graph.set_outputs(vec![*self.ids.get(&result)?]);
        self.graph.verify().ok().map(|()| self.graph)
    }
}

impl<'g> Search<'g> {
    /// What passes know about a node.
    pub fn meaning(self, node: NodeId) -> Meaning<'g> {
        self.graph.node(node).op.meaning()
    }

    /// An input of a node.
    pub fn input(self, node: NodeId, index: usize) -> Option<ValueId> {
        self.graph.node(node).inputs.get(index).copied().flatten()
    }

    /// The first output of a node.
    pub fn output(self, node: NodeId) -> Option<ValueId> {
        self.graph.node(node).outputs.first().copied().flatten()
    }

    /// The two inputs of a node with this operation.
    pub fn operands(self, node: NodeId, op: Binary) -> Option<[ValueId; 2]> {
        let is_op = self.meaning(node) == Meaning::Binary(op);
        if is_op { Some([self.input(node, 0)?, self.input(node, 1)?]) } else { None }
    }

    /// The node that computes a value by this operation, and its two operands.
    pub fn binary(self, value: ValueId, op: Binary) -> Option<(NodeId, [ValueId; 2])> {
        let node = self.links.maker(value)?;
        Some((node, self.operands(node, op)?))
    }

    /// The node that computes a value by this operation, and its operand.
    pub fn unary(self, value: ValueId, op: Unary) -> Option<(NodeId, ValueId)> {
        let node = self.links.maker(value)?;
        (self.meaning(node) == Meaning::Unary(op)).then_some(())?;
        Some((node, self.input(node, 0)?))
    }

    /// The node that computes a value as a known power of another, with the base and the exponent.
    pub fn power(self, value: ValueId) -> Option<(NodeId, ValueId, f64)> {
        let node = self.links.maker(value)?;
        (self.meaning(node) == Meaning::Power).then_some(())?;
        Some((node, self.input(node, 0)?, self.number(self.input(node, 1)?)?))
    }

    /// The node that multiplies or divides by a number to compute a value, with the other operand and the factor.
    pub fn scaled(self, value: ValueId) -> Option<(NodeId, ValueId, f64)> {
        if let Some((node, operands)) = self.binary(value, Binary::Mul) {
            let (other, factor) = self.with_number(operands)?;
            return Some((node, other, factor));
        }
        let (node, [other, divisor]) = self.binary(value, Binary::Div)?;
        Some((node, other, 1.0 / self.number(divisor)?))
    }

    /// The operand that is not a number, and the number.
    pub fn with_number(self, [a, b]: [ValueId; 2]) -> Option<(ValueId, f64)> {
        match (self.number(a), self.number(b)) {
            (None, Some(number)) => Some((a, number)),
            (Some(number), None) => Some((b, number)),
            _ => None,
        }
    }

    /// The node that computes a value as the mean of another over some axes, which stay with extent 1.
    pub fn mean(self, value: ValueId) -> Option<(NodeId, ValueId, Vec<i64>)> {
        let node = self.links.maker(value)?;
        let Meaning::Reduce { kind: ReduceKind::Mean, axes, keepdims: true } = self.meaning(node) else { return None };
        let axes = match self.input(node, 1) {
            Some(list) => self.constant(list)?.to_i64s(),
            None => axes.to_vec(),
        };
        (!axes.is_empty()).then_some((node, self.input(node, 0)?, axes))
    }

    /// A value's constant, if it has one.
    pub fn constant(self, value: ValueId) -> Option<&'g crate::Tensor> {
        self.graph.value(value).constant.as_ref().filter(|_| !self.graph.inputs().contains(&value))
    }

    /// The single finite number of a constant value.
    pub fn number(self, value: ValueId) -> Option<f64> {
        let tensor = self.constant(value).filter(|tensor| tensor.elems() == 1)?;
        Some(tensor.get(0).as_f64()).filter(|number| number.is_finite())
    }
}

/// True if a number approximates the intended one, given few digits or half precision.
pub(super) fn near(found: f64, meant: f64) -> bool {
    (found - meant).abs() <= 2e-4 * meant.abs()
}
