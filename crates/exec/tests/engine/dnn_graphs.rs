//! Checks which steps become one hipDNN graph, and what they become with libraries that have no engine for it. Each
//! library is our own with a switch that it reads when it is opened, so each runs in a separate process.

use std::process::Command;
use std::sync::Arc;

use exec::CompiledPartition;
use exec::gpu::GpuSettings;
use exec::host::HostDevice;
use graph::ops::Attribute;
use graph::{DType, Graph, Tensor};

use crate::build::Build;
use crate::common;
use crate::common::run::run_partition;
use crate::common::{Case, assert_close, numbers, random, tensor};
use crate::dnn;

const SWITCH: &str = "AMDGPU_EP_HIPDNN_HOST_LACKS";
const ONE: &str = "hipDNN: HOST_CPU_ENGINE";

/// Runs `test` in a process whose library lacks these features.
fn child(test: &str, lacks: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .args(["--exact", &format!("dnn_graphs::{test}"), "--nocapture", "--include-ignored"])
        .env(SWITCH, lacks)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "without {lacks}: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{test} is not the name of one test: {said}");
}

/// The features that the library of this process lacks.
fn lacks() -> String {
    std::env::var(SWITCH).unwrap_or_default()
}

fn several(operations: usize) -> String {
    format!("{ONE}, {operations} operations")
}

/// A partition, its inputs, and the expected labels of its steps.
struct Partition {
    graph: Graph,
    given: Vec<Tensor>,
    wanted: Vec<String>,
}

impl Partition {
    /// Runs it with hipDNN, on the host device and on a simulated GPU, and without hipDNN.
    fn check(&self) {
        let settings = GpuSettings { dnn: Some(Arc::new(dnn::offering())), ..GpuSettings::default() };
        let gpu = common::device::simulated("gfx1100").with(settings);
        let without = CompiledPartition::new(self.graph.clone(), &HostDevice::new()).unwrap();
        let wanted = run_partition(&without, &self.given).unwrap();
        let devices: [&dyn exec::Device; 2] = [&dnn::device(), &gpu];
        for device in devices {
            let with = CompiledPartition::new(self.graph.clone(), device).unwrap();
            let tolerance = if wanted[0].dtype() == DType::F16 { 1e-2 } else { 1e-4 };
            // The second run reuses the memory between parts.
            for _ in 0..2 {
                let found = run_partition(&with, &self.given).unwrap();
                assert_close(&numbers(&found[0]), &numbers(&wanted[0]), tolerance);
            }
            assert_eq!(dnn::run_by(&with, &self.given), self.wanted);
        }
    }
}

fn filled(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    tensor(dtype, shape, &random(shape.iter().product(), seed))
}

/// A convolution with a bias and a residual, followed by ReLU.
fn residual_block(dtype: DType, wanted: Vec<String>) -> Partition {
    let mut build = Build::default();
    let x = build.input_of(dtype);
    let weights = build.constant(filled(dtype, &[4, 4, 3, 3], 1));
    let bias = build.constant(filled(dtype, &[4], 2));
    let pads = Attribute::Ints(vec![1; 4]);
    let made = build.with("Conv", &[x, weights, bias], &[("pads", pads)]);
    let sum = build.node("Add", &[made, x]);
    let made = build.node("Relu", &[sum]);
    Partition { graph: build.outputs(&[made]), given: vec![filled(dtype, &[2, 4, 5, 6], 3)], wanted }
}

/// A product with a factor, a bias and an activation.
fn dense_layer(wanted: Vec<String>) -> Partition {
    let mut build = Build::default();
    let x = build.input();
    let weights = build.constant(filled(DType::F32, &[8, 6], 1));
    let bias = build.constant(filled(DType::F32, &[6], 2));
    let made = build.with("Gemm", &[x, weights, bias], &[("alpha", Attribute::Float(0.5))]);
    let made = build.node("Sigmoid", &[made]);
    Partition { graph: build.outputs(&[made]), given: vec![filled(DType::F32, &[5, 8], 3)], wanted }
}

/// The operations on attention scores besides a factor.
#[derive(Clone, Copy, PartialEq)]
enum Scores {
    Plain,
    /// Limited by a hyperbolic tangent.
    Limited,
}

/// Attention written out as in models, with heads concatenated in the result.
fn attention(dtype: DType, scores: Scores, wanted: Vec<String>) -> Partition {
    let mut build = Build::default();
    let [q, k, v] = [(); 3].map(|()| build.input_of(dtype));
    let mask = build.input_of(dtype);
    let turned = build.with("Transpose", &[k], &[("perm", Attribute::Ints(vec![0, 1, 3, 2]))]);
    let mut made = build.node("MatMul", &[q, turned]);
    let factor = build.constant(tensor(dtype, &[], &[0.5]));
    made = build.node("Mul", &[made, factor]);
    if scores == Scores::Limited {
        made = build.node("Tanh", &[made]);
    }
    made = build.node("Add", &[made, mask]);
    let weights = build.with("Softmax", &[made], &[("axis", Attribute::Int(-1))]);
    let made = build.node("MatMul", &[weights, v]);
    let turned = build.with("Transpose", &[made], &[("perm", Attribute::Ints(vec![0, 2, 1, 3]))]);
    let to = build.constant(Tensor::from_i64s(&[0, 0, -1]));
    let made = build.node("Reshape", &[turned, to]);
    let shapes = [[2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 6], [2, 1, 5, 7]];
    let given = (1..).zip(shapes).map(|(seed, shape)| filled(dtype, &shape, seed)).collect();
    Partition { graph: build.outputs(&[made]), given, wanted }
}

/// ONNX attention with shared key heads: causal, with a mask whose hidden rows are zero, and a limit.
fn shared_heads(dtype: DType, wanted: Vec<String>) -> Partition {
    let shapes = [[2, 4, 3, 8], [2, 2, 5, 8], [2, 2, 5, 6]];
    let mut given: Vec<Tensor> = (1..).zip(shapes).map(|(seed, shape)| filled(dtype, &shape, seed)).collect();
    let hidden = |at: usize| if at < 5 || at == 7 { f64::NEG_INFINITY } else { at as f64 / 10.0 };
    given.push(tensor(dtype, &[3, 5], &(0..15).map(hidden).collect::<Vec<_>>()));
    let (graph, given) = Case::new("Attention", 23, given, &[dtype])
        .attribute("is_causal", Attribute::Int(1))
        .attribute("softcap", Attribute::Float(3.0))
        .graph()
        .unwrap();
    Partition { graph, given, wanted }
}

fn own(steps: &[&str]) -> Vec<String> {
    steps.iter().map(|step| if *step == ONE { ONE.to_owned() } else { format!("own: {step}") }).collect()
}

#[test]
fn products_and_their_epilogues_are_one_graph() {
    assert_eq!(lacks(), "");
    // The convolution, its bias, the residual, ReLU.
    residual_block(DType::F32, vec![several(4)]).check();
    residual_block(DType::F16, vec![several(4)]).check();
    // The product, its factor, its bias, the activation.
    dense_layer(vec![several(4)]).check();
}

#[test]
fn attention_is_one_operation_or_a_chain_in_one_graph() {
    assert_eq!(lacks(), "");
    attention(DType::F32, Scores::Plain, vec![ONE.to_owned()]).check();
    // Two products, a factor, a limit, the mask, and five operations for the softmax.
    attention(DType::F32, Scores::Limited, vec![several(10)]).check();
    attention(DType::F16, Scores::Limited, vec![several(10)]).check();
    // The causal mask generates row and key indices, compares and selects; hidden rows are compared and selected again.
    shared_heads(DType::F32, vec![several(19)]).check();
    shared_heads(DType::F16, vec![several(19)]).check();
}

#[test]
#[ignore = "for a library without graphs of several operations"]
fn parts_of_products() {
    assert_eq!(lacks(), "chains");
    residual_block(DType::F32, own(&[ONE, "map"])).check();
    residual_block(DType::F16, own(&[ONE, "map"])).check();
    dense_layer(own(&[ONE, "map"])).check();
    attention(DType::F32, Scores::Plain, vec![ONE.to_owned()]).check();
    let parts = own(&[ONE, "map", "softmax", ONE, "map"]);
    attention(DType::F32, Scores::Limited, parts.clone()).check();
    attention(DType::F16, Scores::Limited, parts).check();
}

#[test]
fn a_library_without_chains_runs_products_and_our_code_the_rest() {
    child("parts_of_products", "chains");
}

#[test]
#[ignore = "for a library without attention"]
fn attention_without_its_operation() {
    assert_eq!(lacks(), "attention");
    // Two products, a factor, the mask, and five operations for the softmax.
    attention(DType::F32, Scores::Plain, vec![several(9)]).check();
    attention(DType::F16, Scores::Plain, vec![several(9)]).check();
}

#[test]
fn a_library_without_attention_runs_it_as_a_chain() {
    child("attention_without_its_operation", "attention");
}

#[test]
#[ignore = "for a library with neither attention nor graphs of several operations"]
fn attention_in_parts() {
    assert_eq!(lacks(), "attention,chains");
    let parts = own(&[ONE, "map", "softmax", ONE, "map"]);
    attention(DType::F32, Scores::Plain, parts.clone()).check();
    attention(DType::F16, Scores::Plain, parts).check();
    let parts = own(&[ONE, "map", "softmax", "map", ONE]);
    shared_heads(DType::F32, parts.clone()).check();
    shared_heads(DType::F16, parts).check();
}

#[test]
fn a_library_with_neither_runs_the_products_of_attention() {
    child("attention_in_parts", "attention,chains");
}

#[test]
#[ignore = "for a switch with an unknown word"]
fn library_with_an_unknown_switch() {
    let offering = exec::dnn::Libraries::default().offering(&dnn::driver(), exec::dnn::Mode::On).unwrap();
    let fault = offering.fault().unwrap().to_string();
    assert!(fault.contains("\"money\" is unknown") && fault.contains("attention and chains"), "{fault}");
}

#[test]
fn an_unknown_switch_is_named() {
    child("library_with_an_unknown_switch", "chains,money");
}
