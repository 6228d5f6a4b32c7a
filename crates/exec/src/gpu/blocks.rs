//! Device memory for runs.
use std::sync::{Arc, Mutex, PoisonError};

use hip::{DeviceBuffer, Event, RawStream};

use crate::{
    ExecError,
    memory::{Counted, Purpose},
    recorded,
};

/// Sizes are rounded up to this, and larger ones to an eighth of their power of two, so that inputs that grow a little do
/// not need new memory each time.
const GRAIN: usize = 64 << 10;

/// Memory of one run. It is given back when the run's work is queued, and taken again by work behind it.
pub(super) struct Block {
    buffer: Counted<DeviceBuffer>,
    /// Reached when the last run is done with it.
    free: Arc<Event>,
    /// The stream of the last run: only to compare.
    stream: usize,
}

impl Block {
    pub fn address(&self) -> *mut u8 {
        self.buffer.address().as_ptr()
    }

    /// Reached when the last run is done with it, or later.
    pub fn end(&self) -> &Arc<Event> {
        &self.free
    }
}

/// The blocks that no run is being queued on.
pub(super) struct Blocks {
    idle: Mutex<Vec<Block>>,
    device: hip::Device,
}

impl Blocks {
    pub fn new(device: hip::Device) -> Self {
        Self { idle: Mutex::default(), device }
    }

    /// A block of at least this many bytes for work on a stream: everything that is queued there from now on comes behind
    /// the work of the block's last user. Another stream of the same name is no other: streams are waited for before they are
    /// closed.
    pub fn take(&self, bytes: usize, stream: RawStream<'_>) -> Result<Block, ExecError> {
        let found = self.find(bytes, |block| block.stream == stream.as_ptr().addr())?;
        found.map_or_else(|| self.make(bytes), Ok)
    }

    /// A block that nobody uses any more, for work that is recorded: a recording can't wait for work outside of it.
    pub fn take_for_good(&self, bytes: usize) -> Result<Block, ExecError> {
        self.find(bytes, |_| false)?.map_or_else(|| self.alloc_block(bytes), Ok)
    }

    /// Whether the last user of a block is done with it, as far as one may ask.
    fn is_free(block: &Block) -> Result<bool, ExecError> {
        let answer = recorded::unless_recorded(block.stream, || block.free.query());
        Ok(answer.transpose()?.unwrap_or(false))
    }

    /// Gives a block back behind all work that is queued on a stream, whose end may be marked already.
    pub fn give_back(&self, mut block: Block, stream: RawStream<'_>, is_marked: bool) -> Result<(), ExecError> {
        if !is_marked {
            block.free.record(stream)?;
        }
        block.stream = stream.as_ptr().addr();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        Ok(())
    }

    /// Waits for all work that was queued. Not for the device, which would spoil captures of others.
    pub fn wait(&self) {
        for block in &*self.idle.lock().unwrap_or_else(PoisonError::into_inner) {
            if let Err(error) = block.free.synchronize() {
                tracing::debug!(target: "amdgpu_ep::lifetime", %error, "work not waited for");
            }
        }
    }

    /// Device memory for good. Idle blocks make room for it if they must.
    pub fn alloc(&self, bytes: usize) -> Result<DeviceBuffer, ExecError> {
        match self.device.alloc(bytes) {
            Err(error) if error.is_out_of_memory() => {
                let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
                if idle.is_empty() {
                    return Err(error.into());
                }
                // Freeing waits for whoever still uses them.
                drop(idle);
                Ok(self.device.alloc(bytes)?)
            }
            outcome => Ok(outcome?),
        }
    }

    /// The smallest block that is large enough and `is_ordered` behind its last user, or unused.
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

    /// A new block. An unused one that was too small goes: as many are kept as runs were under way at once.
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
