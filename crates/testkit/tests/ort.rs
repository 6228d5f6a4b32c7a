//! The client against a real ONNX Runtime, without any plugin.

use std::path::Path;

use testkit::onnx::{Dim, ElementType, Graph, Model, Node, ValueInfo};
use testkit::ort::{Environment, Runtime, Session, Value};
use testkit::place;

fn environment() -> anyhow::Result<Option<Environment>> {
    let path = match place::onnxruntime() {
        Ok(path) => path,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(None);
        }
    };
    Environment::new(Runtime::load(&path)?, "testkit").map(Some)
}

fn doubling() -> Vec<u8> {
    let value = |name| ValueInfo::tensor(name, ElementType::Float, [Dim::Unknown]);
    let graph = Graph::new("double").input(value("x")).node(Node::new("Add", ["x", "x"], ["y"])).output(value("y"));
    Model::new(graph).opset("", 17).to_bytes()
}

#[test]
fn runs_a_model_on_the_cpu() {
    let Some(environment) = environment().unwrap() else { return };
    let session = Session::new(&environment, &doubling(), &[], &[]).unwrap();
    let input = Value::from_floats(&environment, &[3], &[1.0, -2.5, 0.0]).unwrap();
    let outputs = session.run(&[("x", &input)], &["y"]).unwrap();
    assert_eq!(outputs[0].floats().unwrap(), [2.0, -5.0, 0.0]);
    let empty = Value::from_floats(&environment, &[0], &[]).unwrap();
    assert_eq!(session.run(&[("x", &empty)], &["y"]).unwrap()[0].floats().unwrap(), Vec::<f32>::new());
}

#[test]
fn errors_carry_the_text_of_the_runtime() {
    let Some(environment) = environment().unwrap() else { return };
    let error = Session::new(&environment, b"no model", &[], &[]).err().unwrap().to_string();
    assert!(error.starts_with("ONNX Runtime error"), "{error}");
    let session = Session::new(&environment, &doubling(), &[], &[]).unwrap();
    let input = Value::from_floats(&environment, &[1], &[1.0]).unwrap();
    let error = session.run(&[("wrong", &input)], &["y"]).err().unwrap().to_string();
    assert!(error.contains("wrong"), "{error}");
    let error = environment.register("Missing", Path::new("/nonexistent/lib.so")).err().unwrap().to_string();
    assert!(error.contains("/nonexistent/lib.so"), "{error}");
    let error = Value::from_floats(&environment, &[2], &[1.0]).err().unwrap().to_string();
    assert_eq!(error, "1 values do not match shape [2]");
}
