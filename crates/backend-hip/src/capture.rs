//! ONNX Runtime's capture protocol.
//!
//! ONNX Runtime repeats a run until it is told that the graph with the run's number is captured, and from then on asks for
//! replays only. The first run of a number is a plain one: plans are made, and the stream of the thread is seen. The next
//! one is recorded. It must be the same thread's, because ONNX Runtime keeps a stream for each thread.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use exec::{Capture, Captured, ExecError, ThreadId};
use hip::RawStream;
use ort_ep::{Error, GraphCapture, Result, view::RunOptions};

use crate::{ffi, status};

/// The run option that numbers graphs.
const ID_KEY: &str = "gpu_graph_id";
/// The number that means "not this run".
const NOT_THIS_RUN: i32 = -1;

/// The captures of a session.
#[derive(Default)]
pub(crate) struct Captures {
    state: Mutex<State>,
    /// Replays have a stream of their own: the one that was recorded goes with its thread.
    stream: OnceLock<hip::Stream>,
}

#[derive(Default)]
struct State {
    graphs: BTreeMap<i32, Arc<Captured>>,
    /// Plain runs that were the last of their threads.
    warm: Vec<Warm>,
}

struct Warm {
    thread: ThreadId,
    id: i32,
    stream: RawStream<'static>,
}

/// What one run does for the capture of its graph.
pub(crate) struct Recording {
    id: i32,
    capture: Option<Arc<Capture>>,
    stream: Option<RawStream<'static>>,
    /// How many partitions have run.
    partitions: usize,
}

impl Recording {
    /// A partition is about to run on a stream. Gives the capture that it goes into, if this run is recorded.
    pub fn enter(&mut self, stream: Option<RawStream<'_>>) -> Result<Option<Arc<Capture>>> {
        self.partitions += 1;
        // What is kept between partitions is ONNX Runtime's memory, which it gives to others after the run.
        if self.id != NOT_THIS_RUN && self.partitions > 1 {
            return Err(Error::invalid_argument(
                "a session is captured only if all of its nodes are in one partition, and this one has several\n  help: leave ep.hip.graph_capture unset",
            ));
        }
        self.stream = stream.map(ffi::outlive);
        let Some(capture) = &self.capture else { return Ok(None) };
        if self.stream != Some(ffi::outlive(capture.stream())) {
            return Err(Error::fail("the stream of a run changed while it was captured"));
        }
        Ok(Some(capture.clone()))
    }
}

impl Captures {
    /// A run begins; it is recorded if the one before it was a plain run of the same graph and thread.
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

    /// A run ends: a plain one makes the next one a candidate, a recorded one becomes a graph.
    pub fn end(&self, thread: ThreadId, recording: Recording) -> Result<()> {
        let Recording { id, capture, stream, partitions } = recording;
        if id == NOT_THIS_RUN || partitions == 0 {
            return Ok(());
        }
        let Some(capture) = capture else {
            let mut state = self.lock();
            if let (Some(stream), false) = (stream, state.graphs.contains_key(&id)) {
                state.warm.push(Warm { thread, id, stream });
            }
            return Ok(());
        };
        // Nobody else holds it after the run. What failed before it was recorded has been reported already.
        let Some(capture) = Arc::into_inner(capture).filter(|capture| !capture.is_empty()) else { return Ok(()) };
        let stream = self.stream(capture.device())?;
        let captured = capture.end().map_err(failed)?;
        // Recorded work has not been done: the outputs of this run are made by the first replay.
        captured.replay(stream).map_err(failed)?;
        tracing::debug!(target: "amdgpu_ep::run", "graph {id} is captured");
        self.lock().graphs.insert(id, Arc::new(captured));
        Ok(())
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
        // Taken out of the lock first: letting go of a graph waits for its replays.
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
        Error::invalid_argument(format!("{ID_KEY} is {text:?}\n  help: set it to a number; -1 leaves a run uncaptured"))
    })
}

fn failed(error: ExecError) -> Error {
    let status = status::of(&error);
    Error::new(status.code(), format!("graph capture: {}", status.message()))
}
