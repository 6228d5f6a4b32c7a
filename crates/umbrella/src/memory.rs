//! ONNX Runtime allocators, backed by the caching allocators of a device.
use std::sync::Arc;

use hip::{Device, DeviceBuffer, HipError, PinnedBuffer};
use ort_ep::view::RawStream;
use ort_ep::{Allocator, AllocatorStats, Result};

use crate::caching_allocator::{self, CachingAllocator, Source, Statistics};
use crate::context::DeviceContext;
use crate::ffi::Lease;
use crate::ownership::{self, Entry, Owner};
use crate::status;
use crate::stream::StreamFences;

/// A block allocated from the driver. Its entry is dropped before its memory.
pub(crate) struct Owned<B> {
    _entry: Entry,
    buffer: B,
}

/// Allocates device memory from a driver.
pub(crate) struct DeviceSource(pub Device);

impl Source for DeviceSource {
    type Block = Owned<DeviceBuffer>;
    type Error = HipError;

    fn alloc(&self, bytes: usize) -> Result<Self::Block, HipError> {
        let buffer = self.0.alloc(bytes)?;
        let owner = Owner::Device(self.0.ordinal());
        Ok(Owned { _entry: ownership::enter(buffer.address().as_ptr() as usize, bytes, owner), buffer })
    }
}

impl caching_allocator::Block for Owned<DeviceBuffer> {
    fn address(&self) -> usize {
        self.buffer.address().as_ptr() as usize
    }

    fn bytes(&self) -> usize {
        self.buffer.bytes()
    }
}

/// Allocates pinned host memory from a driver.
pub(crate) struct PinnedSource(pub Device);

impl Source for PinnedSource {
    type Block = Owned<PinnedBuffer>;
    type Error = HipError;

    fn alloc(&self, bytes: usize) -> Result<Self::Block, HipError> {
        let buffer = self.0.alloc_pinned(bytes)?;
        Ok(Owned { _entry: ownership::enter(buffer.address().as_ptr() as usize, bytes, Owner::Pinned), buffer })
    }
}

impl caching_allocator::Block for Owned<PinnedBuffer> {
    fn address(&self) -> usize {
        self.buffer.address().as_ptr() as usize
    }

    fn bytes(&self) -> usize {
        self.buffer.bytes()
    }
}

/// ONNX Runtime's allocator for a device's own memory.
pub(crate) struct DeviceAllocator(pub Arc<DeviceContext>);

impl Allocator for DeviceAllocator {
    type Block = Lease<DeviceSource>;
    const STREAM_AWARE: bool = true;
    const SHRINKS: bool = true;

    fn alloc(&self, bytes: usize, stream: Option<RawStream>) -> Result<Self::Block> {
        lease(&self.0.device_memory, bytes, stream)
    }

    fn stats(&self) -> Option<AllocatorStats> {
        Some(stats(self.0.device_memory.statistics()))
    }

    fn shrink(&self) -> Result<()> {
        self.0.device_memory.shrink();
        Ok(())
    }
}

/// ONNX Runtime's allocator for pinned host memory.
pub(crate) struct PinnedAllocator(pub Arc<DeviceContext>);

impl Allocator for PinnedAllocator {
    type Block = Lease<PinnedSource>;
    const SHRINKS: bool = true;

    fn alloc(&self, bytes: usize, stream: Option<RawStream>) -> Result<Self::Block> {
        lease(&self.0.pinned_memory, bytes, stream)
    }

    fn stats(&self) -> Option<AllocatorStats> {
        Some(stats(self.0.pinned_memory.statistics()))
    }

    fn shrink(&self) -> Result<()> {
        self.0.pinned_memory.shrink();
        Ok(())
    }
}

fn lease<S>(allocator: &CachingAllocator<S, StreamFences>, bytes: usize, stream: Option<RawStream>) -> Result<Lease<S>>
where
    S: Source<Error = HipError>,
{
    let block = allocator.alloc(bytes, stream.map(|stream| stream.as_ptr() as usize));
    block.map(Lease).map_err(status::alloc_error)
}

fn stats(from: Statistics) -> AllocatorStats {
    AllocatorStats {
        limit: from.limit.unwrap_or(0) as u64,
        in_use: from.in_use as u64,
        total_allocated: from.total_from_source as u64,
        max_in_use: from.max_in_use as u64,
        num_allocs: from.num_allocs,
        num_arena_extensions: from.num_source_allocs,
        num_arena_shrinkages: from.num_shrinks,
        max_alloc_size: from.max_alloc_size as u64,
    }
}
