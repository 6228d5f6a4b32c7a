//! Maps addresses to devices.
//!
//! Copies arrive as bare addresses, some of them from other sessions or other registrations of this library. Every
//! block allocated from a driver is registered here while it lives, so an address inside one resolves exactly.
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// The owner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Memory of the device with this ordinal.
    Device(usize),
    /// Host memory pinned for devices.
    Pinned,
}

/// The block that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContainingBlock {
    pub owner: Owner,
    /// Bytes from the address to the end of its block.
    pub bytes_left: usize,
}

static BLOCKS: RwLock<BTreeMap<usize, (usize, Owner)>> = RwLock::new(BTreeMap::new());

/// Keeps a block registered; dropped before the block itself, because the driver may reuse its address at once.
#[derive(Debug)]
pub(crate) struct Entry {
    base: usize,
}

/// Registers a block.
pub(crate) fn enter(base: usize, bytes: usize, owner: Owner) -> Entry {
    BLOCKS.write().unwrap_or_else(PoisonError::into_inner).insert(base, (bytes, owner));
    Entry { base }
}

/// The block that contains `address`, if it is one of ours.
pub(crate) fn find(address: usize) -> Option<ContainingBlock> {
    let blocks = BLOCKS.read().unwrap_or_else(PoisonError::into_inner);
    let (&base, &(bytes, owner)) = blocks.range(..=address).next_back()?;
    let offset = address - base;
    (offset < bytes).then(|| ContainingBlock { owner, bytes_left: bytes - offset })
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut blocks = BLOCKS.write().unwrap_or_else(PoisonError::into_inner);
        blocks.remove(&self.base);
        // Even an empty map keeps a node, which would leak when the library is unmapped.
        if blocks.is_empty() {
            *blocks = BTreeMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_block_that_contains_an_address() {
        // Far from any address of a real block.
        let base = 0x7000_0000_0000_0000;
        let entry = enter(base, 0x100, Owner::Device(3));
        let next = enter(base + 0x100, 0x10, Owner::Pinned);
        assert_eq!(find(base), Some(ContainingBlock { owner: Owner::Device(3), bytes_left: 0x100 }));
        assert_eq!(find(base + 0xff), Some(ContainingBlock { owner: Owner::Device(3), bytes_left: 1 }));
        assert_eq!(find(base + 0x100), Some(ContainingBlock { owner: Owner::Pinned, bytes_left: 0x10 }));
        assert_eq!(find(base + 0x110), None);
        assert_eq!(find(base - 1), None);
        drop(entry);
        assert_eq!(find(base + 0x20), None);
        drop(next);
    }
}
