//! How a run that nobody waited for ended.
use std::sync::Arc;

use hip::{Event, PinnedBuffer};

use super::Shared;
use crate::{ExecError, ledger::Pending};

/// The nodes that own the fault words of a plan.
pub(super) type FaultNodes = Arc<[String]>;

/// What is left to look at when a run has ended: its fault words, copied to the host. Used again for later runs.
pub(super) struct Flight {
    /// Reached when the words are there.
    ended: Event,
    words: PinnedBuffer,
    nodes: FaultNodes,
    shared: Arc<Shared>,
}

impl Flight {
    pub fn new(shared: &Arc<Shared>, nodes: FaultNodes) -> Result<Self, ExecError> {
        let words = shared.device.alloc_pinned(nodes.len() * size_of::<u32>())?;
        Ok(Self { ended: shared.device.event()?, words, nodes, shared: shared.clone() })
    }

    /// Where the words go.
    pub fn address(&self) -> *mut u8 {
        self.words.address().as_ptr()
    }

    /// The point in a stream where the words are there.
    pub fn ends(&self, stream: hip::RawStream<'_>) -> Result<(), ExecError> {
        Ok(self.ended.record(stream)?)
    }

    /// What the words say; the run has ended.
    pub fn outcome(&self) -> Result<(), ExecError> {
        let words = self.words.as_slice().chunks_exact(size_of::<u32>());
        match words.zip(&*self.nodes).find(|(word, _)| word.iter().any(|&byte| byte != 0)) {
            Some((_, node)) => Err(ExecError::Fault { node: node.clone() }),
            None => Ok(()),
        }
    }
}

impl Pending for Flight {
    fn poll(&self) -> Option<Result<(), ExecError>> {
        match self.ended.query() {
            Ok(true) => Some(self.outcome()),
            Ok(false) => None,
            Err(error) => {
                let place = || format!("the end of a run with {}", self.nodes.first().map_or("", String::as_str));
                Some(Err(self.shared.lost.told(error.into(), &self.shared.name, place)))
            }
        }
    }

    fn wait(&self) {
        // A failure is seen again by `poll`.
        let _ = self.ended.synchronize();
    }
}
