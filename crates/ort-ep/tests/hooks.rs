//! Tests every hook of the SDK in real ONNX Runtime, with the `hooks` example.
mod common;

#[test]
fn every_hook_is_called_and_answers() {
    common::on_each_runtime("hooks.py", &["hooks"]);
}

#[test]
fn a_fault_in_any_hook_is_reported_and_survived() {
    common::on_each_runtime("faults.py", &["hooks"]);
}

#[test]
fn events_reach_the_log_at_their_severity() {
    common::on_each_runtime("logs.py", &["hooks"]);
}
