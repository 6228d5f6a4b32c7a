//! What all sessions share of one device.
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use hip::{Device, DriverKind, HipError};
use ort_ep::{MemoryDevice, Result};

use crate::{
    AMD_VENDOR_ID,
    arena::Arena,
    memory::{DeviceSource, PinnedSource},
    status::hip_error,
    stream::{StreamFences, StreamSet},
};

/// A device with its memory and streams. One per device and process, however often the library is registered: to ONNX
/// Runtime the memory of two registrations is the same memory.
pub(crate) struct DeviceContext {
    pub device: Device,
    pub streams: Arc<StreamSet>,
    pub device_arena: Arena<DeviceSource, StreamFences>,
    pub pinned_arena: Arena<PinnedSource, StreamFences>,
    copy_stream: OnceLock<hip::Stream>,
}

/// A device's name within the process.
type Key = (DriverKind, usize);

/// The living contexts. The key stands beside the pointer because looking a device up must not touch the contexts of
/// others: whoever holds one last drops it, and dropping takes this lock.
static CONTEXTS: Mutex<Vec<(Key, Weak<DeviceContext>)>> = Mutex::new(Vec::new());

impl Drop for DeviceContext {
    fn drop(&mut self) {
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|(_, context)| context.strong_count() > 0);
        // The library may be unmapped next, and the static with it: it must not hold memory then.
        if contexts.is_empty() {
            *contexts = Vec::new();
        }
    }
}

impl DeviceContext {
    /// The context of a device: the living one, or a new one. Takes nothing from the driver yet.
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
            device_arena: Arena::new(DeviceSource(device.clone()), fences(), None),
            pinned_arena: Arena::new(PinnedSource(device.clone()), fences(), None),
            copy_stream: OnceLock::new(),
            streams,
            device,
        }
    }

    /// The stream for copies that are complete on return.
    ///
    /// The default stream would do, but AMD's runtime refuses to enqueue anything there while some stream of the process
    /// is being captured, and spoils the capture.
    pub fn copy_stream(&self) -> Result<&hip::Stream, HipError> {
        if let Some(stream) = self.copy_stream.get() {
            return Ok(stream);
        }
        let made = self.device.stream()?;
        Ok(self.copy_stream.get_or_init(|| made))
    }

    /// The device's number: its ordinal at the driver.
    pub fn id(&self) -> u32 {
        self.device.ordinal() as u32
    }

    /// Waits for everything queued on the device so far.
    pub fn synchronize(&self) -> Result<()> {
        self.streams.synchronize(&self.device).map_err(hip_error)
    }

    /// The driver behind it.
    pub fn driver(&self) -> DriverKind {
        self.device.kind()
    }

    /// What ONNX Runtime knows the device's memory by.
    pub fn memory(&self) -> MemoryDevice {
        MemoryDevice::gpu(AMD_VENDOR_ID, self.id())
    }
}
