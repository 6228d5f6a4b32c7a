//! Memory that ONNX Runtime asks a plugin for.
use std::ptr::NonNull;

use crate::{Result, view::RawStream};

pub use crate::ffi::{AllocatorHandle, HostBlock};

/// A block of memory that is freed when dropped.
///
/// # Safety
/// The address is the start of as many bytes as were asked for, aligned to 256 bytes, not shared with any other live
/// block, and stays so until the block is dropped. If `HOST_READABLE` is true, the host may read and write them like
/// ordinary memory.
pub unsafe trait Block: Send + 'static {
    /// True if the bytes are ordinary host memory.
    const HOST_READABLE: bool = false;

    /// Where the block starts.
    fn address(&self) -> NonNull<u8>;
}

/// Hands out blocks. The SDK keeps the blocks ONNX Runtime holds, so freeing an unknown address, freeing twice and
/// freeing null are harmless.
pub trait Allocator: Send + Sync + 'static {
    /// The kind of block handed out.
    type Block: Block;

    /// True if [`alloc`](Self::alloc) makes use of the stream it is told.
    const STREAM_AWARE: bool = false;
    /// True if [`shrink`](Self::shrink) gives cached memory back. ONNX Runtime then treats the allocator as an arena.
    const SHRINKS: bool = false;

    /// Makes a block of at least `bytes` bytes, for work on `stream` if it is known.
    ///
    /// # Errors
    /// Out of memory: ONNX Runtime is told so, and the message is logged.
    fn alloc(&self, bytes: usize, stream: Option<RawStream>) -> Result<Self::Block>;

    /// Takes a block back. Work that uses it may still be queued on a device.
    fn free(&self, block: Self::Block) {
        drop(block);
    }

    /// Counters to report, if there are any.
    fn stats(&self) -> Option<AllocatorStats> {
        None
    }

    /// Gives cached memory back.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn shrink(&self) -> Result<()> {
        Ok(())
    }
}

/// Counters under the names ONNX Runtime's own arena uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorStats {
    /// The most bytes that may be taken from the device; 0 if there is no limit.
    pub limit: u64,
    /// Bytes in blocks that are handed out.
    pub in_use: u64,
    /// Bytes taken from the device, cached blocks included.
    pub total_allocated: u64,
    /// The most bytes that were handed out at once.
    pub max_in_use: u64,
    /// How many requests were served.
    pub num_allocs: u64,
    /// How many requests needed new memory from the device.
    pub num_arena_extensions: u64,
    /// How often cached memory was given back.
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

/// Ordinary memory: for execution providers that compute on the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostAllocator;

impl Allocator for HostAllocator {
    type Block = HostBlock;

    fn alloc(&self, bytes: usize, _: Option<RawStream>) -> Result<HostBlock> {
        HostBlock::new(bytes)
    }
}
