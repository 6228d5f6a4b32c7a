//! Common subexpressions are computed once.
use std::collections::HashMap;

use crate::{DType, Graph, Node, NodeId, Shape, ValueId};

/// Constants up to this size are compared by their contents, so that the same number written twice is stored once.
const COMPARED_BYTES: usize = 256;

/// Nodes with equal keys compute the same.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: String,
    inputs: Vec<Option<ValueId>>,
    outputs: Vec<Option<DType>>,
}

pub(super) fn run(graph: &mut Graph) -> usize {
    let mut instead = constants(graph);
    let mut known: HashMap<Key, NodeId> = HashMap::new();
    let mut twice = vec![false; graph.nodes().len()];
    for (at, is_twice) in twice.iter_mut().enumerate() {
        let node = &mut graph.nodes_mut()[at];
        node.inputs.iter_mut().flatten().for_each(|input| *input = instead[input.0 as usize]);
        let node = &graph.nodes()[at];
        // Each reader keeps its own DequantizeLinear on purpose: the two are merged later, and the reader then
        // reads the quantised value.
        if node.op.name() == "DequantizeLinear" {
            continue;
        }
        let first = *known.entry(key(graph, node)).or_insert(NodeId(at as u32));
        if first.0 as usize == at {
            continue;
        }
        *is_twice = true;
        for (output, same) in node.outputs.iter().zip(&graph.node(first).outputs) {
            if let (Some(output), Some(same)) = (output, same) {
                instead[output.0 as usize] = *same;
            }
        }
    }
    let merged = twice.iter().filter(|twice| **twice).count();
    if merged > 0 {
        graph.outputs_mut().iter_mut().for_each(|output| *output = instead[output.0 as usize]);
        graph.keep_nodes(|NodeId(at)| !twice[at as usize]);
    }
    merged
}

fn key(graph: &Graph, node: &Node) -> Key {
    Key {
        op: format!("{:#?}", node.op),
        inputs: node.inputs.clone(),
        outputs: node.outputs.iter().map(|output| output.map(|id| graph.value(id).dtype)).collect(),
    }
}

/// For each value the one to read instead: the first of equal small constants, or the value itself.
fn constants(graph: &Graph) -> Vec<ValueId> {
    let mut known: HashMap<(DType, Shape, &[u8]), ValueId> = HashMap::new();
    let mut instead = Vec::with_capacity(graph.values().len());
    for (at, value) in graph.values().iter().enumerate() {
        let id = ValueId(at as u32);
        // An input with a default value is not a constant.
        let small = value.constant.as_ref().filter(|tensor| tensor.len_bytes() <= COMPARED_BYTES);
        instead.push(match small.filter(|_| !graph.inputs().contains(&id)) {
            Some(tensor) => *known.entry((tensor.dtype(), tensor.shape().into(), tensor.bytes())).or_insert(id),
            None => id,
        });
    }
    instead
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;
    use crate::ops::Attribute;
    use crate::pass::testing::{Build, names};

    #[test]
    fn equal_nodes_on_equal_constants_are_merged() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let two = [build.number(2.0), build.number(2.0)];
        let powers = two.map(|two| build.node("Pow", &[x, two]));
        let exps = powers.map(|power| build.node("Exp", &[power]));
        let sum = build.node("Add", &exps);
        let mut graph = build.outputs(&[sum, exps[1]]);
        assert_eq!(run(&mut graph), 2);
        graph.verify().unwrap();
        assert_eq!(names(&graph), ["Pow", "Exp", "Add"]);
        assert_eq!(graph.nodes()[2].inputs, [graph.nodes()[1].outputs[0]; 2]);
        assert_eq!(Some(graph.outputs()[1]), graph.nodes()[1].outputs[0]);
    }

    #[test]
    fn nodes_differ_by_attributes_inputs_and_input_order() {
        let mut build = Build::new();
        let (x, y) = (build.input("x", DType::F32), build.input("y", DType::F32));
        let made = [
            build.node("Sub", &[x, y]),
            build.node("Sub", &[y, x]),
            build.with("LeakyRelu", &[x], &[("alpha", Attribute::Float(0.1))]),
            build.with("LeakyRelu", &[x], &[("alpha", Attribute::Float(0.2))]),
        ];
        assert_eq!(run(&mut build.outputs(&made)), 0);
    }

    #[test]
    fn constants_of_one_shape_differ_by_their_contents() {
        let mut build = Build::new();
        let constant = |values: &[i64]| [("value", Attribute::Tensor(Tensor::from_i64s(values)))];
        let made =
            [[1, 2], [1, 3], [1, 2]].map(|values| build.add("Constant", 13, &[], &[DType::I64], &constant(&values))[0]);
        let mut graph = build.outputs(&made);
        assert_eq!(run(&mut graph), 1);
        assert_eq!(graph.outputs()[0], graph.outputs()[2]);
        assert_ne!(graph.outputs()[0], graph.outputs()[1]);
    }

    #[test]
    fn every_reader_keeps_its_own_dequantisation() {
        let mut build = Build::new();
        let (x, scale) = (build.input("x", DType::U8), build.number(0.5));
        let made = [(); 2].map(|()| build.to("DequantizeLinear", &[x, scale], DType::F32, &[]));
        let sum = build.node("Add", &made);
        assert_eq!(run(&mut build.outputs(&[sum])), 0);
    }

    #[test]
    fn nodes_with_different_used_outputs_are_not_merged() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let k = [("k", Attribute::Int(1))];
        build.add("TopK", 1, &[x], &[DType::F32, DType::I64], &k);
        let both = build.add("TopK", 1, &[x], &[DType::F32, DType::I64], &k);
        let mut graph = build.outputs(&both);
        graph.nodes_mut()[0].outputs[1] = None;
        graph.keep_nodes(|_| true);
        assert_eq!(run(&mut graph), 0);
    }
}
