//! State shared by the runs of a session: the order of their work, and which run reports a failure.
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use exec::{Capture, Ledger, Order, ThreadId};
use hip::{DriverKind, RawStream};
use ort_ep::view::{KernelContext, RunOptions};
use ort_ep::{Error, Result};

use crate::capture::{Captures, Recording};
use crate::{ffi, status};

/// The runs of a session.
pub(crate) struct Runs {
    /// The driver that the runs' streams belong to.
    kind: DriverKind,
    /// The ordinal of the driver's device.
    ordinal: usize,
    /// Looked up on first use.
    device: OnceLock<hip::Device>,
    ledger: Arc<Ledger>,
    open: Mutex<Vec<OpenRun>>,
    captures: Option<Captures>,
}

/// A run in progress.
struct OpenRun {
    thread: ThreadId,
    /// The capture state of the run, if captures are enabled.
    recording: Option<Recording>,
}

impl Runs {
    /// The runs of a session on a device of the driver. `captures` enables graph capture.
    pub fn new(kind: DriverKind, ordinal: usize, captures: bool) -> Self {
        let captures = captures.then(Captures::default);
        Self { kind, ordinal, device: OnceLock::new(), ledger: Arc::default(), open: Mutex::default(), captures }
    }

    /// The captures, if enabled.
    pub fn captures(&self) -> Option<&Captures> {
        self.captures.as_ref()
    }

    /// Starts a run on this thread.
    pub fn start(&self, options: RunOptions<'_>) -> Result<()> {
        let thread = ThreadId::current();
        // A leftover entry belongs to a run that ONNX Runtime never ended. Dropping it ends its capture.
        self.take(thread);
        let recording = self.captures.as_ref().map(|captures| captures.start(thread, options, || self.device()));
        self.lock().push(OpenRun { thread, recording: recording.transpose()? });
        Ok(())
    }

    /// Ends the run on this thread; `sync` waits for its work.
    pub fn end(&self, sync: bool) -> Result<()> {
        let thread = ThreadId::current();
        let recording = self.take(thread).and_then(|run| run.recording);
        let captured = match (&self.captures, recording) {
            (Some(captures), Some(recording)) => captures.end(thread, recording),
            _ => Ok(()),
        };
        self.settle(thread, sync).and(captured)
    }

    /// Waits for all queued work.
    pub fn wait(&self) {
        if !self.ledger.is_clear() {
            self.ledger.wait();
        }
    }

    /// Reports failures of queued work for the run that ends on `thread`.
    fn settle(&self, thread: ThreadId, sync: bool) -> Result<()> {
        if self.ledger.is_clear() {
            return Ok(());
        }
        if sync {
            self.ledger.wait();
        }
        // Work queued by one of ONNX Runtime's own threads cannot be attributed to a run, so any run may report it.
        let is_of_other = |queued_by| self.lock().iter().any(|run| run.thread == queued_by);
        let failure = self.ledger.take_failure(|queued_by| queued_by == thread || !is_of_other(queued_by));
        failure.map_or(Ok(()), |error| Err(status::of(&error)))
    }

    /// The capture that records a call's work, if its run is being captured.
    pub fn capture(&self, context: &KernelContext<'_>) -> Result<Option<Arc<Capture>>> {
        if self.captures.is_none() {
            return Ok(None);
        }
        let (thread, stream) = (ThreadId::current(), ffi::stream(context)?);
        let mut open = self.lock();
        let run = open.iter_mut().find(|run| run.thread == thread);
        match run.and_then(|run| run.recording.as_mut()) {
            Some(recording) => recording.enter(stream),
            None => Ok(None),
        }
    }

    /// When the work of a call runs; `capture` is what [`capture`](Self::capture) returned for it.
    pub fn order<'a>(&'a self, context: &'a KernelContext<'_>, capture: Option<&'a Capture>) -> Result<Order<'a>> {
        Ok(match (capture, ffi::stream(context)?) {
            (Some(capture), _) => Order::Record(capture),
            (None, Some(stream)) => self.in_stream(self.device()?, stream),
            (None, None) => Order::Now,
        })
    }

    fn in_stream<'a>(&'a self, device: &'a hip::Device, stream: RawStream<'a>) -> Order<'a> {
        Order::Stream { device, stream, ledger: &self.ledger }
    }

    /// Turns this thread's run into a normal one if its recording was interrupted.
    pub fn abandon_interrupted(&self) -> bool {
        let thread = ThreadId::current();
        let mut open = self.lock();
        let run = open.iter_mut().find(|run| run.thread == thread);
        run.and_then(|run| run.recording.as_mut()).is_some_and(Recording::abandon_interrupted)
    }

    /// The driver's device.
    pub fn device(&self) -> Result<&hip::Device> {
        if let Some(device) = self.device.get() {
            return Ok(device);
        }
        let driver = hip::Driver::load(self.kind).map_err(|error| status::of_driver(&error.into()))?;
        let mut devices = driver.devices().map_err(|error| status::of_driver(&error))?;
        if self.ordinal >= devices.len() {
            let (ordinal, count) = (self.ordinal, devices.len());
            return Err(Error::ep_fail(format!(
                "the session runs on device {ordinal}, but the driver has {count} devices"
            )));
        }
        Ok(self.device.get_or_init(|| devices.swap_remove(self.ordinal)))
    }

    fn take(&self, thread: ThreadId) -> Option<OpenRun> {
        let mut open = self.lock();
        let at = open.iter().position(|run| run.thread == thread)?;
        Some(open.swap_remove(at))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OpenRun>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use exec::host::HostDevice;
    use exec::{CompiledPartition, Input, Prepared};
    use graph::ops::{self, Attributes, InputInfo, NodeInfo};
    use graph::{DType, Node, Tensor};

    use super::*;

    /// Gathers element 9 of 4, which fails.
    struct Failing {
        prepared: Arc<dyn Prepared>,
        given: [Tensor; 2],
        out: [f32; 1],
    }

    impl Failing {
        fn new() -> Self {
            let floats = Tensor::from_bytes(DType::F32, &[4], &[0; 16]).unwrap();
            let given = [floats, Tensor::from_i64s(&[9])];
            let infos = given.each_ref().map(|tensor| {
                Some(InputInfo { dtype: tensor.dtype(), rank: Some(tensor.shape().len()), constant: None })
            });
            let op = ops::parse(&NodeInfo {
                domain: "",
                op_type: "Gather",
                since_version: 13,
                attributes: &Attributes::default(),
                inputs: &infos,
                outputs: &[Some(DType::F32)],
            });
            let mut graph = graph::Graph::new();
            let inputs = given.each_ref().map(|tensor| graph.add_value("in", tensor.dtype(), None)).to_vec();
            let out = graph.add_value("out", DType::F32, None);
            let (inputs_of_node, outputs) = (inputs.iter().map(|&id| Some(id)).collect(), vec![Some(out)]);
            let op = op.unwrap().into();
            graph.add_node(Node { name: "lookup".into(), op, inputs: inputs_of_node, outputs });
            graph.set_inputs(inputs);
            graph.set_outputs(vec![out]);
            let compiled = CompiledPartition::new(graph, &HostDevice::new()).unwrap();
            let shapes = given.each_ref().map(|tensor| Input { shape: tensor.shape(), value: None });
            let prepared = compiled.plan(&shapes).unwrap();
            Self { prepared, given, out: [0.0] }
        }

        fn queue(&mut self, order: Order<'_>) {
            crate::ffi::tests::queue(self.prepared.clone(), &self.given, &mut self.out, order);
        }
    }

    /// Blocks a stream until the sender is dropped.
    fn block_stream(stream: &Arc<hip::Stream>) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
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
    fn queued_work_that_fails_fails_the_run_that_queued_it() {
        let runs = Runs::new(DriverKind::Host, 0, false);
        let device = runs.device().unwrap();
        let stream = Arc::new(device.stream().unwrap());
        let (release, holder) = block_stream(&stream);
        let mut work = Failing::new();
        let here = ThreadId::current();
        runs.lock().push(OpenRun { thread: here, recording: None });
        work.queue(runs.in_stream(device, stream.raw()));
        // A run on another thread ends without waiting in the meantime. The failure does not concern it.
        thread::scope(|scope| {
            let other = || {
                runs.lock().push(OpenRun { thread: ThreadId::current(), recording: None });
                runs.end(false)
            };
            assert_eq!(scope.spawn(other).join().unwrap().map_err(|error| error.message().to_owned()), Ok(()));
        });
        drop(release);
        let error = runs.end(true).unwrap_err();
        assert!(error.message().contains("Gather"), "{}", error.message());
        assert_eq!(error.code(), ort_ep::ErrorCode::InvalidArgument, "bad data in an asynchronous run");
        assert!(runs.end(true).is_ok(), "the error was reported twice");
        holder.join().unwrap();
        stream.synchronize().unwrap();
    }

    #[test]
    fn work_queued_by_a_thread_without_a_run_fails_the_run_that_ends() {
        let runs = Runs::new(DriverKind::Host, 0, false);
        let device = runs.device().unwrap();
        let stream = Arc::new(device.stream().unwrap());
        let (release, holder) = block_stream(&stream);
        let mut work = Failing::new();
        thread::scope(|scope| {
            scope.spawn(|| work.queue(runs.in_stream(device, stream.raw())));
        });
        drop(release);
        runs.wait();
        assert!(runs.end(false).is_err());
        holder.join().unwrap();
        stream.synchronize().unwrap();
    }
}
