//! Scratch memory for one call.
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use ort_ep_sys as sys;

use super::kernel_context::KernelContext;
use crate::{Error, MemoryDevice, Result, Runtime};

impl KernelContext<'_> {
    /// Allocates from the session's allocator for `memory`, ordered on the stream of this run. Freed on drop.
    ///
    /// # Errors
    /// If the session has no allocator for `memory`, or it is out of memory.
    pub fn scratch(&self, memory: MemoryDevice, bytes: usize) -> Result<Scratch<'_>> {
        let info = MemoryInfo::new(self.runtime, memory)?;
        let mut allocator = ptr::null_mut();
        // SAFETY: `from_raw`'s caller vouches for the context; the out-pointer is ours.
        unsafe { call!(self.runtime, KernelContext_GetAllocator(self.raw, info.raw, &mut allocator))? };
        if allocator.is_null() {
            return Err(Error::fail(format!("the session has no allocator for {memory:?}")));
        }
        let mut scratch =
            Scratch { runtime: self.runtime, allocator, address: ptr::null_mut(), bytes, life: PhantomData };
        if bytes > 0 {
            // SAFETY: as above.
            unsafe {
                call!(self.runtime, KernelContext_GetScratchBuffer(self.raw, info.raw, bytes, &mut scratch.address))?
            };
        }
        Ok(scratch)
    }
}

/// Memory of the session's allocator, freed on drop.
#[derive(Debug)]
pub struct Scratch<'a> {
    runtime: Runtime,
    allocator: *mut sys::OrtAllocator,
    address: *mut c_void,
    bytes: usize,
    life: PhantomData<&'a ()>,
}

impl Scratch<'_> {
    /// The address in the requested memory; null if it has no bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address.cast()
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // SAFETY: the buffer came from this allocator and is freed once; we own the allocator handle.
        unsafe {
            if !self.address.is_null() {
                let status = self.runtime.api.AllocatorFree(self.allocator, self.address);
                if let Err(error) = self.runtime.check("AllocatorFree", status) {
                    tracing::warn!(%error, "scratch memory leaked");
                }
            }
            self.runtime.api.ReleaseAllocator(self.allocator);
        }
    }
}

struct MemoryInfo {
    runtime: Runtime,
    raw: *mut sys::OrtMemoryInfo,
}

impl MemoryInfo {
    fn new(runtime: Runtime, memory: MemoryDevice) -> Result<Self> {
        let device_id = i32::try_from(memory.device_id)
            .map_err(|_| Error::invalid_argument(format!("invalid device id {}", memory.device_id)))?;
        let mut raw = ptr::null_mut();
        // SAFETY: the name is NUL-terminated and copied; the out-pointer is ours.
        unsafe {
            call!(
                runtime,
                CreateMemoryInfo_V2(
                    c"scratch".as_ptr(),
                    memory.device.to_raw(),
                    memory.vendor_id,
                    device_id,
                    memory.memory.to_raw(),
                    0,
                    sys::ORT_ALLOCATOR_DEVICE,
                    &mut raw,
                )
            )?
        };
        Ok(Self { runtime, raw })
    }
}

impl Drop for MemoryInfo {
    fn drop(&mut self) {
        // SAFETY: the description was made by `new` and is ours alone.
        unsafe { self.runtime.api.ReleaseMemoryInfo(self.raw) }
    }
}
