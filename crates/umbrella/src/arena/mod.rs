//! A caching arena for device or pinned memory.
//!
//! ONNX Runtime frees a buffer as soon as the last work on it has been *issued*, while the device may still be busy with
//! it. So a freed block rests in the arena with the [`Fence`]s recorded at that moment, and is handed out again
//! - at once to a request on the stream it was used on: the stream's order keeps old and new work apart;
//! - to any other request only when its fences are done. The arena asks, it does not wait: a fresh block is cheaper than
//!   a stalled host. It waits only when the source is out of memory.
//!
//! The arena knows no driver: memory comes from a [`Source`], fences from [`Fences`].
#![forbid(unsafe_code)]

#[cfg(test)]
mod fake_gpu;
mod idle;
mod size_class;
mod statistics;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use idle::{Idle, IdleBlock};
pub use statistics::Statistics;

/// How often a request asks a source that is out of memory, while other threads keep freeing blocks into the cache.
const MAX_TRIES: usize = 4;

/// A stream's raw handle.
///
/// All work of a stream must be finished before its handle is destroyed, because the driver may give the same handle to
/// the next stream.
pub type StreamId = usize;

/// Memory owned by a [`Source`]; dropping it gives it back.
pub trait Block: Send {
    /// Where it starts.
    fn address(&self) -> usize;

    /// How many bytes it holds: exactly as many as the source was asked for.
    fn bytes(&self) -> usize;
}

/// Where memory comes from, such as one device's `hipMalloc`.
pub trait Source: Send + Sync {
    /// A piece of its memory.
    type Block: Block;
    /// Why there is none.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Gives a block of `bytes` bytes, which are never zero and always a multiple of 256.
    ///
    /// # Errors
    /// When no block can be had. The arena then gives back what it can and asks once more.
    fn alloc(&self, bytes: usize) -> Result<Self::Block, Self::Error>;
}

/// A point in a stream's work.
pub trait Fence: Send {
    /// Whether all work before it is finished. Must answer quickly; "cannot tell" is `false`.
    fn done(&self) -> bool;

    /// Blocks until all work before it is finished, or can never run any more.
    fn wait(&self);
}

/// Records fences on streams.
pub trait Fences: Send + Sync {
    /// A recorded point.
    type Fence: Fence;

    /// Appends the fences behind all work issued so far that may still touch a block being freed: that of the given
    /// stream, or of every live stream where the block belongs to none. A stream that exists no longer needs no fence.
    /// Must not panic, and must not leave work uncovered: where recording fails, append a fence that waits for the device.
    fn record(&self, stream: Option<StreamId>, fences: &mut Vec<Self::Fence>);
}

/// Why the arena has no block to give.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArenaError<E: std::error::Error + 'static> {
    /// The source had no memory left, even after everything cached was given back to it.
    #[error(
        "out of memory: {asked} bytes asked for, {in_use} bytes in use, {cached} cached bytes given back before the last try\n  \
         help: close sessions or other programs on this device, or use a smaller model, batch or context"
    )]
    OutOfMemory {
        /// Bytes asked for.
        asked: usize,
        /// Bytes handed out at the time.
        in_use: usize,
        /// Cached bytes given back before the last try.
        cached: usize,
        /// The source's last answer.
        #[source]
        source: E,
    },
    /// No address space has room for the request.
    #[error("{asked} bytes asked for: no memory is that large")]
    TooLarge {
        /// Bytes asked for.
        asked: usize,
    },
}

/// The arena; clones share one state. Cached memory goes back to the source when the last clone and block are gone.
pub struct Arena<S: Source, F: Fences> {
    shared: Arc<Shared<S, F>>,
}

impl<S: Source, F: Fences> Clone for Arena<S, F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Source, F: Fences> Arena<S, F> {
    /// An empty arena over `source`. `cached_limit` bounds the cached bytes; blocks with open fences stay beyond it until
    /// a later free finds them done.
    pub fn new(source: S, fences: F, cached_limit: Option<usize>) -> Self {
        let statistics = Statistics { limit: cached_limit, ..Statistics::default() };
        let state = Mutex::new(State { idle: Idle::default(), statistics });
        Self { shared: Arc::new(Shared { source, fences, state, reclaiming: Mutex::new(()) }) }
    }

    /// Gives a block of at least `bytes` bytes for work on `stream`, or for any use at once where there is none.
    /// Zero bytes give a valid block of its own as well.
    ///
    /// # Errors
    /// [`ArenaError`] when the source has no memory left after everything cached was given back to it.
    pub fn alloc(&self, bytes: usize, stream: Option<StreamId>) -> Result<ArenaBlock<S, F>, ArenaError<S::Error>> {
        let size = size_class::round(bytes).ok_or(ArenaError::TooLarge { asked: bytes })?;
        let fits = size..=size_class::largest_fit(bytes, size);
        let ready = self.shared.lock().reuse(bytes, |idle| idle.take_ready(&fits, stream));
        if let Some(idle) = ready {
            return Ok(self.lease(idle, stream));
        }
        match self.shared.source.alloc(size) {
            Ok(block) => Ok(self.adopt(block, bytes, stream)),
            Err(_) => self.alloc_by_reclaiming(bytes, &fits, stream),
        }
    }

    /// Takes a block back, as dropping it does. Work issued before on its stream (or on any stream, for a block without
    /// one) may still use it.
    pub fn free(&self, block: ArenaBlock<S, F>) {
        drop(block);
    }

    /// Gives every cached block back to the source, waiting for the work that still uses it; returns the bytes.
    pub fn shrink(&self) -> usize {
        let _one_at_a_time = self.shared.lock_reclaiming();
        self.shared.lock().statistics.num_shrinks += 1;
        self.shared.give_back_idle()
    }

    /// The counters at this moment.
    pub fn statistics(&self) -> Statistics {
        self.shared.lock().statistics
    }

    /// The source refused: wait for a cached block that fits, else give everything back and ask once more.
    fn alloc_by_reclaiming(
        &self,
        bytes: usize,
        fits: &RangeInclusive<usize>,
        stream: Option<StreamId>,
    ) -> Result<ArenaBlock<S, F>, ArenaError<S::Error>> {
        // Without this, a second thread would find the cache empty and fail while the first is still giving it back.
        let _one_at_a_time = self.shared.lock_reclaiming();
        let (mut cached, mut tries) = (0, 0);
        loop {
            tries += 1;
            let busy = self.shared.lock().reuse(bytes, |idle| idle.take_oldest(fits));
            if let Some(idle) = busy {
                idle.wait();
                return Ok(self.lease(idle, stream));
            }
            cached += self.shared.give_back_idle();
            let source = match self.shared.source.alloc(*fits.start()) {
                Ok(block) => return Ok(self.adopt(block, bytes, stream)),
                Err(source) => source,
            };
            let state = self.shared.lock();
            // Blocks that other threads freed meanwhile went to the cache: with them another try may succeed.
            if state.idle.bytes() == 0 || tries == MAX_TRIES {
                return Err(ArenaError::OutOfMemory { asked: bytes, in_use: state.statistics.in_use, cached, source });
            }
        }
    }

    /// Wraps a block fresh from the source.
    fn adopt(&self, block: S::Block, requested: usize, stream: Option<StreamId>) -> ArenaBlock<S, F> {
        self.shared.lock().statistics.record_fresh(requested, block.bytes());
        self.lease(IdleBlock::new(block), stream)
    }

    /// Wraps a block already counted as in use.
    fn lease(&self, mut idle: IdleBlock<S::Block, F::Fence>, stream: Option<StreamId>) -> ArenaBlock<S, F> {
        // Old fences are dropped here, outside the lock; the vector stays with the block for the next free.
        idle.fences.clear();
        idle.stream = stream;
        ArenaBlock {
            shared: Arc::clone(&self.shared),
            address: idle.block.address(),
            bytes: idle.block.bytes(),
            stream,
            held: Some(idle),
        }
    }
}

/// A block in use. Dropping it hands it back to its arena; that never fails.
#[must_use = "an unused block goes straight back to its arena"]
pub struct ArenaBlock<S: Source, F: Fences> {
    shared: Arc<Shared<S, F>>,
    address: usize,
    bytes: usize,
    stream: Option<StreamId>,
    held: Option<IdleBlock<S::Block, F::Fence>>,
}

impl<S: Source, F: Fences> ArenaBlock<S, F> {
    /// Where it starts.
    pub fn address(&self) -> usize {
        self.address
    }

    /// How many bytes it holds, at least as many as were asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The stream it was asked for.
    pub fn stream(&self) -> Option<StreamId> {
        self.stream
    }
}

impl<S: Source, F: Fences> fmt::Debug for ArenaBlock<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, bytes, stream, .. } = self;
        write!(f, "ArenaBlock({address:#x}, {bytes} bytes, stream {stream:x?})")
    }
}

impl<S: Source, F: Fences> Drop for ArenaBlock<S, F> {
    fn drop(&mut self) {
        let Some(mut idle) = self.held.take() else { return };
        self.shared.fences.record(self.stream, &mut idle.fences);
        let evicted = self.shared.lock().take_back(idle);
        drop(evicted);
    }
}

/// What clones and blocks share.
struct Shared<S: Source, F: Fences> {
    source: S,
    fences: F,
    /// Never held across a call to the source, a wait, or the drop of a block or fence.
    state: Mutex<State<S::Block, F::Fence>>,
    /// Held by whoever gives cached blocks back on request; `free` never takes it.
    reclaiming: Mutex<()>,
}

impl<S: Source, F: Fences> Shared<S, F> {
    fn lock(&self) -> MutexGuard<'_, State<S::Block, F::Fence>> {
        // Nothing under the lock leaves the state half-changed, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_reclaiming(&self) -> MutexGuard<'_, ()> {
        self.reclaiming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back_idle(&self) -> usize {
        let taken = self.lock().take_all();
        taken.wait();
        taken.bytes()
    }
}

impl<S: Source, F: Fences> Drop for Shared<S, F> {
    fn drop(&mut self) {
        self.give_back_idle();
    }
}

struct State<B, F> {
    idle: Idle<B, F>,
    statistics: Statistics,
}

impl<B: Block, F: Fence> State<B, F> {
    /// Takes an idle block, if `take` finds one, and counts it as in use.
    fn reuse(
        &mut self,
        requested: usize,
        take: impl FnOnce(&mut Idle<B, F>) -> Option<IdleBlock<B, F>>,
    ) -> Option<IdleBlock<B, F>> {
        let taken = take(&mut self.idle)?;
        self.statistics.record_reuse(requested, taken.block.bytes());
        Some(taken)
    }

    /// Puts a freed block to rest; returns the blocks that must leave for it, for the caller to drop.
    fn take_back(&mut self, freed: IdleBlock<B, F>) -> Vec<IdleBlock<B, F>> {
        self.statistics.record_free(freed.block.bytes());
        self.idle.put(freed);
        let evicted = match self.statistics.limit {
            Some(limit) => self.idle.evict_done(limit),
            None => Vec::new(),
        };
        self.statistics.record_given_back(evicted.iter().map(|idle| idle.block.bytes()).sum());
        evicted
    }

    fn take_all(&mut self) -> Idle<B, F> {
        let taken = std::mem::take(&mut self.idle);
        self.statistics.record_given_back(taken.bytes());
        taken
    }
}
