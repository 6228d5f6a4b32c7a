//! The library as a caller sees it, with or without cuDNN and a GPU.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use hipdnn::sys::{Backend, SYMBOLS, Status};
use hipdnn::{Error, Handle, Loaded, Search};

/// The library built with these tests.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let found = [folder, folder.parent().unwrap()].map(|folder| folder.join("libhipdnn_cudnn.so"));
    found.iter().find(|file| file.exists()).unwrap_or_else(|| panic!("none of {found:?} exists")).clone()
}

fn backend() -> Arc<dyn Backend> {
    Arc::new(Loaded::open(&Search { place: Some(library()), ..Search::default() }).unwrap())
}

#[test]
fn all_entry_points_are_exported() {
    let backend = backend();
    let missing: Vec<_> = SYMBOLS.iter().filter(|symbol| !backend.has(symbol)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(backend.describe().contains("0.4.0.cudnn"), "{}", backend.describe());
}

/// Runs one of these tests in a process with another environment.
fn in_a_process(test: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env_remove("AMDGPU_EP_CUDNN_DEVICE_FILE");
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
#[ignore = "started as a child process by the tests below"]
fn prints_why_there_is_no_handle() {
    match Handle::new(backend()) {
        Ok(_) => println!("there is one"),
        Err(Error::Backend { status, text, .. }) => {
            assert_eq!(status, Status::NOT_INITIALIZED);
            println!("because: {text}");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn without_cudnn_a_handle_is_refused_with_what_was_tried() {
    let output =
        in_a_process("prints_why_there_is_no_handle", &[("AMDGPU_EP_CUDNN_LIBRARY", "/nowhere/libcudnn.so.9")]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("because: no cuDNN 9 was found (tried /nowhere/libcudnn.so.9: "), "{said}");
    assert!(said.contains("help: install cuDNN 9, or set AMDGPU_EP_CUDNN_LIBRARY"), "{said}");
}

#[test]
fn another_library_in_cudnns_place_is_refused_with_what_it_lacks() {
    let file = library();
    let output = in_a_process("prints_why_there_is_no_handle", &[("AMDGPU_EP_CUDNN_LIBRARY", file.to_str().unwrap())]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("is not cuDNN 9: it lacks cudnnGetVersion, "), "{said}");
}

#[test]
fn this_machine_has_cudnn_with_a_device_or_says_what_is_missing() {
    let output = in_a_process("prints_why_there_is_no_handle", &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("there is one") || said.contains("because: "), "{said}");
}
