//! Builds small graphs of several nodes, with their inputs.
#![allow(dead_code, clippy::unwrap_used)]
use exec::{CompiledPartition, Input};
use graph::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use graph::prim::ProductKind;
use graph::{DType, Graph, Node, Plan, Prim, Step, Tensor, ValueId};

use crate::common::device;

/// A graph under construction, with its input tensors.
#[derive(Default)]
pub struct Chain {
    graph: Graph,
    inputs: Vec<ValueId>,
    given: Vec<Tensor>,
}

impl Chain {
    /// A runtime input.
    pub fn input(&mut self, tensor: Tensor) -> ValueId {
        let id = self.graph.add_value(format!("in{}", self.inputs.len()), tensor.dtype(), None);
        self.inputs.push(id);
        self.given.push(tensor);
        id
    }

    /// A constant of the model.
    pub fn constant(&mut self, tensor: Tensor) -> ValueId {
        let name = format!("constant{}", self.graph.values().len());
        self.graph.add_value(name, tensor.dtype(), Some(tensor))
    }

    /// A node without attributes.
    pub fn node(&mut self, op_type: &'static str, inputs: &[ValueId], dtype: DType) -> ValueId {
        self.node_with(op_type, &[], inputs, dtype)
    }

    /// A node of opset 21.
    pub fn node_with(
        &mut self,
        op_type: &'static str,
        attributes: &[(&str, Attribute)],
        inputs: &[ValueId],
        dtype: DType,
    ) -> ValueId {
        let values: Vec<_> = inputs.iter().map(|&id| self.graph.value(id).clone()).collect();
        let infos: Vec<_> = values.iter().map(|value| Some(InputInfo::from(value))).collect();
        let attributes = Attributes::from(attributes);
        let info = NodeInfo {
            domain: if op_type == "FastGelu" { "com.microsoft" } else { "" },
            op_type,
            since_version: 21,
            attributes: &attributes,
            inputs: &infos,
            outputs: &[Some(dtype)],
        };
        let op = ops::parse(&info).unwrap().into();
        let output = self.graph.add_value(format!("{op_type}{}", self.graph.values().len()), dtype, None);
        let inputs = inputs.iter().map(|&id| Some(id)).collect();
        self.graph.add_node(Node { name: op_type.into(), op, inputs, outputs: vec![Some(output)] });
        output
    }

    /// The graph as a compiled partition, and its input tensors.
    pub fn program(mut self, outputs: &[ValueId]) -> (CompiledPartition, Vec<Tensor>) {
        self.graph.set_inputs(self.inputs);
        self.graph.set_outputs(outputs.to_vec());
        self.graph.verify().unwrap();
        (CompiledPartition::new(self.graph, device::get()).unwrap(), self.given)
    }

    /// The plan for the given inputs, and the outputs.
    pub fn run(self, outputs: &[ValueId]) -> (std::sync::Arc<Plan>, Vec<Tensor>) {
        let (program, given) = self.program(outputs);
        let inputs: Vec<Input<'_>> = given.iter().map(|tensor| Input { shape: tensor.shape(), value: None }).collect();
        let plan = program.plan(&inputs).unwrap().plan().clone().into();
        let results = device::run(&program, &given).unwrap();
        (plan, results)
    }
}

/// The primitives of a plan in order, as the engine made them. A product that was split from its epilogue for the
/// hipDNN library counts as one step: both parts have the same node, while separate steps have different ones.
pub fn prims(plan: &Plan) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    let mut before: Option<&Step> = None;
    for step in &plan.steps {
        let was_one = before.filter(|before| {
            let reads = step.inputs.first().map(|view| view.buffer) == before.outputs.first().map(|view| view.buffer);
            reads && before.node == step.node && matches!(step.prim, Prim::Map(_))
        });
        match (was_one.and_then(|before| before.prim.plain_product()), names.last_mut()) {
            (Some(ProductKind::Conv(_)), Some(name)) => *name = "fused_conv",
            (Some(ProductKind::ConvTranspose(_)), Some(name)) => *name = "fused_conv_transpose",
            (Some(ProductKind::MatMul(_)), Some(name)) => *name = "fused_matmul",
            _ => names.push(step.prim.name()),
        }
        before = Some(step);
    }
    names
}
