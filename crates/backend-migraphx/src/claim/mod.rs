//! Which nodes become partitions, and why the others do not.
mod contrib;
mod groups;
mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ort_ep::view::{Graph, Node};
use ort_ep::{Result, convex, declined};

use crate::context;
use crate::mgx::Library;
use crate::onnx::Boundary;
use support::{Known, Support};

/// The decision for each node of a graph.
pub(crate) struct Placement<'a> {
    /// Groups of nodes; each becomes one partition.
    pub partitions: Vec<Vec<Node<'a>>>,
    /// Saved partitions; each is a partition of its own.
    pub contexts: Vec<Node<'a>>,
    /// Nodes that stay with other providers, each with the reason.
    pub declined: Vec<(Node<'a>, String)>,
}

/// Places the nodes of a graph, except those in `kept_out`, which have already been refused for a reason. Each node
/// saved by a provider called `name` becomes a partition of its own.
///
/// # Errors
/// ONNX Runtime failed to describe the graph.
pub(crate) fn place<'a>(
    graph: Graph<'a>,
    name: &str,
    library: &Library,
    cpu_control_flow: bool,
    kept_out: &HashMap<usize, String>,
) -> Result<Placement<'a>> {
    let nodes = graph.nodes()?;
    let support = Support { operators: library.operators(), release: library.version(), cpu_control_flow };
    let mut reasons: BTreeMap<usize, String> = BTreeMap::new();
    let refused = left_to_parent(graph, &support)?;
    let (mut known, mut contexts) = (Known::new(), BTreeSet::new());
    for (at, &node) in nodes.iter().enumerate() {
        if node.ep_name()?.is_none() && context::is_ours(node, name)? {
            contexts.insert(at);
            reasons.insert(at, String::new());
            continue;
        }
        let reason = match (&refused, node.ep_name()?, kept_out.get(&node.id()?)) {
            (Some(reason), ..) => Some(reason.clone()),
            (_, Some(owner), _) => Some(format!("{owner} has already claimed it")),
            (_, _, Some(reason)) => Some(reason.clone()),
            _ => support.refusal(node, &known)?,
        };
        match reason {
            Some(reason) => drop(reasons.insert(at, reason)),
            // The outputs of a declined node come from outside and are not known when a program is compiled.
            None => support::learn(node, &mut known)?,
        }
    }
    let makers = convex::makers(&nodes)?;
    let mut groups = settle(&nodes, &makers, &support, &mut reasons)?;
    // If every node is supported, the whole model becomes one partition.
    if reasons.is_empty() && !nodes.is_empty() {
        groups = vec![(0..nodes.len()).collect()];
    } else {
        let mut worth = Vec::new();
        for group in groups {
            let heavy = group.iter().map(|&at| support::is_heavy(nodes[at])).collect::<Result<Vec<_>>>()?;
            if heavy.contains(&true) {
                worth.push(group);
            } else {
                let reason = "no expensive node is connected to it";
                reasons.extend(group.into_iter().map(|at| (at, reason.to_owned())));
            }
        }
        groups = worth;
    }
    let declined = reasons.into_iter().filter(|(at, _)| !contexts.contains(at));
    Ok(Placement {
        partitions: groups.into_iter().map(|group| group.into_iter().map(|at| nodes[at]).collect()).collect(),
        contexts: contexts.iter().map(|&at| nodes[at]).collect(),
        declined: declined.map(|(at, reason)| (nodes[at], reason)).collect(),
    })
}

/// Groups nodes so that every value a node needs at compile time is known within its group: values computed by another
/// group are not. Nodes for which this fails are declined, which changes the groups, so this repeats until it declines
/// no more nodes.
fn settle(
    nodes: &[Node<'_>],
    makers: &[Vec<usize>],
    support: &Support<'_>,
    reasons: &mut BTreeMap<usize, String>,
) -> Result<Vec<Vec<usize>>> {
    loop {
        let taken: Vec<bool> = (0..nodes.len()).map(|at| !reasons.contains_key(&at)).collect();
        let groups = groups::connected(makers, &taken);
        let before = reasons.len();
        for group in &groups {
            let mut known = Known::new();
            for &at in group {
                match support.refusal(nodes[at], &known)? {
                    Some(reason) => drop(reasons.insert(at, reason)),
                    None => support::learn(nodes[at], &mut known)?,
                }
            }
        }
        if reasons.len() == before {
            return Ok(groups);
        }
    }
}

/// Why the body of a control-flow node is not taken on its own: MIGraphX takes it together with the node, or it cannot
/// be fused.
///
/// ONNX Runtime later inlines the body of a function operator (SequenceMap) into a loop. If the body then contains a
/// fused node, ONNX Runtime fails with "No opset import for domain" (seen in 1.31.1).
fn left_to_parent(graph: Graph<'_>, support: &Support<'_>) -> Result<Option<String>> {
    let Some(parent) = graph.parent_node()? else { return Ok(None) };
    let op = parent.op_type()?;
    if !["If", "Loop", "Scan"].contains(&op) {
        return Ok(Some(format!("it is in the body of a {op}")));
    }
    Ok(support.refusal(parent, &Known::new())?.is_none().then(|| format!("it is part of the enclosing {op}")))
}

/// The inputs and outputs of a group of nodes of `graph`.
///
/// # Errors
/// ONNX Runtime failed to describe a node.
pub(crate) fn boundary<'a>(nodes: &[Node<'a>]) -> Result<Boundary<'a>> {
    let ids = nodes.iter().map(|node| node.id()).collect::<Result<HashSet<_>>>()?;
    let mut made = HashSet::new();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for node in nodes {
        for value in node.inputs()?.into_iter().flatten().chain(node.implicit_inputs()?) {
            if !made.contains(value.name()?) {
                inputs.push(value);
            }
        }
        for value in node.outputs()?.into_iter().flatten() {
            made.insert(value.name()?);
            let mut used = value.is_graph_output()?;
            for consumer in value.consumers()? {
                let inside = consumer.node.map(|node| node.id()).transpose()?.is_some_and(|id| ids.contains(&id));
                used |= !inside;
            }
            if used {
                outputs.push(value);
            }
        }
    }
    Ok(Boundary { inputs, outputs })
}

/// Logs one line per graph: how many nodes run here, and why the others do not.
///
/// # Errors
/// ONNX Runtime failed to describe a node.
pub(crate) fn report(placement: &Placement<'_>, target: &str) -> Result<()> {
    let taken: usize = placement.partitions.iter().map(Vec::len).sum::<usize>() + placement.contexts.len();
    let total = taken + placement.declined.len();
    for (node, reason) in &placement.declined {
        tracing::debug!(target: "amdgpu_ep::partition", node = node.name()?, op = node.op_type()?, %reason, "declined");
    }
    let rest = declined::reasons(&placement.declined)?;
    let partitions = placement.partitions.len() + placement.contexts.len();
    tracing::info!(target: "amdgpu_ep::partition", "{taken} of {total} nodes in {partitions} partitions on MIGraphX's {target} target{rest}");
    Ok(())
}
