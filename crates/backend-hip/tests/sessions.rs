//! Tests the backend in real ONNX Runtime, registered as a standalone plugin.
mod common;

#[test]
fn compiled_models_give_the_same_results_as_their_sources() {
    common::on_each_runtime("saved.py");
}

#[test]
fn steps_appear_in_the_profile() {
    common::on_each_runtime("profile.py");
}

#[test]
fn passes_are_recorded_disabled_and_dumped() {
    common::on_each_runtime("passes.py");
}
