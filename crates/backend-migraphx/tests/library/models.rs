//! The models used by the rows.

use testkit::onnx::{Dim, ElementType, Graph, Model, Node, Tensor, ValueInfo};

fn floats(name: &str, dims: &[i64]) -> ValueInfo {
    ValueInfo::tensor(name, ElementType::Float, dims.iter().map(|&dim| Dim::from(dim)))
}

fn bytes(graph: Graph) -> Vec<u8> {
    Model::new(graph).opset("", 17).to_bytes()
}

/// `y = (a + b) * [1, 2, 3]`, with shape `[2, 3]`.
pub fn weighted_sum() -> Vec<u8> {
    bytes(
        Graph::new("weighted_sum")
            .input(floats("a", &[2, 3]))
            .input(floats("b", &[2, 3]))
            .initializer(Tensor::floats("w", [3], &[1.0, 2.0, 3.0]))
            .node(Node::new("Add", ["a", "b"], ["sum"]))
            .node(Node::new("Mul", ["sum", "w"], ["y"]))
            .output(floats("y", &[2, 3])),
    )
}

/// `y = x @ [[1, 2], [3, 4], [5, 6]]`, where `x` has the dynamic shape `[rows, 3]`.
pub fn projection() -> Vec<u8> {
    bytes(
        Graph::new("projection")
            .input(ValueInfo::tensor("x", ElementType::Float, [Dim::from("rows"), Dim::from(3)]))
            .initializer(Tensor::floats("w", [3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
            .node(Node::new("MatMul", ["x", "w"], ["y"]))
            .output(ValueInfo::tensor("y", ElementType::Float, [Dim::from("rows"), Dim::from(2)])),
    )
}

/// Output `i` of `count` is `x + i`, for `x` of shape `[2]`.
pub fn fan(count: usize) -> Vec<u8> {
    let mut graph = Graph::new("fan").input(floats("x", &[2]));
    for index in 0..count {
        let (constant, output) = (format!("c{index}"), format!("y{index}"));
        graph = graph
            .initializer(Tensor::floats(&constant, [1], &[index as f32]))
            .node(Node::new("Add", ["x", constant.as_str()], [output.as_str()]))
            .output(floats(&output, &[2]));
    }
    bytes(graph)
}

/// `y = x + x` for a scalar.
pub fn scalar() -> Vec<u8> {
    bytes(
        Graph::new("scalar").input(floats("x", &[])).node(Node::new("Add", ["x", "x"], ["y"])).output(floats("y", &[])),
    )
}

/// One identity for each type, with inputs `in_<number>` and outputs `out_<number>` of shape `[4]`.
pub fn identities(types: &[ElementType]) -> Vec<u8> {
    let mut graph = Graph::new("identities");
    for &element in types {
        let (input, output) = (format!("in_{}", element as i64), format!("out_{}", element as i64));
        graph = graph
            .input(ValueInfo::tensor(&input, element, [Dim::from(4)]))
            .node(Node::new("Identity", [input.as_str()], [output.as_str()]))
            .output(ValueInfo::tensor(&output, element, [Dim::from(4)]));
    }
    bytes(graph)
}

/// One node with an operator that no parser supports.
pub fn unknown_operator() -> Vec<u8> {
    bytes(
        Graph::new("unknown")
            .input(floats("x", &[2]))
            .node(Node::new("NoSuchOperator", ["x"], ["y"]))
            .output(floats("y", &[2])),
    )
}

/// `y = x + w`, where `w` is two floats at the start of the file `weights.bin`.
pub fn external() -> Vec<u8> {
    bytes(
        Graph::new("external")
            .input(floats("x", &[2]))
            .initializer(Tensor::external("w", ElementType::Float, [2], "weights.bin", 0, 8))
            .node(Node::new("Add", ["x", "w"], ["y"]))
            .output(floats("y", &[2])),
    )
}
