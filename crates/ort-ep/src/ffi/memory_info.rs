//! Memory infos. ONNX Runtime keeps the addresses of those it is offered, so the factory owns them.
use std::ptr;

use ort_ep_sys as sys;

use super::runtime::{c_string, text};
use crate::{DeviceKind, MemoryDevice, MemoryKind, OfferedMemory, Result, Runtime};

/// A memory info of the runtime that we own.
pub(super) struct MemoryInfo {
    runtime: Runtime,
    raw: *mut sys::OrtMemoryInfo,
    memory: MemoryDevice,
}

// SAFETY: a memory info never changes once it is made.
unsafe impl Send for MemoryInfo {}
// SAFETY: as above.
unsafe impl Sync for MemoryInfo {}

impl MemoryInfo {
    pub fn new(runtime: Runtime, offered: &OfferedMemory) -> Result<Self> {
        let name = c_string(&offered.name);
        let memory = offered.memory;
        let mut raw = ptr::null_mut();
        // SAFETY: the name is copied and `raw` is a valid out-pointer. Alignment 0 is what clients such as ONNX Runtime
        // GenAI use to look memories up.
        let status = unsafe {
            runtime.api.CreateMemoryInfo_V2(
                name.as_ptr(),
                memory.device.to_raw(),
                memory.vendor_id,
                memory.device_id as i32,
                memory.memory.to_raw(),
                0,
                sys::ORT_ALLOCATOR_DEVICE,
                &mut raw,
            )
        };
        runtime.check("CreateMemoryInfo_V2", status)?;
        Ok(Self { runtime, raw, memory })
    }

    /// A copy of another library's info.
    ///
    /// # Safety
    /// `raw` is alive for the call.
    pub unsafe fn copy_of(runtime: Runtime, raw: *const sys::OrtMemoryInfo) -> Result<Self> {
        let mut name = ptr::null();
        // SAFETY: guaranteed by the caller; the name lives as long as the info.
        let offered = unsafe {
            runtime.check("MemoryInfoGetName", runtime.api.MemoryInfoGetName(raw, &mut name))?;
            OfferedMemory { name: text(name).into_owned(), memory: MemoryDevice::of_info(runtime, raw) }
        };
        Self::new(runtime, &offered)
    }

    pub fn memory(&self) -> MemoryDevice {
        self.memory
    }

    pub fn as_ptr(&self) -> *const sys::OrtMemoryInfo {
        self.raw
    }

    /// The memory device inside; valid as long as the info.
    pub fn memory_device(&self) -> *const sys::OrtMemoryDevice {
        // SAFETY: the info is alive.
        unsafe { self.runtime.ep_api.MemoryInfo_GetMemoryDevice(self.raw) }
    }
}

impl Drop for MemoryInfo {
    fn drop(&mut self) {
        // SAFETY: made by `CreateMemoryInfo_V2`; the factory drops it after everything that points to it.
        unsafe { self.runtime.api.ReleaseMemoryInfo(self.raw) };
    }
}

impl MemoryDevice {
    /// Reads the runtime's description; null (a value that is not a tensor) reads as host memory.
    ///
    /// # Safety
    /// `raw` is null or a live memory device of this runtime.
    pub(crate) unsafe fn from_raw(runtime: Runtime, raw: *const sys::OrtMemoryDevice) -> Self {
        if raw.is_null() {
            return Self::CPU;
        }
        let api = runtime.ep_api;
        // SAFETY: the caller vouches for `raw`.
        unsafe {
            Self {
                device: DeviceKind::from_raw(api.MemoryDevice_GetDeviceType(raw)),
                memory: MemoryKind::from_raw(api.MemoryDevice_GetMemoryType(raw)),
                vendor_id: api.MemoryDevice_GetVendorId(raw),
                device_id: api.MemoryDevice_GetDeviceId(raw),
            }
        }
    }

    /// The memory of a memory info.
    ///
    /// # Safety
    /// `raw` is null or a live memory info of this runtime.
    pub(crate) unsafe fn of_info(runtime: Runtime, raw: *const sys::OrtMemoryInfo) -> Self {
        // SAFETY: the caller vouches for `raw`.
        unsafe {
            let device = if raw.is_null() { ptr::null() } else { runtime.ep_api.MemoryInfo_GetMemoryDevice(raw) };
            Self::from_raw(runtime, device)
        }
    }
}
