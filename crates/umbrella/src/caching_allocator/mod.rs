//! A caching allocator for device or pinned memory.
//!
//! ONNX Runtime frees a buffer as soon as the last work on it has been *submitted*, while the device may still be using
//! it. So a freed block stays in the allocator with the [`Fence`]s recorded at that moment, and is reused
//! - at once by a request on the stream it was used on: the stream's order keeps old and new work apart;
//! - by any other request only when its fences are done. The allocator checks, but does not wait: a new block is
//!   cheaper than a stalled host. It waits only when the source is out of memory.
//!
//! The allocator does not depend on a driver: memory comes from a [`Source`], fences from [`Fences`].
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

/// How often a request retries a source that is out of memory, while other threads keep freeing blocks into the cache.
const MAX_TRIES: usize = 4;

/// A stream's raw handle.
///
/// All work of a stream must be finished before its handle is destroyed, because the driver may give the same handle to
/// the next stream.
pub type StreamId = usize;

/// Memory owned by a [`Source`]; dropping it frees it.
pub trait Block: Send {
    /// The start address.
    fn address(&self) -> usize;

    /// The size: exactly what was requested from the source.
    fn bytes(&self) -> usize;
}

/// An allocator of memory, such as one device's `hipMalloc`.
pub trait Source: Send + Sync {
    /// A piece of its memory.
    type Block: Block;
    /// Why an allocation failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Allocates a block of `bytes` bytes, which are never zero and always a multiple of 256.
    ///
    /// # Errors
    /// If no block can be allocated. The allocator then frees what it can and tries once more.
    fn alloc(&self, bytes: usize) -> Result<Self::Block, Self::Error>;
}

/// A point in a stream's work.
pub trait Fence: Send {
    /// Whether all work before it is finished. Must return quickly; `false` if unknown.
    fn done(&self) -> bool;

    /// Blocks until all work before it is finished, or can never run any more.
    fn wait(&self);
}

/// Records fences on streams.
pub trait Fences: Send + Sync {
    /// A recorded point.
    type Fence: Fence;

    /// Appends the fences after all work submitted so far that may still use a block being freed: that of the given
    /// stream, or of every live stream if the block belongs to none. A stream that no longer exists needs no fence.
    /// Must not panic, and must cover all work: if recording fails, append a fence that waits for the device.
    fn record(&self, stream: Option<StreamId>, fences: &mut Vec<Self::Fence>);
}

/// Why the allocator could not allocate a block.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AllocError<E: std::error::Error + 'static> {
    /// The source is out of memory, even after everything cached was freed.
    #[error(
        "out of memory: {asked} bytes requested, {in_use} bytes in use, {cached} cached bytes freed before the last try\n  \
         help: close sessions or other programs on this device, or use a smaller model, batch or context"
    )]
    OutOfMemory {
        /// The requested size.
        asked: usize,
        /// Bytes in use at the time.
        in_use: usize,
        /// Cached bytes freed before the last try.
        cached: usize,
        /// The source's last error.
        #[source]
        source: E,
    },
    /// The request is larger than the address space.
    #[error("{asked} bytes requested: larger than the address space")]
    TooLarge {
        /// The requested size.
        asked: usize,
    },
}

/// The allocator; clones share one state. Cached memory is freed when the last clone and block are gone.
pub struct CachingAllocator<S: Source, F: Fences> {
    shared: Arc<Shared<S, F>>,
}

impl<S: Source, F: Fences> Clone for CachingAllocator<S, F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Source, F: Fences> CachingAllocator<S, F> {
    /// An empty allocator over `source`. `cached_limit` limits the cached bytes; blocks with pending fences may exceed
    /// it until a later free finds them done.
    pub fn new(source: S, fences: F, cached_limit: Option<usize>) -> Self {
        let statistics = Statistics { limit: cached_limit, ..Statistics::default() };
        let state = Mutex::new(State { idle: Idle::default(), statistics });
        Self { shared: Arc::new(Shared { source, fences, state, reclaiming: Mutex::new(()) }) }
    }

    /// Allocates a block of at least `bytes` bytes for work on `stream`, or for immediate use anywhere if there is
    /// none. A request of zero bytes also returns a valid, unique block.
    ///
    /// # Errors
    /// [`AllocError`] if the source is out of memory after everything cached was freed.
    pub fn alloc(&self, bytes: usize, stream: Option<StreamId>) -> Result<AllocatedBlock<S, F>, AllocError<S::Error>> {
        let size = size_class::round(bytes).ok_or(AllocError::TooLarge { asked: bytes })?;
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

    /// Frees a block, as dropping it does. Work submitted earlier on its stream (or on any stream, for a block without
    /// one) may still use it.
    pub fn free(&self, block: AllocatedBlock<S, F>) {
        drop(block);
    }

    /// Frees every cached block, waiting for the work that still uses it; returns the bytes freed.
    pub fn shrink(&self) -> usize {
        let _one_at_a_time = self.shared.lock_reclaiming();
        self.shared.lock().statistics.num_shrinks += 1;
        self.shared.give_back_idle()
    }

    /// The current counters.
    pub fn statistics(&self) -> Statistics {
        self.shared.lock().statistics
    }

    /// The source is out of memory: waits for a cached block that fits, or frees everything and tries again.
    fn alloc_by_reclaiming(
        &self,
        bytes: usize,
        fits: &RangeInclusive<usize>,
        stream: Option<StreamId>,
    ) -> Result<AllocatedBlock<S, F>, AllocError<S::Error>> {
        // Without this, a second thread would find the cache empty and fail while the first is still freeing it.
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
            // Other threads may have freed blocks into the cache in the meantime: freeing those may let another try
            // succeed.
            if state.idle.bytes() == 0 || tries == MAX_TRIES {
                return Err(AllocError::OutOfMemory { asked: bytes, in_use: state.statistics.in_use, cached, source });
            }
        }
    }

    /// Wraps a new block from the source.
    fn adopt(&self, block: S::Block, requested: usize, stream: Option<StreamId>) -> AllocatedBlock<S, F> {
        self.shared.lock().statistics.record_fresh(requested, block.bytes());
        self.lease(IdleBlock::new(block), stream)
    }

    /// Wraps a block already counted as in use.
    fn lease(&self, mut idle: IdleBlock<S::Block, F::Fence>, stream: Option<StreamId>) -> AllocatedBlock<S, F> {
        // Old fences are dropped here, outside the lock; the vector stays with the block for the next free.
        idle.fences.clear();
        idle.stream = stream;
        AllocatedBlock {
            shared: Arc::clone(&self.shared),
            address: idle.block.address(),
            bytes: idle.block.bytes(),
            stream,
            held: Some(idle),
        }
    }
}

/// A block in use. Dropping it returns it to its allocator; that never fails.
#[must_use = "an unused block returns to its allocator at once"]
pub struct AllocatedBlock<S: Source, F: Fences> {
    shared: Arc<Shared<S, F>>,
    address: usize,
    bytes: usize,
    stream: Option<StreamId>,
    held: Option<IdleBlock<S::Block, F::Fence>>,
}

impl<S: Source, F: Fences> AllocatedBlock<S, F> {
    /// The start address.
    pub fn address(&self) -> usize {
        self.address
    }

    /// The size, at least what was requested.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The stream it was requested for.
    pub fn stream(&self) -> Option<StreamId> {
        self.stream
    }
}

impl<S: Source, F: Fences> fmt::Debug for AllocatedBlock<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, bytes, stream, .. } = self;
        write!(f, "AllocatedBlock({address:#x}, {bytes} bytes, stream {stream:x?})")
    }
}

impl<S: Source, F: Fences> Drop for AllocatedBlock<S, F> {
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
    /// Held while cached blocks are freed on request; `free` never takes it.
    reclaiming: Mutex<()>,
}

impl<S: Source, F: Fences> Shared<S, F> {
    fn lock(&self) -> MutexGuard<'_, State<S::Block, F::Fence>> {
        // Nothing under the lock leaves the state inconsistent, so a panic elsewhere does no harm.
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

    /// Caches a freed block; returns the blocks evicted for it, for the caller to drop.
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
