//! Small graphs through all stages.
#![allow(clippy::unwrap_used)]
use graph::lower::InputSpec;
use graph::ops::{self, Attributes, InputInfo, NodeInfo};
use graph::plan::BufferPlace;
use graph::{DType, Graph, Node, Plan, Tensor};

/// Adds a node by its ONNX name; all its values have the same type.
fn add(graph: &mut Graph, op_type: &str, dtype: DType, inputs: &[graph::ValueId], output: &str) -> graph::ValueId {
    let infos: Vec<_> = inputs.iter().map(|_| Some(InputInfo { dtype, rank: None, constant: None })).collect();
    let attributes = Attributes::default();
    let info = NodeInfo {
        domain: "",
        op_type,
        since_version: 14,
        attributes: &attributes,
        inputs: &infos,
        outputs: &[Some(dtype)],
    };
    let op = ops::parse(&info).unwrap().into();
    let value = graph.add_value(output, dtype, None);
    let inputs = inputs.iter().map(|&id| Some(id)).collect();
    graph.add_node(Node { name: output.into(), op, inputs, outputs: vec![Some(value)] });
    value
}

fn input(shape: &[usize]) -> InputSpec {
    InputSpec { shape: shape.into(), known: None }
}

#[test]
fn a_chain_of_elementwise_nodes_is_one_step_without_an_arena() {
    let mut graph = Graph::new();
    let x = graph.add_value("x", DType::F32, None);
    let y = graph.add_value("y", DType::F32, None);
    graph.set_inputs(vec![x, y]);
    let sum = add(&mut graph, "Add", DType::F32, &[x, y], "sum");
    let exp = add(&mut graph, "Exp", DType::F32, &[sum], "exp");
    let out = add(&mut graph, "Mul", DType::F32, &[exp, exp], "out");
    graph.set_outputs(vec![out]);
    graph.verify().unwrap();
    let plan = Plan::new(&graph, &[input(&[2, 3]), input(&[3])]).unwrap();
    assert_eq!(plan.steps.len(), 1, "{:#?}", plan.steps);
    assert_eq!(plan.arena_bytes, 0);
    assert_eq!(plan.outputs[0].shape.as_slice(), [2, 3]);
    assert_eq!(plan.place(&plan.steps[0].outputs[0]), &BufferPlace::Output(0));
}

#[test]
fn a_value_that_two_nodes_read_is_kept() {
    let mut graph = Graph::new();
    let x = graph.add_value("x", DType::F32, None);
    graph.set_inputs(vec![x]);
    let exp = add(&mut graph, "Exp", DType::F32, &[x], "exp");
    let a = add(&mut graph, "Neg", DType::F32, &[exp], "a");
    let b = add(&mut graph, "Sqrt", DType::F32, &[exp], "b");
    graph.set_outputs(vec![a, b]);
    let plan = Plan::new(&graph, &[input(&[4])]).unwrap();
    assert_eq!(plan.steps.len(), 3);
    assert_eq!(plan.arena_bytes, 256);
}

#[test]
fn arithmetic_on_constants_takes_no_step() {
    let mut graph = Graph::new();
    let two = graph.add_value("two", DType::I64, Some(Tensor::from_i64s(&[2, 3])));
    graph.set_inputs(vec![]);
    let sum = add(&mut graph, "Add", DType::I64, &[two, two], "sum");
    graph.set_outputs(vec![sum]);
    let plan = Plan::new(&graph, &[]).unwrap();
    // Only the copy of the known value into the output remains.
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(plan.constants[0].to_i64s(), [4, 6]);
}

#[test]
fn mismatched_shapes_give_an_error_that_names_the_node() {
    let mut graph = Graph::new();
    let x = graph.add_value("x", DType::F32, None);
    let y = graph.add_value("y", DType::F32, None);
    graph.set_inputs(vec![x, y]);
    let sum = add(&mut graph, "Add", DType::F32, &[x, y], "sum");
    graph.set_outputs(vec![sum]);
    let error = Plan::new(&graph, &[input(&[2]), input(&[3])]).unwrap_err();
    assert_eq!(error.to_string(), "Add \"sum\": shapes [2] and [3] cannot be broadcast together");
}

#[test]
fn a_tensor_beyond_the_address_space_is_rejected() {
    let mut graph = Graph::new();
    let x = graph.add_value("x", DType::F32, None);
    graph.set_inputs(vec![x]);
    graph.set_outputs(vec![x]);
    assert!(Plan::new(&graph, &[input(&[usize::MAX, 2])]).is_err());
}
