//! Access to memory by GPU address. The runtime reads and writes the same memory at the same time.

use crate::aperture::Unmapped;

/// An access that cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// Nothing is allocated there.
    #[error(transparent)]
    Unmapped(#[from] Unmapped),
    /// An atomic access at an odd address.
    #[error("atomic access to {bytes} bytes at GPU address {address:#x}, which is not aligned")]
    Misaligned {
        /// The address of the access.
        address: u64,
        /// Its length.
        bytes: u64,
    },
}

/// Memory of the process by GPU address.
pub trait Memory: Send + Sync {
    /// Copies bytes out of it.
    ///
    /// # Errors
    /// When a part of the range is not allocated.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), AccessError>;

    /// Copies bytes into it.
    ///
    /// # Errors
    /// When a part of the range is not allocated.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), AccessError>;

    /// Copies within it; the ranges may overlap.
    ///
    /// # Errors
    /// When a part of a range is not allocated.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), AccessError>;

    /// Writes `elements` copies of `element` one after the other.
    ///
    /// # Errors
    /// When a part of the range is not allocated.
    fn fill(&self, address: u64, element: &[u8], elements: u64) -> Result<(), AccessError>;

    /// Reads four bytes at once, before all later accesses.
    ///
    /// # Errors
    /// When the address is not allocated or not aligned.
    fn load_u32(&self, address: u64) -> Result<u32, AccessError>;

    /// Reads eight bytes at once, before all later accesses.
    ///
    /// # Errors
    /// When the address is not allocated or not aligned.
    fn load_u64(&self, address: u64) -> Result<u64, AccessError>;

    /// Writes four bytes at once, after all earlier accesses.
    ///
    /// # Errors
    /// When the address is not allocated or not aligned.
    fn store_u32(&self, address: u64, value: u32) -> Result<(), AccessError>;

    /// Writes eight bytes at once, after all earlier accesses.
    ///
    /// # Errors
    /// When the address is not allocated or not aligned.
    fn store_u64(&self, address: u64, value: u64) -> Result<(), AccessError>;

    /// Adds to eight bytes at once, with wrap-around.
    ///
    /// # Errors
    /// When the address is not allocated or not aligned.
    fn add_u64(&self, address: u64, value: u64) -> Result<(), AccessError>;
}

/// Memory for tests: `BYTES` zeroes from GPU address `START`.
#[cfg(test)]
pub(crate) mod fake {
    use std::sync::Mutex;

    use super::*;

    pub const START: u64 = 0x1000;
    pub const BYTES: u64 = 0x1000;

    pub struct Fake(Mutex<Vec<u8>>);

    impl Fake {
        pub fn new() -> Self {
            Self(Mutex::new(vec![0; BYTES as usize]))
        }

        fn with<T>(&self, address: u64, bytes: u64, use_it: impl FnOnce(&mut [u8]) -> T) -> Result<T, AccessError> {
            let unmapped = Unmapped { address, bytes };
            let at = address.checked_sub(START).ok_or(unmapped)?;
            let end = at.checked_add(bytes).filter(|&end| end <= BYTES).ok_or(unmapped)?;
            Ok(use_it(&mut self.0.lock().unwrap()[at as usize..end as usize]))
        }

        fn aligned<T>(&self, address: u64, bytes: u64, use_it: impl FnOnce(&mut [u8]) -> T) -> Result<T, AccessError> {
            if !address.is_multiple_of(bytes) {
                return Err(AccessError::Misaligned { address, bytes });
            }
            self.with(address, bytes, use_it)
        }
    }

    impl Memory for Fake {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), AccessError> {
            self.with(address, into.len() as u64, |bytes| into.copy_from_slice(bytes))
        }

        fn write(&self, address: u64, from: &[u8]) -> Result<(), AccessError> {
            self.with(address, from.len() as u64, |bytes| bytes.copy_from_slice(from))
        }

        fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), AccessError> {
            let moved = self.with(from, bytes, |bytes| bytes.to_vec())?;
            self.write(to, &moved)
        }

        fn fill(&self, address: u64, element: &[u8], elements: u64) -> Result<(), AccessError> {
            let bytes = elements.saturating_mul(element.len() as u64);
            self.with(address, bytes, |bytes| {
                bytes.chunks_mut(element.len()).for_each(|to| to.copy_from_slice(element))
            })
        }

        fn load_u32(&self, address: u64) -> Result<u32, AccessError> {
            self.aligned(address, 4, |bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
        }

        fn load_u64(&self, address: u64) -> Result<u64, AccessError> {
            self.aligned(address, 8, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        }

        fn store_u32(&self, address: u64, value: u32) -> Result<(), AccessError> {
            self.aligned(address, 4, |bytes| bytes.copy_from_slice(&value.to_le_bytes()))
        }

        fn store_u64(&self, address: u64, value: u64) -> Result<(), AccessError> {
            self.aligned(address, 8, |bytes| bytes.copy_from_slice(&value.to_le_bytes()))
        }

        fn add_u64(&self, address: u64, value: u64) -> Result<(), AccessError> {
            let sum = self.load_u64(address)?.wrapping_add(value);
            self.store_u64(address, sum)
        }
    }
}
