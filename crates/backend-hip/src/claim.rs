//! Which nodes the engine takes, and how they are grouped.
use std::collections::{BTreeMap, HashMap};

use graph::Declined;
use ort_ep::saved::source;
use ort_ep::view::{Graph, Node};
use ort_ep::{Claims, Result, convex};

use crate::{import, padded, saved};

/// The decision for each node of a graph.
pub(crate) struct Placement<'a> {
    /// Groups of nodes; each becomes one partition.
    pub partitions: Vec<Vec<Node<'a>>>,
    /// Nodes that run in kernels of their own.
    pub alone: Vec<Node<'a>>,
    /// Nodes that stay with other providers, each with the reason.
    pub declined: Vec<(Node<'a>, Declined)>,
}

/// Offers every node of a graph to the engine. Each node saved by a provider called `name` becomes a partition of its
/// own. With `padded_masks`, the application pads attention masks to a fixed width.
///
/// # Errors
/// ONNX Runtime failed to describe the graph.
pub(crate) fn place<'a>(graph: Graph<'a>, name: &str, padded_masks: bool) -> Result<Placement<'a>> {
    let nodes = graph.nodes()?;
    if let Some(reason) = refused(graph)? {
        let declined = nodes.into_iter().map(|node| (node, reason.clone())).collect();
        return Ok(Placement { partitions: Vec::new(), alone: Vec::new(), declined });
    }
    let mut taken = Vec::with_capacity(nodes.len());
    let mut declined = Vec::new();
    let mut values = Values::default();
    let mut contexts = Vec::new();
    for &node in &nodes {
        let owner = node.ep_name()?;
        if owner.is_none() && saved::is_ours(node, name)? {
            contexts.push(vec![node]);
            taken.push(false);
            continue;
        }
        let answer = match (owner, source(node)?) {
            (Some(owner), _) => Err(Declined::new(format!("{owner} has already claimed it"))),
            (None, Some(source)) => Err(Declined::new(format!("it was saved by {source:?}, but this is {name:?}"))),
            (None, None) => import::parse(node)?.and_then(|op| {
                values.check(node, &*op)?;
                Ok(op)
            }),
        };
        values.add(node, answer.as_ref().ok().map(|op| &**op))?;
        taken.push(answer.is_ok());
        if let Err(reason) = answer {
            declined.push((node, reason));
        }
    }
    let mut groups = partitions(&nodes, &taken)?;
    if padded_masks {
        let unclear = padded::unclear_choices(&groups)?;
        for &(node, _) in &unclear {
            let id = node.id()?;
            for (at, other) in nodes.iter().enumerate() {
                taken[at] &= other.id()? != id;
            }
        }
        if !unclear.is_empty() {
            groups = partitions(&nodes, &taken)?;
            declined.extend(unclear);
        }
    }
    let mut partitions = groups;
    partitions.append(&mut contexts);
    Ok(Placement { partitions, alone: Vec::new(), declined })
}

/// Returns a reason if no node of the graph can be taken.
///
/// ONNX Runtime later inlines the body of a function operator (SequenceMap) into a loop. If the body then contains a
/// fused node, ONNX Runtime fails with "No opset import for domain" (seen in 1.31.1).
pub(crate) fn refused(graph: Graph<'_>) -> Result<Option<Declined>> {
    let Some(parent) = graph.parent_node()? else { return Ok(None) };
    let op_type = parent.op_type()?;
    Ok((!["If", "Loop", "Scan"].contains(&op_type)).then(|| Declined::new(format!("it is in the body of a {op_type}"))))
}

/// Passes a placement to ONNX Runtime.
///
/// # Errors
/// ONNX Runtime returned an error.
pub(crate) fn claim(placement: &Placement<'_>, claims: &mut Claims<'_>) -> Result<()> {
    for nodes in &placement.partitions {
        // A saved partition expects all inputs of its node, including constants.
        let is_saved = source(nodes[0])?.is_some();
        claims.fuse(nodes, !is_saved)?;
    }
    placement.alone.iter().try_for_each(|&node| claims.single(node))
}

/// Tracks which values the planner will know, to decide about operators whose output shapes depend on input values.
#[derive(Default)]
struct Values {
    /// Values that taken nodes compute and the planner cannot know, with the operator that makes them so.
    unknowable: HashMap<String, String>,
}

impl Values {
    /// Declines a node that needs a value known only on the device.
    fn check(&self, node: Node<'_>, op: &dyn graph::Op) -> Result<(), Declined> {
        let inputs = node.inputs().map_err(|error| Declined::new(error.to_string()))?;
        for &index in op.host_inputs() {
            let name = inputs.get(index).copied().flatten().and_then(|value| value.name().ok());
            if let Some(maker) = name.and_then(|name| self.unknowable.get(name)) {
                return Err(Declined::new(format!(
                    "its output shapes depend on values that {maker} computes on the device"
                )));
            }
        }
        Ok(())
    }

    /// Records a node's outputs. The outputs of a declined node come from outside the partition and are known when
    /// needed.
    fn add(&mut self, node: Node<'_>, op: Option<&dyn graph::Op>) -> Result<()> {
        let Some(op) = op else { return Ok(()) };
        if op.reads_only_shapes() {
            return Ok(());
        }
        let mut reason = (!op.follows_known_values()).then(|| op.name().to_owned());
        for input in node.inputs()?.into_iter().flatten() {
            reason = reason.or_else(|| self.unknowable.get(input.name().ok()?).cloned());
        }
        if let Some(reason) = reason {
            for output in node.outputs()?.into_iter().flatten() {
                self.unknowable.insert(output.name()?.to_owned(), reason.clone());
            }
        }
        Ok(())
    }
}

/// Groups taken nodes so that no path leaves a group and re-enters it: nodes of the same level form a group.
fn partitions<'a>(nodes: &[Node<'a>], taken: &[bool]) -> Result<Vec<Vec<Node<'a>>>> {
    let levels = convex::levels(&convex::makers(nodes)?, taken);
    let mut groups: BTreeMap<usize, Vec<Node<'a>>> = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate().filter(|(at, _)| taken[*at]) {
        groups.entry(levels[at]).or_default().push(*node);
    }
    Ok(groups.into_values().collect())
}
