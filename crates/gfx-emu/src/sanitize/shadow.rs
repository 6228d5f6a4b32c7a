//! What the sanitizer knows about device memory: allocations, freed ones, and which bytes were written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Bytes of memory that one chunk of bits covers.
const CHUNK: u64 = 32 * 1024;
const CHUNK_WORDS: usize = CHUNK as usize / 64;
/// Freed allocations that are remembered.
const REMEMBERED: usize = 4096;

type Chunk = Box<[AtomicU64; CHUNK_WORDS]>;

/// One bit for each byte of an allocation, set when the byte is written.
#[derive(Debug)]
pub(super) struct Written {
    chunks: Vec<OnceLock<Chunk>>,
    /// What the host filled the memory with: bytes with another value have been written without the sanitizer
    /// seeing it.
    pub filled_with: Option<u8>,
}

impl Written {
    fn new(bytes: u64, filled_with: Option<u8>) -> Written {
        Written { chunks: (0..bytes.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(), filled_with }
    }

    fn chunk(&self, at: u64) -> Option<&Chunk> {
        let make = || Box::new(std::array::from_fn(|_| AtomicU64::new(0)));
        self.chunks.get((at / CHUNK) as usize).map(|chunk| chunk.get_or_init(make))
    }

    /// Calls `each` with the words of bits of a range and the bits of the range in them.
    fn words(&self, mut at: u64, bytes: u64, mut each: impl FnMut(&AtomicU64, u64, u64)) {
        let end = at + bytes;
        while at < end {
            let Some(chunk) = self.chunk(at) else { return };
            let next = (at / 64 * 64 + 64).min(end);
            let mask = (u64::MAX >> (64 - (next - at))) << (at % 64);
            each(&chunk[(at % CHUNK / 64) as usize], mask, at / 64 * 64);
            at = next;
        }
    }

    /// Sets the bits of a range.
    pub fn set(&self, at: u64, bytes: u64) {
        self.words(at, bytes, |word, mask, _| {
            if word.load(Ordering::Relaxed) & mask != mask {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        });
    }

    /// The offset of the first byte of a range that was not written.
    pub fn first_missing(&self, at: u64, bytes: u64) -> Option<u64> {
        let mut missing = None;
        self.words(at, bytes, |word, mask, first| {
            let unset = !word.load(Ordering::Relaxed) & mask;
            if unset != 0 && missing.is_none() {
                missing = Some(first + u64::from(unset.trailing_zeros()));
            }
        });
        missing
    }
}

/// One allocation of device memory.
#[derive(Debug)]
pub(super) struct Allocation {
    pub first: u64,
    pub bytes: u64,
    /// `None` if the host can write it without being seen.
    pub written: Option<Written>,
}

impl Allocation {
    pub fn covers(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.first);
        offset < self.bytes && self.bytes - offset >= bytes
    }
}

/// Whether writes to an allocation are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// The host can write it at any time: reads of it are never reports of uninitialised memory.
    Host,
    /// Only kernels write it, and copies that are reported to the sanitizer.
    Device,
    /// As for `Device`, and the memory is filled with this byte. Bytes with another value count as written.
    Filled(u8),
}

/// The allocations of all devices that share an address space.
#[derive(Debug, Default)]
pub struct Shadow {
    live: RwLock<BTreeMap<u64, Arc<Allocation>>>,
    freed: RwLock<BTreeMap<u64, u64>>,
    unchecked: RwLock<Vec<Range<u64>>>,
}

impl Shadow {
    /// Memory was allocated.
    pub fn allocated(&self, first: u64, bytes: u64, visibility: Visibility) {
        let written = match visibility {
            Visibility::Host => None,
            Visibility::Device => Some(Written::new(bytes, None)),
            Visibility::Filled(byte) => Some(Written::new(bytes, Some(byte))),
        };
        let allocation = Arc::new(Allocation { first, bytes, written });
        self.live.write().unwrap_or_else(PoisonError::into_inner).insert(first, allocation);
        let mut freed = self.freed.write().unwrap_or_else(PoisonError::into_inner);
        let end = first.saturating_add(bytes);
        let again: Vec<u64> =
            freed.range(..end).rev().take_while(|(at, old)| *at + *old > first).map(|(at, _)| *at).collect();
        for at in again {
            freed.remove(&at);
        }
    }

    /// Memory was freed.
    pub fn freed(&self, first: u64) {
        let gone = self.live.write().unwrap_or_else(PoisonError::into_inner).remove(&first);
        if let Some(allocation) = gone {
            let mut freed = self.freed.write().unwrap_or_else(PoisonError::into_inner);
            freed.insert(first, allocation.bytes);
            if freed.len() > REMEMBERED {
                freed.pop_first();
            }
        }
    }

    /// The host or a copy wrote memory.
    pub fn written(&self, address: u64, bytes: u64) {
        let (mut at, end) = (address, address.saturating_add(bytes));
        while at < end {
            let Some(allocation) = self.containing(at) else { return };
            let stop = end.min(allocation.first + allocation.bytes);
            if let Some(written) = &allocation.written {
                written.set(at - allocation.first, stop - at);
            }
            at = stop;
        }
    }

    /// Addresses whose allocations are not known: accesses to them are not checked.
    pub fn leave_unchecked(&self, range: Range<u64>) {
        self.unchecked.write().unwrap_or_else(PoisonError::into_inner).push(range);
    }

    pub(super) fn is_unchecked(&self, address: u64) -> bool {
        self.unchecked.read().unwrap_or_else(PoisonError::into_inner).iter().any(|range| range.contains(&address))
    }

    pub(super) fn containing(&self, address: u64) -> Option<Arc<Allocation>> {
        self.below(address).filter(|allocation| allocation.covers(address, 1))
    }

    /// The last allocation that starts at or below an address.
    pub(super) fn below(&self, address: u64) -> Option<Arc<Allocation>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.range(..=address).next_back().map(|(_, allocation)| Arc::clone(allocation))
    }

    /// The freed allocation that contained an address.
    pub(super) fn freed_at(&self, address: u64) -> Option<(u64, u64)> {
        let freed = self.freed.read().unwrap_or_else(PoisonError::into_inner);
        let (&first, &bytes) = freed.range(..=address).next_back()?;
        (address - first < bytes).then_some((first, bytes))
    }
}
