//! Tests `run` and `bench`: what they compute, compare, measure and write.

use std::fs;
use std::process::Command;

use serde_json::Value;
use testkit::onnx::{Attribute, Dim, ElementType, Graph, Node, ValueInfo};
use testkit::place;

use crate::{Bench, doubled, floats, with_det};

#[test]
fn run_computes_what_the_model_says() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let x = bench.npy("x.npy", "(2, 3)", &[-1.0, 2.0, 0.5, 3.0, -4.0, 0.0]);
    let folder = bench.path("out");
    let input = format!("x={x}");
    let report = bench.json(&["run", &model, "--input", &input, "--output", folder.to_str().unwrap()]);
    let y = &report["outputs"][0];
    assert_eq!((&y["name"], &y["kind"], &y["shape"]), (&"y".into(), &"float32".into(), &vec![2, 3].into()));
    assert_eq!(y["first"], Value::from(vec![0.0, 4.0, 1.0, 6.0, 0.0, 0.0]));
    assert_eq!((&y["min"], &y["max"]), (&0.0.into(), &6.0.into()));
    assert_eq!((&report["good"], &report["device_nodes"]), (&Value::Null, &2.into()));
    let written = fs::read(folder.join("y.npy")).unwrap();
    let wanted: Vec<u8> = [0f32, 4.0, 1.0, 6.0, 0.0, 0.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    assert!(written.ends_with(&wanted) && written.len() % 64 == wanted.len() % 64);
}

#[test]
fn run_takes_the_archives_that_numpy_writes() {
    let (Some(bench), Ok(python)) = (Bench::new(), place::python()) else { return };
    let sum = Graph::new("sum")
        .input(floats("x", [Dim::from("rows"), Dim::from(2)]))
        .input(floats("scope/b", [Dim::from(2)]))
        .node(Node::new("Add", ["x", "scope/b"], ["y"]))
        .output(floats("y", [Dim::from("rows"), Dim::from(2)]));
    let model = bench.model("m.onnx", sum);
    for save in ["savez", "savez_compressed"] {
        let archive = bench.path(&format!("{save}.npz"));
        let script = format!(
            "import sys, numpy as n; n.{save}(sys.argv[1], **{{'x': n.ones((3, 2), 'f'), 'scope/b': n.arange(2, dtype='f')}})"
        );
        assert!(Command::new(&python).args(["-c", &script]).arg(&archive).status().unwrap().success());
        let report = bench.json(&["run", &model, "--input", archive.to_str().unwrap()]);
        assert_eq!(report["outputs"][0]["first"], Value::from(vec![1.0, 2.0, 1.0, 2.0, 1.0, 2.0]), "{save}");
        let other = bench.model("other.onnx", doubled());
        let error = bench.error(&["run", &other, "--input", archive.to_str().unwrap()]);
        assert!(
            error.contains("the model has no input \"scope/b\"") || error.contains("the file has shape"),
            "{error}"
        );
    }
}

#[test]
fn run_agrees_with_the_cpu_provider() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", with_det());
    let text = bench.text(&["run", &model, "--dim", "batch=4", "--seed", "3", "--compare", "cpu"]);
    assert!(text.contains("float32 [4]") && text.contains("The outputs agree."), "{text}");
    let report = bench.json(&["run", &model, "--dim", "batch=4", "--seed", "3", "--compare", "cpu"]);
    let difference = &report["outputs"][0]["difference"];
    assert_eq!((&report["good"], &difference["good"]), (&true.into(), &true.into()));
    assert!(difference["cosine"].as_f64().unwrap() > 0.999_999, "{difference}");
    let other = bench.json(&["run", &model, "--dim", "batch=4", "--seed", "4"]);
    assert_ne!(other["outputs"][0]["first"], report["outputs"][0]["first"], "another seed gives other inputs");
}

#[test]
fn run_handles_every_type_of_number() {
    let Some(bench) = Bench::new() else { return };
    let types = [
        (ElementType::Float16, "float16"),
        (ElementType::Bfloat16, "bfloat16"),
        (ElementType::Double, "float64"),
        (ElementType::Int8, "int8"),
        (ElementType::Int64, "int64"),
        (ElementType::Uint8, "uint8"),
        (ElementType::Uint32, "uint32"),
        (ElementType::Bool, "bool"),
    ];
    let mut graph = Graph::new("types");
    for (at, &(element, _)) in types.iter().enumerate() {
        let (x, y) = (format!("x{at}"), format!("y{at}"));
        let to = Attribute::Int(element as i64);
        let shape = || [Dim::from("n")];
        graph = graph
            .input(ValueInfo::tensor(&x, element, shape()))
            .node(Node::new("Cast", [x.as_str()], [format!("f{at}").as_str()]).attribute("to", Attribute::Int(1)))
            .node(Node::new("Cast", [format!("f{at}").as_str()], [y.as_str()]).attribute("to", to))
            .output(ValueInfo::tensor(&y, element, shape()));
    }
    let model = bench.model("m.onnx", graph);
    let report = bench.json(&["run", &model, "--dim", "n=50", "--compare", "cpu"]);
    assert_eq!(report["good"], true, "{report:#}");
    for (output, (_, kind)) in report["outputs"].as_array().unwrap().iter().zip(types) {
        assert_eq!((&output["kind"], &output["shape"]), (&kind.into(), &vec![50].into()));
        assert_ne!(output["min"], output["max"], "{output}");
    }
}

#[test]
fn outputs_that_differ_end_with_1() {
    let Some(bench) = Bench::new() else { return };
    // Long sums in a different order differ in their last bits: fine for float32, but too much for a tolerance of zero.
    let square = || [Dim::from(64), Dim::from(999)];
    let graph = Graph::new("sums")
        .input(floats("x", square()))
        .input(floats("y", [Dim::from(999), Dim::from(64)]))
        .node(Node::new("MatMul", ["x", "y"], ["p"]))
        .node(Node::new("Softmax", ["p"], ["s"]))
        .node(Node::new("MatMul", ["s", "x"], ["z"]))
        .output(floats("z", square()));
    let model = bench.model("m.onnx", graph);
    bench.text(&["run", &model, "--compare", "cpu"]);
    let output = bench.output(&["run", &model, "--compare", "cpu", "--tolerance", "0"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("too far apart") && text.contains("do NOT agree"), "{text}");
}

#[test]
fn bench_measures_both_sessions() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let arguments = ["bench", &model, "--dim", "rows=7", "--seconds", "0.05", "--threads", "1"];
    let text = bench.text(&arguments);
    for want in ["x float32 [7, 3]", "with the device", "CPU provider alone", "median", "p95", "Speed against"] {
        assert!(text.contains(want), "{want}: {text}");
    }
    let report = bench.json(&arguments);
    for side in ["device", "cpu"] {
        let number = |key: &str| report[side][key].as_f64().unwrap();
        assert!(number("runs") >= 3.0, "{report:#}");
        assert!(0.0 < number("min_ms") && number("min_ms") <= number("median_ms"), "{report:#}");
        assert!(number("median_ms") <= number("p95_ms"), "{report:#}");
    }
    assert_eq!(report["device"]["runs"], report["cpu"]["runs"]);
    assert!(report["ratio"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_machine_without_an_amd_gpu_uses_the_host_device() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let output = bench.command(&["run", &model, "--json"]).env_remove("AMDGPU_EP_DRIVER").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    if report["driver"] == "amd" {
        println!("skipped: there is an AMD GPU here");
        return;
    }
    assert_eq!(report["driver"], "host");
    assert!(stderr.contains("no AMD GPU was found here") && stderr.contains("AMDGPU_EP_DRIVER=host"), "{stderr}");
}

#[test]
fn a_dimension_has_its_name_and_its_axis() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    for dim in ["rows=4", "x.0=4"] {
        let report = bench.json(&["run", &model, "--dim", dim]);
        assert_eq!(report["outputs"][0]["shape"], Value::from(vec![4, 3]), "{dim}");
    }
    let twice = bench.error(&["run", &model, "--dim", "rows=4", "--dim", "x.0=5"]);
    assert!(twice.contains("is given twice"), "{twice}");
    let compiled = bench.path("c.onnx").to_str().unwrap().to_owned();
    bench.text(&["compile", &model, "-o", &compiled, "--dim", "x.0=5"]);
    assert_eq!(bench.json(&["run", &compiled])["outputs"][0]["shape"], Value::from(vec![5, 3]));
    let fixed = bench.error(&["run", &model, "--dim", "x.1=4"]);
    assert!(fixed.contains("no dynamic dimension \"x.1\""), "{fixed}");
}

#[test]
fn the_log_has_times_and_can_go_to_a_file() {
    let Some(bench) = Bench::new() else { return };
    let (model, file) = (bench.model("m.onnx", doubled()), bench.path("log"));
    let said = |variables: &[(&str, &str)]| {
        let mut command = bench.command(&["run", &model]);
        command.env("AMDGPU_EP_DRIVER", "host").envs(variables.iter().copied());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        said
    };
    let is_timed =
        |line: &str| line.starts_with("[20") && line.as_bytes()[11] == b'T' && line.contains("Z INFO amdgpu_ep::");
    let log = said(&[("AMDGPU_EP_LOG", "info")]);
    assert!(!log.is_empty() && log.lines().all(is_timed), "{log}");
    assert_eq!(said(&[("AMDGPU_EP_LOG_FILE", file.to_str().unwrap())]), "");
    let once = fs::read_to_string(&file).unwrap();
    assert!(once.lines().count() >= 2 && once.lines().all(is_timed), "of the umbrella and of the backend: {once}");
    said(&[("AMDGPU_EP_LOG_FILE", file.to_str().unwrap())]);
    assert!(fs::read_to_string(&file).unwrap().starts_with(&once), "the log file is appended to");
    for (variables, want) in [
        ([("AMDGPU_EP_LOG", "loud")], "AMDGPU_EP_LOG is ignored: it is \"loud\""),
        ([("AMDGPU_EP_LOG_FILE", "/nowhere/log")], "AMDGPU_EP_LOG_FILE is ignored: could not open /nowhere/log"),
    ] {
        let said = said(&variables);
        assert_eq!(said.matches(&format!("warning: {want}")).count(), 1, "{said}");
    }
}
