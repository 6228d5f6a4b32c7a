//! Work on streams of the host driver: immediate, queued behind other work, recorded.
#![allow(clippy::unwrap_used)]
#[path = "common/caller.rs"]
mod caller;
mod common;

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use hip::{CaptureMode, Device, Driver, DriverKind, RawStream};
use hipdnn::sys::{DataType, PointwiseMode as M, Status};
use hipdnn::{Graph, Handle, Plan, Tensor};

/// One test at a time: all tests share the default stream, which some keep busy.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn device() -> Device {
    Driver::load(DriverKind::Host).unwrap().devices().unwrap().remove(0)
}

/// Adds a tensor of four elements to itself, or multiplies it by itself.
struct Job {
    handle: Handle,
    plan: Plan,
    uids: [i64; 2],
}

impl Job {
    fn new(mode: M, stream: RawStream<'_>) -> Self {
        let handle = Handle::new(common::backend()).unwrap();
        // SAFETY: every test keeps its stream until the end.
        unsafe { handle.set_stream(stream) }.unwrap();
        let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT);
        let x = graph.tensor(Tensor::new(&[4]));
        let y = graph.pointwise(mode, &[x, x]);
        graph.output(y, Tensor::default());
        let plan = graph.build(&handle).unwrap().plan().unwrap();
        Self { handle, plan, uids: [x, y].map(|id| graph.uid(id).unwrap()) }
    }

    fn execute(&self, x: &mut [f32; 4], y: &mut [f32; 4]) {
        let addresses = [x.as_mut_ptr(), y.as_mut_ptr()].map(|address| address.cast::<c_void>());
        // SAFETY: four numbers each, which every test keeps until the stream is done.
        unsafe { self.plan.execute(&self.handle, self.uids.into_iter().zip(addresses), std::ptr::null_mut()) }.unwrap();
    }
}

/// Keeps a stream busy while `meanwhile` runs.
fn while_busy(device: &Device, stream: RawStream<'_>, meanwhile: impl FnOnce()) {
    let (release, released) = mpsc::channel::<()>();
    let (started, has_started) = mpsc::channel();
    std::thread::scope(|scope| {
        // The driver runs work of an idle stream on the thread that submits it.
        scope.spawn(move || {
            let block = move || {
                started.send(()).unwrap();
                let _ = released.recv();
            };
            device.launch_host_fn(stream, block).unwrap();
        });
        has_started.recv().unwrap();
        meanwhile();
        drop(release);
    });
}

#[test]
fn an_idle_stream_runs_work_before_the_call_returns() {
    let _alone = alone();
    let stream = device().stream().unwrap();
    let (mut x, mut y) = ([1.0, 2.0, 3.0, 4.0], [0.0; 4]);
    Job::new(M::ADD, stream.raw()).execute(&mut x, &mut y);
    assert_eq!(y, [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn a_busy_stream_runs_work_in_its_turn() {
    let _alone = alone();
    let device = device();
    let stream = device.stream().unwrap();
    let (twice, square) = (Job::new(M::ADD, stream.raw()), Job::new(M::MUL, stream.raw()));
    let (mut x, mut y, mut z) = ([1.0, 2.0, 3.0, 4.0], [0.0; 4], [0.0; 4]);
    while_busy(&device, stream.raw(), || {
        twice.execute(&mut x, &mut y);
        square.execute(&mut y, &mut z);
        assert_eq!((y, z), ([0.0; 4], [0.0; 4]), "the stream has not reached it yet");
    });
    stream.synchronize().unwrap();
    assert_eq!((y, z), ([2.0, 4.0, 6.0, 8.0], [4.0, 16.0, 36.0, 64.0]));
}

#[test]
fn the_default_stream_has_its_order_too() {
    let _alone = alone();
    let device = device();
    let job = Job::new(M::ADD, RawStream::DEFAULT);
    let (mut x, mut y) = ([1.0, 2.0, 3.0, 4.0], [0.0; 4]);
    while_busy(&device, RawStream::DEFAULT, || {
        job.execute(&mut x, &mut y);
        assert_eq!(y, [0.0; 4]);
    });
    device.stream_synchronize(RawStream::DEFAULT).unwrap();
    assert_eq!(y, [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn a_blocking_stream_waits_for_the_default_stream() {
    let _alone = alone();
    let device = device();
    let (driver, mut raw) = (Driver::load(DriverKind::Host).unwrap(), std::ptr::null_mut());
    let scope = device.enter().unwrap();
    // SAFETY: a valid out-pointer; the handle is a live stream until the end.
    let stream = unsafe {
        assert_eq!((driver.table().stream_create_with_flags)(&mut raw, 0), 0);
        RawStream::from_ptr(raw)
    };
    drop(scope);
    let job = Job::new(M::ADD, stream);
    let (mut x, mut y) = ([1.0, 2.0, 3.0, 4.0], [0.0; 4]);
    while_busy(&device, RawStream::DEFAULT, || {
        job.execute(&mut x, &mut y);
        assert_eq!(y, [0.0; 4], "the default stream's work comes first");
    });
    device.stream_synchronize(stream).unwrap();
    assert_eq!(y, [2.0, 4.0, 6.0, 8.0]);
    // SAFETY: nothing uses it afterwards.
    assert_eq!(unsafe { (driver.table().stream_destroy)(raw) }, 0);
}

#[test]
fn a_captured_stream_records_work_and_replays_it() {
    let _alone = alone();
    let stream = device().stream().unwrap();
    let (twice, square) = (Job::new(M::ADD, stream.raw()), Job::new(M::MUL, stream.raw()));
    let (mut x, mut y, mut z) = ([1.0, 2.0, 3.0, 4.0], [0.0; 4], [0.0; 4]);
    stream.begin_capture(CaptureMode::ThreadLocal).unwrap();
    twice.execute(&mut x, &mut y);
    square.execute(&mut y, &mut z);
    let capture = stream.end_capture().unwrap().instantiate().unwrap();
    assert_eq!((y, z), ([0.0; 4], [0.0; 4]), "recording runs nothing");
    for first in [1.0f32, 5.0] {
        x[0] = first;
        capture.launch(stream.raw()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!((y[0], z[0], z[3]), (2.0 * first, 4.0 * first * first, 64.0));
    }
}

#[test]
fn scalars_by_value_are_read_by_the_call() {
    let _alone = alone();
    let device = device();
    let stream = device.stream().unwrap();
    let handle = Handle::new(common::backend()).unwrap();
    // SAFETY: the stream outlives the handle's work.
    unsafe { handle.set_stream(stream.raw()) }.unwrap();
    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT);
    let (x, factor) = (graph.tensor(Tensor::new(&[4])), graph.tensor(Tensor::new(&[1]).by_value()));
    let y = graph.pointwise(M::MUL, &[x, factor]);
    graph.output(y, Tensor::default());
    let plan = graph.build(&handle).unwrap().plan().unwrap();
    let uids = [x, factor, y].map(|id| graph.uid(id).unwrap());
    let (mut data, mut made) = ([1f32, 2.0, 3.0, 4.0], [0f32; 4]);
    while_busy(&device, stream.raw(), || {
        let mut factor = [2f32];
        let addresses = [data.as_mut_ptr(), factor.as_mut_ptr(), made.as_mut_ptr()].map(|it| it.cast::<c_void>());
        // SAFETY: the tensors live until the stream is done, the scalar for the call.
        unsafe { plan.execute(&handle, uids.into_iter().zip(addresses), std::ptr::null_mut()) }.unwrap();
        factor[0] = 100.0;
        std::hint::black_box(&factor);
        data[3] = 5.0;
    });
    stream.synchronize().unwrap();
    assert_eq!(made, [2.0, 4.0, 6.0, 10.0], "the scalar of the call, the data of the run");
}

#[test]
fn one_plan_runs_on_many_threads() {
    let _alone = alone();
    let caller = caller::Caller(common::backend());
    let handle = caller.handle();
    let plan = caller.plan(caller.small_graph(handle));
    let (handle, plan) = (handle.addr(), plan.addr());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let caller = caller::Caller(common::backend());
            scope.spawn(move || {
                let value = -(thread as f32) - 0.5;
                let (mut x, mut y) = ([value; 4], [0f32; 4]);
                let pack = caller.pack(&[1, 2], &[x.as_mut_ptr().cast(), y.as_mut_ptr().cast()]);
                for _ in 0..200 {
                    y.fill(0.0);
                    let [handle, plan] = [handle, plan].map(std::ptr::without_provenance_mut);
                    // SAFETY: four numbers each, used by this thread alone.
                    assert_eq!(unsafe { caller.0.execute(handle, plan, pack) }, Status::SUCCESS);
                    assert_eq!(y, [-value; 4]);
                }
            });
        }
    });
}

#[test]
fn a_destroyed_stream_is_refused() {
    let _alone = alone();
    let stream = device().stream().unwrap();
    let job = Job::new(M::ADD, stream.raw());
    drop(stream);
    let (mut x, mut y) = ([0f32; 4], [0f32; 4]);
    let addresses = [x.as_mut_ptr(), y.as_mut_ptr()].map(|address| address.cast::<c_void>());
    // SAFETY: four numbers each; the host driver looks streams up.
    let ran = unsafe { job.plan.execute(&job.handle, job.uids.into_iter().zip(addresses), std::ptr::null_mut()) };
    assert_eq!(ran.unwrap_err().status(), Some(Status::EXECUTION_FAILED));
}
