//! Tests runs on streams of the host driver: immediate, queued and recorded.

use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use exec::host::HostDevice;
use exec::{
    Capture, Captured, CompiledPartition, Device, ExecError, Input, Ledger, Observer, Order, Prepared, Run, RunBy,
    Serial,
};
use graph::ops::Attribute;
use graph::{DType, Step, Tensor};

use crate::common;
use crate::common::{Case, random};

const INNER: usize = 6;
const COLUMNS: usize = 5;

fn driver() -> hip::Device {
    let driver = hip::Driver::load(hip::DriverKind::Host).unwrap();
    driver.devices().unwrap().remove(0)
}

/// The product with a fixed matrix.
struct Product {
    program: CompiledPartition,
    weight: Vec<f64>,
}

impl Product {
    fn new(device: &dyn Device) -> Self {
        let weight = random(INNER * COLUMNS, 3);
        let inputs = vec![
            common::tensor(DType::F32, &[1, INNER], &[0.0; INNER]),
            common::tensor(DType::F32, &[INNER, COLUMNS], &weight),
        ];
        let mut case = Case::new("MatMul", 13, inputs, &[DType::F32]);
        case.constants.push(1);
        Self { program: CompiledPartition::new(case.graph().unwrap().0, device).unwrap(), weight }
    }

    fn prepare(&self, rows: usize) -> Arc<dyn Prepared> {
        self.program.plan(&[Input { shape: &[rows, INNER], value: None }]).unwrap()
    }

    fn reference(&self, x: &[f32]) -> Vec<f64> {
        let dot = |row: &[f32], column: usize| {
            (0..INNER).map(|at| f64::from(row[at]) * self.weight[at * COLUMNS + column]).sum::<f64>()
        };
        x.chunks(INNER).flat_map(|row| (0..COLUMNS).map(move |column| dot(row, column))).collect()
    }
}

/// An input and an output at fixed addresses, with sentinels after the output.
struct Memory {
    x: Vec<f32>,
    y: Vec<f32>,
}

const SENTINEL: f32 = 12345.0;

impl Memory {
    fn new(rows: usize, seed: u64) -> Self {
        let mut memory = Self { x: vec![0.0; rows * INNER], y: vec![SENTINEL; rows * COLUMNS + 8] };
        memory.fill(seed);
        memory
    }

    fn fill(&mut self, seed: u64) {
        let fresh = random(self.x.len(), seed);
        self.x.iter_mut().zip(fresh).for_each(|(to, from)| *to = from as f32);
    }

    fn run(&mut self, prepared: Arc<dyn Prepared>, order: Order<'_>) -> Result<(), ExecError> {
        let (inputs, outputs) = ([self.x.as_ptr().cast()], [self.y.as_mut_ptr().cast()]);
        let run = Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer: None };
        // SAFETY: the vectors have the planned sizes, and every test keeps them until the work is done.
        unsafe { prepared.run(run, order) }
    }

    fn check(&self, product: &Product) {
        let (made, behind) = self.y.split_at(self.y.len() - 8);
        let made: Vec<f64> = made.iter().map(|&value| value.into()).collect();
        common::assert_close(&made, &product.reference(&self.x), 1e-5);
        assert_eq!(behind, [SENTINEL; 8], "written past the end");
    }

    fn is_untouched(&self) -> bool {
        self.y.iter().all(|&value| value == SENTINEL)
    }
}

/// Keeps a stream busy until it is dropped.
struct Busy {
    release: Option<mpsc::Sender<()>>,
    holder: Option<thread::JoinHandle<()>>,
}

impl Busy {
    fn new(stream: &Arc<hip::Stream>) -> Self {
        let (release, released) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        let stream = stream.clone();
        // The driver runs work of an idle stream on the thread that submits it.
        let holder = thread::spawn(move || {
            let block = move || {
                started.send(()).unwrap();
                let _ = released.recv();
            };
            stream.launch_host_fn(block).unwrap();
        });
        has_started.recv().unwrap();
        Self { release: Some(release), holder: Some(holder) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        drop(self.release.take());
        self.holder.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_busy_stream_runs_work_later_and_in_order() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let product = Product::new(&HostDevice::new());
    let stream = Arc::new(driver.stream().unwrap());
    let mut memory = Memory::new(7, 2);
    let busy = Busy::new(&stream);
    for _ in 0..2 {
        let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
        memory.run(product.prepare(7), order).unwrap();
    }
    assert!(memory.is_untouched() && !ledger.is_clear());
    // The work reads the input when it runs, not when it is queued.
    memory.fill(3);
    drop(busy);
    ledger.wait();
    assert_eq!(ledger.take_failure(|_| true), None);
    stream.synchronize().unwrap();
    memory.check(&product);
}

#[test]
fn queued_work_outlives_its_program_and_device() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let stream = Arc::new(driver.stream().unwrap());
    let mut memory = Memory::new(3, 4);
    let (busy, product) = (Busy::new(&stream), Product::new(&HostDevice::new()));
    let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
    memory.run(product.prepare(3), order).unwrap();
    let weight = product.weight.clone();
    drop(product);
    drop(busy);
    ledger.wait();
    stream.synchronize().unwrap();
    let again = Product::new(&HostDevice::new());
    assert_eq!(again.weight, weight);
    memory.check(&again);
}

/// A gather whose index is out of range.
fn failing() -> (CompiledPartition, Vec<Tensor>) {
    let data = common::tensor(DType::F32, &[4], &[1.0, 2.0, 3.0, 4.0]);
    let inputs = vec![data, common::tensor(DType::I64, &[1], &[9.0])];
    let case = Case::new("Gather", 13, inputs, &[DType::F32]).attribute("axis", Attribute::Int(0));
    let (graph, given) = case.graph().unwrap();
    (CompiledPartition::new(graph, &HostDevice::new()).unwrap(), given)
}

fn run_failing(
    program: &CompiledPartition,
    given: &[Tensor],
    out: &mut [f32],
    order: Order<'_>,
) -> Result<(), ExecError> {
    let inputs: Vec<_> = given.iter().map(|tensor| Input { shape: tensor.shape(), value: None }).collect();
    let prepared = program.plan(&inputs).unwrap();
    let (inputs, outputs) = (given.iter().map(|tensor| tensor.bytes().as_ptr()), [out.as_mut_ptr().cast()]);
    let inputs: Vec<_> = inputs.collect();
    let run = Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer: None };
    // SAFETY: complete tensors of the planned shapes; callers wait for the work.
    unsafe { prepared.run(run, order) }
}

#[test]
fn a_failure_of_queued_work_is_found_in_the_ledger() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let stream = Arc::new(driver.stream().unwrap());
    let ((program, given), mut out) = (failing(), [0.0]);
    let direct = run_failing(&program, &given, &mut out, Order::Now).unwrap_err();
    let busy = Busy::new(&stream);
    let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
    run_failing(&program, &given, &mut out, order).unwrap();
    assert_eq!(ledger.take_failure(|_| true), None, "it has not run yet");
    drop(busy);
    ledger.wait();
    assert_eq!(ledger.take_failure(|_| true), Some(direct));
    stream.synchronize().unwrap();
}

#[test]
fn a_wrong_number_of_addresses_is_refused() {
    let product = Product::new(&HostDevice::new());
    let (x, mut y) = ([0.0f32; INNER], [0.0f32; COLUMNS]);
    let (inputs, outputs) = ([x.as_ptr().cast()], [y.as_mut_ptr().cast()]);
    let one = |inputs: &[*const u8], outputs: &[*mut u8]| {
        let run = Run { inputs, outputs, parallel: &Serial, observer: None };
        // SAFETY: the addresses that are given have the planned sizes; other counts are refused.
        unsafe { product.prepare(1).run(run, Order::Now) }
    };
    assert_eq!(one(&inputs, &outputs), Ok(()));
    assert_eq!(one(&[], &outputs), Err(ExecError::Count { what: "inputs", found: 0, wanted: 1 }));
    assert_eq!(one(&inputs, &[]), Err(ExecError::Count { what: "outputs", found: 0, wanted: 1 }));
}

fn record(product: &Product, memory: &mut Memory, driver: &hip::Device, stream: &hip::Stream) -> Captured {
    // SAFETY: the stream outlives the recording, which ends below.
    let capture = unsafe { Capture::begin(driver, stream.raw()) }.unwrap();
    let rows = memory.x.len() / INNER;
    memory.run(product.prepare(rows), Order::Record(&capture)).unwrap();
    assert_eq!(capture.len(), 1);
    assert!(memory.is_untouched(), "recording must not run the work");
    capture.end().unwrap()
}

#[test]
fn a_capture_replays_with_new_contents_after_everything_else_is_gone() {
    let driver = driver();
    let (stream, replays) = (driver.stream().unwrap(), driver.stream().unwrap());
    let mut memory = Memory::new(9, 0);
    let captured = record(&Product::new(&HostDevice::new()), &mut memory, &driver, &stream);
    drop(stream);
    let product = Product::new(&HostDevice::new());
    for seed in 1..6 {
        memory.fill(seed);
        captured.replay(&replays).unwrap();
        memory.check(&product);
    }
    drop(replays);
    drop(captured);
}

#[test]
fn two_captures_are_recorded_and_replayed_in_turns() {
    let driver = driver();
    let streams = [driver.stream().unwrap(), driver.stream().unwrap()];
    let product = Product::new(&HostDevice::new());
    let mut memories = [Memory::new(2, 1), Memory::new(33, 2)];
    // SAFETY: the streams outlive the recordings.
    let captures = streams.each_ref().map(|stream| unsafe { Capture::begin(&driver, stream.raw()) }.unwrap());
    for (capture, memory) in captures.iter().zip(&mut memories) {
        let rows = memory.x.len() / INNER;
        memory.run(product.prepare(rows), Order::Record(capture)).unwrap();
    }
    let captured = captures.map(|capture| capture.end().unwrap());
    for turn in 0..10 {
        let at = usize::from(turn % 3 == 0);
        memories[at].fill(turn);
        captured[at].replay(&streams[1 - at]).unwrap();
        memories[at].check(&product);
    }
}

#[test]
fn replays_of_one_capture_on_several_threads_do_not_overlap() {
    let driver = driver();
    let stream = driver.stream().unwrap();
    let product = Product::new(&HostDevice::new());
    let mut memory = Memory::new(64, 8);
    let captured = record(&product, &mut memory, &driver, &stream);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = driver.stream().unwrap();
                (0..25).for_each(|_| captured.replay(&stream).unwrap());
            });
        }
    });
    memory.check(&product);
}

#[test]
fn a_replay_reports_its_own_failure() {
    let driver = driver();
    let stream = driver.stream().unwrap();
    let ((program, given), mut out) = (failing(), [0.0]);
    let direct = run_failing(&program, &given, &mut out, Order::Now).unwrap_err();
    // SAFETY: the stream outlives the recording.
    let capture = unsafe { Capture::begin(&driver, stream.raw()) }.unwrap();
    run_failing(&program, &given, &mut out, Order::Record(&capture)).unwrap();
    let captured = capture.end().unwrap();
    for _ in 0..2 {
        assert_eq!(captured.replay(&stream), Err(direct.clone()));
    }
}

#[test]
fn a_foreign_capture_is_refused_and_stays_valid() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let stream = driver.stream().unwrap();
    let product = Product::new(&HostDevice::new());
    let mut memory = Memory::new(4, 1);
    stream.begin_capture(hip::CaptureMode::Relaxed).unwrap();
    let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
    assert_eq!(memory.run(product.prepare(4), order), Err(ExecError::ForeignCapture));
    assert_eq!(stream.end_capture().unwrap().node_count().unwrap(), 0);
    let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
    memory.run(product.prepare(4), order).unwrap();
    memory.check(&product);
}

#[test]
fn a_stream_runs_work_after_an_invalid_or_abandoned_capture() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let stream = driver.stream().unwrap();
    let product = Product::new(&HostDevice::new());
    for spoil in [false, true] {
        let mut memory = Memory::new(4, 1);
        // SAFETY: the stream outlives the recording.
        let capture = unsafe { Capture::begin(&driver, stream.raw()) }.unwrap();
        memory.run(product.prepare(4), Order::Record(&capture)).unwrap();
        if spoil {
            // A stream that is being captured cannot be synchronised.
            assert!(stream.synchronize().is_err());
            assert!(matches!(capture.end(), Err(ExecError::Driver(_))));
        } else {
            drop(capture);
        }
        let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
        memory.run(product.prepare(4), order).unwrap();
        memory.check(&product);
    }
}

/// The threads that ran steps.
#[derive(Default)]
struct Steps(Mutex<Vec<ThreadId>>);

impl Observer for Steps {
    fn step(&self, _: &Step, _: RunBy<'_>, start: Instant, took: Duration) {
        assert!(start.elapsed() >= took);
        self.0.lock().unwrap().push(thread::current().id());
    }
}

#[test]
fn an_idle_stream_runs_work_on_this_thread_and_a_busy_one_on_another() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let stream = Arc::new(driver.stream().unwrap());
    let product = Product::new(&HostDevice::new());
    let (steps, prepared) = (Arc::new(Steps::default()), product.prepare(2));
    let mut memory = Memory::new(2, 1);
    let mut run = || {
        let (inputs, outputs) = ([memory.x.as_ptr().cast()], [memory.y.as_mut_ptr().cast()]);
        let observer: Option<Arc<dyn Observer>> = Some(steps.clone());
        let run = Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer };
        let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
        // SAFETY: the vectors have the planned sizes and live until the end.
        unsafe { prepared.clone().run(run, order) }.unwrap();
    };
    let (here, count) = (thread::current().id(), prepared.plan().steps.len());
    run();
    assert!(ledger.is_clear());
    assert_eq!(*steps.0.lock().unwrap(), vec![here; count]);
    let busy = Busy::new(&stream);
    run();
    drop(busy);
    ledger.wait();
    let threads = steps.0.lock().unwrap();
    assert_eq!(threads.len(), 2 * count);
    assert!(!threads[count..].contains(&here));
}

#[test]
fn concurrent_runs_of_many_shapes_do_not_interfere() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let device = HostDevice::new();
    let product = Product::new(&device);
    thread::scope(|scope| {
        for seed in 0..4u64 {
            let (driver, ledger, product) = (&driver, &ledger, &product);
            scope.spawn(move || {
                let stream = Arc::new(driver.stream().unwrap());
                for turn in 0..60 {
                    let rows = 1 + (seed as usize * 31 + turn * 17) % 90;
                    let mut memory = Memory::new(rows, seed * 1000 + turn as u64);
                    let order = Order::Stream { device: driver, stream: stream.raw(), ledger };
                    match turn % 3 {
                        0 => memory.run(product.prepare(rows), Order::Now).unwrap(),
                        1 => memory.run(product.prepare(rows), order).unwrap(),
                        _ => {
                            let busy = Busy::new(&stream);
                            memory.run(product.prepare(rows), order).unwrap();
                            drop(busy);
                            stream.synchronize().unwrap();
                        }
                    }
                    memory.check(product);
                }
            });
        }
    });
    ledger.wait();
    assert_eq!(ledger.take_failure(|_| true), None);
}
