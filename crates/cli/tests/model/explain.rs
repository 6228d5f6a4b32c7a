//! Tests what `explain` says about a model.

use serde_json::Value;
use testkit::onnx::{Dim, ElementType, Graph, Model, Node, ValueInfo};
use testkit::place;

use crate::{Bench, with_det};

#[test]
fn explain_names_what_runs_where_and_why() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", with_det());
    let text = bench.text(&["explain", &model]);
    assert!(text.contains("On the device: 3 of 4 nodes (75 %) in 2 partitions"), "{text}");
    assert!(!text.contains("determinant"), "{text}");
    let all = bench.text(&["explain", &model, "--nodes"]);
    assert!(all.contains("determinant") && all.contains("CPUExecutionProvider"), "{all}");

    let report = bench.json(&["explain", &model]);
    assert_eq!((&report["device_nodes"], &report["total_nodes"]), (&3.into(), &4.into()));
    assert_eq!((&report["driver"], &report["partitions"]), (&"host".into(), &2.into()));
    let nodes = report["nodes"].as_array().unwrap();
    for node in nodes {
        let is_det = node["op"] == "Det";
        let provider = if is_det { "CPUExecutionProvider" } else { "AMDGPUExecutionProvider" };
        assert_eq!(node["provider"], provider, "{node}");
        assert_eq!(node["reason"].is_string(), is_det, "{node}");
    }
    let det = &report["operators"][0];
    assert_eq!((&det["op"], &det["device"], &det["elsewhere"]), (&"Det".into(), &0.into(), &1.into()));
    let reasons = det["reasons"].as_object().unwrap();
    let (reason, count) = reasons.iter().next().unwrap();
    assert_eq!(count, 1);
    assert!(reason.contains("not supported"), "the reason is the backend's own: {reason}");
}

#[test]
fn explain_says_what_runs_each_step() {
    let Some(bench) = Bench::new() else { return };
    if let Err(reason) = place::staged_library("hipdnn_host") {
        println!("skipped: {reason}");
        return;
    }
    let model = bench.model("m.onnx", with_det());
    assert_eq!(bench.json(&["explain", &model])["steps"], Value::Null, "nothing runs unless it is asked for");
    let steps = |arguments: &[&str]| {
        let report = bench.json(&[&["explain", &model, "--steps", "--dim", "batch=2"], arguments].concat());
        let steps = report["steps"].as_array().unwrap().clone();
        steps.into_iter().map(|step| (step["step"].clone(), step["run_by"].clone())).collect::<Vec<_>>()
    };
    let own = [("map", "own: map"), ("matmul", "own: matmul"), ("map", "own: map")];
    assert_eq!(steps(&[]), own.map(|(step, by)| (step.into(), by.into())));
    let mut with = own;
    with[1].1 = "hipDNN: HOST_CPU_ENGINE";
    let option = ["--option", "ep.hip.hipdnn=on"];
    assert_eq!(steps(&option), with.map(|(step, by)| (step.into(), by.into())));
    let text = bench.text(&["explain", &model, "--steps", option[0], option[1]]);
    assert!(text.contains("Steps: 1 × hipDNN: HOST_CPU_ENGINE, 2 × own: map"), "{text}");
}

#[test]
fn control_characters_in_names_are_shown() {
    let Some(bench) = Bench::new() else { return };
    let error = bench.error(&["explain", "\u{1b}]0;title\u{7}\u{9b}31m.onnx"]);
    assert!(error.contains("\\x1b]0;title\\x07\\x9b31m.onnx"), "{error:?}");
    assert!(!error.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{error:?}");
}

#[test]
fn nodes_that_no_provider_can_run_are_named() {
    let Some(bench) = Bench::new() else { return };
    let square = [Dim::from(2), Dim::from(2)];
    let graph = Graph::new("determinant")
        .input(ValueInfo::tensor("x", ElementType::Bfloat16, square))
        .node(Node::new("Det", ["x"], ["y"]))
        .output(ValueInfo::tensor("y", ElementType::Bfloat16, []));
    let path = bench.path("bfloat16.onnx");
    std::fs::write(&path, Model::new(graph).opset("", 22).to_bytes()).unwrap();
    let error = bench.error(&["explain", path.to_str().unwrap()]);
    for part in ["1 node cannot run: Det: ", "has no kernel for it with bfloat16", "help: use a build of the model"] {
        assert!(error.contains(part), "{error}");
    }
}
