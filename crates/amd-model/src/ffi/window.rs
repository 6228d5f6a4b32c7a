//! The memory that ROCr shares with the machine.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::aperture::Aperture;
use crate::memory::{AccessError, Memory};
use crate::sanitizer;

/// Memory of this process, by the GPU addresses of one device.
#[derive(Debug)]
pub struct Window {
    aperture: Aperture<'static>,
}

impl Window {
    /// # Safety
    /// Every allocation of the aperture is mapped, readable and writable, at the address that the aperture gives, until
    /// it is removed. Other addresses that packets name are memory of the process.
    pub const unsafe fn new(aperture: Aperture<'static>) -> Self {
        Self { aperture }
    }

    fn at(&self, address: u64, bytes: u64) -> Result<*mut u8, AccessError> {
        Ok(ptr::with_exposed_provenance_mut(self.aperture.resolve(address, bytes)? as usize))
    }

    fn aligned(&self, address: u64, bytes: u64) -> Result<*mut u8, AccessError> {
        let at = self.at(address, bytes)?;
        if (at.addr() as u64).is_multiple_of(bytes) { Ok(at) } else { Err(AccessError::Misaligned { address, bytes }) }
    }

    fn u32_at(&self, address: u64) -> Result<&AtomicU32, AccessError> {
        // SAFETY: `new`'s caller vouches for the memory, and `aligned` checked the alignment.
        Ok(unsafe { AtomicU32::from_ptr(self.aligned(address, 4)?.cast()) })
    }

    fn u64_at(&self, address: u64) -> Result<&AtomicU64, AccessError> {
        // SAFETY: as in `u32_at`.
        Ok(unsafe { AtomicU64::from_ptr(self.aligned(address, 8)?.cast()) })
    }
}

impl Memory for Window {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let from = self.at(address, into.len() as u64)?;
        // SAFETY: `new`'s caller vouches for the memory; a slice of Rust never lies in it.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), AccessError> {
        let to = self.at(address, from.len() as u64)?;
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        sanitizer::written(address, from.len() as u64);
        Ok(())
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), AccessError> {
        let (target, from) = (self.at(to, bytes)?, self.at(from, bytes)?);
        // SAFETY: `new`'s caller vouches for both ranges, which may overlap.
        unsafe { ptr::copy(from, target, bytes as usize) };
        sanitizer::written(to, bytes);
        Ok(())
    }

    fn fill(&self, address: u64, element: &[u8], elements: u64) -> Result<(), AccessError> {
        let bytes = elements.saturating_mul(element.len() as u64);
        let to = self.at(address, bytes)?;
        for at in (0..bytes as usize).step_by(element.len().max(1)) {
            // SAFETY: `new`'s caller vouches for the range, which has room for all elements.
            unsafe { ptr::copy_nonoverlapping(element.as_ptr(), to.add(at), element.len()) };
        }
        sanitizer::written(address, bytes);
        Ok(())
    }

    fn load_u32(&self, address: u64) -> Result<u32, AccessError> {
        Ok(self.u32_at(address)?.load(Ordering::Acquire))
    }

    fn load_u64(&self, address: u64) -> Result<u64, AccessError> {
        Ok(self.u64_at(address)?.load(Ordering::Acquire))
    }

    fn store_u32(&self, address: u64, value: u32) -> Result<(), AccessError> {
        self.u32_at(address)?.store(value, Ordering::Release);
        Ok(())
    }

    fn store_u64(&self, address: u64, value: u64) -> Result<(), AccessError> {
        self.u64_at(address)?.store(value, Ordering::Release);
        Ok(())
    }

    fn add_u64(&self, address: u64, value: u64) -> Result<(), AccessError> {
        self.u64_at(address)?.fetch_add(value, Ordering::SeqCst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aperture::Allocations;

    fn window(pages: &mut [u64]) -> Window {
        static ALLOCATIONS: Allocations = Allocations::new();
        ALLOCATIONS.add(0x2000, 64);
        let base = pages.as_mut_ptr().expose_provenance() as u64 - 0x2000;
        // SAFETY: the only allocation lies in `pages`, which the tests keep.
        unsafe { Window::new(Aperture::new(base, 1 << 38, &ALLOCATIONS)) }
    }

    #[test]
    fn accesses_reach_the_memory_of_the_allocation() {
        let mut pages = vec![0u64; 8];
        let window = window(&mut pages);
        window.write(0x2000, &[1, 2, 3, 4]).unwrap();
        window.copy(0x2002, 0x2000, 4).unwrap();
        window.fill(0x2010, &[7, 8], 3).unwrap();
        window.store_u64(0x2020, u64::MAX).unwrap();
        window.add_u64(0x2020, 3).unwrap();
        window.store_u32(0x2028, 9).unwrap();
        let mut got = [0; 6];
        window.read(0x2000, &mut got).unwrap();
        assert_eq!(got, [1, 2, 1, 2, 3, 4]);
        window.read(0x2010, &mut got).unwrap();
        assert_eq!(got, [7, 8, 7, 8, 7, 8]);
        assert_eq!((window.load_u64(0x2020), window.load_u32(0x2028)), (Ok(2), Ok(9)));
    }

    #[test]
    fn accesses_outside_or_across_the_alignment_are_errors() {
        let mut pages = vec![0u64; 8];
        let window = window(&mut pages);
        assert!(window.write(0x203e, &[0; 4]).is_err());
        assert!(window.copy(0x2000, 0x3000, 4).is_err());
        assert!(window.fill(0x2000, &[0; 4], u64::MAX).is_err());
        assert_eq!(window.load_u64(0x2004), Err(AccessError::Misaligned { address: 0x2004, bytes: 8 }));
        assert!(window.load_u32(0x2040).is_err());
    }
}
