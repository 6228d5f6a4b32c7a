//! Accesses to host memory that other threads may access at the same time: all of them are atomic operations.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A buffer of the emulator's own.
pub struct Block {
    words: Box<[AtomicU64]>,
    bytes: u64,
}

impl Block {
    pub fn new(bytes: u64) -> Block {
        Block { words: (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(), bytes }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn window(&self, first: u64) -> Window {
        Window { first, bytes: self.bytes, host: self.words.as_ptr().cast_mut().cast() }
    }
}

/// A range of device addresses whose host memory is contiguous.
#[derive(Clone, Copy)]
pub struct Window {
    first: u64,
    bytes: u64,
    host: *mut u8,
}

// SAFETY: a window is an address range. Every access is an atomic operation, and the code that made the window vouches
// for the memory behind it: `Block` outlives the run, and the caller of `Memory::process` promised the rest.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// # Safety
    /// Every byte of the range that is accessed is mapped at `host`, and accessed only atomically by Rust code.
    pub const unsafe fn new(first: u64, bytes: u64, host: *mut u8) -> Window {
        Window { first, bytes, host }
    }

    /// Whether an access lies in the window.
    #[inline(always)]
    pub fn covers(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.first);
        offset < self.bytes && self.bytes - offset >= bytes
    }

    #[inline(always)]
    fn at<T>(&self, address: u64) -> Option<*mut T> {
        let there = self.covers(address, size_of::<T>() as u64);
        there.then(|| self.host.wrapping_add(address.wrapping_sub(self.first) as usize).cast())
    }

    #[inline(always)]
    fn aligned<T>(&self, address: u64) -> Option<&T> {
        let place = self.at::<T>(address)?;
        // SAFETY: `at` checked the range, and this checks the alignment; `T` is one of the atomic types.
        place.is_aligned().then(|| unsafe { &*place.cast_const() })
    }

    #[inline(always)]
    pub fn load8(&self, address: u64) -> Option<u8> {
        Some(self.aligned::<AtomicU8>(address)?.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub fn load16(&self, address: u64) -> Option<u16> {
        match self.aligned::<AtomicU16>(address) {
            Some(place) => Some(place.load(Ordering::Acquire)),
            None => Some(u16::from_le_bytes([self.load8(address)?, self.load8(address.wrapping_add(1))?])),
        }
    }

    #[inline(always)]
    pub fn load32(&self, address: u64) -> Option<u32> {
        match self.aligned::<AtomicU32>(address) {
            Some(place) => Some(place.load(Ordering::Acquire)),
            None => self.load32_bytes(address),
        }
    }

    #[cold]
    fn load32_bytes(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        for (byte, at) in bytes.iter_mut().zip(0u64..) {
            *byte = self.load8(address.wrapping_add(at))?;
        }
        Some(u32::from_le_bytes(bytes))
    }

    #[inline(always)]
    pub fn store8(&self, address: u64, value: u8) -> Option<()> {
        self.aligned::<AtomicU8>(address)?.store(value, Ordering::Release);
        Some(())
    }

    #[inline(always)]
    pub fn store16(&self, address: u64, value: u16) -> Option<()> {
        if let Some(place) = self.aligned::<AtomicU16>(address) {
            place.store(value, Ordering::Release);
            return Some(());
        }
        self.covers(address, 2).then_some(())?;
        value.to_le_bytes().into_iter().zip(address..).try_for_each(|(byte, at)| self.store8(at, byte))
    }

    #[inline(always)]
    pub fn store32(&self, address: u64, value: u32) -> Option<()> {
        if let Some(place) = self.aligned::<AtomicU32>(address) {
            place.store(value, Ordering::Release);
            return Some(());
        }
        self.covers(address, 4).then_some(())?;
        value.to_le_bytes().into_iter().zip(address..).try_for_each(|(byte, at)| self.store8(at, byte))
    }

    /// Replaces 32 bits by a function of them and returns the old ones. The address must be aligned.
    #[inline]
    pub fn update32(&self, address: u64, change: impl Fn(u32) -> u32) -> Option<u32> {
        let place = self.aligned::<AtomicU32>(address)?;
        let updated = place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(change(old)));
        Some(updated.unwrap_or_else(|old| old))
    }

    /// Replaces 64 bits by a function of them and returns the old ones. The address must be aligned.
    #[inline]
    pub fn update64(&self, address: u64, change: impl Fn(u64) -> u64) -> Option<u64> {
        let place = self.aligned::<AtomicU64>(address)?;
        let updated = place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(change(old)));
        Some(updated.unwrap_or_else(|old| old))
    }
}
