//! A fake GPU for tests: memory with bookkeeping, and streams that finish work only on request. It knows which work is
//! pending on which addresses, and records every violation of the rules.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Block, CachingAllocator, Fence, Fences, Shared, Source, StreamId};

pub(super) const STREAMS: usize = 3;

#[derive(Clone)]
pub(super) struct FakeGpu {
    state: Arc<Mutex<GpuState>>,
    /// The allocator whose lock must be free whenever the GPU is called; only meaningful with one thread.
    probed: Arc<Mutex<Weak<Shared<FakeGpu, FakeGpu>>>>,
}

pub(super) struct GpuState {
    capacity: usize,
    live: BTreeMap<usize, usize>,
    issued: [u64; STREAMS],
    finished: [u64; STREAMS],
    work: Vec<QueuedWork>,
    pub(super) refusals: usize,
    pub(super) waits: usize,
    pub(super) live_fences: usize,
    pub(super) breaches: Vec<String>,
}

/// A piece of work: the `at`-th of its stream.
struct QueuedWork {
    addresses: Range<usize>,
    stream: StreamId,
    at: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the fake GPU cannot allocate {0} bytes")]
pub(super) struct FakeOutOfMemory(usize);

impl FakeGpu {
    pub(super) fn new(capacity: usize) -> Self {
        let state = GpuState {
            capacity,
            live: BTreeMap::new(),
            issued: [0; STREAMS],
            finished: [0; STREAMS],
            work: Vec::new(),
            refusals: 0,
            waits: 0,
            live_fences: 0,
            breaches: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), probed: Arc::default() }
    }

    pub(super) fn allocator(&self, cached_limit: Option<usize>) -> CachingAllocator<Self, Self> {
        CachingAllocator::new(self.clone(), self.clone(), cached_limit)
    }

    /// From now on every call into the GPU checks that `allocator` does not hold its lock.
    pub(super) fn probe(&self, allocator: &CachingAllocator<Self, Self>) {
        *self.probed.lock().unwrap() = Arc::downgrade(&allocator.shared);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, GpuState> {
        // A failed assertion must not turn into an abort when blocks are dropped on the way out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_unlocked(&self, call: &str) {
        let probed = self.probed.lock().unwrap().upgrade();
        if probed.is_some_and(|shared| shared.state.try_lock().is_err()) {
            self.state().breaches.push(format!("{call} was called under the allocator's lock"));
        }
    }
}

impl GpuState {
    pub(super) fn live_bytes(&self) -> usize {
        self.live.values().sum()
    }

    /// Issues work on a block to a stream.
    pub(super) fn issue(&mut self, addresses: Range<usize>, stream: StreamId) {
        self.issued[stream] += 1;
        self.work.push(QueuedWork { addresses, stream, at: self.issued[stream] });
    }

    /// Finishes up to `count` pieces of work of a stream.
    pub(super) fn advance(&mut self, stream: StreamId, count: u64) {
        self.finished[stream] = self.issued[stream].min(self.finished[stream] + count);
    }

    /// Records a violation if work that is not ordered before `stream` is still pending on the addresses.
    pub(super) fn check_free_of_work(&mut self, addresses: &Range<usize>, stream: Option<StreamId>, act: &str) {
        self.work.retain(|work| work.at > self.finished[work.stream]);
        let overlaps = |other: &Range<usize>| addresses.start < other.end && other.start < addresses.end;
        for work in &self.work {
            if Some(work.stream) != stream && overlaps(&work.addresses) {
                self.breaches
                    .push(format!("{act} {addresses:x?} (stream {stream:?}) while {} works on it", work.stream));
            }
        }
    }
}

pub(super) struct FakeBlock {
    gpu: FakeGpu,
    address: usize,
    bytes: usize,
}

impl Block for FakeBlock {
    fn address(&self) -> usize {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for FakeBlock {
    fn drop(&mut self) {
        self.gpu.check_unlocked("free");
        let mut state = self.gpu.state();
        state.check_free_of_work(&(self.address..self.address + self.bytes), None, "gave back");
        if state.live.remove(&self.address) != Some(self.bytes) {
            state.breaches.push(format!("freed {:#x}, which was not allocated", self.address));
        }
    }
}

impl Source for FakeGpu {
    type Block = FakeBlock;
    type Error = FakeOutOfMemory;

    fn alloc(&self, bytes: usize) -> Result<FakeBlock, FakeOutOfMemory> {
        self.check_unlocked("alloc");
        let mut state = self.state();
        if state.live_bytes().checked_add(bytes).is_none_or(|total| total > state.capacity) {
            state.refusals += 1;
            return Err(FakeOutOfMemory(bytes));
        }
        // The lowest gap: addresses are reused as soon as possible, as with a real driver.
        let mut address = 0x1000;
        for (start, length) in &state.live {
            if start - address >= bytes {
                break;
            }
            address = start + length;
        }
        state.live.insert(address, bytes);
        Ok(FakeBlock { gpu: self.clone(), address, bytes })
    }
}

pub(super) struct FakeFence {
    gpu: FakeGpu,
    stream: StreamId,
    at: u64,
}

impl Fence for FakeFence {
    fn done(&self) -> bool {
        self.gpu.state().finished[self.stream] >= self.at
    }

    fn wait(&self) {
        self.gpu.check_unlocked("wait");
        let mut state = self.gpu.state();
        state.waits += 1;
        state.finished[self.stream] = state.finished[self.stream].max(self.at);
    }
}

impl Drop for FakeFence {
    fn drop(&mut self) {
        self.gpu.check_unlocked("the drop of a fence");
        self.gpu.state().live_fences -= 1;
    }
}

impl Fences for FakeGpu {
    type Fence = FakeFence;

    fn record(&self, stream: Option<StreamId>, fences: &mut Vec<FakeFence>) {
        self.check_unlocked("record");
        let mut state = self.state();
        let issued = state.issued;
        let streams = stream.map_or(0..STREAMS, |stream| stream..stream + 1);
        state.live_fences += streams.len();
        fences.extend(streams.map(|stream| FakeFence { gpu: self.clone(), stream, at: issued[stream] }));
    }
}
