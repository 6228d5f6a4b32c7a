//! Ordinary memory as a block.
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::allocator::Block;
use crate::{Error, Result};

const ALIGNMENT: usize = 256;

/// Zeroed bytes on the heap.
#[derive(Debug)]
pub struct HostBlock {
    address: NonNull<u8>,
    layout: Layout,
}

impl HostBlock {
    /// Allocates a block; even a block of zero bytes has a unique address.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(bytes: usize) -> Result<Self> {
        let out_of_memory = || Error::fail(format!("could not allocate {bytes} bytes of host memory"));
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| out_of_memory())?;
        // SAFETY: the layout is not empty.
        let address = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        Ok(Self { address, layout })
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        // SAFETY: `address` came from `alloc_zeroed` with this layout and is freed only here.
        unsafe { dealloc(self.address.as_ptr(), self.layout) }
    }
}

// SAFETY: the block owns its bytes, and any thread may use or free them.
unsafe impl Send for HostBlock {}

// SAFETY: heap memory of the requested size and alignment, owned by the block alone.
unsafe impl Block for HostBlock {
    const HOST_READABLE: bool = true;

    fn address(&self) -> NonNull<u8> {
        self.address
    }
}
