//! Tests the example plugins that newcomers start from in real ONNX Runtime: see `course.py`, `device_ep.py` and
//! `stand_in.py`.
mod common;

#[test]
fn the_first_plugin_and_the_kernels_compute_as_numpy_does_in_each_runtime() {
    common::on_each_runtime("course.py", &["first_plugin", "kernels_ep"]);
}

#[test]
fn the_example_computes_as_numpy_does_in_each_runtime() {
    common::on_each_runtime("device_ep.py", &["device_ep"]);
}

#[cfg(target_os = "linux")] // Reads /proc and needs a library that is not a plugin.
#[test]
fn the_stand_in_is_the_plugin_it_stands_for() {
    common::on_each_runtime("stand_in.py", &["stand_in", "device_ep"]);
}

#[test]
fn a_whole_plugin_is_short_and_safe() {
    let source = include_str!("../examples/02-device-memory.rs");
    assert!(source.lines().count() < 150, "{} lines", source.lines().count());
    let is_word = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_') == "unsafe";
    assert!(!source.split_whitespace().any(is_word), "the example has unsafe code");
}
