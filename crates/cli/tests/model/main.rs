//! Runs `explain`, `run` and `bench` as a user would: with a real ONNX Runtime, the staged libraries and the host
//! device.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod compile;
mod errors;
mod explain;
mod run;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use testkit::onnx::{Dim, ElementType, Graph, Model, Node, Tensor, ValueInfo};
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
        let (ort, library) = place::provider_on_host()?;
        Some(Bench { folder: tempfile::tempdir().unwrap(), ort, library })
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
