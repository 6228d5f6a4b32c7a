//! Merges products of one value with several constant matrices: queries, keys and values, or a gate and the value it
//! gates.
use std::collections::HashMap;
use std::sync::Arc;

use crate::expr::Binary;
use crate::ops::{BiasedParts, Meaning, MergedMatMul, QuantProduct};
use crate::pass::links::Links;
use crate::prim::{QuantMatMul, WeightLayout};
use crate::{DType, Graph, Node, NodeId, Tensor, ValueId};

pub(super) fn run(graph: &mut Graph) -> usize {
    let links = Links::new(graph);
    let mut groups: Vec<Vec<Product>> = Vec::new();
    let mut known: HashMap<Key, usize> = HashMap::new();
    for at in 0..graph.nodes().len() {
        let Some((key, product)) = product(graph, &links, NodeId(at as u32)) else { continue };
        let group = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.push(product),
            None => groups.push(vec![product]),
        }
    }
    let mut gone = vec![false; graph.nodes().len()];
    let mut count = 0;
    for group in groups.iter().filter(|group| group.len() > 1) {
        if merge(graph, group, &mut gone).is_some() {
            count += 1;
        }
    }
    if count > 0 {
        graph.keep_nodes(|NodeId(at)| !gone[at as usize]);
    }
    count
}

/// Products with equal keys can be merged.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    a: ValueId,
    kind: Kind,
    is_biased: bool,
}

/// A product, with the addition of a bias if that is its only reader.
struct Product {
    node: NodeId,
    bias: Option<Bias>,
}

struct Bias {
    sum: NodeId,
    row: ValueId,
}

#[derive(PartialEq, Eq, Hash)]
enum Kind {
    /// Depth and type.
    Plain(usize, DType),
    /// Depth, and the kind of weights.
    Quantised(usize, QuantMatMul, DType),
}

fn product(graph: &Graph, links: &Links, id: NodeId) -> Option<(Key, Product)> {
    let node = graph.node(id);
    let a = (*node.inputs.first()?)?;
    let [Some(made)] = node.outputs[..] else { return None };
    // Constants with other readers would be stored twice.
    let own = node.inputs[1..].iter().flatten().all(|input| {
        graph.value(*input).constant.is_some() && links.readers(*input) == [id] && !graph.inputs().contains(input)
    });
    if !own || graph.value(a).constant.is_some() {
        return None;
    }
    let (kind, columns) = match node.op.meaning() {
        Meaning::MatMul => {
            let b = constant(graph, node, 1)?;
            let &[depth, columns] = b.shape() else { return None };
            let is_float = matches!(b.dtype(), DType::F32 | DType::F16 | DType::Bf16);
            (is_float.then_some(Kind::Plain(depth, b.dtype()))?, columns)
        }
        Meaning::QuantMatMul(op) => {
            let weights = op.weights(graph, node)?;
            let plain = op.parts.is_empty() && node.inputs.iter().skip(4).all(Option::is_none);
            let fits = plain && weights.product.layout == WeightLayout::Onnx;
            let kind = fits.then(|| Kind::Quantised(op.depth, op.product.clone(), weights.tensors[1].dtype()))?;
            (kind, weights.columns)
        }
        _ => return None,
    };
    let bias = bias(graph, links, made, columns).ok()?;
    Some((Key { a, kind, is_biased: bias.is_some() }, Product { node: id, bias }))
}

fn constant<'g>(graph: &'g Graph, node: &Node, input: usize) -> Option<&'g Tensor> {
    graph.value((*node.inputs.get(input)?)?).constant.as_ref()
}

/// The node that adds a bias to a product with no other reader. `Err` if it adds another kind of constant: a device
/// adds that before it stores the product, which is impossible for a part of a merged product.
fn bias(graph: &Graph, links: &Links, made: ValueId, columns: usize) -> Result<Option<Bias>, ()> {
    let Some(sum) = links.only_reader(made) else { return Ok(None) };
    let node = graph.node(sum);
    let added = node.inputs.iter().flatten().find(|&input| graph.value(*input).constant.is_some());
    let (Meaning::Binary(Binary::Add), Some(&row)) = (node.op.meaning(), added) else { return Ok(None) };
    let shape = graph.value(row).constant.as_ref().map(Tensor::shape);
    let fits = shape == Some(&[columns]) && !graph.inputs().contains(&row);
    if fits { Ok(Some(Bias { sum, row })) } else { Err(()) }
}

/// One node for a group, or two if each has a bias: the product, and the sum in parts. All other nodes are removed.
fn merge(graph: &mut Graph, group: &[Product], gone: &mut [bool]) -> Option<()> {
    let (product, parts) = merged(graph, group)?;
    let biases: Vec<&Bias> = group.iter().filter_map(|product| product.bias.as_ref()).collect();
    let Some(first) = biases.iter().map(|bias| bias.sum).min() else {
        graph.set_node(group[0].node, product);
        group[1..].iter().for_each(|product| gone[product.node.0 as usize] = true);
        return Some(());
    };
    let rows: Vec<&Tensor> =
        biases.iter().map(|bias| graph.value(bias.row).constant.as_ref()).collect::<Option<_>>()?;
    let row = one_after_the_other(&rows)?;
    let sums: Vec<Node> = biases.iter().map(|bias| graph.node(bias.sum).clone()).collect();
    let made = product.outputs[0].map(|part| graph.value(part).dtype)?;
    let whole = graph.add_value(graph.unused_name(&format!("{} made", product.name)), made, None);
    let name = sums.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(" + ");
    let row = graph.add_value(graph.unused_name(&format!("{name} biases")), row.dtype(), Some(row));
    let outputs = sums.iter().map(|node| node.outputs[0]).collect();
    group.iter().for_each(|product| gone[product.node.0 as usize] = true);
    biases.iter().for_each(|bias| gone[bias.sum.0 as usize] = true);
    // The first sum comes after its product, and before everything that reads any of the sums.
    for (id, node) in [
        (group[0].node, Node { outputs: vec![Some(whole)], ..product }),
        (first, Node { name, op: Arc::new(BiasedParts { parts }), inputs: vec![Some(whole), Some(row)], outputs }),
    ] {
        gone[id.0 as usize] = false;
        graph.set_node(id, node);
    }
    Some(())
}

/// One product for a group, and the number of columns of its parts. Without biases it produces the parts, otherwise the
/// whole.
fn merged(graph: &mut Graph, group: &[Product]) -> Option<(Node, Vec<usize>)> {
    let nodes: Vec<Node> = group.iter().map(|product| graph.node(product.node).clone()).collect();
    let in_one = group[0].bias.is_some();
    let (op, tensors, parts): (Arc<dyn crate::Op>, Vec<Tensor>, Vec<usize>) = match nodes[0].op.meaning() {
        Meaning::MatMul => {
            let all: Vec<&Tensor> = nodes.iter().map(|node| constant(graph, node, 1)).collect::<Option<_>>()?;
            let parts: Vec<usize> = all.iter().map(|tensor| tensor.shape()[1]).collect();
            let weights = vec![side_by_side(&all)?];
            let op = Arc::new(MergedMatMul { parts: if in_one { Vec::new() } else { parts.clone() } });
            (op, weights, parts)
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
            let of_op = if in_one { Vec::new() } else { parts.clone() };
            (Arc::new(QuantProduct { columns, parts: of_op, ..first.clone() }), tensors, parts)
        }
        _ => return None,
    };
    let name = nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(" + ");
    let mut inputs = vec![nodes[0].inputs[0]];
    for tensor in tensors {
        // Node names in a model may be empty, or equal.
        let label = graph.unused_name(&format!("{name} weights"));
        inputs.push(Some(graph.add_value(label, tensor.dtype(), Some(tensor))));
    }
    let outputs = nodes.iter().map(|node| node.outputs[0]).collect();
    Some((Node { name, op, inputs, outputs }, parts))
}

/// Concatenates matrices of the same height, side by side.
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

/// Concatenates the elements of several tensors.
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
    fn products_of_one_value_with_constants_are_merged() {
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
    fn other_operands_biases_and_shared_matrices_prevent_merging() {
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
        let number = build.number(1.0);
        let sums = [build.node("Add", &[one, number]), build.node("Add", &[number, two])];
        assert_eq!(run(&mut build.outputs(&sums)), 0, "a scalar is not a row");
    }

    #[test]
    fn products_with_biases_are_merged_with_one_bias() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let (a, b) = (matrix(&mut build, 2), matrix(&mut build, 3));
        let (first, second) = (build.constant("b2", row(&[7.0, 8.0])), build.constant("b3", row(&[9.0, 10.0, 11.0])));
        // The second sum comes before the first one, and is read before it too.
        let (one, two) = (build.node("MatMul", &[x, a]), build.node("MatMul", &[x, b]));
        let second = build.node("Add", &[second, two]);
        let read = build.node("Relu", &[second]);
        let first = build.node("Add", &[one, first]);
        let mut graph = build.outputs(&[first, read]);
        assert_eq!(run(&mut graph), 1);
        graph.verify().unwrap();
        assert_eq!(names(&graph), ["MatMul", "Add", "Relu"]);
        let sum = &graph.nodes()[1];
        let biases: Vec<f64> = constant(&graph, sum, 1).unwrap().scalars().map(crate::Scalar::as_f64).collect();
        assert_eq!(biases, [7.0, 8.0, 9.0, 10.0, 11.0]);
        assert_eq!(sum.outputs.len(), 2);
        assert_eq!(graph.values().len(), 7, "the old matrices, products and biases are dropped");
    }

    #[test]
    fn products_with_and_without_biases_are_not_merged() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let (a, b) = (matrix(&mut build, 2), matrix(&mut build, 3));
        let (one, two) = (build.node("MatMul", &[x, a]), build.node("MatMul", &[x, b]));
        let bias = build.constant("b2", row(&[7.0, 8.0]));
        let sum = build.node("Add", &[one, bias]);
        assert_eq!(run(&mut build.outputs(&[sum, two])), 0);
    }
}
