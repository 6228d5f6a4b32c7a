//! Memory, copies and streams of a device simulated in RAM.
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ort_ep::allocator::HostBlock;
use ort_ep::view::RawStream;
use ort_ep::{
    Allocator, AllocatorStats, DataTransfer, DeviceKind, MemoryDevice, Notification, Result, Stream, SyncStream,
    TensorCopy,
};

use crate::control::{Gone, note, note_infallible};
use crate::factory::VENDOR;

pub struct HooksAllocator {
    memory: MemoryDevice,
    stats: Mutex<AllocatorStats>,
    _gone: Gone,
}

impl HooksAllocator {
    pub fn new(memory: MemoryDevice) -> Self {
        Self { memory, stats: Mutex::default(), _gone: Gone("allocator.drop") }
    }
}

impl Allocator for HooksAllocator {
    type Block = HostBlock;
    const STREAM_AWARE: bool = true;
    const SHRINKS: bool = true;

    fn alloc(&self, bytes: usize, stream: Option<RawStream>) -> Result<HostBlock> {
        let place = format!("{:?}{}", self.memory.memory, self.memory.device_id);
        note("allocator.alloc", format_args!("{place} {bytes} stream={}", stream.is_some()))?;
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.num_allocs += 1;
        stats.max_alloc_size = stats.max_alloc_size.max(bytes as u64);
        HostBlock::new(bytes)
    }

    fn free(&self, block: HostBlock) {
        note_infallible("allocator.free", "");
        drop(block);
        note_infallible("allocator.freed", "");
    }

    fn stats(&self) -> Option<AllocatorStats> {
        note_infallible("allocator.stats", "");
        Some(*self.stats.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn shrink(&self) -> Result<()> {
        note("allocator.shrink", format_args!("{:?}{}", self.memory.memory, self.memory.device_id))
    }
}

pub struct HooksTransfer {
    _gone: Gone,
}

impl Default for HooksTransfer {
    fn default() -> Self {
        Self { _gone: Gone("transfer.drop") }
    }
}

fn is_ours(memory: MemoryDevice) -> bool {
    memory.device == DeviceKind::Gpu && memory.vendor_id == VENDOR
}

impl DataTransfer for HooksTransfer {
    fn can_copy(&self, src: MemoryDevice, dst: MemoryDevice) -> bool {
        note_infallible("transfer.can_copy", "");
        let reaches = |memory| is_ours(memory) || memory == MemoryDevice::CPU;
        (is_ours(src) || is_ours(dst)) && reaches(src) && reaches(dst)
    }

    fn copy(&self, copies: &mut [TensorCopy<'_>]) -> Result<()> {
        for copy in copies {
            let (src, dst) = (copy.src.memory(), copy.dst.memory());
            let arrow = format!("{:?}{}->{:?}{}", src.device, src.device_id, dst.device, dst.device_id);
            note("transfer.copy", format_args!("{arrow} stream={}", copy.stream.is_some()))?;
            copy.dst.bytes_mut()?.copy_from_slice(copy.src.bytes()?);
        }
        Ok(())
    }
}

/// Work runs synchronously, so there is never anything to wait for: only the calls matter.
pub struct HooksStream {
    number: usize,
    device: u32,
    _gone: Gone,
}

impl HooksStream {
    pub fn new(device: u32) -> Self {
        static STREAMS: AtomicUsize = AtomicUsize::new(1);
        let number = STREAMS.fetch_add(1, Ordering::Relaxed);
        Self { number, device, _gone: Gone("stream.drop") }
    }

    /// Represents the driver's default stream.
    pub fn of_default(device: u32) -> Self {
        Self { number: 0, device, _gone: Gone("stream.drop") }
    }
}

impl Stream for HooksStream {
    fn handle(&self) -> RawStream {
        note_infallible("stream.handle", "");
        RawStream::new(ptr::without_provenance_mut(self.number))
    }

    fn notification(&self) -> Result<Box<dyn Notification>> {
        note("stream.notification", self.device)?;
        Ok(Box::new(HooksNotification { device: self.device, _gone: Gone("notification.drop") }))
    }

    fn flush(&self) -> Result<()> {
        note("stream.flush", self.device)
    }

    fn on_run_end(&self) -> Result<()> {
        note("stream.on_run_end", self.device)
    }
}

struct HooksNotification {
    device: u32,
    _gone: Gone,
}

impl Notification for HooksNotification {
    fn activate(&self) -> Result<()> {
        note("notification.activate", self.device)
    }

    fn wait_on_device(&self, consumer: Option<SyncStream<'_>>) -> Result<()> {
        let found = consumer.map(|consumer| {
            let ours = consumer.downcast::<HooksStream>();
            ours.map(|stream| {
                (stream.device, consumer.handle() == RawStream::new(ptr::without_provenance_mut(stream.number)))
            })
        });
        note("notification.wait_on_device", format_args!("{} waits: {found:?}", self.device))
    }

    fn wait_on_host(&self) -> Result<()> {
        note("notification.wait_on_host", self.device)
    }
}
