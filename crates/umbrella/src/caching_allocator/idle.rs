//! Cached free blocks, by size.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use super::{Block, Fence, StreamId};

/// The maximum number of idle blocks whose fences one request checks: each check is a driver call under the allocator's
/// lock.
const MAX_QUERIES: usize = 16;

/// A freed block and the work that may still use it.
pub(super) struct IdleBlock<B, F> {
    pub(super) block: B,
    pub(super) fences: Vec<F>,
    /// The stream of all its work, if there was only one.
    pub(super) stream: Option<StreamId>,
    freed_at: u64,
}

impl<B: Block, F: Fence> IdleBlock<B, F> {
    pub(super) fn new(block: B) -> Self {
        Self { block, fences: Vec::new(), stream: None, freed_at: 0 }
    }

    fn is_done(&self) -> bool {
        self.fences.iter().all(Fence::done)
    }

    pub(super) fn wait(&self) {
        self.fences.iter().for_each(Fence::wait);
    }
}

/// All idle blocks. Empty queues are kept, so that a steady state allocates nothing.
pub(super) struct Idle<B, F> {
    /// Each queue holds blocks of one size, oldest first.
    by_size: BTreeMap<usize, VecDeque<IdleBlock<B, F>>>,
    bytes: usize,
    /// Counts frees: the clock that orders blocks by age.
    frees: u64,
}

impl<B, F> Default for Idle<B, F> {
    fn default() -> Self {
        Self { by_size: BTreeMap::new(), bytes: 0, frees: 0 }
    }
}

impl<B: Block, F: Fence> Idle<B, F> {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn put(&mut self, mut idle: IdleBlock<B, F>) {
        self.frees += 1;
        idle.freed_at = self.frees;
        self.bytes += idle.block.bytes();
        self.by_size.entry(idle.block.bytes()).or_default().push_back(idle);
    }

    /// A block that a request on `stream` may use at once. Takes the smallest that fits; among those, first the one
    /// freed last on the same stream (its memory is the warmest), then the oldest whose fences are done.
    pub(super) fn take_ready(
        &mut self,
        fits: &RangeInclusive<usize>,
        stream: Option<StreamId>,
    ) -> Option<IdleBlock<B, F>> {
        let mut queries_left = MAX_QUERIES;
        for queue in self.by_size.range_mut(fits.clone()).map(|(_, queue)| queue) {
            let on_stream = |idle: &IdleBlock<B, F>| stream.is_some() && idle.stream == stream;
            let found = queue.iter().rposition(on_stream).or_else(|| {
                let asked = queries_left.min(queue.len());
                queries_left -= asked;
                queue.iter().take(asked).position(IdleBlock::is_done)
            });
            if let Some(taken) = found.and_then(|index| queue.remove(index)) {
                self.bytes -= taken.block.bytes();
                return Some(taken);
            }
        }
        None
    }

    /// The block of a fitting size that was freed first, whether its work is done or not.
    pub(super) fn take_oldest(&mut self, fits: &RangeInclusive<usize>) -> Option<IdleBlock<B, F>> {
        let fitting = self.by_size.range_mut(fits.clone()).filter(|(_, queue)| !queue.is_empty());
        let (_, queue) = fitting.min_by_key(|(_, queue)| queue.front().map(|idle| idle.freed_at))?;
        let taken = queue.pop_front()?;
        self.bytes -= taken.block.bytes();
        Some(taken)
    }

    /// Removes the oldest blocks whose fences are done, until at most `limit` bytes are cached or none are left.
    pub(super) fn evict_done(&mut self, limit: usize) -> Vec<IdleBlock<B, F>> {
        let mut evicted = Vec::new();
        while self.bytes > limit {
            let oldest_done = self.by_size.iter().filter_map(|(size, queue)| {
                let index = queue.iter().position(IdleBlock::is_done)?;
                Some((queue.get(index)?.freed_at, *size, index))
            });
            let Some((_, size, index)) = oldest_done.min() else { break };
            let Some(taken) = self.by_size.get_mut(&size).and_then(|queue| queue.remove(index)) else { break };
            self.bytes -= taken.block.bytes();
            evicted.push(taken);
        }
        evicted
    }

    /// Waits until no work uses any of the blocks.
    pub(super) fn wait(&self) {
        self.by_size.values().flatten().for_each(IdleBlock::wait);
    }
}
