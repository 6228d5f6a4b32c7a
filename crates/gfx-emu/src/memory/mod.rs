//! Device addresses and the host memory behind them.

mod host;

pub(crate) use host::Window;

use crate::sanitize::{Sanitizer, Visibility};
use host::Block;

/// The first device address of owned memory: high enough that a stray 32-bit value is never a valid address.
const FIRST: u64 = 0x7e00_0000_0000;
/// Distance between owned buffers, so that an access past the end of one does not reach the next.
const GAP: u64 = 0x1_0000;

/// The memory that kernels see.
///
/// Tests own their buffers ([`Memory::owned`]); an access outside them is a [`Fault`](crate::Fault). Under AMD's
/// runtime, device addresses are addresses of the process ([`Memory::process`]).
pub struct Memory {
    kind: Kind,
    sanitizer: Option<Sanitizer>,
}

enum Kind {
    Owned(Vec<(u64, Block)>),
    Process { aperture: Window, rest: Window },
}

impl Memory {
    /// Memory that holds only what [`Memory::allocate`] adds.
    pub fn owned() -> Memory {
        Memory { kind: Kind::Owned(Vec::new()), sanitizer: None }
    }

    /// The memory of this process: addresses below `aperture_bytes` are relative to `aperture`, all others are addresses
    /// of the process.
    ///
    /// # Safety
    /// As long as this value is used, every address that a kernel accesses is mapped, and what lies there is memory
    /// that the runtime handed to the device: no Rust reference covers it.
    pub unsafe fn process(aperture: *mut u8, aperture_bytes: u64) -> Memory {
        // SAFETY: the caller vouches for the addresses that kernels use, and no others are accessed.
        let (aperture, rest) = unsafe {
            let rest = Window::new(aperture_bytes, (1 << 48) - aperture_bytes, aperture_bytes as usize as *mut u8);
            (Window::new(0, aperture_bytes, aperture), rest)
        };
        Memory { kind: Kind::Process { aperture, rest }, sanitizer: None }
    }

    /// Tells a sanitizer about buffers from now on, and about what the host writes to them.
    #[must_use]
    pub fn watched_by(mut self, sanitizer: &Sanitizer) -> Memory {
        self.sanitizer = Some(sanitizer.clone());
        self
    }

    /// The sanitizer to report to.
    pub fn sanitizer(&self) -> Option<&Sanitizer> {
        self.sanitizer.as_ref()
    }

    /// Adds a buffer of zeros and returns its device address, a multiple of 4096. To a sanitizer, the buffer counts as
    /// never written. The memory of a process does not change, and the address is 0.
    pub fn allocate(&mut self, bytes: u64) -> u64 {
        let Kind::Owned(blocks) = &mut self.kind else { return 0 };
        let first = blocks.last().map_or(FIRST, |(first, block)| (first + block.bytes() + GAP).next_multiple_of(4096));
        blocks.push((first, Block::new(bytes)));
        if let Some(sanitizer) = &self.sanitizer {
            sanitizer.shadow().allocated(first, bytes, Visibility::Device);
        }
        first
    }

    /// Removes the buffer that starts here.
    pub fn free(&mut self, address: u64) {
        let Kind::Owned(blocks) = &mut self.kind else { return };
        blocks.retain(|(first, _)| *first != address);
        if let Some(sanitizer) = &self.sanitizer {
            sanitizer.shadow().freed(address);
        }
    }

    /// Adds a buffer with this content.
    pub fn allocate_with(&mut self, content: &[u8]) -> u64 {
        let address = self.allocate(content.len() as u64);
        self.write(address, content);
        address
    }

    /// Copies bytes out of device memory, if all are mapped.
    pub fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let window = self.window(address)?;
        (0..bytes as u64).map(|at| window.load8(address + at)).collect()
    }

    /// Copies bytes to device memory; false if some are not mapped.
    #[must_use = "nothing is written outside mapped memory"]
    pub fn try_write(&self, address: u64, content: &[u8]) -> bool {
        let Some(window) = self.window(address) else { return false };
        if let Some(sanitizer) = &self.sanitizer {
            sanitizer.shadow().written(address, content.len() as u64);
        }
        content.iter().zip(address..).all(|(byte, at)| window.store8(at, *byte).is_some())
    }

    /// Copies bytes to device memory, as far as it is mapped.
    pub fn write(&self, address: u64, content: &[u8]) {
        let _ = self.try_write(address, content);
    }

    /// The mapped range around an address.
    #[inline]
    pub(crate) fn window(&self, address: u64) -> Option<Window> {
        match &self.kind {
            Kind::Owned(blocks) => {
                let after = blocks.partition_point(|(first, _)| *first <= address);
                let (first, block) = blocks.get(after.checked_sub(1)?)?;
                (address - first < block.bytes()).then(|| block.window(*first))
            }
            Kind::Process { aperture, rest } => Some(if aperture.covers(address, 1) { *aperture } else { *rest }),
        }
    }
}
