//! Device memory for runs.
use std::sync::{Arc, Mutex, PoisonError};

use hip::{DeviceBuffer, Event, RawStream};

use crate::memory::{Counted, Purpose};
use crate::{ExecError, recorded};

/// Sizes are rounded up to this, and larger ones to an eighth of their power of two, so that inputs that grow a little
/// do not need new memory each time.
const GRAIN: usize = 64 << 10;

/// The memory of one run. It is returned once the run's work is queued, and reused by work queued after it.
pub(super) struct Block {
    buffer: Counted<DeviceBuffer>,
    /// Completes when the last run is done with the block.
    free: Arc<Event>,
    /// The stream of the last run. Used only for comparison.
    stream: usize,
}

impl Block {
    pub fn address(&self) -> *mut u8 {
        self.buffer.address().as_ptr()
    }

    pub fn buffer(&self) -> &DeviceBuffer {
        &self.buffer
    }

    /// The event that completes when the last run is done with the block, or later.
    pub fn end(&self) -> &Arc<Event> {
        &self.free
    }
}

/// The blocks that are not in use by a run being queued.
pub(super) struct Blocks {
    idle: Mutex<Vec<Block>>,
    device: hip::Device,
}

impl Blocks {
    pub fn new(device: hip::Device) -> Self {
        Self { idle: Mutex::default(), device }
    }

    /// A block of at least this many bytes for work on a stream. Everything queued there from now on runs after the
    /// work of the block's last user. A reused stream handle is safe: streams are drained before they are closed.
    pub fn take(&self, bytes: usize, stream: RawStream<'_>) -> Result<Block, ExecError> {
        let found = self.find(bytes, |block| block.stream == stream.as_ptr().addr())?;
        found.map_or_else(|| self.make(bytes), Ok)
    }

    /// A block that is no longer in use, for work that is recorded: a recording cannot wait for work outside it.
    pub fn take_for_good(&self, bytes: usize) -> Result<Block, ExecError> {
        self.find(bytes, |_| false)?.map_or_else(|| self.alloc_block(bytes), Ok)
    }

    /// Whether the last user of a block is done with it; false if the event cannot be queried now.
    fn is_free(block: &Block) -> Result<bool, ExecError> {
        let answer = recorded::unless_recorded(block.stream, || block.free.query());
        Ok(answer.transpose()?.unwrap_or(false))
    }

    /// Returns a block, to be reused after all work queued on a stream. `is_marked` says that the event is recorded
    /// already.
    pub fn give_back(&self, mut block: Block, stream: RawStream<'_>, is_marked: bool) -> Result<(), ExecError> {
        if !is_marked {
            block.free.record(stream)?;
        }
        block.stream = stream.as_ptr().addr();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        Ok(())
    }

    /// Waits for all queued work. Does not wait for the whole device, which would break captures of others.
    pub fn wait(&self) {
        for block in &*self.idle.lock().unwrap_or_else(PoisonError::into_inner) {
            if let Err(error) = recorded::synchronize(&block.free, block.stream) {
                tracing::debug!(target: "amdgpu_ep::lifetime", %error, "work was not waited for");
            }
        }
    }

    /// A permanent allocation of device memory. Frees idle blocks if there is not enough.
    pub fn alloc(&self, bytes: usize) -> Result<DeviceBuffer, ExecError> {
        match self.device.alloc(bytes) {
            Err(error) if error.is_out_of_memory() => {
                let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
                if idle.is_empty() {
                    return Err(error.into());
                }
                // Freeing waits for work that still uses them.
                drop(idle);
                Ok(self.device.alloc(bytes)?)
            }
            outcome => Ok(outcome?),
        }
    }

    /// The smallest block that is large enough and either unused or `is_ordered` after its last user.
    fn find(&self, bytes: usize, is_ordered: impl Fn(&Block) -> bool) -> Result<Option<Block>, ExecError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut best: Option<usize> = None;
        for (at, block) in idle.iter().enumerate() {
            let is_better = best.is_none_or(|best| block.buffer.bytes() < idle[best].buffer.bytes());
            if block.buffer.bytes() >= bytes && is_better && (is_ordered(block) || Self::is_free(block)?) {
                best = Some(at);
            }
        }
        Ok(best.map(|at| idle.swap_remove(at)))
    }

    /// A new block. Drops an unused one that was too small, so that there are only as many blocks as concurrent runs.
    fn make(&self, bytes: usize) -> Result<Block, ExecError> {
        let outgrown = self.find(0, |_| false)?;
        drop(outgrown);
        self.alloc_block(bytes)
    }

    fn alloc_block(&self, bytes: usize) -> Result<Block, ExecError> {
        let grain = (bytes.next_power_of_two() / 8).max(GRAIN);
        let bytes = bytes.next_multiple_of(grain);
        let buffer = Counted::new(self.alloc(bytes)?, Purpose::Arena, bytes);
        Ok(Block { buffer, free: Arc::new(self.device.event()?), stream: 0 })
    }
}
