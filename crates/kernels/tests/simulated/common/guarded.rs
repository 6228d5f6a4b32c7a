//! Memory that detects out-of-bounds accesses by kernels.
#![allow(clippy::unwrap_used)]

/// Memory that ends at an inaccessible page, as closely as its alignment allows.
pub struct Guarded {
    base: *mut u8,
    mapped: usize,
    start: usize,
    bytes: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    /// Memory with this content, `shift` bytes after an aligned address.
    pub fn new(content: &[u8], shift: usize) -> Self {
        let room = (content.len() + shift).next_multiple_of(PAGE).max(PAGE);
        let mapped = room + PAGE;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous mapping at an address that the system chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, flags, -1, 0) }.cast::<u8>();
        assert_ne!(base.cast(), libc::MAP_FAILED);
        // SAFETY: the last page of the mapping created above.
        unsafe { libc::mprotect(base.add(room).cast(), PAGE, libc::PROT_NONE) };
        // Device memory has a larger alignment than any pack of elements.
        let start = room - (content.len() + shift).next_multiple_of(16) + shift;
        // SAFETY: `start` leaves enough space for the content before the last page.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), base.add(start), content.len()) };
        Self { base, mapped, start, bytes: content.len() }
    }

    /// The start of the memory.
    pub fn address(&self) -> *mut u8 {
        // SAFETY: `start` lies within the mapping.
        unsafe { self.base.add(self.start) }
    }

    /// The current content.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as `self`, and kernels that write it have ended.
        unsafe { std::slice::from_raw_parts(self.address(), self.bytes) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping created in `new`, unmapped only here.
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
    }
}
