//! GPU addresses: which of them are allocated, and where they lie in this process.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

/// An access to memory that no allocation covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("access to {bytes} bytes at GPU address {address:#x}, which no allocation covers")]
pub struct Unmapped {
    /// The first address of the access.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// The allocations of all devices of the process, which share one address space.
#[derive(Debug, Default)]
pub struct Allocations {
    /// Ends by start.
    ranges: RwLock<BTreeMap<u64, u64>>,
}

impl Allocations {
    /// No allocations.
    pub const fn new() -> Self {
        Self { ranges: RwLock::new(BTreeMap::new()) }
    }

    /// Adds an allocation.
    pub fn add(&self, start: u64, bytes: u64) {
        let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        ranges.insert(start, start.saturating_add(bytes));
    }

    /// Removes the allocation that starts here.
    pub fn remove(&self, start: u64) {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }

    /// The allocation that contains this address.
    pub fn containing(&self, address: u64) -> Option<Range<u64>> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let (&start, &end) = ranges.range(..=address).next_back()?;
        (address < end).then_some(start..end)
    }

    /// Whether one or several adjacent allocations contain the whole range.
    fn contain(&self, mut address: u64, end: u64) -> bool {
        while address < end {
            match self.containing(address) {
                Some(range) => address = range.end,
                None => return false,
            }
        }
        true
    }
}

/// A device's view of memory: GPU address 0 lies at `base`, and addresses from `bytes` on are addresses of the process.
#[derive(Debug, Clone, Copy)]
pub struct Aperture<'a> {
    base: u64,
    bytes: u64,
    allocations: &'a Allocations,
}

/// Nothing is mapped in the first page of a process.
const FIRST_PAGE: u64 = 4096;

impl<'a> Aperture<'a> {
    /// An aperture of this size at this address of the process.
    pub const fn new(base: u64, bytes: u64, allocations: &'a Allocations) -> Self {
        Self { base, bytes, allocations }
    }

    /// The address in this process of `bytes` bytes at a GPU address.
    ///
    /// # Errors
    /// When the range is in the aperture, but not allocated.
    pub fn resolve(&self, address: u64, bytes: u64) -> Result<u64, Unmapped> {
        let unmapped = Unmapped { address, bytes };
        let end = address.checked_add(bytes).ok_or(unmapped)?;
        if address >= self.bytes {
            return Ok(address);
        }
        if address < FIRST_PAGE || end > self.bytes || !self.allocations.contain(address, end) {
            return Err(unmapped);
        }
        self.base.checked_add(address).ok_or(unmapped)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: u64 = 0x7000_0000_0000;
    const BYTES: u64 = 1 << 38;

    fn allocated() -> Allocations {
        let allocations = Allocations::new();
        allocations.add(0x10_000, 0x1000);
        allocations.add(0x11_000, 0x1000);
        allocations.add(0x20_000, 0x1000);
        allocations
    }

    #[test]
    fn addresses_below_the_size_are_relative_to_the_base() {
        let allocations = allocated();
        let aperture = Aperture::new(BASE, BYTES, &allocations);
        assert_eq!(aperture.resolve(0x10_010, 8), Ok(BASE + 0x10_010));
        assert_eq!(aperture.resolve(0x7fff_0000_0000, 8), Ok(0x7fff_0000_0000));
    }

    #[test]
    fn ranges_may_span_adjacent_allocations_but_no_gap() {
        let allocations = allocated();
        let aperture = Aperture::new(BASE, BYTES, &allocations);
        assert_eq!(aperture.resolve(0x10_ff8, 16), Ok(BASE + 0x10_ff8));
        let gap = Unmapped { address: 0x11_ff8, bytes: 16 };
        assert_eq!(aperture.resolve(0x11_ff8, 16), Err(gap));
        assert_eq!(gap.to_string(), "access to 16 bytes at GPU address 0x11ff8, which no allocation covers");
    }

    #[test]
    fn freed_memory_and_null_are_unmapped() {
        let allocations = allocated();
        allocations.add(0, 0x1000);
        let aperture = Aperture::new(BASE, BYTES, &allocations);
        assert!(aperture.resolve(0x20_000, 4).is_ok());
        allocations.remove(0x20_000);
        assert!(aperture.resolve(0x20_000, 4).is_err());
        assert!(aperture.resolve(8, 4).is_err());
        assert_eq!(
            (allocations.containing(0x11_fff), allocations.containing(0x12_000)),
            (Some(0x11_000..0x12_000), None)
        );
    }

    proptest! {
        #[test]
        fn no_range_leaves_the_allocations(address in 0u64..0x30_000, bytes in 0u64..0x3000) {
            let allocations = allocated();
            let is_inside = |at: u64| (0x10_000..0x12_000).contains(&at) || (0x20_000..0x21_000).contains(&at);
            let resolved = Aperture::new(BASE, BYTES, &allocations).resolve(address, bytes);
            let wanted = address >= FIRST_PAGE && (address..address + bytes).step_by(0x100).chain((bytes > 0).then(|| address + bytes - 1)).all(is_inside);
            prop_assert_eq!(resolved.is_ok(), wanted);
        }

        #[test]
        fn no_range_wraps_around(address in any::<u64>(), bytes in any::<u64>()) {
            let allocations = allocated();
            if let Ok(at) = Aperture::new(BASE, BYTES, &allocations).resolve(address, bytes) {
                prop_assert!(at.checked_add(bytes).is_some());
            }
        }
    }
}
