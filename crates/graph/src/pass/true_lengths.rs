//! Chooses rotary tables by the true length of a sequence, not by the width of a padded mask.
//!
//! Decoders with LongRoPE have two pairs of tables, for short and for long sequences. Their graphs compare the total
//! length, which is the width of the attention mask, with a constant, and an `If` chooses. An application that pads
//! masks to a fixed width would always get the tables for long sequences. The attention knows the true lengths, so the
//! tables become one, and the positions of tokens select the rows.
use std::sync::Arc;

use crate::expr::Binary;
use crate::ops::{Meaning, TablePositions};
use crate::pass::links::Links;
use crate::{DType, Graph, Node, NodeId, Tensor, ValueId};

pub(super) fn run(graph: &mut Graph) -> usize {
    if !graph.has_padded_masks() {
        return 0;
    }
    let mut count = 0;
    // A rewrite moves the nodes after it, so the next choice is looked for in the new graph.
    while let Some(choice) = first(graph)
        && choice.rewrite(graph)
    {
        count += 1;
    }
    count
}

fn first(graph: &Graph) -> Option<Choice> {
    let links = Links::new(graph);
    (0..graph.nodes().len()).find_map(|at| Choice::at(NodeId(at as u32), graph, &links))
}

/// The operator and name of a node that chooses by a condition although masks are padded, so that their width may be in
/// it.
pub fn padded_choice(graph: &Graph) -> Option<String> {
    if !graph.has_padded_masks() {
        return None;
    }
    let links = Links::new(graph);
    let is_used = |&value: &ValueId| links.is_wanted(value) || !links.readers(value).is_empty();
    let is_choice = |node: &&Node| {
        matches!(node.op.meaning(), Meaning::Choice { .. }) && node.outputs.iter().flatten().any(is_used)
    };
    graph.nodes().iter().find(is_choice).map(|node| format!("{} {:?}", node.op.name(), node.name))
}

/// An `If` that chooses the tables of attention nodes by the total length.
struct Choice {
    threshold: i64,
    /// Cosines and sines for long and for short sequences.
    long: [Tensor; 2],
    short: [Tensor; 2],
    /// The attention nodes that read them.
    readers: Vec<NodeId>,
    lengths: ValueId,
    total: ValueId,
    positions: Option<ValueId>,
}

impl Choice {
    fn at(id: NodeId, graph: &Graph, links: &Links) -> Option<Self> {
        let node = graph.node(id);
        let Meaning::Choice { results: 2 } = node.op.meaning() else { return None };
        let (
            &[Some(condition), Some(long_cosines), Some(long_sines), Some(short_cosines), Some(short_sines)],
            &[cosines, sines],
        ) = (&node.inputs[..], &node.outputs[..])
        else {
            return None;
        };
        let (threshold, compared) = above(condition, graph, links)?;
        let constant = |value: ValueId| graph.value(value).constant.clone();
        let long = [constant(long_cosines)?, constant(long_sines)?];
        let short = [constant(short_cosines)?, constant(short_sines)?];
        let rows = |tables: &[Tensor; 2]| match (tables[0].shape(), tables[1].shape()) {
            (&[rows, half], other) if other == [rows, half] => Some((rows, half)),
            _ => None,
        };
        let ((_, long_half), (short_rows, short_half)) = (rows(&long)?, rows(&short)?);
        if long_half != short_half || i64::try_from(short_rows).ok()? < threshold {
            return None;
        }
        if (0..2).any(|at| long[at].dtype() != short[at].dtype()) {
            return None;
        }
        let tables = [cosines, sines];
        let mut readers: Vec<NodeId> = tables.iter().flatten().flat_map(|&id| links.readers(id)).copied().collect();
        readers.sort_unstable();
        readers.dedup();
        let mut agreed = None;
        for &reader in &readers {
            let node = graph.node(reader);
            let Meaning::CachedAttention { lengths, total, tables: places, positions } = node.op.meaning() else {
                return None;
            };
            let input = |at: usize| node.inputs.get(at).copied().flatten();
            let reads = places.map(input) == tables;
            let others = node.inputs.iter().enumerate().filter(|(at, _)| !places.contains(at));
            if !reads || others.into_iter().any(|(_, value)| value.is_some() && tables.contains(value)) {
                return None;
            }
            let seen = (input(lengths)?, input(total)?, input(positions));
            if uncast(seen.1, graph, links) != compared || agreed.is_some_and(|agreed| agreed != seen) {
                return None;
            }
            agreed = Some(seen);
        }
        if tables.iter().flatten().any(|&id| links.is_wanted(id)) {
            return None;
        }
        let (lengths, total, positions) = agreed?;
        Some(Self { threshold, long, short, readers, lengths, total, positions })
    }

    /// Returns whether the graph has changed.
    fn rewrite(self, graph: &mut Graph) -> bool {
        let (long, short) = (self.long[0].shape()[0], self.short[0].shape()[0]);
        let both = |at: usize| joined(&self.long[at], &self.short[at]);
        let (Some(cosines), Some(sines)) = (both(0), both(1)) else { return false };
        let mut add = |what: &str, dtype: DType, constant: Option<Tensor>| {
            let name = graph.unused_name(what);
            graph.add_value(name, dtype, constant)
        };
        let tables = [cosines, sines].map(|table| add("all rotary rows", table.dtype(), Some(table)));
        let rows = add("rotary rows of tokens", DType::I64, None);
        let mut nodes = graph.nodes().to_vec();
        let mut first = None;
        for &NodeId(at) in &self.readers {
            let node = &mut nodes[at as usize];
            let Meaning::CachedAttention { tables: places, positions, .. } = node.op.meaning() else { continue };
            first.get_or_insert((at as usize, node.inputs[0]));
            let (least, places) = (positions + 1, [(places[0], tables[0]), (places[1], tables[1]), (positions, rows)]);
            node.inputs.resize(node.inputs.len().max(least), None);
            places.into_iter().for_each(|(at, value)| node.inputs[at] = Some(value));
        }
        let Some((at, read)) = first else { return false };
        let node = Node {
            name: "rotary rows".to_owned(),
            op: Arc::new(TablePositions { threshold: self.threshold, long, short }),
            inputs: vec![Some(self.lengths), Some(self.total), read, self.positions],
            outputs: vec![Some(rows)],
        };
        nodes.insert(at, node);
        graph.set_nodes(nodes);
        true
    }
}

/// The threshold and the compared value, if a condition is `value > threshold`.
fn above(condition: ValueId, graph: &Graph, links: &Links) -> Option<(i64, ValueId)> {
    let node = graph.node(links.maker(condition)?);
    let (Meaning::Binary(Binary::Gt), &[Some(value), Some(threshold)]) = (node.op.meaning(), &node.inputs[..]) else {
        return None;
    };
    let threshold = graph.value(threshold).constant.as_ref().filter(|it| it.elems() == 1 && !it.dtype().is_float())?;
    Some((threshold.get(0).as_i64(), uncast(value, graph, links)))
}

/// The value before conversions between integer types.
fn uncast(mut value: ValueId, graph: &Graph, links: &Links) -> ValueId {
    while let Some(maker) = links.maker(value) {
        let node = graph.node(maker);
        let (Meaning::Cast(DType::I32 | DType::I64), Some(&Some(from))) = (node.op.meaning(), node.inputs.first())
        else {
            break;
        };
        if !matches!(graph.value(from).dtype, DType::I32 | DType::I64) {
            break;
        }
        value = from;
    }
    value
}

/// Two tables with the same columns as one.
fn joined(first: &Tensor, second: &Tensor) -> Option<Tensor> {
    let (&[rows, columns], &[more, _]) = (first.shape(), second.shape()) else { return None };
    if first.dtype() != second.dtype() {
        return None;
    }
    Tensor::from_bytes(first.dtype(), &[rows + more, columns], &[first.bytes(), second.bytes()].concat())
}
