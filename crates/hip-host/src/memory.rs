//! Allocations: which exist, where they are, and whether an access stays inside.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::errors::{Status, raise_fault};

/// Alignment of every allocation, as HIP guarantees for device memory.
const ALIGNMENT: usize = 256;
/// Guard bytes after an allocation in poison mode.
const GUARD_BYTES: usize = 256;
const GUARD: u8 = 0xA5;
const POISON: u8 = 0xCB;

/// The origin of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `hipMalloc`.
    Device,
    /// `hipMallocAsync`.
    Pool,
    /// `hipHostMalloc`.
    Pinned,
    /// `hipHostRegister`: the caller's own memory.
    Registered,
}

impl Kind {
    /// Whether callers see it as memory of a device.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Kind::Device | Kind::Pool)
    }
}

/// A limit on the number of bytes in use at once.
pub(crate) struct Budget {
    pub(crate) total: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    pub(crate) fn new(total: u64) -> Arc<Self> {
        Arc::new(Budget { total, used: AtomicU64::new(0), peak: AtomicU64::new(0) })
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.used(), Ordering::Relaxed);
    }

    /// Takes `bytes` from the budget until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Result<Charge, Status> {
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(Status::OutOfMemory)? as u64;
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.total);
        let before =
            self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| Status::OutOfMemory)?;
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        Ok(Charge { budget: Arc::clone(self), bytes })
    }
}

/// A part of a [`Budget`] in use.
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Memory that this library allocated; freed with its last user.
struct Storage {
    start: NonNull<u8>,
    layout: Layout,
    /// The requested size; the rest of the layout is guard bytes.
    bytes: usize,
}

// SAFETY: `start` is owned memory without thread affinity; callers decide who accesses its bytes when, ordered by
// streams exactly as with a device.
unsafe impl Send for Storage {}
// SAFETY: as above; `Storage` itself gives out no references to the bytes.
unsafe impl Sync for Storage {}

impl Storage {
    fn new(bytes: usize, poison: bool) -> Result<Self, Status> {
        let whole = bytes.checked_add(if poison { GUARD_BYTES } else { 0 }).ok_or(Status::OutOfMemory)?;
        let layout = Layout::from_size_align(whole, ALIGNMENT).map_err(|_| Status::OutOfMemory)?;
        // SAFETY: `whole` is not 0, because callers return NULL for 0 bytes without coming here.
        let start = NonNull::new(unsafe { alloc(layout) }).ok_or(Status::OutOfMemory)?;
        if poison {
            // SAFETY: both ranges lie inside the `whole` bytes just allocated.
            unsafe {
                start.write_bytes(POISON, bytes);
                start.add(bytes).write_bytes(GUARD, GUARD_BYTES);
            }
        }
        Ok(Storage { start, layout, bytes })
    }

    /// The first guard byte that was overwritten, as a distance from the end of the allocation.
    fn overrun(&self) -> Option<usize> {
        // SAFETY: the guard bytes were written by `new`, live as long as `self`, and are outside of what callers may
        // access; a caller that still does so races with this read, which is the error being detected.
        (0..self.layout.size() - self.bytes)
            .find(|at| unsafe { self.start.add(self.bytes + at).read_volatile() } != GUARD)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(at) = self.overrun() {
            raise_fault(format_args!(
                "the {} bytes allocated at {:p} were overrun: byte {at} after the end was written",
                self.bytes, self.start
            ));
        }
        // SAFETY: allocated by `new` with this layout; no operation still uses it, because each holds its `Block`.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// A live range of memory that the library knows.
pub(crate) struct Block {
    pub(crate) base: usize,
    pub(crate) bytes: usize,
    pub(crate) device: usize,
    pub(crate) kind: Kind,
    /// The flags the caller allocated it with.
    pub(crate) flags: u32,
    /// None for the caller's own memory. Before the charges, so that memory is given back before it counts as free.
    _storage: Option<Storage>,
    _charges: Vec<Charge>,
}

impl Block {
    /// Whether the `bytes` at `address` are inside.
    pub(crate) fn holds(&self, address: usize, bytes: usize) -> bool {
        address >= self.base && address - self.base <= self.bytes && bytes <= self.bytes - (address - self.base)
    }
}

type Blocks = BTreeMap<usize, Arc<Block>>;

/// Every live [`Block`] by its base address.
pub(crate) struct Memory {
    poison: bool,
    blocks: RwLock<Blocks>,
}

impl Memory {
    pub(crate) fn new(poison: bool) -> Self {
        Memory { poison, blocks: RwLock::new(BTreeMap::new()) }
    }

    /// Allocates `bytes` (not 0) and returns their address.
    pub(crate) fn allocate(
        &self,
        kind: Kind,
        device: usize,
        bytes: usize,
        flags: u32,
        charges: Vec<Charge>,
    ) -> Result<usize, Status> {
        let storage = Storage::new(bytes, self.poison)?;
        let base = storage.start.as_ptr().expose_provenance();
        let mut blocks = self.write();
        // The allocator can only return this range if the caller freed registered memory without unregistering it.
        let stale: Vec<usize> = overlapping(&blocks, base, bytes).map(|block| block.base).collect();
        for base in stale {
            blocks.remove(&base);
        }
        let block = Block { base, bytes, device, kind, flags, _storage: Some(storage), _charges: charges };
        blocks.insert(base, Arc::new(block));
        Ok(base)
    }

    /// Registers the caller's own memory for the device.
    pub(crate) fn register(&self, address: usize, bytes: usize, device: usize, flags: u32) -> Result<(), Status> {
        if address == 0 || bytes == 0 || address.checked_add(bytes).is_none() {
            return Err(Status::InvalidValue);
        }
        let mut blocks = self.write();
        if overlapping(&blocks, address, bytes).next().is_some() {
            return Err(Status::HostMemoryAlreadyRegistered);
        }
        let kind = Kind::Registered;
        let block = Block { base: address, bytes, device, kind, flags, _storage: None, _charges: Vec::new() };
        blocks.insert(address, Arc::new(block));
        Ok(())
    }

    /// Removes the allocation that starts at `base`, if it is of an accepted kind; new operations no longer find it.
    pub(crate) fn take(&self, base: usize, accept: impl Fn(Kind) -> bool) -> Option<Arc<Block>> {
        let mut blocks = self.write();
        if accept(blocks.get(&base)?.kind) { blocks.remove(&base) } else { None }
    }

    /// The allocation that contains `address`.
    pub(crate) fn find(&self, address: usize) -> Option<Arc<Block>> {
        let blocks = self.read();
        let (_, block) = blocks.range(..=address).next_back()?;
        (address - block.base < block.bytes).then(|| Arc::clone(block))
    }

    fn read(&self) -> RwLockReadGuard<'_, Blocks> {
        self.blocks.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Blocks> {
        self.blocks.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overlapping(blocks: &Blocks, base: usize, bytes: usize) -> impl Iterator<Item = &Arc<Block>> {
    let before =
        blocks.range(..base).next_back().map(|(_, block)| block).filter(move |block| block.base + block.bytes > base);
    before.into_iter().chain(blocks.range(base..base.saturating_add(bytes)).map(|(_, block)| block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_budget_refuses_large_allocations_until_memory_is_released() {
        let budget = Budget::new(1024);
        let first = budget.charge(600).expect("fits");
        assert_eq!(budget.used(), 768);
        assert!(matches!(budget.charge(512), Err(Status::OutOfMemory)));
        drop(first);
        let second = budget.charge(1024).expect("fits after the release");
        drop(second);
        assert_eq!((budget.used(), budget.peak()), (0, 1024));
        assert!(budget.charge(usize::MAX).is_err());
    }

    #[test]
    fn a_block_is_found_by_every_address_inside_and_by_none_outside() {
        let memory = Memory::new(false);
        let base = memory.allocate(Kind::Device, 0, 100, 0, Vec::new()).expect("memory");
        assert_eq!(base % ALIGNMENT, 0);
        assert!(memory.find(base).is_some_and(|block| block.base == base));
        assert!(memory.find(base + 99).is_some_and(|block| block.base == base));
        assert!(memory.find(base + 100).is_none());
        assert!(memory.find(base - 1).is_none());
        assert!(memory.take(base, |kind| kind == Kind::Pinned).is_none());
        assert!(memory.take(base + 1, |_| true).is_none());
        assert!(memory.take(base, Kind::is_device).is_some());
        assert!(memory.take(base, Kind::is_device).is_none());
    }

    proptest! {
        /// Compared with plain arithmetic on wide integers.
        #[test]
        fn holds_agrees_with_wide_arithmetic(base in 1usize..1000, size in 0usize..300, at in 0usize..1500, bytes in prop_oneof![0usize..400, Just(usize::MAX)]) {
            let block = Block { base, bytes: size, device: 0, kind: Kind::Device, flags: 0, _storage: None, _charges: Vec::new() };
            let inside = at >= base && at as u128 + bytes as u128 <= base as u128 + size as u128;
            prop_assert_eq!(block.holds(at, bytes), inside);
        }

        #[test]
        fn registered_ranges_never_overlap(ranges in prop::collection::vec((1usize..64, 1usize..16), 1..40)) {
            let memory = Memory::new(false);
            let mut taken = [false; 128];
            for (base, bytes) in ranges {
                let free = !taken[base..base + bytes].contains(&true);
                let answer = memory.register(base, bytes, 0, 0);
                prop_assert_eq!(answer.is_ok(), free);
                if free {
                    taken[base..base + bytes].fill(true);
                }
            }
        }
    }
}
