//! Checks that work on constants is done once for all shapes.
use exec::host::HostDevice;
use exec::{CompiledPartition, Input};
use graph::ops::{self, Attributes, InputInfo, NodeInfo};
use graph::{DType, Graph, Node, Plan, Tensor, ValueId};

const ROWS: usize = 70;
const COLUMNS: usize = 90;

fn add(graph: &mut Graph, op_type: &str, inputs: &[ValueId]) -> ValueId {
    let infos: Vec<_> =
        inputs.iter().map(|_| Some(InputInfo { dtype: DType::F32, rank: None, constant: None })).collect();
    let attributes = Attributes::default();
    let info = NodeInfo {
        domain: "",
        op_type,
        since_version: 13,
        attributes: &attributes,
        inputs: &infos,
        outputs: &[Some(DType::F32)],
    };
    let op = ops::parse(&info).unwrap().into();
    let output = graph.add_value(op_type, DType::F32, None);
    let inputs = inputs.iter().map(|&id| Some(id)).collect();
    graph.add_node(Node { name: op_type.into(), op, inputs, outputs: vec![Some(output)] });
    output
}

/// `x · exp(weight)`, with a weight too large for the planner to evaluate.
fn program() -> CompiledPartition {
    let mut graph = Graph::new();
    let x = graph.add_value("x", DType::F32, None);
    graph.set_inputs(vec![x]);
    let weight = Tensor::from_bytes(DType::F32, &[ROWS, COLUMNS], &vec![0; ROWS * COLUMNS * 4]).unwrap();
    let weight = graph.add_value("weight", DType::F32, Some(weight));
    let exp = add(&mut graph, "Exp", &[weight]);
    let out = add(&mut graph, "MatMul", &[x, exp]);
    graph.set_outputs(vec![out]);
    CompiledPartition::new(graph, &HostDevice::new()).unwrap()
}

fn folded(plan: &Plan) -> &Tensor {
    let large = |constant: &&Tensor| constant.elems() == ROWS * COLUMNS;
    plan.constants.iter().find(large).unwrap()
}

#[test]
fn plans_for_different_shapes_share_folded_constants() {
    let program = program();
    let plan = |rows: usize| program.plan(&[Input { shape: &[rows, ROWS], value: None }]).unwrap();
    let (one, two) = (plan(1), plan(2));
    let (one, two) = (one.plan(), two.plan());
    assert_eq!(one.steps.len(), 1, "only the product is left");
    assert!(folded(one).bytes().chunks(4).all(|bytes| bytes == 1f32.to_ne_bytes()));
    assert_eq!(folded(one).bytes().as_ptr(), folded(two).bytes().as_ptr());
}
