//! ONNX Runtime's capture protocol.
//!
//! ONNX Runtime repeats a run until the graph with the run's id is reported as captured. From then on it only requests
//! replays. The first run with an id is a normal run: it makes the plans and shows which stream the thread uses. The
//! next run is recorded. It must come from the same thread, because ONNX Runtime keeps one stream per thread.
//!
//! A call of another thread can interrupt a recording: drivers end a capture when its stream is waited for, and a copy
//! on another thread waits for all streams. An interrupted run counts as a normal run, so ONNX Runtime repeats it.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use exec::{Capture, Captured, ExecError, ThreadId};
use hip::RawStream;
use ort_ep::view::RunOptions;
use ort_ep::{Error, GraphCapture, Result};

use crate::{ffi, status};

/// The run option that holds the graph id.
const ID_KEY: &str = "gpu_graph_id";
/// The id that means "do not capture this run".
const NOT_THIS_RUN: i32 = -1;

/// The captures of a session.
#[derive(Default)]
pub(crate) struct Captures {
    state: Mutex<State>,
    /// The stream for replays. The recorded stream cannot be used: it is closed with its thread.
    stream: OnceLock<hip::Stream>,
}

#[derive(Default)]
struct State {
    graphs: BTreeMap<i32, Arc<Captured>>,
    /// The last run of each thread, if it was a normal run.
    warm: Vec<Warm>,
}

struct Warm {
    thread: ThreadId,
    id: i32,
    stream: RawStream<'static>,
}

/// The capture state of one run.
pub(crate) struct Recording {
    id: i32,
    capture: Option<Arc<Capture>>,
    stream: Option<RawStream<'static>>,
    /// How many partitions have run.
    partitions: usize,
}

impl Recording {
    /// Called before a partition runs on a stream. Returns the capture to record into, if this run is recorded.
    pub fn enter(&mut self, stream: Option<RawStream<'_>>) -> Result<Option<Arc<Capture>>> {
        self.partitions += 1;
        // Values passed between partitions live in ONNX Runtime's memory, which it reuses after the run.
        if self.id != NOT_THIS_RUN && self.partitions > 1 {
            return Err(Error::invalid_argument(
                "only a session with all nodes in one partition can be captured, but this one has several\n  help: unset ep.hip.graph_capture",
            ));
        }
        self.stream = stream.map(ffi::outlive);
        let Some(capture) = &self.capture else { return Ok(None) };
        if self.stream != Some(ffi::outlive(capture.stream())) {
            return Err(Error::fail("the run's stream changed during capture"));
        }
        Ok(Some(capture.clone()))
    }

    /// Turns an interrupted recording into a normal run. Returns false if the recording is intact.
    pub fn abandon_interrupted(&mut self) -> bool {
        let interrupted = self.capture.take_if(|capture| capture.is_interrupted()).is_some();
        if interrupted {
            self.partitions -= 1;
        }
        interrupted
    }
}

impl Captures {
    /// Starts a run. The run is recorded if the thread's previous run was a normal run of the same graph.
    pub fn start<'a>(
        &self,
        thread: ThreadId,
        options: RunOptions<'_>,
        device: impl FnOnce() -> Result<&'a hip::Device>,
    ) -> Result<Recording> {
        let id = graph_id(options)?;
        let mut state = self.lock();
        let warm = state.warm.iter().position(|warm| warm.thread == thread).map(|at| state.warm.swap_remove(at));
        let is_captured = state.graphs.contains_key(&id);
        drop(state);
        let capture = match warm {
            Some(warm) if warm.id == id && !is_captured => {
                Some(Arc::new(ffi::begin_capture(device()?, warm.stream).map_err(failed)?))
            }
            _ => None,
        };
        Ok(Recording { id, capture, stream: None, partitions: 0 })
    }

    /// Ends a run. After a normal run, the next one may be recorded. A recorded run becomes a graph.
    pub fn end(&self, thread: ThreadId, recording: Recording) -> Result<()> {
        let Recording { id, capture, stream, partitions } = recording;
        if id == NOT_THIS_RUN || partitions == 0 {
            return Ok(());
        }
        let Some(capture) = capture else {
            self.may_record_next(thread, id, stream);
            return Ok(());
        };
        // This is the last reference after the run. A failure before anything was recorded has already been reported.
        let Some(capture) = Arc::into_inner(capture).filter(|capture| !capture.is_empty()) else { return Ok(()) };
        let replays = self.stream(capture.device())?;
        let captured = match capture.end() {
            Err(ExecError::Driver(error)) if error.is_capture() => {
                tracing::debug!(target: "amdgpu_ep::run", %error, "the capture of graph {id} was interrupted");
                self.may_record_next(thread, id, stream);
                return Ok(());
            }
            ended => ended.map_err(failed)?,
        };
        // Recorded work has not been executed yet: the first replay produces this run's outputs.
        captured.replay(replays).map_err(failed)?;
        tracing::debug!(target: "amdgpu_ep::run", "graph {id} is captured");
        self.lock().graphs.insert(id, Arc::new(captured));
        Ok(())
    }

    /// Lets the thread's next run with this id be recorded.
    fn may_record_next(&self, thread: ThreadId, id: i32, stream: Option<RawStream<'static>>) {
        let mut state = self.lock();
        if let (Some(stream), false) = (stream, state.graphs.contains_key(&id)) {
            state.warm.push(Warm { thread, id, stream });
        }
    }

    fn stream(&self, device: &hip::Device) -> Result<&hip::Stream> {
        if let Some(stream) = self.stream.get() {
            return Ok(stream);
        }
        let made = device.stream().map_err(|error| status::of_driver(&error))?;
        Ok(self.stream.get_or_init(|| made))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GraphCapture for Captures {
    fn enabled(&self) -> bool {
        true
    }

    fn is_captured(&self, id: i32) -> bool {
        self.lock().graphs.contains_key(&id)
    }

    fn replay(&self, id: i32) -> Result<()> {
        let graph = self.lock().graphs.get(&id).cloned();
        let (Some(graph), Some(stream)) = (graph, self.stream.get()) else {
            return Err(Error::invalid_argument(format!("graph {id} is not captured")));
        };
        tracing::trace!(target: "amdgpu_ep::run", "graph {id} is replayed");
        graph.replay(stream).map_err(failed)
    }

    fn release(&self, id: i32) -> Result<()> {
        // Release the lock first: dropping a graph waits for its replays.
        let released = self.lock().graphs.remove(&id);
        if released.is_none() {
            return Err(Error::invalid_argument(format!("graph {id} is not captured")));
        }
        Ok(())
    }
}

fn graph_id(options: RunOptions<'_>) -> Result<i32> {
    let Some(text) = options.get(ID_KEY) else { return Ok(0) };
    text.trim().parse().map_err(|_| {
        Error::invalid_argument(format!(
            "{ID_KEY} is {text:?}, not an integer\n  help: set it to an integer; -1 disables capture for a run"
        ))
    })
}

fn failed(error: ExecError) -> Error {
    let status = status::of(&error);
    Error::new(status.code(), format!("graph capture: {}", status.message()))
}
