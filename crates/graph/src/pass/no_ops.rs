//! Bypasses nodes that change nothing, and merges consecutive movements of one kind.
//!
//! The nodes themselves stay until [`dead_code`](super::dead_code) finds that they are unused.
use std::sync::Arc;

use crate::ops::{self, Attribute, Attributes, InputInfo, Meaning, NodeInfo};
use crate::pass::links::Links;
use crate::{Graph, Node, Op, ValueId, shape};

pub(super) fn run(graph: &mut Graph) -> usize {
    let mut changes = 0;
    // What to read instead of each value.
    let mut instead: Vec<ValueId> = (0..graph.values().len()).map(|at| ValueId(at as u32)).collect();
    let links = Links::new(graph);
    for at in 0..graph.nodes().len() {
        let mut node = graph.nodes()[at].clone();
        node.inputs.iter_mut().flatten().for_each(|input| *input = instead[input.0 as usize]);
        while let Some(merged) = merged(graph, &links, &node) {
            node = merged;
            changes += 1;
        }
        let output = node.outputs.first().copied().flatten();
        if let (Some(output), Some(input)) = (output, unchanged(graph, &node)) {
            let is_read = links.is_wanted(output) || !links.readers(output).is_empty();
            instead[output.0 as usize] = input;
            changes += usize::from(is_read);
        }
        graph.nodes_mut()[at] = node;
    }
    graph.outputs_mut().iter_mut().for_each(|output| *output = instead[output.0 as usize]);
    changes
}

/// The input that a node returns unchanged as its first output.
fn unchanged(graph: &Graph, node: &Node) -> Option<ValueId> {
    let input = node.inputs.first().copied().flatten()?;
    let same = match node.op.meaning() {
        Meaning::Same => true,
        Meaning::Cast(to) => graph.value(input).dtype == to,
        Meaning::Transpose(Some(order)) => is_identity(&shape::axes(order, order.len())?),
        _ => false,
    };
    same.then_some(input)
}

fn is_identity(order: &[usize]) -> bool {
    order.iter().enumerate().all(|(at, &axis)| at == axis)
}

/// A node that replaces this one and the one that produces its input.
fn merged(graph: &Graph, links: &Links, node: &Node) -> Option<Node> {
    let input = node.inputs.first().copied().flatten()?;
    let before = graph.node(links.maker(input)?);
    let first = before.inputs.first().copied().flatten()?;
    let op: Arc<dyn Op> = match (node.op.meaning(), before.op.meaning()) {
        (Meaning::Transpose(Some(outer)), Meaning::Transpose(Some(inner))) if outer.len() == inner.len() => {
            let (outer, inner) = (shape::axes(outer, outer.len())?, shape::axes(inner, inner.len())?);
            transpose(graph, first, outer.iter().map(|&axis| inner[axis] as i64).collect())?
        }
        (Meaning::Reshape { copies_zeros }, Meaning::Reshape { .. } | Meaning::Reshaped) => {
            let wanted = graph.value(node.inputs.get(1).copied().flatten()?).constant.as_ref()?;
            if copies_zeros && wanted.to_i64s().contains(&0) {
                return None;
            }
            node.op.clone()
        }
        _ => return None,
    };
    let mut inputs = node.inputs.clone();
    inputs[0] = Some(first);
    Some(Node { op, inputs, ..node.clone() })
}

pub(super) fn transpose(graph: &Graph, input: ValueId, order: Vec<i64>) -> Option<Arc<dyn Op>> {
    let dtype = graph.value(input).dtype;
    let attributes = Attributes([("perm".to_owned(), Attribute::Ints(order))].into());
    let node = NodeInfo {
        domain: "",
        op_type: "Transpose",
        since_version: 13,
        attributes: &attributes,
        inputs: &[Some(InputInfo { dtype, rank: None, constant: None })],
        outputs: &[Some(dtype)],
    };
    ops::parse(&node).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::dead_code;
    use crate::pass::testing::{Build, names};
    use crate::{DType, Tensor};

    fn perm(order: &[i64]) -> [(&'static str, Attribute); 1] {
        [("perm", Attribute::Ints(order.to_vec()))]
    }

    fn simplified(mut graph: Graph) -> (usize, Graph) {
        let changes = run(&mut graph);
        dead_code::run(&mut graph);
        graph.verify().unwrap();
        (changes, graph)
    }

    #[test]
    fn nodes_without_effect_are_bypassed() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let same = build.node("Identity", &[x]);
        let dropped = build.node("Dropout", &[same]);
        let cast = build.with("Cast", &[dropped], &[("to", Attribute::Int(1))]);
        let turned = build.with("Transpose", &[cast], &perm(&[0, 1]));
        let exp = build.node("Exp", &[turned]);
        let (changes, graph) = simplified(build.outputs(&[exp]));
        assert_eq!((changes, names(&graph)), (4, vec!["Exp"]));
        assert_eq!(graph.nodes()[0].inputs, [Some(graph.inputs()[0])]);
    }

    #[test]
    fn an_output_may_be_an_input() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let same = build.node("Identity", &[x]);
        let (changes, graph) = simplified(build.outputs(&[same, x]));
        assert_eq!((changes, graph.nodes().len()), (1, 0));
        assert_eq!(graph.outputs(), [graph.inputs()[0]; 2]);
    }

    #[test]
    fn nodes_with_an_effect_stay() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let wide = build.to("Cast", &[x], DType::F64, &[("to", Attribute::Int(11))]);
        let reversed = build.node("Transpose", &[wide]);
        let made = build.add("Dropout", 13, &[reversed], &[DType::F64, DType::Bool], &[]);
        let (changes, graph) = simplified(build.outputs(&made));
        assert_eq!((changes, names(&graph)), (1, vec!["Cast", "Transpose", "Dropout"]));
    }

    #[test]
    fn consecutive_transposes_are_merged() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let one = build.with("Transpose", &[x], &perm(&[2, 0, 1]));
        let two = build.with("Transpose", &[one], &perm(&[-2, 0, 2]));
        let exp = build.node("Exp", &[two]);
        let (changes, graph) = simplified(build.outputs(&[exp]));
        assert_eq!((changes, names(&graph)), (1, vec!["Transpose", "Exp"]));
        assert_eq!(graph.nodes()[0].op.meaning(), Meaning::Transpose(Some(&[0, 2, 1])));
    }

    #[test]
    fn a_transpose_and_its_inverse_vanish() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let one = build.with("Transpose", &[x], &perm(&[1, 2, 0]));
        let two = build.with("Transpose", &[one], &perm(&[2, 0, 1]));
        let exp = build.node("Exp", &[two]);
        let (changes, graph) = simplified(build.outputs(&[exp]));
        assert_eq!((changes, names(&graph)), (2, vec!["Exp"]));
    }

    #[test]
    fn only_the_last_reshape_counts_unless_it_copies_extents() {
        for (shape, nodes) in [(&[2, -1][..], 1), (&[0, -1], 2)] {
            let mut build = Build::new();
            let x = build.input("x", DType::F32);
            let shapes = [&[4, 3][..], shape].map(Tensor::from_i64s);
            let [first, second] = shapes.map(|shape| build.constant(&format!("{:?}", shape.to_i64s()), shape));
            let one = build.node("Reshape", &[x, first]);
            let two = build.node("Reshape", &[one, second]);
            let (changes, graph) = simplified(build.outputs(&[two]));
            assert_eq!((changes, graph.nodes().len()), (2 - nodes, nodes), "{shape:?}");
        }
    }
}
