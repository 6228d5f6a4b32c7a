//! Memory that a plugin allocates for ONNX Runtime.
use std::ptr::NonNull;

use crate::Result;
use crate::view::RawStream;

pub use crate::ffi::{AllocatorHandle, HostBlock};

/// A block of memory that is freed when dropped.
///
/// # Safety
/// The address is the start of as many bytes as were requested, aligned to 256 bytes. No other live block shares them,
/// and they stay valid until the block is dropped. If `HOST_READABLE` is true, the host may read and write them like
/// ordinary memory.
pub unsafe trait Block: Send + 'static {
    /// True if the bytes are ordinary host memory.
    const HOST_READABLE: bool = false;

    /// The start of the block.
    fn address(&self) -> NonNull<u8>;
}

/// Allocates blocks. The SDK tracks the blocks ONNX Runtime holds, so freeing an unknown address, freeing twice and
/// freeing null are harmless.
pub trait Allocator: Send + Sync + 'static {
    /// The type of block.
    type Block: Block;

    /// True if [`alloc`](Self::alloc) uses the stream it is given.
    const STREAM_AWARE: bool = false;
    /// True if [`shrink`](Self::shrink) releases cached memory. ONNX Runtime then treats the allocator as an arena.
    const SHRINKS: bool = false;

    /// Allocates a block of at least `bytes` bytes, for work on `stream` if it is known.
    ///
    /// # Errors
    /// Out of memory: the allocation fails in ONNX Runtime, and the message is logged.
    fn alloc(&self, bytes: usize, stream: Option<RawStream>) -> Result<Self::Block>;

    /// Takes a block back. Work that uses it may still be queued on a device.
    fn free(&self, block: Self::Block) {
        drop(block);
    }

    /// Counters to report, if there are any.
    fn stats(&self) -> Option<AllocatorStats> {
        None
    }

    /// Releases cached memory.
    ///
    /// # Errors
    /// Any error of the device.
    fn shrink(&self) -> Result<()> {
        Ok(())
    }
}

/// Counters with the names ONNX Runtime's own arena uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorStats {
    /// The limit on bytes allocated from the device; 0 if there is no limit.
    pub limit: u64,
    /// Bytes in blocks that are in use.
    pub in_use: u64,
    /// Bytes allocated from the device, including cached blocks.
    pub total_allocated: u64,
    /// The peak of `in_use`.
    pub max_in_use: u64,
    /// Number of requests served.
    pub num_allocs: u64,
    /// Number of requests that needed new memory from the device.
    pub num_arena_extensions: u64,
    /// Number of times cached memory was released.
    pub num_arena_shrinkages: u64,
    /// The largest request.
    pub max_alloc_size: u64,
}

impl AllocatorStats {
    /// Name and value of each counter.
    pub(crate) fn entries(&self) -> [(&'static str, u64); 8] {
        [
            ("Limit", self.limit),
            ("InUse", self.in_use),
            ("TotalAllocated", self.total_allocated),
            ("MaxInUse", self.max_in_use),
            ("NumAllocs", self.num_allocs),
            ("NumArenaExtensions", self.num_arena_extensions),
            ("NumArenaShrinkages", self.num_arena_shrinkages),
            ("MaxAllocSize", self.max_alloc_size),
        ]
    }
}

/// Ordinary memory, for execution providers that compute on the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostAllocator;

impl Allocator for HostAllocator {
    type Block = HostBlock;

    fn alloc(&self, bytes: usize, _: Option<RawStream>) -> Result<HostBlock> {
        HostBlock::new(bytes)
    }
}
