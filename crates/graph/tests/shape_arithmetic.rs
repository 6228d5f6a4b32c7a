//! Shapes computed from shapes, as exporters write them: the planner evaluates them, and no step remains.
#![allow(clippy::unwrap_used)]
use graph::lower::InputSpec;
use graph::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use graph::{DType, Graph, Node, Plan, Tensor, ValueId};

/// A graph built node by node.
#[derive(Default)]
struct Model {
    graph: Graph,
}

impl Model {
    fn constant(&mut self, values: &[i64], shape: &[usize]) -> ValueId {
        let tensor = Tensor::from_i64s(values).reshaped(shape).unwrap();
        let name = format!("value{}", self.graph.values().len());
        self.graph.add_value(name, DType::I64, Some(tensor))
    }

    fn add(&mut self, op_type: &str, inputs: &[ValueId], attributes: &[(&str, Attribute)], dtype: DType) -> ValueId {
        let attributes = Attributes::from(attributes);
        let infos: Vec<_> = inputs.iter().map(|&id| Some(InputInfo::from(self.graph.value(id)))).collect();
        let outputs = [Some(dtype)];
        let node = NodeInfo {
            domain: "",
            op_type,
            since_version: 13,
            attributes: &attributes,
            inputs: &infos,
            outputs: &outputs,
        };
        let op = ops::parse(&node).unwrap().into();
        let name = format!("value{}", self.graph.values().len());
        let output = self.graph.add_value(name, dtype, None);
        let inputs = inputs.iter().map(|&id| Some(id)).collect();
        self.graph.add_node(Node { name: op_type.into(), op, inputs, outputs: vec![Some(output)] });
        output
    }

    fn int(&mut self, op_type: &str, inputs: &[ValueId], attributes: &[(&str, Attribute)]) -> ValueId {
        self.add(op_type, inputs, attributes, DType::I64)
    }
}

fn axis(axis: i64) -> [(&'static str, Attribute); 1] {
    [("axis", Attribute::Int(axis))]
}

#[test]
fn splitting_heads_by_computed_extents_takes_one_copy() {
    let mut model = Model::default();
    let x = model.graph.add_value("x", DType::F32, None);
    model.graph.set_inputs(vec![x]);
    let shape = model.int("Shape", &[x], &[]);
    let (first, second, zero) = (model.constant(&[0], &[]), model.constant(&[1], &[]), model.constant(&[0], &[1]));
    let mut extents = Vec::new();
    for place in [first, second] {
        let extent = model.int("Gather", &[shape, place], &axis(0));
        extents.push(model.int("Unsqueeze", &[extent, zero], &[]));
    }
    let heads = model.constant(&[4, -1], &[2]);
    let to = model.int("Concat", &[extents[0], extents[1], heads], &axis(0));
    let split = model.add("Reshape", &[x, to], &[], DType::F32);
    let order = [("perm", Attribute::Ints(vec![0, 2, 1, 3]))];
    let heads_first = model.add("Transpose", &[split], &order, DType::F32);
    model.graph.set_outputs(vec![heads_first]);
    for (batch, length) in [(1, 7), (3, 2)] {
        let input = InputSpec { shape: [batch, length, 32].as_slice().into(), known: None };
        let plan = Plan::new(&model.graph, &[input]).unwrap();
        assert_eq!(plan.outputs[0].shape.as_slice(), [batch, 4, length, 8]);
        assert_eq!(plan.steps.len(), 1, "{:#?}", plan.steps);
    }
    assert_eq!(model.graph.inputs_with_needed_values(), [false]);
}

#[test]
fn slices_products_selections_and_ranges_of_shapes_are_known() {
    let mut model = Model::default();
    let x = model.graph.add_value("x", DType::F16, None);
    model.graph.set_inputs(vec![x]);
    let shape = model.int("Shape", &[x], &[]);
    let (zero, two, one) = (model.constant(&[0], &[1]), model.constant(&[2], &[1]), model.constant(&[1], &[1]));
    // [b, s] of [b, s, h], as an expanded shape in which -1 keeps an extent.
    let outer = model.int("Slice", &[shape, zero, two], &[]);
    let wanted = model.constant(&[-1, 5], &[2]);
    let minus = model.constant(&[-1], &[1]);
    let open = model.add("Equal", &[wanted, minus], &[], DType::Bool);
    let ones = model.int("ConstantOfShape", &[two], &[("value", Attribute::Tensor(Tensor::from_i64s(&[1])))]);
    let chosen = model.int("Where", &[open, ones, wanted], &[]);
    let grown = model.int("Mul", &[outer, chosen], &[]);
    let wide = model.add("Cast", &[grown], &[("to", Attribute::Int(1))], DType::F32);
    let narrow = model.int("Cast", &[wide], &[("to", Attribute::Int(7))]);
    let count = model.int("ReduceProd", &[narrow], &[("keepdims", Attribute::Int(0))]);
    let (from, by) = (model.int("Squeeze", &[zero], &[]), model.int("Squeeze", &[one], &[]));
    let range = model.int("Range", &[from, count, by], &[]);
    let last = model.constant(&[-1], &[1, 1]);
    let back = model.int("ScatterND", &[narrow, last, one], &[]);
    let places = model.int("Reshape", &[range, narrow], &[]);
    model.graph.set_outputs(vec![places, back]);
    let input = InputSpec { shape: [2, 3, 8].as_slice().into(), known: None };
    let plan = Plan::new(&model.graph, &[input]).unwrap();
    assert_eq!(plan.outputs[0].shape.as_slice(), [2, 15]);
    // The remaining steps copy the two known results into the outputs.
    assert_eq!(plan.steps.len(), 2, "{:#?}", plan.steps);
    assert_eq!(plan.constants[0].to_i64s(), (0..30).collect::<Vec<_>>());
    assert_eq!(plan.constants[1].to_i64s(), [2, 1]);
}
