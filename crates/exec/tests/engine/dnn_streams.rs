//! Runs plans whose steps alternate between our own code and hipDNN, in every order of work.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use exec::host::HostDevice;
use exec::{
    Capture, CompiledPartition, Device, ExecError, Input, Ledger, Observer, Order, Prepared, Run, RunBy, Serial,
};
use graph::{DType, Graph, Step};

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, numbers, random, tensor};
use crate::dnn;
use crate::dnn::driver;

const SIDE: usize = 12;
const SHAPE: [usize; 2] = [SIDE, SIDE];

/// The second input of graphs that have one.
static ROWS: [i64; 2] = [0, 99];

/// Alternates products and log-softmaxes, starting with either.
fn turns(starts_with_product: bool) -> Graph {
    let mut build = Build::default();
    let mut value = build.input();
    for turn in 0..5 {
        value = if (turn % 2 == 0) == starts_with_product {
            let weight = build.constant(tensor(DType::F32, &SHAPE, &random(SIDE * SIDE, turn)));
            build.node("MatMul", &[value, weight])
        } else {
            build.node("LogSoftmax", &[value])
        };
    }
    build.outputs(&[value])
}

/// A product of gathered rows, one of them out of range.
fn failing() -> Graph {
    let mut build = Build::default();
    let (x, rows) = (build.input(), build.input_of(DType::I64));
    let weight = build.constant(tensor(DType::F32, &SHAPE, &random(SIDE * SIDE, 1)));
    let product = build.node("MatMul", &[x, weight]);
    let rows = build.node("Gather", &[product, rows]);
    let last = build.node("MatMul", &[rows, weight]);
    build.outputs(&[last])
}

fn prepared(graph: &Graph, device: &dyn Device) -> Arc<dyn Prepared> {
    let program = CompiledPartition::new(graph.clone(), device).unwrap();
    let shapes: [&[usize]; 2] = [&SHAPE, &[ROWS.len()]];
    let inputs = shapes.map(|shape| Input { shape, value: None });
    program.plan(&inputs[..graph.inputs().len()]).unwrap()
}

/// An input and an output. `first` is the element they start at, which may be unaligned.
struct Memory {
    x: Vec<f32>,
    y: Vec<f32>,
    first: usize,
    inputs: usize,
}

impl Memory {
    fn new(seed: u64) -> Self {
        let x = random(SIDE * SIDE, seed).into_iter().map(|value| value as f32).collect();
        Self { x, y: vec![0.0; SIDE * SIDE + 4], first: 0, inputs: 1 }
    }

    fn run(
        &mut self,
        prepared: &Arc<dyn Prepared>,
        order: Order<'_>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<(), ExecError> {
        let (inputs, outputs) =
            ([self.x.as_ptr().cast(), ROWS.as_ptr().cast()], [self.y[self.first..].as_mut_ptr().cast()]);
        let run = Run { inputs: &inputs[..self.inputs], outputs: &outputs, parallel: &Serial, observer };
        // SAFETY: the vectors have the planned sizes, and every test keeps them until the work is done.
        unsafe { prepared.clone().run(run, order) }
    }

    /// Compares with the result of our own code.
    fn check(&self, graph: &Graph) {
        let given: Vec<f64> = self.x.iter().map(|&value| value.into()).collect();
        let program = CompiledPartition::new(graph.clone(), &HostDevice::new()).unwrap();
        let wanted = run_partition(&program, &[tensor(DType::F32, &SHAPE, &given)]).unwrap();
        let found: Vec<f64> = self.y[self.first..][..SIDE * SIDE].iter().map(|&value| value.into()).collect();
        assert_close(&found, &numbers(&wanted[0]), 1e-5);
    }
}

/// Keeps a stream busy until it is dropped.
struct Busy(Option<(mpsc::Sender<()>, thread::JoinHandle<()>)>);

impl Busy {
    fn new(stream: &Arc<hip::Stream>) -> Self {
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
        Self(Some((release, holder)))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let (release, holder) = self.0.take().unwrap();
        drop(release);
        holder.join().unwrap();
    }
}

#[test]
fn alternating_steps_run_in_order_with_and_without_a_stream() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let stream = Arc::new(driver.stream().unwrap());
    for starts_with_product in [false, true] {
        let graph = turns(starts_with_product);
        let plan = prepared(&graph, &dnn::device());
        let by_dnn = |at: usize| matches!(plan.run_by(at), RunBy::HipDnn { .. });
        let expected: Vec<bool> = (0..5).map(|turn| (turn % 2 == 0) == starts_with_product).collect();
        assert_eq!((0..5).map(by_dnn).collect::<Vec<_>>(), expected);
        let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
        let mut memory = Memory::new(1);
        memory.run(&plan, Order::Now, None).unwrap();
        memory.check(&graph);
        let mut memory = Memory::new(2);
        memory.run(&plan, order, None).unwrap();
        assert!(ledger.is_clear(), "an idle stream is served at once");
        memory.check(&graph);
        let (mut memory, busy) = (Memory::new(3), Busy::new(&stream));
        memory.run(&plan, order, None).unwrap();
        assert_eq!(memory.y, vec![0.0; memory.y.len()], "a busy stream is served later");
        drop(busy);
        ledger.wait();
        assert_eq!(ledger.take_failure(|_| true), None);
        stream.synchronize().unwrap();
        memory.check(&graph);
    }
}

#[test]
fn queued_work_outlives_its_program_and_device() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let stream = Arc::new(driver.stream().unwrap());
    let (graph, mut memory, busy) = (turns(true), Memory::new(5), Busy::new(&stream));
    let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
    memory.run(&prepared(&graph, &dnn::device()), order, None).unwrap();
    drop(busy);
    ledger.wait();
    stream.synchronize().unwrap();
    memory.check(&graph);
}

#[test]
fn a_capture_replays_our_steps_and_hipdnns() {
    let driver = driver();
    let (stream, replays) = (driver.stream().unwrap(), driver.stream().unwrap());
    for starts_with_product in [false, true] {
        let (graph, mut memory) = (turns(starts_with_product), Memory::new(0));
        // SAFETY: the stream outlives the recording, which ends below.
        let capture = unsafe { Capture::begin(&driver, stream.raw()) }.unwrap();
        memory.run(&prepared(&graph, &dnn::device()), Order::Record(&capture), None).unwrap();
        let captured = capture.end().unwrap();
        assert_eq!(memory.y, vec![0.0; memory.y.len()], "recording must not run the work");
        for seed in 1..4 {
            memory.x.copy_from_slice(&Memory::new(seed).x);
            captured.replay(&replays).unwrap();
            memory.check(&graph);
        }
    }
}

#[test]
fn a_failing_step_between_hipdnn_steps_fails_the_run() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let stream = Arc::new(driver.stream().unwrap());
    let (plan, mut memory) = (prepared(&failing(), &dnn::device()), Memory { inputs: 2, ..Memory::new(1) });
    assert!((0..plan.plan().steps.len()).any(|at| plan.run_by(at) == RunBy::Own { why: None }));
    let direct = memory.run(&plan, Order::Now, None).unwrap_err();
    assert!(matches!(&direct, ExecError::Step { node, .. } if node.contains("Gather")), "{direct}");
    let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
    assert_eq!(memory.run(&plan, order, None), Err(direct.clone()));
    let busy = Busy::new(&stream);
    memory.run(&plan, order, None).unwrap();
    drop(busy);
    ledger.wait();
    assert_eq!(ledger.take_failure(|_| true), Some(direct.clone()));
    stream.synchronize().unwrap();
    // SAFETY: the stream outlives the recording, which ends below.
    let capture = unsafe { Capture::begin(&driver, stream.raw()) }.unwrap();
    memory.run(&plan, Order::Record(&capture), None).unwrap();
    let captured = capture.end().unwrap();
    for _ in 0..2 {
        assert_eq!(captured.replay(&stream), Err(direct.clone()));
    }
}

/// The backends of the steps, in order.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Observer for Seen {
    fn step(&self, step: &Step, by: RunBy<'_>, start: Instant, took: Duration) {
        assert!(start.elapsed() >= took);
        self.0.lock().unwrap().push(by.label(step));
    }
}

#[test]
fn an_observer_sees_the_backend_of_each_step() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let stream = Arc::new(driver.stream().unwrap());
    let (plan, mut memory) = (prepared(&turns(true), &dnn::device()), Memory::new(1));
    let order = Order::Stream { device: &driver, stream: stream.raw(), ledger: &ledger };
    let wanted: Vec<_> = ["hipDNN: HOST_CPU_ENGINE", "own: softmax"].into_iter().cycle().take(5).collect();
    for is_busy in [false, true] {
        let (seen, busy) = (Arc::new(Seen::default()), is_busy.then(|| Busy::new(&stream)));
        memory.run(&plan, order, Some(seen.clone())).unwrap();
        drop(busy);
        ledger.wait();
        assert_eq!(*seen.0.lock().unwrap(), wanted);
    }
    stream.synchronize().unwrap();
}

#[test]
fn our_code_runs_steps_with_unaligned_addresses() {
    let (graph, mut memory) = (turns(true), Memory::new(7));
    memory.first = 1;
    let seen = Arc::new(Seen::default());
    memory.run(&prepared(&graph, &dnn::device()), Order::Now, Some(seen.clone())).unwrap();
    memory.check(&graph);
    assert_eq!(seen.0.lock().unwrap().last().map(String::as_str), Some("own: matmul"), "it writes the output");
}

#[test]
fn runs_on_many_threads_do_not_interfere() {
    let (driver, ledger) = (driver(), Arc::<Ledger>::default());
    let graph = turns(true);
    let plan = prepared(&graph, &dnn::device());
    thread::scope(|scope| {
        for seed in 0..4u64 {
            let (driver, ledger, graph, plan) = (&driver, &ledger, &graph, &plan);
            scope.spawn(move || {
                let stream = Arc::new(driver.stream().unwrap());
                let order = Order::Stream { device: driver, stream: stream.raw(), ledger };
                for turn in 0..30 {
                    let mut memory = Memory::new(seed * 100 + turn);
                    match turn % 3 {
                        0 => memory.run(plan, Order::Now, None).unwrap(),
                        1 => memory.run(plan, order, None).unwrap(),
                        _ => {
                            let busy = Busy::new(&stream);
                            memory.run(plan, order, None).unwrap();
                            drop(busy);
                            stream.synchronize().unwrap();
                        }
                    }
                    memory.check(graph);
                }
            });
        }
    });
    ledger.wait();
    assert_eq!(ledger.take_failure(|_| true), None);
}
