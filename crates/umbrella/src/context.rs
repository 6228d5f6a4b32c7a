//! The state of one device that all sessions share.
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use hip::{Device, DriverKind, HipError};
use ort_ep::{MemoryDevice, Result};

use crate::AMD_VENDOR_ID;
use crate::caching_allocator::CachingAllocator;
use crate::memory::{DeviceSource, PinnedSource};
use crate::status::hip_error;
use crate::stream::{StreamFences, StreamSet};

/// A device with its memory and streams. One per device and process, however often the library is registered: ONNX
/// Runtime treats the memory of two registrations as the same memory.
pub(crate) struct DeviceContext {
    pub device: Device,
    pub streams: Arc<StreamSet>,
    pub device_memory: CachingAllocator<DeviceSource, StreamFences>,
    pub pinned_memory: CachingAllocator<PinnedSource, StreamFences>,
    copy_stream: OnceLock<hip::Stream>,
}

/// Identifies a device within the process.
type Key = (DriverKind, usize);

/// The live contexts. The key is stored next to the pointer because looking up a device must not touch the contexts of
/// others: dropping the last reference to one takes this lock.
static CONTEXTS: Mutex<Vec<(Key, Weak<DeviceContext>)>> = Mutex::new(Vec::new());

impl Drop for DeviceContext {
    fn drop(&mut self) {
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|(_, context)| context.strong_count() > 0);
        // The library may be unmapped next, together with this static: it must not hold memory then.
        if contexts.is_empty() {
            *contexts = Vec::new();
        }
    }
}

impl DeviceContext {
    /// The context of a device: the existing one, or a new one. Allocates nothing from the driver yet.
    pub fn of(device: &Device) -> Arc<Self> {
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = (device.kind(), device.ordinal());
        let living = contexts.iter().filter(|(key, _)| *key == wanted).find_map(|(_, context)| context.upgrade());
        living.unwrap_or_else(|| {
            let context = Arc::new(Self::new(device.clone()));
            contexts.push((wanted, Arc::downgrade(&context)));
            context
        })
    }

    fn new(device: Device) -> Self {
        let streams = Arc::new(StreamSet::default());
        let fences = || StreamFences::new(device.clone(), streams.clone());
        Self {
            device_memory: CachingAllocator::new(DeviceSource(device.clone()), fences(), None),
            pinned_memory: CachingAllocator::new(PinnedSource(device.clone()), fences(), None),
            copy_stream: OnceLock::new(),
            streams,
            device,
        }
    }

    /// The stream for copies that are complete on return.
    ///
    /// The default stream would work, but AMD's runtime refuses to enqueue anything there while any stream of the
    /// process is being captured, and invalidates the capture.
    pub fn copy_stream(&self) -> Result<&hip::Stream, HipError> {
        if let Some(stream) = self.copy_stream.get() {
            return Ok(stream);
        }
        let made = self.device.stream()?;
        Ok(self.copy_stream.get_or_init(|| made))
    }

    /// The device's ordinal at the driver.
    pub fn id(&self) -> u32 {
        self.device.ordinal() as u32
    }

    /// Waits for everything queued on the device so far.
    pub fn synchronize(&self) -> Result<()> {
        self.streams.synchronize(&self.device).map_err(hip_error)
    }

    /// The driver.
    pub fn driver(&self) -> DriverKind {
        self.device.kind()
    }

    /// How ONNX Runtime identifies the device's memory.
    pub fn memory(&self) -> MemoryDevice {
        MemoryDevice::gpu(AMD_VENDOR_ID, self.id())
    }
}
