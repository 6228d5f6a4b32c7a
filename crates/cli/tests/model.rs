//! Runs `explain`, `run` and `bench` as a user would: with a real ONNX Runtime, the staged libraries and the host
//! device.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use testkit::onnx::{Attribute, Dim, ElementType, Graph, Model, Node, Tensor, ValueInfo};
use testkit::place;

/// A folder with models, and the libraries to run them with.
struct Bench {
    folder: TempDir,
    ort: PathBuf,
    library: PathBuf,
}

impl Bench {
    /// `None`, with a printed reason, if something is not installed.
    fn new() -> Option<Bench> {
        let found = place::onnxruntime().and_then(|ort| {
            place::staged_library("hip-backend")?;
            place::staged_library("hip-host")?;
            Ok((ort, place::staged_library("amdgpu-ep")?))
        });
        match found {
            Ok((ort, library)) => Some(Bench { folder: tempfile::tempdir().unwrap(), ort, library }),
            Err(reason) => {
                println!("skipped: {reason}");
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn model(&self, name: &str, graph: Graph) -> String {
        let path = self.path(name);
        fs::write(&path, Model::new(graph).opset("", 17).to_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amdgpu-ep"));
        command.args(arguments).arg("--ort").arg(&self.ort).arg("--library").arg(&self.library);
        command.env_remove("AMDGPU_EP_LOG").env_remove("AMDGPU_EP_LOG_FILE").env_remove("AMDGPU_EP_BACKEND_PATH");
        command
    }

    /// Runs the command on the host device.
    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).env("AMDGPU_EP_DRIVER", "host").output().unwrap()
    }

    #[track_caller]
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let document: Value = serde_json::from_str(&self.text(&[arguments, &["--json"]].concat())).unwrap();
        assert_eq!(document["schema"], 1);
        document
    }

    /// The only error of a command that fails.
    #[track_caller]
    fn error(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
        assert_eq!(stderr.matches("error:").count(), 1, "{stderr}");
        stderr
    }

    /// A float32 file, as numpy writes it.
    fn npy(&self, name: &str, shape: &str, values: &[f32]) -> String {
        let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        header.extend(std::iter::repeat_n(' ', 128 - 10 - header.len() - 1));
        header.push('\n');
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn floats(name: &str, dims: impl IntoIterator<Item = Dim>) -> ValueInfo {
    ValueInfo::tensor(name, ElementType::Float, dims)
}

/// `y = exp(det(relu(x) · w))`: the engine does not support Det, so the rest becomes two partitions.
fn with_det() -> Graph {
    let w: Vec<f32> = (0..9).map(|at| if at % 4 == 0 { 2.0 } else { 0.1 }).collect();
    Graph::new("with_det")
        .input(floats("x", [Dim::from("batch"), Dim::from(3), Dim::from(3)]))
        .initializer(Tensor::floats("w", [3, 3], &w))
        .node(Node::new("Relu", ["x"], ["r"]).name("first"))
        .node(Node::new("MatMul", ["r", "w"], ["m"]))
        .node(Node::new("Det", ["m"], ["d"]).name("determinant"))
        .node(Node::new("Exp", ["d"], ["y"]))
        .output(floats("y", [Dim::from("batch")]))
}

/// `y = relu(x) · 2`.
fn doubled() -> Graph {
    Graph::new("doubled")
        .input(floats("x", [Dim::from("rows"), Dim::from(3)]))
        .initializer(Tensor::floats("two", [1], &[2.0]))
        .node(Node::new("Relu", ["x"], ["r"]))
        .node(Node::new("Mul", ["r", "two"], ["y"]))
        .output(floats("y", [Dim::from("rows"), Dim::from(3)]))
}

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
fn model_that_cannot_be_loaded_is_one_clear_error() {
    let Some(bench) = Bench::new() else { return };
    let missing = bench.path("missing.onnx");
    let corrupt = bench.path("corrupt.onnx");
    fs::write(&corrupt, "this is not a model").unwrap();
    for command in ["explain", "run", "bench"] {
        let error = bench.error(&[command, missing.to_str().unwrap()]);
        assert!(error.contains("missing.onnx could not be opened: No such file"), "{error}");
        let error = bench.error(&[command, corrupt.to_str().unwrap()]);
        assert!(error.contains("corrupt.onnx could not be loaded: ONNX Runtime: "), "{error}");
        assert_eq!(error.matches("corrupt.onnx").count(), 1, "{error}");
    }
    let folder = bench.folder.path().to_str().unwrap();
    assert!(bench.error(&["explain", folder]).contains("is a folder"));
}

#[test]
fn pipes_and_devices_are_rejected_without_blocking() {
    let Some(bench) = Bench::new() else { return };
    let pipe = |name: &str| {
        let path = bench.path(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path.to_str().unwrap().to_owned()
    };
    let refused = "it is a pipe, a socket or a device, not a regular file";
    let (model, compiled) = (pipe("pipe.onnx"), bench.path("out.onnx").to_str().unwrap().to_owned());
    for arguments in [&["explain"][..], &["run"], &["bench"], &["tune"], &["compile", "-o", &compiled]] {
        for model in [&*model, "/dev/zero"] {
            let error = bench.error(&[&arguments[..1], &[model], &arguments[1..]].concat());
            assert!(error.contains(&format!("the model {model} could not be opened: {refused}")), "{error}");
        }
    }
    let model = bench.model("m.onnx", doubled());
    for input in [format!("x={}", pipe("x.npy")), pipe("x.npz"), "x=/dev/zero".to_owned()] {
        let error = bench.error(&["run", &model, "--input", &input]);
        assert!(error.contains(refused), "{error}");
    }
    // A weights file, which ONNX Runtime opens.
    let weights = pipe("m.onnx.data");
    let error = bench.error(&["run", &model]);
    assert!(error.contains(&format!("{weights} is a pipe, a socket or a device")), "{error}");
}

#[test]
fn control_characters_in_names_are_shown() {
    let Some(bench) = Bench::new() else { return };
    let error = bench.error(&["explain", "\u{1b}]0;title\u{7}\u{9b}31m.onnx"]);
    assert!(error.contains("\\x1b]0;title\\x07\\x9b31m.onnx"), "{error:?}");
    assert!(!error.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{error:?}");
}

#[test]
fn inputs_that_do_not_fit_are_one_clear_error() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let wide = format!("x={}", bench.npy("wide.npy", "(2, 4)", &[0.0; 8]));
    let error = bench.error(&["run", &model, "--input", &wide]);
    assert!(error.contains("the file has shape [2, 4], the model expects [rows, 3]"), "{error}");
    let error = bench.error(&["run", &model, "--input", &wide.replacen('x', "z", 1)]);
    assert!(error.contains("no input \"z\"") && error.contains("x (float32 [rows, 3])"), "{error}");
    for command in ["run", "bench"] {
        let error = bench.error(&[command, &model, "--dim", "row=2"]);
        assert!(error.contains("no dynamic dimension \"row\"") && error.contains("are: rows"), "{error}");
    }
    let error = bench.error(&["run", &model, "--input", "x=/nonexistent.npy"]);
    assert!(error.contains("/nonexistent.npy could not be read"), "{error}");
}

#[test]
fn wrong_libraries_and_options_are_one_clear_error() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let error = bench.error(&["explain", &model, "--profile", "nonsense"]);
    assert!(error.starts_with("error: 1 problem with the options of "), "{error}");
    assert!(error.contains("option profile is \"nonsense\"") && !error.contains(".cc:"), "{error}");
    let plain = |ort: &str, library: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amdgpu-ep"));
        command.args(["explain", &model, "--ort", ort, "--library", library]).env("AMDGPU_EP_DRIVER", "host");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let (ort, library) = (bench.ort.to_str().unwrap(), bench.library.to_str().unwrap());
    let error = plain("/nonexistent.so", library);
    assert!(error.contains("ONNX Runtime could not be loaded from /nonexistent.so"), "{error}");
    assert_eq!(error.matches("/nonexistent.so").count(), 1, "{error}");
    let error = plain(library, library);
    assert!(error.contains("is not ONNX Runtime"), "{error}");
    let error = plain(ort, "/nonexistent.so");
    assert!(error.contains("/nonexistent.so does not exist"), "{error}");
    let error = plain(ort, ort);
    assert!(error.contains("could not be registered"), "{error}");
}

#[test]
fn a_compiled_model_computes_what_its_source_does() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", with_det());
    for (form, count) in [(&["--embed"][..], 1), (&["--external"], 3), (&[], 1)] {
        let folder = bench.path(&format!("out{}", form.concat()));
        fs::create_dir(&folder).unwrap();
        let compiled = folder.join("compiled.onnx").to_str().unwrap().to_owned();
        let report = bench.json(&[&["compile", &model, "-o", &compiled], form].concat());
        assert_eq!((&report["device_nodes"], &report["partitions"]), (&3.into(), &2.into()), "{report:#}");
        let files = report["files"].as_array().unwrap();
        assert_eq!((files.len(), &files[0]["file"]), (count, &compiled.as_str().into()), "{report:#}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), count, "nothing else is left there");
        for file in files {
            let path = file["file"].as_str().unwrap();
            assert_eq!(fs::metadata(path).unwrap().len(), file["bytes"].as_u64().unwrap(), "{path}");
        }
        // A folder still works after it was moved.
        let moved = folder.with_extension("moved");
        fs::rename(&folder, &moved).unwrap();
        let compiled = moved.join("compiled.onnx").to_str().unwrap().to_owned();
        for batch in ["batch=4", "batch=9"] {
            let arguments = ["run", &compiled, "--dim", batch, "--compare", "cpu", "--source", &model];
            let report = bench.json(&arguments);
            assert_eq!((&report["good"], &report["device_nodes"]), (&true.into(), &2.into()), "{report:#}");
        }
        let measured = ["bench", &compiled, "--seconds", "0.05", "--threads", "1", "--source", &model];
        assert!(bench.json(&measured)["ratio"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn compile_fixes_dimensions_and_replaces_what_was_there() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let compiled = bench.path("c.onnx").to_str().unwrap().to_owned();
    fs::write(&compiled, "something older").unwrap();
    let text = bench.text(&["compile", &model, "-o", &compiled, "--dim", "rows=5", "--profile", "hip"]);
    for want in ["2 of 2 nodes (100 %) in 1 partition", "c.onnx", "Compiled in", "--profile hip"] {
        assert!(text.contains(want), "{want}: {text}");
    }
    let arguments = ["run", &compiled, "--profile", "hip", "--compare", "cpu", "--source", &model];
    let report = bench.json(&[&arguments[..], &["--seed", "2"]].concat());
    assert_eq!((&report["outputs"][0]["shape"], &report["good"]), (&vec![5, 3].into(), &true.into()), "{report:#}");
    let refused = bench.error(&["run", &compiled, "--dim", "rows=6"]);
    assert!(refused.contains("no dynamic dimension \"rows\""), "{refused}");
}

#[test]
fn what_cannot_be_compiled_is_refused_and_leaves_nothing() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let det = Graph::new("det")
        .input(floats("x", [Dim::from(3), Dim::from(3)]))
        .node(Node::new("Det", ["x"], ["y"]))
        .output(floats("y", []));
    let alone = bench.model("det.onnx", det);
    let folder = bench.path("out");
    fs::create_dir(&folder).unwrap();
    let name = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let output = name("c.onnx");
    for (arguments, wants) in [
        (&[alone.as_str(), "-o", &output][..], ["no node of", "explain"]),
        (&[&model, "-o", &name("none/c.onnx")], ["there is no folder", "create it first"]),
        (&[&model, "-o", folder.to_str().unwrap()], ["is a folder", "name an .onnx file"]),
        (&[&model, "-o", &model], ["would replace its source", "another name"]),
        (&[&model, "-o", &output, "--dim", "cols=3"], ["no dimension named \"cols\"", "x (float32 [rows, 3])"]),
        (&[&model, "-o", &output, "--option", "nonsense=1"], ["unknown option \"nonsense\"", "options of"]),
    ] {
        let error = bench.error(&[&["compile"], arguments].concat());
        assert!(wants.iter().all(|want| error.contains(want)), "{wants:?}: {error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{arguments:?}");
    }
    let usage = bench.output(&["compile", &model, "-o", &output, "--embed", "--external"]);
    assert_eq!(usage.status.code(), Some(2));
    bench.text(&["compile", &model, "-o", &output]);
    let error = bench.error(&["compile", &output, "-o", &name("again.onnx")]);
    assert!(error.contains("is already compiled") && !folder.join("again.onnx").exists(), "{error}");
    for command in [&["run", &output, "--compare", "cpu"][..], &["bench", &output]] {
        let error = bench.error(command);
        assert!(error.contains("the CPU provider cannot run") && error.contains("--source"), "{error}");
    }
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
fn a_negative_number_is_an_invalid_value_and_not_an_option() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    for arguments in [&["run", &model, "--seed", "-1"][..], &["bench", &model, "--threads", "-2"]] {
        let error = bench.error(arguments);
        assert!(error.contains(&format!("invalid value '{}' for '--", arguments[3])), "{error}");
        assert!(!error.contains("'-- -"), "{error}");
    }
}

#[test]
fn an_output_that_cannot_be_written_leaves_the_old_one() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let folder = bench.path("outputs");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("y.npy"), "what was here").unwrap();
    // No file may grow beyond 64 KiB, so that a write fails as on a full disk.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_amdgpu-ep")]);
    limited.args(["run", &model, "--dim", "rows=100000", "--output", folder.to_str().unwrap()]);
    limited.arg("--ort").arg(&bench.ort).arg("--library").arg(&bench.library).env("AMDGPU_EP_DRIVER", "host");
    let output = limited.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("y.npy could not be written: File too large"), "{error}");
    assert_eq!(fs::read_to_string(folder.join("y.npy")).unwrap(), "what was here");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn a_full_disk_is_named_in_the_error() {
    let Some(bench) = Bench::new() else { return };
    let wide: Vec<f32> = (0..512 * 512).map(|at| at as f32).collect();
    let graph = Graph::new("wide")
        .input(floats("x", [Dim::from(1), Dim::from(512)]))
        .initializer(Tensor::floats("w", [512, 512], &wide))
        .node(Node::new("MatMul", ["x", "w"], ["y"]))
        .output(floats("y", [Dim::from(1), Dim::from(512)]));
    let model = bench.model("m.onnx", graph);
    let disk = bench.path("disk");
    fs::create_dir(&disk).unwrap();
    // A small disk that disappears with the process.
    let inside = |script: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).args(arguments);
        command.env("DISK", &disk).env("AMDGPU_EP_DRIVER", "host").output()
    };
    let mount = "mount -t tmpfs -o size=64k tmpfs \"$DISK\"";
    match inside(mount, &[]) {
        Ok(done) if done.status.success() => {}
        Ok(done) => return println!("skipped: no small disk: {}", String::from_utf8_lossy(&done.stderr)),
        Err(error) => return println!("skipped: no unshare: {error}"),
    }
    let (compiled, ort, library) = (disk.join("c.onnx"), bench.ort.to_str().unwrap(), bench.library.to_str().unwrap());
    for form in ["--embed", "--external"] {
        let script = format!("{mount} && {{ \"$0\" \"$@\"; code=$?; ls -A \"$DISK\"; exit $code; }}");
        let command = [env!("CARGO_BIN_EXE_amdgpu-ep"), "compile", &model, "-o", compiled.to_str().unwrap(), form];
        let output = inside(&script, &[&command[..], &["--ort", ort, "--library", library]].concat()).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        let want = format!("error: the compiled model could not be written to {}: No space left", disk.display());
        assert!(error.starts_with(&want) && error.contains("\n  help: free some space"), "{error}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "nothing is left on the disk");
    }
}

#[test]
fn ctrl_c_leaves_no_unfinished_files() {
    let Some(bench) = Bench::new() else { return };
    // Long enough to be interrupted.
    let mut graph = Graph::new("long").input(floats("v0", [Dim::from("n")]));
    for at in 0..6000 {
        graph = graph.node(Node::new("Exp", [format!("v{at}").as_str()], [format!("v{}", at + 1).as_str()]));
    }
    let model = bench.model("m.onnx", graph.output(floats("v6000", [Dim::from("n")])));
    let folder = bench.path("out");
    fs::create_dir(&folder).unwrap();
    let compiled = folder.join("c.onnx");
    let mut command = bench.command(&["compile", &model, "-o", compiled.to_str().unwrap()]);
    let mut child = command.env("AMDGPU_EP_DRIVER", "host").spawn().unwrap();
    let files = || fs::read_dir(&folder).unwrap().count();
    while files() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began to write");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let sent = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(sent.success());
    let status = child.wait().unwrap();
    assert_eq!((status.code(), files()), (Some(130), 0), "{status}");
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
