//! Plans as captured graphs: one launch instead of one for each kernel.
//!
//! A graph contains the addresses it was recorded with. Runs with the same addresses replay it; for others it is
//! recorded again. That costs more than it saves if addresses never repeat, so a plan that sees this stops recording.
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use hip::{CaptureMode, Event, GraphExec, RawStream, UpdateResult};

use super::Shared;
use super::bind::Arguments;
use super::frame::Bases;
use crate::{ExecError, recorded};

/// Whether plans are captured and replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayMode {
    /// Replay plans whose addresses repeat.
    #[default]
    Auto,
    /// Replay whenever possible.
    On,
    /// Never.
    Off,
}

/// The text is not one of the three modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, on or off")]
pub struct UnknownReplayMode;

impl FromStr for ReplayMode {
    type Err = UnknownReplayMode;

    fn from_str(text: &str) -> Result<Self, UnknownReplayMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(UnknownReplayMode),
        }
    }
}

/// Runs of a plan before it is recorded: the first one loads code, and shapes that occur only once never get further.
const PLAIN_RUNS: usize = 2;
/// Graphs kept for a plan, for callers that alternate between buffers.
const MAX_GRAPHS: usize = 4;
/// Runs with new addresses after which a plan stops recording, unless as many had known addresses.
const PATIENCE: usize = 8;

/// The graphs of a plan.
#[derive(Default)]
pub(super) struct Replays(Mutex<State>);

#[derive(Default)]
struct State {
    runs: usize,
    known: usize,
    new: usize,
    gave_up: bool,
    /// Most recent last.
    graphs: Vec<RecordedGraph>,
}

struct RecordedGraph {
    bases: Bases,
    exec: GraphExec,
    /// Recorded after the last launch: a graph must not be changed while it runs.
    launched: Arc<Event>,
}

impl Replays {
    /// Replays the plan on a stream. Returns `false` if its work has to be queued step by step. `record` queues it on a
    /// stream that is being recorded, and `end` marks the end of a replay.
    pub fn replay(
        &self,
        mode: ReplayMode,
        arguments: &mut Arguments,
        device: &Shared,
        stream: RawStream<'_>,
        end: &Arc<Event>,
        record: impl FnOnce(&mut Arguments, RawStream<'_>) -> Result<(), ExecError>,
    ) -> Result<bool, ExecError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.runs += 1;
        if mode == ReplayMode::Off || state.gave_up || state.runs <= PLAIN_RUNS {
            return Ok(false);
        }
        if let Some(at) = state.graphs.iter().position(|graph| graph.bases == arguments.bases) {
            state.known += 1;
            state.graphs[at..].rotate_left(1);
        } else {
            state.new += 1;
            if mode == ReplayMode::Auto && state.new > PATIENCE && state.known < state.new {
                state.gave_up = true;
                tracing::debug!(target: "amdgpu_ep::run", "addresses keep changing: the plan is launched step by step");
                return Ok(false);
            }
            if let Err(error) = state.add(arguments, device, end, record) {
                state.give_up("recorded", &error, device);
                return Ok(false);
            }
        }
        let Some(graph) = state.graphs.last_mut() else { return Ok(false) };
        match graph.exec.launch(stream) {
            Err(error) if !error.is_device_lost() => {
                state.give_up("launched", &error.into(), device);
                Ok(false)
            }
            launched => {
                launched?;
                // Under the lock: the graph must not look idle before this.
                end.record(stream)?;
                graph.launched = end.clone();
                Ok(true)
            }
        }
    }
}

impl State {
    /// Launches step by step from now on, because the driver refused to record or launch a graph. Warns only for the
    /// first plan of a device: if a driver does not support graphs, every plan would log the same.
    fn give_up(&mut self, refused: &str, error: &ExecError, device: &Shared) {
        self.gave_up = true;
        for graph in self.graphs.drain(..) {
            // A graph must not be destroyed while it runs. Errors in it are reported by the wait for its run.
            let _ = graph.launched.synchronize();
        }
        tracing::debug!(target: "amdgpu_ep::run", "a plan cannot be {refused} as a graph and is launched step by step: {error}");
        device.warned_of_graphs.call_once(|| {
            let name = &device.name;
            tracing::warn!(
                target: "amdgpu_ep::run",
                "a plan cannot be {refused} as a graph on {name} and is launched step by step: {error}"
            );
        });
    }

    /// Records a graph for new addresses. Replaces the oldest one if there are enough.
    fn add(
        &mut self,
        arguments: &mut Arguments,
        device: &Shared,
        end: &Arc<Event>,
        record: impl FnOnce(&mut Arguments, RawStream<'_>) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        let stream = device.stream()?;
        let address = stream.raw().as_ptr().addr();
        let begun = recorded::begin(address, || stream.begin_capture(CaptureMode::Relaxed));
        let graph = begun.map_err(ExecError::from).and_then(|()| {
            let recorded = record(arguments, stream.raw());
            let ended = stream.end_capture();
            recorded?;
            Ok(ended?)
        });
        recorded::end(address);
        device.give_back(stream);
        let graph = graph?;
        let oldest = (self.graphs.len() >= MAX_GRAPHS).then(|| self.graphs.remove(0));
        if let Some(oldest) = oldest {
            oldest.launched.synchronize()?;
            if oldest.exec.update(&graph)? == UpdateResult::Updated {
                self.graphs.push(RecordedGraph { bases: arguments.bases.clone(), ..oldest });
                return Ok(());
            }
        }
        let (exec, launched) = (graph.instantiate()?, end.clone());
        self.graphs.push(RecordedGraph { bases: arguments.bases.clone(), exec, launched });
        Ok(())
    }
}
