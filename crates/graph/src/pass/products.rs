//! Products of one value with several constant matrices become one: queries, keys and values, a gate and what it gates.
use std::{collections::HashMap, sync::Arc};

use crate::{
    DType, Graph, Node, NodeId, Tensor, ValueId,
    expr::Binary,
    ops::{Meaning, MergedMatMul, QuantProduct},
    pass::links::Links,
    prim::{QuantMatMul, WeightLayout},
};

pub(super) fn run(graph: &mut Graph) -> usize {
    let links = Links::new(graph);
    let mut groups: Vec<Vec<NodeId>> = Vec::new();
    let mut known: HashMap<Key, usize> = HashMap::new();
    for at in 0..graph.nodes().len() {
        let id = NodeId(at as u32);
        let Some(key) = key(graph, &links, id) else { continue };
        let group = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.push(id),
            None => groups.push(vec![id]),
        }
    }
    let mut gone = vec![false; graph.nodes().len()];
    let mut count = 0;
    for group in groups.iter().filter(|group| group.len() > 1) {
        let Some(node) = merged(graph, group) else { continue };
        graph.set_node(group[0], node);
        group[1..].iter().for_each(|id| gone[id.0 as usize] = true);
        count += 1;
    }
    if count > 0 {
        graph.keep_nodes(|NodeId(at)| !gone[at as usize]);
    }
    count
}

/// What products have in common that can be one.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    a: ValueId,
    kind: Kind,
}

#[derive(PartialEq, Eq, Hash)]
enum Kind {
    /// By depth and type.
    Plain(usize, DType),
    /// By depth, and what the weights are.
    Quantised(usize, QuantMatMul, DType),
}

fn key(graph: &Graph, links: &Links, id: NodeId) -> Option<Key> {
    let node = graph.node(id);
    let a = (*node.inputs.first()?)?;
    let [Some(made)] = node.outputs[..] else { return None };
    // The constants of others would be held twice.
    let own = node.inputs[1..].iter().flatten().all(|input| {
        graph.value(*input).constant.is_some() && links.readers(*input) == [id] && !graph.inputs().contains(input)
    });
    if !own || graph.value(a).constant.is_some() || is_biased(graph, links, made) {
        return None;
    }
    let kind = match node.op.meaning() {
        Meaning::MatMul => {
            let b = constant(graph, node, 1)?;
            let &[depth, _] = b.shape() else { return None };
            matches!(b.dtype(), DType::F32 | DType::F16 | DType::Bf16).then_some(Kind::Plain(depth, b.dtype()))?
        }
        Meaning::QuantMatMul(op) => {
            let weights = op.weights(graph, node)?;
            let plain = op.parts.is_empty() && node.inputs.iter().skip(4).all(Option::is_none);
            let fits = plain && weights.product.layout == WeightLayout::Onnx;
            fits.then(|| Kind::Quantised(op.depth, op.product.clone(), weights.tensors[1].dtype()))?
        }
        _ => return None,
    };
    Some(Key { a, kind })
}

fn constant<'g>(graph: &'g Graph, node: &Node, input: usize) -> Option<&'g Tensor> {
    graph.value((*node.inputs.get(input)?)?).constant.as_ref()
}

/// True if nothing but the addition of a constant reads a product: a device adds it before it stores the product, which it
/// could not do to a part.
fn is_biased(graph: &Graph, links: &Links, made: ValueId) -> bool {
    let Some(reader) = links.only_reader(made) else { return false };
    let node = graph.node(reader);
    let is_sum = matches!(node.op.meaning(), Meaning::Binary(Binary::Add));
    is_sum && node.inputs.iter().flatten().any(|input| graph.value(*input).constant.is_some())
}

/// One node for a group.
fn merged(graph: &mut Graph, group: &[NodeId]) -> Option<Node> {
    let nodes: Vec<Node> = group.iter().map(|&id| graph.node(id).clone()).collect();
    let (op, tensors): (Arc<dyn crate::Op>, Vec<Tensor>) = match nodes[0].op.meaning() {
        Meaning::MatMul => {
            let all: Vec<&Tensor> = nodes.iter().map(|node| constant(graph, node, 1)).collect::<Option<_>>()?;
            let parts = all.iter().map(|tensor| tensor.shape()[1]).collect();
            (Arc::new(MergedMatMul { parts }), vec![side_by_side(&all)?])
        }
        Meaning::QuantMatMul(first) => {
            let all: Vec<_> = nodes
                .iter()
                .map(|node| match node.op.meaning() {
                    Meaning::QuantMatMul(op) => op.weights(graph, node),
                    _ => None,
                })
                .collect::<Option<_>>()?;
            let parts: Vec<usize> = all.iter().map(|weights| weights.columns).collect();
            let columns = parts.iter().sum();
            let joined = |at: usize| one_after_the_other(&all.iter().map(|it| &it.tensors[at]).collect::<Vec<_>>());
            let tensors = (0..all[0].tensors.len()).map(joined).collect::<Option<_>>()?;
            (Arc::new(QuantProduct { columns, parts, ..first.clone() }), tensors)
        }
        _ => return None,
    };
    let name = nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(" + ");
    let mut inputs = vec![nodes[0].inputs[0]];
    for tensor in tensors {
        // Names of a model's nodes may be empty, or the same.
        let label = graph.unused_name(&format!("{name} weights"));
        inputs.push(Some(graph.add_value(label, tensor.dtype(), Some(tensor))));
    }
    let outputs = nodes.iter().map(|node| node.outputs[0]).collect();
    Some(Node { name, op, inputs, outputs })
}

/// Matrices of one height in one.
fn side_by_side(all: &[&Tensor]) -> Option<Tensor> {
    let (height, dtype) = (all[0].shape()[0], all[0].dtype());
    let width: usize = all.iter().map(|tensor| tensor.shape()[1]).sum();
    let mut bytes = Vec::with_capacity(height * width * dtype.bytes());
    for row in 0..height {
        for tensor in all {
            let size = tensor.shape()[1] * dtype.bytes();
            bytes.extend_from_slice(&tensor.bytes()[row * size..][..size]);
        }
    }
    Tensor::from_bytes(dtype, &[height, width], &bytes)
}

/// The elements of several tensors in one row.
fn one_after_the_other(all: &[&Tensor]) -> Option<Tensor> {
    let bytes: Vec<u8> = all.iter().flat_map(|tensor| tensor.bytes()).copied().collect();
    let elems = all.iter().map(|tensor| tensor.elems()).sum();
    Tensor::from_bytes(all[0].dtype(), &[elems], &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::testing::{Build, names, row};

    fn matrix(build: &mut Build, columns: usize) -> ValueId {
        let values: Vec<f64> = (0..4 * columns).map(|at| at as f64).collect();
        build.constant(&format!("w{columns}"), row(&values).reshaped(&[4, columns]).unwrap())
    }

    #[test]
    fn products_of_one_value_with_constants_are_one() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let weights = [2, 3, 1].map(|columns| matrix(&mut build, columns));
        let made = weights.map(|w| build.node("MatMul", &[x, w]));
        let mut graph = build.outputs(&made);
        assert_eq!(run(&mut graph), 1);
        graph.verify().unwrap();
        assert_eq!(names(&graph), ["MatMul"]);
        let node = &graph.nodes()[0];
        assert_eq!(node.name, "matmul0 + matmul1 + matmul2");
        let tensor = constant(&graph, node, 1).unwrap();
        assert_eq!(tensor.shape(), [4, 6]);
        let first: Vec<f64> = tensor.scalars().take(6).map(crate::Scalar::as_f64).collect();
        assert_eq!(first, [0.0, 1.0, 0.0, 1.0, 2.0, 0.0]);
        assert_eq!(graph.values().len(), 5, "the old matrices are dropped");
    }

    #[test]
    fn nodes_without_names_are_merged_too() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        build.constant(" +  weights 1", row(&[1.0]));
        let pairs = [1, 2].map(|_| {
            let y = build.node("Relu", &[x]);
            let weights = [2, 3].map(|columns| {
                let values: Vec<f64> = (0..4 * columns).map(|at| at as f64).collect();
                let number = build.number(0.0);
                build.constant(&format!("w{}", number.0), row(&values).reshaped(&[4, columns]).unwrap())
            });
            weights.map(|w| build.node("MatMul", &[y, w]))
        });
        let mut graph = build.outputs(pairs.as_flattened());
        for at in 0..graph.nodes().len() {
            let id = NodeId(at as u32);
            let node = Node { name: String::new(), ..graph.node(id).clone() };
            graph.set_node(id, node);
        }
        assert_eq!(run(&mut graph), 2);
        graph.verify().unwrap();
    }

    #[test]
    fn other_operands_biases_and_shared_matrices_keep_them_apart() {
        let mut build = Build::new();
        let (x, y) = (build.input("x", DType::F32), build.input("y", DType::F32));
        let (a, b) = (matrix(&mut build, 2), matrix(&mut build, 3));
        let products = [build.node("MatMul", &[x, a]), build.node("MatMul", &[y, b])];
        assert_eq!(run(&mut build.outputs(&products)), 0);
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let a = matrix(&mut build, 2);
        let products = [build.node("MatMul", &[x, a]), build.node("MatMul", &[x, a])];
        assert_eq!(run(&mut build.outputs(&products)), 0);
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let (a, b) = (matrix(&mut build, 2), matrix(&mut build, 3));
        let (one, two) = (build.node("MatMul", &[x, a]), build.node("MatMul", &[x, b]));
        let bias = build.number(1.0);
        let sums = [build.node("Add", &[one, bias]), build.node("Add", &[bias, two])];
        assert_eq!(run(&mut build.outputs(&sums)), 0);
    }
}
