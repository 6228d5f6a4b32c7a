//! The allocators that the environment shares for the memory of a device.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use ort_ep_sys::{self as sys, Api, OrtAllocator};

use crate::error::check;
use crate::text::pairs;
use crate::{Device, Error, Result};

/// A kind of memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceMemory {
    /// Memory of the device alone.
    Device,
    /// Memory that the CPU can read and write too.
    HostAccessible,
}

/// A shared allocator. It holds its device, so that the library stays registered.
#[derive(Clone, Debug)]
pub struct Allocator {
    raw: NonNull<OrtAllocator>,
    device: Device,
}

// SAFETY: allocators that the environment shares may be called from any thread.
unsafe impl Send for Allocator {}
// SAFETY: as above.
unsafe impl Sync for Allocator {}

impl Allocator {
    /// The environment's allocator for a memory of the device.
    ///
    /// # Errors
    /// When the device has no such memory.
    pub fn shared(device: &Device, memory: DeviceMemory) -> Result<Allocator> {
        let environment = device.registration().environment();
        let (api, mut raw) = (environment.api(), ptr::null_mut());
        let kind = match memory {
            DeviceMemory::Device => sys::ORT_MEMORY_DEFAULT,
            DeviceMemory::HostAccessible => sys::ORT_MEMORY_HOST_ACCESSIBLE,
        };
        // SAFETY: the device is alive; the info belongs to it, and the allocator to the environment until its library
        // is unregistered.
        unsafe {
            let info = api.EpDevice_MemoryInfo(device.as_ptr(), kind);
            if info.is_null() {
                return Err(Error::Nothing("memory of this kind"));
            }
            check(api, api.GetSharedAllocator(environment.as_ptr(), info, &mut raw))?;
        }
        let raw = NonNull::new(raw).ok_or(Error::Nothing("shared allocator"))?;
        Ok(Allocator { raw, device: device.clone() })
    }

    /// Allocates `bytes` and frees them again; returns the address.
    ///
    /// # Errors
    /// When the allocation fails.
    pub fn probe(&self, bytes: usize) -> Result<usize> {
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: the allocator is alive and the out-pointer valid.
        check(self.api(), unsafe { self.api().AllocatorAlloc(self.as_ptr(), bytes, &mut address) })?;
        // SAFETY: the address came from this allocator just now and is used nowhere else.
        check(self.api(), unsafe { self.api().AllocatorFree(self.as_ptr(), address) })?;
        Ok(address.addr())
    }

    /// The allocator's statistics, under the names that ONNX Runtime documents.
    ///
    /// # Errors
    /// When it keeps no statistics.
    pub fn stats(&self) -> Result<Vec<(String, String)>> {
        // SAFETY: the allocator is alive.
        unsafe { stats(self.api(), self.raw) }
    }

    pub(crate) fn api(&self) -> &Api {
        self.device.registration().environment().api()
    }

    pub(crate) fn as_ptr(&self) -> *mut OrtAllocator {
        self.raw.as_ptr()
    }
}

/// # Safety
/// The allocator is alive.
pub(crate) unsafe fn stats(api: &Api, allocator: NonNull<OrtAllocator>) -> Result<Vec<(String, String)>> {
    let mut raw = ptr::null_mut();
    // SAFETY: the caller guarantees the allocator; the pairs are ours, copied and then released once.
    unsafe {
        check(api, api.AllocatorGetStats(allocator.as_ptr(), &mut raw))?;
        let stats = pairs(api, raw);
        api.ReleaseKeyValuePairs(raw);
        Ok(stats)
    }
}
