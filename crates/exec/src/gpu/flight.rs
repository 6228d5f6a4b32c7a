//! How runs that nobody waited for ended.
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};

use hip::{Event, PinnedBuffer};

use super::{Shared, run::is_reached};
use crate::{ExecError, ledger::Pending};

/// The nodes that own the fault words of a plan.
pub(super) type FaultNodes = Arc<[String]>;

/// The fault words of a plan's runs on one stream, in host memory that kernels write to. They are zero until a run finds
/// something wrong, and again when that has been told, so a run that goes well neither clears nor copies them. Who looks at
/// them while several runs are under way may be told of the later one's fault.
pub(super) struct Flight {
    /// None where no step reports a fault: then a flight only knows when the runs are over.
    words: Option<PinnedBuffer>,
    /// Whether kernels write to the words where they are. Where not, they are copied at the end of a run.
    is_reached: bool,
    nodes: FaultNodes,
    state: Mutex<State>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct State {
    /// Reached when the last run is over, or later.
    ended: Option<Arc<Event>>,
    /// Why nobody could wait for it.
    failure: Option<ExecError>,
}

impl Flight {
    pub fn new(shared: &Arc<Shared>, nodes: FaultNodes) -> Result<Self, ExecError> {
        let wanted = (!nodes.is_empty()).then(|| shared.device.alloc_pinned(nodes.len() * size_of::<u32>()));
        let words = wanted.transpose()?;
        let is_reached = words.as_ref().is_none_or(|words| is_reached(&shared.device, words.address().as_ptr().addr()));
        Ok(Self { words, is_reached, nodes, state: Mutex::default(), shared: shared.clone() })
    }

    /// Where the words are.
    pub fn address(&self) -> *mut u8 {
        self.words.as_ref().map_or(std::ptr::null_mut(), |words| words.address().as_ptr())
    }

    /// Whether kernels write to the words where they are.
    pub fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// The event that marks the end of a run, which is queued.
    pub fn ends(&self, event: Arc<Event>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = Some(event);
    }

    /// What the words say, once.
    pub fn outcome(&self) -> Result<(), ExecError> {
        let first = self.address().cast::<u32>();
        let told = self.nodes.iter().enumerate().filter(|(at, _)| {
            // SAFETY: the flight has a word for each node, aligned as pinned memory is. Kernels may write to it meanwhile,
            // which is why it is read and cleared in one.
            let word = unsafe { AtomicU32::from_ptr(first.wrapping_add(*at)) };
            word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Acquire) != 0
        });
        // All are cleared: one fault is told for all.
        told.fold(None, |told, (_, node)| told.or(Some(node)))
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
        if let Some(Err(error)) = ended.map(|ended| ended.synchronize()) {
            let place = || match self.nodes.first() {
                Some(node) => format!("the end of a run with {node}"),
                None => "the end of a run".to_owned(),
            };
            let error = self.shared.lost.told(error.into(), &self.shared.name, place);
            self.state.lock().unwrap_or_else(PoisonError::into_inner).failure = Some(error);
        }
    }
}
