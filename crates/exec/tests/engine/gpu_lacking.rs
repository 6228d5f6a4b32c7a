//! Tests drivers that lack features, as those of emulated devices may: the host driver with a switch, and kernels in
//! the wave simulator. Each test runs in a separate process, because the driver reads the switch when it is loaded.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use exec::gpu::{GpuDevice, GpuSettings, ReplayMode, TuneMode, Tuned};
use exec::{CompiledPartition, Input, Ledger, Observer, Order, Run, RunBy, Serial};
use graph::{DType, Step, Tensor};

use crate::common;
use crate::common::device::simulated;
use crate::common::{Case, random, tensor};

const CHILD: &str = "EXEC_TEST_LACKING_CHILD";
const SWITCH: &str = "AMDGPU_EP_HOST_LACKS";
/// A device attribute, as numbered by HIP.
const MULTIPROCESSOR_COUNT: i32 = 63;
const NOT_SUPPORTED: i32 = 801;

/// Runs `test` in a process whose driver lacks these features.
fn child(test: &str, lacks: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("gpu_lacking::{test}"), "--nocapture"]);
    let output = command.env(CHILD, "1").env(SWITCH, lacks).output().unwrap();
    assert!(output.status.success(), "without {lacks}: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{test} is not the name of one test: {said}");
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Fails unless the driver of this process lacks the features that the switch names.
fn assert_lacking() {
    let device = hip::Driver::load(hip::DriverKind::Host).unwrap().devices().unwrap().remove(0);
    let stream = device.stream().unwrap();
    for feature in std::env::var(SWITCH).unwrap().split(',') {
        let is_refused = match feature {
            "attributes" => device.attribute(MULTIPROCESSOR_COUNT).is_none(),
            "capture" => stream.begin_capture(hip::CaptureMode::Relaxed).is_err(),
            "event-times" => {
                let event = device.timing_event().unwrap();
                event.record(stream.raw()).unwrap();
                event.synchronize().unwrap();
                event.elapsed_ms(&event).is_err()
            }
            "graph-launch" => {
                stream.begin_capture(hip::CaptureMode::Relaxed).unwrap();
                let exec = stream.end_capture().unwrap().instantiate().unwrap();
                exec.launch(stream.raw()).is_err()
            }
            "memory-info" => device.memory_info().unwrap().total == 0,
            "peers" => device.enable_peer_access(&device).is_err_and(|error| error.code() == Some(NOT_SUPPORTED)),
            "pinned" => !device.alloc_pinned(1).unwrap().is_pinned(),
            "pools" => device.alloc_async(1, stream.raw()).is_err(),
            other => panic!("unknown switch {other}"),
        };
        assert!(is_refused, "{feature} is not lacking");
    }
}

/// A product with a constant, which has to be uploaded.
fn case() -> Case {
    let (a, b) = (tensor(DType::F32, &[9, 20], &random(180, 1)), tensor(DType::F32, &[20, 17], &random(340, 2)));
    Case { constants: vec![1], ..Case::new("MatMul", 13, vec![a, b], &[DType::F32]) }
}

#[derive(Default)]
struct Times(Mutex<Vec<Duration>>);

impl Observer for Times {
    fn step(&self, _: &Step, by: RunBy<'_>, _: Instant, took: Duration) {
        assert!(matches!(by, RunBy::Own { .. }));
        self.0.lock().unwrap().push(took);
    }
}

/// Runs the same plan several times on the same addresses, with and without an observer, and compares with the host.
fn runs(gpu: &GpuDevice) -> Vec<Duration> {
    let (graph, given) = case().graph().unwrap();
    let wanted = common::numbers(&common::run::run_on_host(graph.clone(), &given).unwrap()[0]);
    let program = CompiledPartition::new(graph, gpu).unwrap();
    let shapes: Vec<Input<'_>> = given.iter().map(|x: &Tensor| Input { shape: x.shape(), value: None }).collect();
    let prepared = program.plan(&shapes).unwrap();
    let (stream, ledger) = (gpu.device().stream().unwrap(), Arc::<Ledger>::default());
    let times = Arc::new(Times::default());
    let inputs: Vec<*const u8> = given.iter().map(|x| x.bytes().as_ptr()).collect();
    let mut found = vec![0f32; wanted.len()];
    for turn in 0..8 {
        found.fill(f32::NAN);
        let observer = (turn == 7).then(|| times.clone() as Arc<dyn Observer>);
        let run = Run { inputs: &inputs, outputs: &[found.as_mut_ptr().cast()], parallel: &Serial, observer };
        let order = Order::Stream { device: gpu.device(), stream: stream.raw(), ledger: &ledger };
        // SAFETY: complete tensors of the planned shapes, which live until the stream is synchronised.
        unsafe { prepared.clone().run(run, order) }.unwrap();
        stream.synchronize().unwrap();
        let found: Vec<f64> = found.iter().map(|&x| f64::from(x)).collect();
        common::assert_close(&found, &wanted, 1e-4);
    }
    ledger.wait();
    assert_eq!(ledger.take_failure(|_| true), None);
    let times = times.0.lock().unwrap();
    times.clone()
}

#[test]
fn results_are_right_whatever_the_driver_lacks() {
    if is_child() {
        assert_lacking();
        for graphs in [ReplayMode::Auto, ReplayMode::On] {
            runs(&simulated("gfx1100").with(GpuSettings { graphs, ..GpuSettings::default() }));
        }
        return;
    }
    for lacks in ["pools", "capture", "graph-launch", "pinned", "memory-info", "event-times", "attributes"] {
        child("results_are_right_whatever_the_driver_lacks", lacks);
    }
    child(
        "results_are_right_whatever_the_driver_lacks",
        "pools,capture,pinned,memory-info,event-times,attributes,peers",
    );
}

#[test]
fn without_event_times_nothing_is_tuned() {
    if !is_child() {
        return child("without_event_times_nothing_is_tuned", "event-times");
    }
    assert_lacking();
    let folder = tempfile::tempdir().unwrap();
    let tuned = Tuned::open(Some(folder.path()), "simulated", TuneMode::On);
    let settings = GpuSettings { tuned: Some(Arc::new(tuned)), ..GpuSettings::default() };
    let times = runs(&simulated("gfx1100").with(settings));
    assert!(!times.is_empty() && times.iter().all(Duration::is_zero), "{times:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no measurement is kept");
}

#[test]
fn copies_are_right_without_pinned_memory() {
    if !is_child() {
        return child("copies_are_right_without_pinned_memory", "pinned");
    }
    let driver = hip::Driver::load(hip::DriverKind::Host).unwrap();
    let device = driver.devices().unwrap().remove(0);
    let mut pinned = device.alloc_pinned(5000).unwrap();
    assert!(!pinned.is_pinned() && pinned.as_slice().iter().all(|&byte| byte == 0));
    assert_eq!(driver.pointer_info(pinned.address().as_ptr().addr()).kind, hip::PointerKind::Unknown);
    for (at, byte) in pinned.as_mut_slice().iter_mut().enumerate() {
        *byte = at as u8;
    }
    let mut buffer = device.alloc(5000).unwrap();
    buffer.copy_from_pinned(0, &pinned, 0, 5000).unwrap();
    let mut back = vec![0; 5000];
    buffer.copy_to_host(0, &mut back).unwrap();
    assert_eq!(back, pinned.as_slice());
    let refused = device.alloc_pinned(usize::MAX / 2).unwrap_err();
    assert!(refused.is_out_of_memory(), "{refused}");
}
