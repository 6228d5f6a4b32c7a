//! Tests every hook of the SDK in real ONNX Runtime, with the `hooks` example.
mod common;

#[test]
fn every_hook_is_called_and_its_result_is_used() {
    common::on_each_runtime("hooks.py", &["hooks"]);
}

#[test]
fn a_fault_in_any_hook_is_reported_and_the_next_session_works() {
    common::on_each_runtime("faults.py", &["hooks"]);
}

#[test]
fn events_reach_the_log_at_their_severity() {
    common::on_each_runtime("logs.py", &["hooks"]);
}
