//! The example of docs/rust.md, on the host device.
#![allow(clippy::unwrap_used)]

mod common;
#[allow(dead_code, reason = "the test uses only parts of the example")]
#[path = "../examples/session.rs"]
mod example;

use ort::value::Tensor;
use testkit::onnx::{Dim, ElementType, Graph, Model, Node, ValueInfo};
use testkit::place;

#[test]
fn the_example_runs_a_model_on_the_device() {
    common::on_the_host_driver();
    let (Ok(onnxruntime), Ok(provider)) = (place::onnxruntime(), place::staged_library("amdgpu-ep")) else {
        println!("skipped: nothing is staged (cargo xtask stage, cargo xtask setup)");
        return;
    };
    let value = |name| ValueInfo::tensor(name, ElementType::Float, [Dim::from(3)]);
    let graph = Graph::new("double").input(value("x")).node(Node::new("Add", ["x", "x"], ["y"])).output(value("y"));
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.onnx");
    std::fs::write(&model, Model::new(graph).opset("", 17).to_bytes()).unwrap();

    let environment = ort::init_from(onnxruntime).unwrap().build().unwrap();
    let mut session = example::session(&environment, &provider, &model).unwrap();
    let x = Tensor::from_array(([3usize], vec![1.0f32, -2.0, 0.5])).unwrap();
    let outputs = session.run(ort::inputs!["x" => x]).unwrap();
    let (_, y) = outputs["y"].try_extract_tensor::<f32>().unwrap();
    assert_eq!(y, [2.0, -4.0, 1.0]);
}
