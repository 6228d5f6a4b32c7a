//! Measures how long planning for a new shape takes: a transformer encoder of about 300 nodes, as exporters write it.
//!
//! ```text
//! cargo run --release --package graph --example plan_time
//! ```
#![allow(clippy::unwrap_used)]
use std::time::Instant;

use graph::lower::InputSpec;
use graph::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use graph::{DType, Graph, Node, Plan, Scalar, Tensor, ValueId};

const LAYERS: usize = 6;
const WIDTH: usize = 64;
const HEADS: i64 = 4;
const SHAPES: usize = 200;

struct Builder {
    graph: Graph,
}

impl Builder {
    fn constant(&mut self, tensor: Tensor) -> ValueId {
        let name = format!("constant{}", self.graph.values().len());
        self.graph.add_value(name, tensor.dtype(), Some(tensor))
    }

    fn number(&mut self, value: f64) -> ValueId {
        self.constant(Tensor::scalar(DType::F32, Scalar::Float(value)))
    }

    fn ints(&mut self, values: &[i64]) -> ValueId {
        self.constant(Tensor::from_i64s(values))
    }

    fn weight(&mut self, shape: &[usize]) -> ValueId {
        let bytes = vec![0; shape.iter().product::<usize>() * 4];
        self.constant(Tensor::from_bytes(DType::F32, shape, &bytes).unwrap())
    }

    fn node(&mut self, op_type: &str, inputs: &[ValueId], attributes: &[(&str, Attribute)], dtype: DType) -> ValueId {
        let attributes = Attributes::from(attributes);
        let infos: Vec<_> = inputs.iter().map(|&id| Some(InputInfo::from(self.graph.value(id)))).collect();
        let info = NodeInfo {
            domain: "",
            op_type,
            since_version: 13,
            attributes: &attributes,
            inputs: &infos,
            outputs: &[Some(dtype)],
        };
        let op = ops::parse(&info).unwrap().into();
        let name = format!("{op_type}{}", self.graph.nodes().len());
        let output = self.graph.add_value(name.clone(), dtype, None);
        let inputs = inputs.iter().map(|&id| Some(id)).collect();
        self.graph.add_node(Node { name, op, inputs, outputs: vec![Some(output)] });
        output
    }

    fn float(&mut self, op_type: &str, inputs: &[ValueId]) -> ValueId {
        self.node(op_type, inputs, &[], DType::F32)
    }

    fn dense(&mut self, x: ValueId, inner: usize, outer: usize) -> ValueId {
        let (weight, bias) = (self.weight(&[inner, outer]), self.weight(&[outer]));
        let product = self.float("MatMul", &[x, weight]);
        self.float("Add", &[product, bias])
    }

    fn norm(&mut self, x: ValueId) -> ValueId {
        let last = [("axes", Attribute::Ints(vec![-1]))];
        let mean = self.node("ReduceMean", &[x], &last, DType::F32);
        let centred = self.float("Sub", &[x, mean]);
        let two = self.number(2.0);
        let square = self.float("Pow", &[centred, two]);
        let variance = self.node("ReduceMean", &[square], &last, DType::F32);
        let epsilon = self.number(1e-5);
        let variance = self.float("Add", &[variance, epsilon]);
        let deviation = self.float("Sqrt", &[variance]);
        let scaled = self.float("Div", &[centred, deviation]);
        let (scale, bias) = (self.weight(&[WIDTH]), self.weight(&[WIDTH]));
        let scaled = self.float("Mul", &[scaled, scale]);
        self.float("Add", &[scaled, bias])
    }

    /// Splits the last axis into heads, with a shape that the graph computes.
    fn heads(&mut self, x: ValueId) -> ValueId {
        let x = self.dense(x, WIDTH, WIDTH);
        let shape = self.node("Shape", &[x], &[], DType::I64);
        let first_two = self.ints(&[0, 1]);
        let lead = self.node("Gather", &[shape, first_two], &[], DType::I64);
        let tail = self.ints(&[HEADS, -1]);
        let target = self.node("Concat", &[lead, tail], &[("axis", Attribute::Int(0))], DType::I64);
        let cut = self.float("Reshape", &[x, target]);
        self.transposed(cut, &[0, 2, 1, 3])
    }

    fn transposed(&mut self, x: ValueId, order: &[i64]) -> ValueId {
        self.node("Transpose", &[x], &[("perm", Attribute::Ints(order.to_vec()))], DType::F32)
    }

    fn attention(&mut self, x: ValueId) -> ValueId {
        let (query, key, value) = (self.heads(x), self.heads(x), self.heads(x));
        let key = self.transposed(key, &[0, 1, 3, 2]);
        let scores = self.float("MatMul", &[query, key]);
        let scale = self.number(0.25);
        let scores = self.float("Mul", &[scores, scale]);
        let weights = self.node("Softmax", &[scores], &[("axis", Attribute::Int(-1))], DType::F32);
        let mixed = self.float("MatMul", &[weights, value]);
        let merged = self.transposed(mixed, &[0, 2, 1, 3]);
        let target = self.ints(&[0, 0, WIDTH as i64]);
        let merged = self.float("Reshape", &[merged, target]);
        self.dense(merged, WIDTH, WIDTH)
    }

    fn feed_forward(&mut self, x: ValueId) -> ValueId {
        let hidden = self.dense(x, WIDTH, 4 * WIDTH);
        let gate = self.float("Sigmoid", &[hidden]);
        let hidden = self.float("Mul", &[hidden, gate]);
        self.dense(hidden, 4 * WIDTH, WIDTH)
    }
}

fn main() {
    let mut builder = Builder { graph: Graph::new() };
    let input = builder.graph.add_value("x", DType::F32, None);
    builder.graph.set_inputs(vec![input]);
    let mut x = input;
    for _ in 0..LAYERS {
        let mixed = builder.attention(x);
        let sum = builder.float("Add", &[x, mixed]);
        let normal = builder.norm(sum);
        let forward = builder.feed_forward(normal);
        let sum = builder.float("Add", &[normal, forward]);
        x = builder.norm(sum);
    }
    let mut graph = builder.graph;
    graph.set_outputs(vec![x]);
    graph.verify().unwrap();

    let mut times = Vec::with_capacity(SHAPES);
    let mut steps = 0;
    for at in 0..SHAPES {
        let spec = InputSpec { shape: [1 + at % 8, 1 + at, WIDTH].as_slice().into(), known: None };
        let start = Instant::now();
        let plan = Plan::new(&graph, &[spec]).unwrap();
        times.push(start.elapsed().as_secs_f64() * 1e3);
        steps = plan.steps.len();
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{} nodes become {steps} steps; a plan for a new shape takes {:.2} ms (median of {SHAPES}), at most {:.2} ms",
        graph.nodes().len(),
        times[SHAPES / 2],
        times[SHAPES - 1]
    );
}
