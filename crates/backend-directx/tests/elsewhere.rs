//! On systems other than Windows, registering the library in a real ONNX Runtime fails with a helpful error.
#![cfg(not(windows))]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::process::Command;

use testkit::place;

const SCRIPT: &str = "
import sys, onnxruntime
try:
    onnxruntime.register_execution_provider_library('DirectX', sys.argv[1])
except Exception as error:
    print(error)
";

#[test]
fn registering_it_fails_and_suggests_alternatives() {
    let python = match place::python() {
        Ok(python) => python,
        Err(reason) => return println!("skipped: {reason}"),
    };
    // Cargo puts the library next to this test's executable.
    let library = std::env::current_exe().unwrap().with_file_name("libdirectx_backend.so");
    let done = Command::new(python).args(["-c", SCRIPT]).arg(library).env_remove("PYTHONPATH").output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    for wanted in ["NOT_IMPLEMENTED", "DirectX exists on Windows only", "help: use profile=auto, migraphx or hip"] {
        assert!(text.contains(wanted), "{wanted} in {text} {}", String::from_utf8_lossy(&done.stderr));
    }
}
