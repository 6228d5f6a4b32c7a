//! The C interface as every caller sees it, in any language.
#![allow(clippy::unwrap_used)]
mod common;

use std::process::Command;

use hipdnn::sys::SYMBOLS;

use common::{backend, library};

#[test]
fn all_entry_points_are_exported() {
    let backend = backend();
    let missing: Vec<_> = SYMBOLS.iter().filter(|symbol| !backend.has(symbol)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(SYMBOLS.len(), 38);
}

#[test]
fn a_c_program_runs_a_graph() {
    let folder = std::env::temp_dir().join(format!("hipdnn-host-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("conv_bias_relu");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conv_bias_relu.c");
    let compiled = Command::new("cc").args(["-Wall", "-Werror", "-o"]).arg(&program).args([source, "-ldl"]).status();
    assert!(compiled.unwrap().success(), "cc failed");
    let output = Command::new(&program).arg(library()).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"conv, bias, relu: right\n");
}
