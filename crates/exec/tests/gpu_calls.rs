//! Checks which driver calls a warm run on a GPU makes, as recorded by the host driver.
#![allow(clippy::unwrap_used)]
#[path = "common/lookup.rs"]
mod lookup;

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use exec::{CompiledPartition, ExecError, Input, Ledger, Order, Run, Serial};
use graph::DType;

use common::Case;
use lookup::{Lookup, Memory, gpu};

/// The calls recorded while `work` runs, without the query for the current device that every call makes first.
fn calls(record: &Path, work: impl FnOnce()) -> Vec<String> {
    let read = || fs::read_to_string(record).unwrap();
    let before = read().len();
    work();
    let mut names: Vec<String> = read()[before..].lines().map(str::to_owned).collect();
    names.retain(|name| name != "hipGetDevice");
    names
}

#[test]
fn a_warm_run_is_one_launch_and_one_event() {
    let record = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("calls-{}", std::process::id()));
    // SAFETY: this is the only test of this program, and nothing else runs yet; the driver reads the variable when it
    // is loaded.
    unsafe { std::env::set_var("AMDGPU_EP_HOST_CALLS", &record) };
    let gpu = gpu();
    let (lookup, mut memory) = (Lookup::new(&gpu, 6), Memory::new(&[5, 1]));
    let (stream, ledger) = (gpu.device().stream().unwrap(), Arc::<Ledger>::default());
    let order = || Order::Stream { device: gpu.device(), stream: stream.raw(), ledger: &ledger };
    for _ in 0..4 {
        memory.run(&lookup, order()).unwrap();
    }
    let run = ["hipStreamIsCapturing", "hipGraphLaunch", "hipEventRecord"];
    for _ in 0..3 {
        assert_eq!(calls(&record, || memory.run(&lookup, order()).unwrap()), run);
        assert_eq!(calls(&record, || assert_eq!(ledger.take_failure(|_| true), None)), [""; 0], "an asynchronous run");
    }
    assert_eq!(calls(&record, || ledger.wait()), ["hipEventSynchronize"], "a run that is waited for");
    memory.check(&lookup);
    assert!(ledger.is_clear());
    // Detecting a fault takes no further calls.
    memory.indices[1] = 6;
    assert_eq!(calls(&record, || memory.run(&lookup, order()).unwrap()), run);
    ledger.wait();
    assert!(matches!(ledger.take_failure(|_| true), Some(ExecError::Fault { .. })));
    memory.indices[1] = 2;
    assert_eq!(calls(&record, || memory.run(&lookup, order()).unwrap()), run);
    ledger.wait();
    assert_eq!(ledger.take_failure(|_| true), None);
    memory.check(&lookup);
    // Runs that report no faults are waited for too: a lost device is noticed at their end.
    let (x, mut y) = ([-1.0_f32, 2.0, -3.0, 4.0], [0.0_f32; 4]);
    let case = Case::new("Relu", 14, vec![common::tensor(DType::F32, &[4], &[0.0; 4])], &[DType::F32]);
    let program = CompiledPartition::new(case.graph().unwrap().0, &gpu).unwrap();
    let plan = program.plan(&[Input { shape: &[4], value: None }]).unwrap();
    let (inputs, outputs) = ([x.as_ptr().cast()], [y.as_mut_ptr().cast()]);
    // SAFETY: the arrays have the planned sizes and live until the work is done.
    unsafe { plan.run(Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer: None }, order()) }
        .unwrap();
    assert_eq!(calls(&record, || ledger.wait()), ["hipEventSynchronize"]);
    assert_eq!(y, [0.0, 2.0, 0.0, 4.0]);
    fs::remove_file(record).unwrap();
}
