//! Outcomes of asynchronous runs.
use std::sync::{Arc, Mutex, PoisonError};

use hip::{Event, RawStream};

use super::Shared;
use super::run::is_reached;
use crate::ffi::pinned::FaultWords;
use crate::ledger::Pending;
use crate::{ExecError, recorded};

/// The nodes that own the fault words of a plan.
pub(super) type FaultNodes = Arc<[String]>;

/// The fault words of a plan's runs on one stream, in host memory that kernels write to. They are zero until a run
/// finds a fault, and zero again once the fault is reported, so a successful run neither clears nor copies them. If
/// several runs are in flight, a check may report the fault of a later one.
pub(super) struct Flight {
    /// None if no step reports faults: the flight then only knows when the runs are done.
    words: FaultWords,
    /// Whether kernels write directly to the words. If not, the words are copied at the end of a run.
    is_reached: bool,
    nodes: FaultNodes,
    state: Mutex<State>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct State {
    /// Completes when the last run is done, or later; and the stream of that run.
    ended: Option<(Arc<Event>, usize)>,
    /// Why waiting for the end failed.
    failure: Option<ExecError>,
}

impl Flight {
    pub fn new(shared: &Arc<Shared>, nodes: FaultNodes) -> Result<Self, ExecError> {
        let words = FaultWords::new(nodes.len(), &shared.device)?;
        let is_reached = nodes.is_empty() || is_reached(&shared.device, words.address().addr());
        Ok(Self { words, is_reached, nodes, state: Mutex::default(), shared: shared.clone() })
    }

    /// The words.
    pub fn words(&self) -> &FaultWords {
        &self.words
    }

    /// Whether kernels write directly to the words.
    pub fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// Sets the event that marks the end of a run queued on a stream.
    pub fn ends(&self, event: Arc<Event>, stream: RawStream<'_>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = Some((event, stream.as_ptr().addr()));
    }

    /// The fault that the words report. Each fault is reported once.
    pub fn outcome(&self) -> Result<(), ExecError> {
        let faults = self.nodes.iter().enumerate().filter(|(at, _)| self.words.take(*at));
        // All words are cleared: one fault is reported for all.
        faults
            .fold(None, |first, (_, node)| first.or(Some(node)))
            .map_or(Ok(()), |node| Err(ExecError::Fault { node: node.clone() }))
    }
}

impl Pending for Flight {
    fn failure(&self) -> Option<ExecError> {
        let failure = self.state.lock().unwrap_or_else(PoisonError::into_inner).failure.take();
        failure.or_else(|| self.outcome().err())
    }

    fn wait(&self) {
        let ended = self.state.lock().unwrap_or_else(PoisonError::into_inner).ended.clone();
        if let Some(Err(error)) = ended.map(|(event, stream)| recorded::synchronize(&event, stream)) {
            let place = || match self.nodes.first() {
                Some(node) => format!("the end of a run with {node}"),
                None => "the end of a run".to_owned(),
            };
            let error = self.shared.lost.reported(error.into(), &self.shared.name, place);
            self.state.lock().unwrap_or_else(PoisonError::into_inner).failure = Some(error);
        }
    }
}
