//! Tests the GPU device on the host driver, with kernels in the wave simulator.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use exec::gpu::{GpuDevice, GpuSettings, ReplayMode};
use exec::{Capture, CompiledPartition, ExecError, Input, Ledger, Order, Run, RunBy, Serial};
use graph::ops::Attribute;
use graph::{DType, Tensor};
use kernels::sim::Simulator;
use kernels::{Arch, CompileError, Compiler, Kernel};

use crate::common;
use crate::common::{Case, random};
use crate::lookup::{Lookup, Memory, SENTINEL, gpu};

fn with_graphs(graphs: ReplayMode) -> GpuDevice {
    gpu().with(GpuSettings { graphs, ..GpuSettings::default() })
}

/// Keeps a stream busy until the sender is dropped.
fn hold(stream: &Arc<hip::Stream>) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
    let ((release, released), (started, has_started)) = (mpsc::channel::<()>(), mpsc::channel());
    let stream = stream.clone();
    let holder = thread::spawn(move || {
        let block = move || {
            started.send(()).unwrap();
            let _ = released.recv();
        };
        stream.launch_host_fn(block).unwrap();
    });
    has_started.recv().unwrap();
    (release, holder)
}

#[test]
fn work_runs_in_stream_order_and_faults_are_reported_for_their_run() {
    let gpu = gpu();
    let (lookup, ledger) = (Lookup::new(&gpu, 5), Arc::<Ledger>::default());
    let stream = Arc::new(gpu.device().stream().unwrap());
    let mut memories = [Memory::new(&[1, 4]), Memory::new(&[5, 0]), Memory::new(&[0, 2])];
    // Prepared now, because uploads end by freeing memory, which waits for the device.
    lookup.prepare(2);
    let (release, holder) = hold(&stream);
    for memory in &mut memories {
        let order = Order::Stream { device: gpu.device(), stream: stream.raw(), ledger: &ledger };
        memory.run(&lookup, order).unwrap();
        assert!(memory.is_untouched());
    }
    assert_eq!(ledger.take_failure(|_| true), None, "nothing has run yet");
    drop(release);
    holder.join().unwrap();
    ledger.wait();
    let error = ledger.take_failure(|_| true).unwrap();
    assert_eq!(error, ExecError::Fault { node: "Gather \"node\"".into() });
    assert!(ledger.is_clear(), "one run failed, not three");
    memories[0].check(&lookup);
    memories[2].check(&lookup);
    let direct = memories[1].run(&lookup, Order::Now).unwrap_err();
    assert_eq!(direct.to_string(), "Gather \"node\": an index is out of range");
    memories[0].run(&lookup, Order::Now).unwrap();
}

#[test]
fn waiting_for_a_run_does_not_disturb_a_recording_of_its_stream() {
    let gpu = gpu();
    let (lookup, ledger) = (Lookup::new(&gpu, 9), Arc::<Ledger>::default());
    let stream = gpu.device().stream().unwrap();
    let (mut queued, mut recorded) = (Memory::new(&[1, 2, 3]), Memory::new(&[4, 5, 6]));
    queued.run(&lookup, Order::Stream { device: gpu.device(), stream: stream.raw(), ledger: &ledger }).unwrap();
    stream.synchronize().unwrap();
    // SAFETY: the stream outlives the recording.
    let capture = unsafe { Capture::begin(gpu.device(), stream.raw()) }.unwrap();
    let waiter = thread::spawn({
        let ledger = ledger.clone();
        move || ledger.wait()
    });
    // Long enough for the thread to wait. If it does not, the test passes for another reason.
    thread::sleep(Duration::from_millis(50));
    recorded.run(&lookup, Order::Record(&capture)).unwrap();
    let captured = capture.end().unwrap();
    waiter.join().unwrap();
    assert_eq!(ledger.take_failure(|_| true), None);
    queued.check(&lookup);
    captured.replay(&stream).unwrap();
    recorded.check(&lookup);
}

#[test]
fn a_recording_replays_with_new_contents_and_reports_faults_of_each_replay() {
    let gpu = gpu();
    let (lookup, mut memory) = (Lookup::new(&gpu, 9), Memory::new(&[0, 0, 0]));
    let (stream, replays) = (gpu.device().stream().unwrap(), gpu.device().stream().unwrap());
    // SAFETY: the stream outlives the recording.
    let capture = unsafe { Capture::begin(gpu.device(), stream.raw()) }.unwrap();
    memory.run(&lookup, Order::Record(&capture)).unwrap();
    assert_eq!(capture.len(), 1);
    assert!(memory.is_untouched(), "recording must not run the work");
    let captured = capture.end().unwrap();
    for indices in [[1, 2, 3], [8, 0, 7], [3, 9, 0], [4, 4, 4]] {
        memory.indices.copy_from_slice(&indices);
        let replayed = captured.replay(&replays);
        assert_eq!(replayed.is_err(), indices.contains(&9), "{replayed:?}");
        if replayed.is_ok() {
            memory.check(&lookup);
        }
    }
}

#[test]
fn a_foreign_capture_records_the_launches() {
    let gpu = gpu();
    let (lookup, mut memory, ledger) = (Lookup::new(&gpu, 4), Memory::new(&[3]), Arc::<Ledger>::default());
    let stream = gpu.device().stream().unwrap();
    stream.begin_capture(hip::CaptureMode::Relaxed).unwrap();
    let order = Order::Stream { device: gpu.device(), stream: stream.raw(), ledger: &ledger };
    memory.run(&lookup, order).unwrap();
    let graph = stream.end_capture().unwrap();
    assert!(memory.is_untouched() && graph.node_count().unwrap() > 0);
    graph.instantiate().unwrap().launch(stream.raw()).unwrap();
    stream.synchronize().unwrap();
    memory.check(&lookup);
}

#[test]
fn replayed_graphs_equal_plain_launches_at_any_address() {
    for mode in [ReplayMode::Auto, ReplayMode::On, ReplayMode::Off] {
        let gpu = with_graphs(mode);
        let (lookup, ledger) = (Lookup::new(&gpu, 7), Arc::<Ledger>::default());
        let stream = gpu.device().stream().unwrap();
        let order = || Order::Stream { device: gpu.device(), stream: stream.raw(), ledger: &ledger };
        // One address, then two alternating, then a new one each time.
        let mut memories: Vec<Memory> = (0..20).map(|at| Memory::new(&[at % 7, 6 - at % 7])).collect();
        for turn in 0..60usize {
            let at = [0, turn % 2, turn % 20][turn / 20];
            memories[at].indices = memories[at].indices.iter().map(|index| (index + 1) % 7).collect();
            memories[at].found.fill(SENTINEL);
            memories[at].run(&lookup, order()).unwrap();
            stream.synchronize().unwrap();
            memories[at].check(&lookup);
        }
        ledger.wait();
        assert_eq!(ledger.take_failure(|_| true), None);
        memories[0].indices[1] = 7;
        memories[0].run(&lookup, order()).unwrap();
        ledger.wait();
        assert!(ledger.take_failure(|_| true).is_some(), "a fault in a replay is found");
    }
}

#[test]
fn threads_and_streams_do_not_share_memory_in_use() {
    let gpu = gpu();
    let ledger = Arc::<Ledger>::default();
    // A softmax over an outer axis, which keeps a value between the steps.
    let inputs = vec![common::tensor(DType::F32, &[1, 40], &[0.0; 40])];
    let case = Case::new("Softmax", 13, inputs, &[DType::F32]).attribute("axis", Attribute::Int(0));
    let program = CompiledPartition::new(case.graph().unwrap().0, &gpu).unwrap();
    thread::scope(|scope| {
        for seed in 0..4usize {
            let (gpu, program, ledger) = (&gpu, &program, &ledger);
            scope.spawn(move || {
                let stream = gpu.device().stream().unwrap();
                for turn in 0..25 {
                    let rows = 1 + (seed * 7 + turn * 5) % 23;
                    let x: Vec<f32> = random(rows * 40, (seed * 100 + turn) as u64).iter().map(|&v| v as f32).collect();
                    let mut y = vec![SENTINEL; rows * 40];
                    let prepared = program.plan(&[Input { shape: &[rows, 40], value: None }]).unwrap();
                    let (inputs, outputs) = ([x.as_ptr().cast()], [y.as_mut_ptr().cast()]);
                    let run = Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer: None };
                    let order = Order::Stream { device: gpu.device(), stream: stream.raw(), ledger };
                    // SAFETY: the vectors have the planned sizes and live until the stream is synchronised.
                    unsafe { prepared.run(run, order) }.unwrap();
                    stream.synchronize().unwrap();
                    for column in 0..40 {
                        let sum: f32 = (0..rows).map(|row| y[row * 40 + column]).sum();
                        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
                    }
                }
            });
        }
    });
}

#[test]
fn operands_that_are_not_aligned_to_packs_are_copied() {
    let gpu = gpu();
    let inputs = vec![common::tensor(DType::F32, &[64], &[0.0; 64])];
    let program = CompiledPartition::new(Case::new("Neg", 13, inputs, &[DType::F32]).graph().unwrap().0, &gpu).unwrap();
    let prepared = program.plan(&[Input { shape: &[64], value: None }]).unwrap();
    for offset in 1..4usize {
        let x: Vec<f32> = (0..68).map(|at| at as f32).collect();
        let mut y = [SENTINEL; 68];
        let (inputs, outputs) = ([x[offset..].as_ptr().cast()], [y[offset..].as_mut_ptr().cast()]);
        let run = Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer: None };
        // SAFETY: there are 64 elements from the offset on, aligned to an element.
        unsafe { prepared.clone().run(run, Order::Now) }.unwrap();
        let wanted = |at: usize| if (offset..offset + 64).contains(&at) { -(at as f32) } else { SENTINEL };
        assert!((0..68).all(|at| y[at] == wanted(at)), "{y:?}");
    }
}

/// The simulator, without code for one kernel.
struct Refusing(Simulator);

impl Compiler for Refusing {
    fn version(&self) -> String {
        self.0.version()
    }

    fn compile(&self, kernel: &Kernel, arch: &Arch) -> Result<Vec<u8>, CompileError> {
        if kernel.name.starts_with("softmax") {
            return Err(CompileError::Sim { kernel: kernel.name, reason: "refused by the test".into() });
        }
        self.0.compile(kernel, arch)
    }
}

#[test]
fn a_step_whose_kernel_does_not_compile_runs_on_the_host() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sim");
    let driver = hip::Driver::load(hip::DriverKind::Host).unwrap();
    let compiler = Arc::new(Refusing(Simulator::new(&folder).unwrap()));
    let gpu = GpuDevice::new(driver.devices().unwrap().remove(0), Arch::new("gfx1100", 4), compiler);
    let x = common::tensor(DType::F32, &[4, 9], &random(36, 1));
    let (graph, given) = Case::new("Softmax", 13, vec![x], &[DType::F32]).graph().unwrap();
    let program = CompiledPartition::new(graph.clone(), &gpu).unwrap();
    let prepared = program.plan(&[Input { shape: &[4, 9], value: None }]).unwrap();
    assert!(matches!(prepared.run_by(0), RunBy::Host { why } if why.contains("refused by the test")));
    let found: Vec<Tensor> = common::run::run_partition(&program, &given).unwrap();
    let wanted = common::run::run_on_host(graph, &given).unwrap();
    assert_eq!(found, wanted);
    let (stream, given) = (gpu.device().stream().unwrap(), given[0].bytes().as_ptr());
    // SAFETY: the stream outlives the recording.
    let capture = unsafe { Capture::begin(gpu.device(), stream.raw()) }.unwrap();
    let run = Run { inputs: &[given], outputs: &[std::ptr::null_mut()], parallel: &Serial, observer: None };
    // SAFETY: nothing is run.
    let refused = unsafe { prepared.run(run, Order::Record(&capture)) };
    assert_eq!(refused, Err(ExecError::NotRecordable { node: "Softmax \"node\"".into() }));
}
