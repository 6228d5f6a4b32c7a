//! Every stage as text, on small graphs. `INSTA_UPDATE=always cargo test -p graph --test dumps` rewrites the snapshots.
#![allow(clippy::unwrap_used)]
use std::fmt::Write as _;

use graph::lower::InputSpec;
use graph::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use graph::pass::{self, Selection};
use graph::plan::Budget;
use graph::{DType, Graph, Node, Plan, Scalar, Tensor, ValueId};

/// A single-precision graph under construction.
#[derive(Default)]
struct Build {
    graph: Graph,
    inputs: Vec<ValueId>,
}

impl Build {
    fn input(&mut self, name: &str) -> ValueId {
        let id = self.graph.add_value(name, DType::F32, None);
        self.inputs.push(id);
        id
    }

    fn constant(&mut self, name: &str, shape: &[usize], values: &[f64]) -> ValueId {
        let value = Tensor::from_scalars(DType::F32, shape, values.iter().map(|&value| Scalar::Float(value)));
        self.graph.add_value(name, DType::F32, value)
    }

    fn node(&mut self, op_type: &str, inputs: &[ValueId], name: &str, attributes: &[(&str, Attribute)]) -> ValueId {
        let attributes = Attributes::from(attributes);
        let infos: Vec<_> =
            inputs.iter().map(|_| Some(InputInfo { dtype: DType::F32, rank: None, constant: None })).collect();
        let info = NodeInfo {
            domain: "",
            op_type,
            since_version: 13,
            attributes: &attributes,
            inputs: &infos,
            outputs: &[Some(DType::F32)],
        };
        let op = ops::parse(&info).unwrap().into();
        let made = self.graph.add_value(name, DType::F32, None);
        let inputs = inputs.iter().map(|&id| Some(id)).collect();
        self.graph.add_node(Node { name: format!("/{name}"), op, inputs, outputs: vec![Some(made)] });
        made
    }

    /// All stages that changed something in the graph with this output, for inputs of these shapes.
    fn stages(mut self, output: ValueId, shapes: &[&[usize]]) -> String {
        self.graph.set_inputs(self.inputs);
        self.graph.set_outputs(vec![output]);
        self.graph.verify().unwrap();
        let mut graph = self.graph;
        let mut text = format!("== imported\n{graph}");
        pass::run(&mut graph, &Selection::default(), &mut |pass, graph| {
            write!(text, "== {}\n{graph}", pass.name).unwrap();
        });
        let inputs: Vec<InputSpec> =
            shapes.iter().map(|&shape| InputSpec { shape: shape.into(), known: None }).collect();
        // Constant folding is off here, so constant work stays in the plan.
        let mut last = String::new();
        Plan::watched(
            &graph,
            &inputs,
            &Selection::default(),
            &Budget::default(),
            &mut |_| None,
            &mut |stage, stage_text| {
                let now = stage_text.to_string();
                if now != last {
                    write!(text, "== {stage}\n{now}").unwrap();
                    last = now;
                }
            },
        )
        .unwrap();
        text
    }
}

#[test]
fn a_layer_norm_behind_a_product() {
    let mut build = Build::default();
    let x = build.input("x");
    let weight = build.constant("weight", &[2, 4], &[0.5; 8]);
    let two = build.constant("two", &[], &[2.0]);
    let epsilon = build.constant("epsilon", &[], &[1e-5]);
    let (scale, bias) = (build.constant("scale", &[4], &[1.0; 4]), build.constant("bias", &[4], &[0.0; 4]));
    let last = [("axes", Attribute::Ints(vec![-1]))];
    let dense = build.node("MatMul", &[x, weight], "dense", &[]);
    let same = build.node("Identity", &[dense], "same", &[]);
    let mean = build.node("ReduceMean", &[same], "mean", &last);
    let centred = build.node("Sub", &[same, mean], "centred", &[]);
    let square = build.node("Pow", &[centred, two], "square", &[]);
    let variance = build.node("ReduceMean", &[square], "variance", &last);
    let sum = build.node("Add", &[variance, epsilon], "sum", &[]);
    let root = build.node("Sqrt", &[sum], "root", &[]);
    let part = build.node("Div", &[centred, root], "part", &[]);
    let scaled = build.node("Mul", &[part, scale], "scaled", &[]);
    let out = build.node("Add", &[scaled, bias], "out", &[]);
    insta::assert_snapshot!(build.stages(out, &[&[3, 2]]));
}

#[test]
fn attention_and_a_silu() {
    let mut build = Build::default();
    let [q, k, v, mask] = ["q", "k", "v", "mask"].map(|name| build.input(name));
    let eight = build.constant("eight", &[], &[8.0]);
    let turned = build.node("Transpose", &[k], "turned", &[("perm", Attribute::Ints(vec![0, 1, 3, 2]))]);
    let scores = build.node("MatMul", &[q, turned], "scores", &[]);
    let scaled = build.node("Div", &[scores, eight], "scaled", &[]);
    let masked = build.node("Add", &[scaled, mask], "masked", &[]);
    let weights = build.node("Softmax", &[masked], "weights", &[]);
    let seen = build.node("MatMul", &[weights, v], "seen", &[]);
    let gate = build.node("Sigmoid", &[seen], "gate", &[]);
    let out = build.node("Mul", &[seen, gate], "out", &[]);
    insta::assert_snapshot!(build.stages(out, &[&[1, 2, 3, 4], &[1, 2, 5, 4], &[1, 2, 5, 4], &[3, 5]]));
}

#[test]
fn what_is_written_twice() {
    let mut build = Build::default();
    let x = build.input("x");
    let one = build.constant("one", &[], &[1.0]);
    let uno = build.constant("uno", &[], &[1.0]);
    let a = build.node("Add", &[x, one], "a", &[]);
    let b = build.node("Add", &[x, uno], "b", &[]);
    build.node("Exp", &[x], "dead", &[]);
    let first = build.node("Transpose", &[a], "first", &[("perm", Attribute::Ints(vec![1, 0]))]);
    let second = build.node("Transpose", &[first], "second", &[("perm", Attribute::Ints(vec![1, 0]))]);
    let out = build.node("Mul", &[second, b], "out", &[]);
    insta::assert_snapshot!(build.stages(out, &[&[2, 3]]));
}
