//! The stand-in for a backend, built from C like a user's library.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use hipdnn::sys::{Backend, DataType, PointwiseMode};
use hipdnn::{Graph, Handle, Loaded, OperationGraph, Search, Tensor};
use tempfile::TempDir;

pub const ENGINES: [&str; 3] = ["FAST_ENGINE", "SLOW_ENGINE", "BROKEN_ENGINE"];

/// Builds the stand-in with these definitions as `libhipdnn_backend.so` in `folder`.
pub fn build(folder: &Path, definitions: &[&str]) -> PathBuf {
    let file = folder.join("libhipdnn_backend.so");
    // Another package builds its tests from these files too, so their folder is not known at run time.
    let source = folder.join("stand_in.c");
    std::fs::write(&source, include_str!("stand_in.c")).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&file).arg(&source);
    compiler.args(definitions.iter().map(|definition| format!("-D{definition}")));
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    file
}

/// Loads a library like a program that names it.
pub fn open(file: &Path) -> Result<Loaded, hipdnn::LoadError> {
    Loaded::open(&Search { place: Some(file.to_owned()), ..Search::default() })
}

static STAND_IN: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let file = build(folder.path(), &[]);
    (folder, file)
});

/// The stand-in's file.
pub fn stand_in() -> &'static Path {
    &STAND_IN.1
}

/// The stand-in as a backend.
#[cfg(not(hipdnn_linked))]
pub fn backend() -> Arc<dyn Backend> {
    Arc::new(open(stand_in()).unwrap())
}

/// The stand-in as a backend that the test is linked with.
#[cfg(hipdnn_linked)]
pub fn backend() -> Arc<dyn Backend> {
    Arc::new(hipdnn_linked::Linked::new().unwrap())
}

/// A graph that the stand-in has accepted.
pub fn graph(handle: &Handle) -> OperationGraph {
    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT).named("two numbers");
    let x = graph.tensor(Tensor::new(&[2]).uid(1));
    let y = graph.pointwise(PointwiseMode::RELU_FWD, &[x]);
    graph.output(y, Tensor::default().uid(2));
    graph.build(handle).unwrap()
}
