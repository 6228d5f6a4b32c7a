//! Owned memory: on a device, pinned on the host, or stream-ordered.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Once;

use super::device::Device;
use super::report_leak;
use super::stream::RawStream;
use crate::HipError;
use crate::result::memory;
use crate::sys::codes;

/// Device memory, freed when dropped (which waits for the device).
pub struct DeviceBuffer {
    device: Device,
    address: NonNull<u8>,
    bytes: usize,
}

/// Host memory that the device can access at full speed, zeroed, freed when dropped.
///
/// If the driver cannot pin memory, this is pageable memory: copies work but are slower, and kernels cannot access it.
pub struct PinnedBuffer {
    device: Device,
    address: NonNull<u8>,
    bytes: usize,
    /// The layout of pageable memory; `None` for pinned memory.
    plain: Option<Layout>,
}

/// Pageable memory is page-aligned, like the pinned memory it replaces.
const PAGE_BYTES: usize = 4096;

/// Stream-ordered device memory: valid for work between the points of its stream where it is allocated and freed.
/// Dropping frees it at the end of the stream it came from, without waiting.
pub struct StreamBuffer<'a> {
    device: Device,
    stream: RawStream<'a>,
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: these own plain addresses; drivers allow any thread to use and free an allocation.
unsafe impl Send for DeviceBuffer {}
// SAFETY: shared access only returns the address and size.
unsafe impl Sync for DeviceBuffer {}
// SAFETY: as for `DeviceBuffer`.
unsafe impl Send for PinnedBuffer {}
// SAFETY: shared access returns `&[u8]`, exclusive access `&mut [u8]`, as for a boxed slice.
unsafe impl Sync for PinnedBuffer {}
// SAFETY: as for `DeviceBuffer`.
unsafe impl Send for StreamBuffer<'_> {}
// SAFETY: as for `DeviceBuffer`.
unsafe impl Sync for StreamBuffer<'_> {}

impl Device {
    /// Allocates device memory. Zero bytes return a buffer of size 0 with a unique address.
    ///
    /// # Errors
    /// [`HipError::OutOfMemory`], or the driver's status.
    pub fn alloc(&self, bytes: usize) -> Result<DeviceBuffer, HipError> {
        let _scope = self.enter()?;
        let address = memory::malloc(self.driver().runtime(), bytes.max(1));
        Ok(DeviceBuffer { device: self.clone(), address: self.allocated("hipMalloc", bytes, address)?, bytes })
    }

    /// Allocates device memory in stream order.
    ///
    /// # Errors
    /// [`HipError::OutOfMemory`], [`HipError::Unsupported`] if `DeviceInfo::memory_pools` is false, or the driver's
    /// status.
    pub fn alloc_async<'a>(&self, bytes: usize, stream: RawStream<'a>) -> Result<StreamBuffer<'a>, HipError> {
        if !self.info().memory_pools {
            return Err(HipError::Unsupported { driver: self.kind(), symbol: "hipMallocAsync" });
        }
        let _scope = self.enter()?;
        // SAFETY: a `RawStream` is live for its lifetime.
        let address = unsafe { memory::malloc_async(self.driver().runtime(), bytes.max(1), stream.handle()) };
        let address = self.allocated("hipMallocAsync", bytes, address)?;
        Ok(StreamBuffer { device: self.clone(), stream, address, bytes })
    }

    /// Allocates zeroed, coherent, pinned host memory that every device of the driver can access. If the driver cannot
    /// pin memory, this allocates pageable memory and warns once per process.
    ///
    /// # Errors
    /// [`HipError::OutOfMemory`], or the driver's status if the device is lost or a stream is being captured.
    pub fn alloc_pinned(&self, bytes: usize) -> Result<PinnedBuffer, HipError> {
        let _scope = self.enter()?;
        let runtime = self.driver().runtime();
        let flags = codes::HOST_MALLOC_PORTABLE | codes::HOST_MALLOC_MAPPED;
        let address = match memory::host_malloc(runtime, bytes.max(1), flags) {
            Err(error) if !error.is_out_of_memory() && !error.is_device_lost() && !error.is_capture() => {
                return self.alloc_plain(bytes, &error);
            }
            other => self.allocated("hipHostMalloc", bytes, other)?,
        };
        // SAFETY: the driver just allocated this many bytes; zeroing them makes `as_slice` sound.
        unsafe { address.as_ptr().write_bytes(0, bytes) };
        Ok(PinnedBuffer { device: self.clone(), address, bytes, plain: None })
    }

    fn alloc_plain(&self, bytes: usize, why: &HipError) -> Result<PinnedBuffer, HipError> {
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            tracing::warn!(target: "amdgpu_ep::memory", "copies are slower, host memory is not pinned: {why}");
        });
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES).ok();
        // SAFETY: the layout has at least one byte.
        let address = layout.map_or(ptr::null_mut(), |layout| unsafe { alloc_zeroed(layout) });
        let address = NonNull::new(address).ok_or_else(|| {
            let (driver, device) = (self.kind(), self.ordinal());
            HipError::OutOfMemory { driver, device, bytes, free: 0, total: 0 }
        })?;
        Ok(PinnedBuffer { device: self.clone(), address, bytes, plain: layout })
    }

    fn allocated(
        &self,
        call: &'static str,
        bytes: usize,
        result: Result<*mut c_void, HipError>,
    ) -> Result<NonNull<u8>, HipError> {
        match result {
            Ok(address) => NonNull::new(address.cast::<u8>()).ok_or_else(|| HipError::Invalid {
                call,
                reason: format!("the driver returned no address for {bytes} bytes"),
            }),
            Err(error) if error.is_out_of_memory() => {
                let (free, total) = memory::info(self.driver().runtime()).unwrap_or((0, 0));
                let (driver, device) = (self.kind(), self.ordinal());
                Err(HipError::OutOfMemory { driver, device, bytes, free, total })
            }
            Err(error) => Err(error),
        }
    }
}

impl DeviceBuffer {
    /// The device address.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// The requested size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device that it is on.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl PinnedBuffer {
    /// The host address, which is also the device address.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// The requested size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device that it was allocated through.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// False if the driver could not pin it.
    pub fn is_pinned(&self) -> bool {
        self.plain.is_none()
    }

    /// The bytes. Work that was enqueued with [`PinnedBuffer::address`] must not be writing them.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `bytes` zeroed bytes belong to this buffer; writes to it were enqueued through unsafe calls, whose
        // callers vouched for their order.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.bytes) }
    }

    /// The bytes, mutable. Work that was enqueued with [`PinnedBuffer::address`] must not be using them.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as for `as_slice`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.bytes) }
    }
}

impl StreamBuffer<'_> {
    /// The device address.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// The requested size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frees the memory once another stream has reached this point; for work that moved to that stream.
    ///
    /// # Errors
    /// The driver's status; the memory is then leaked.
    pub fn free(self, stream: RawStream<'_>) -> Result<(), HipError> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the device is taken out exactly once.
        let device = unsafe { ptr::read(&this.device) };
        let _scope = device.enter()?;
        // SAFETY: the address came from `malloc_async`; we own `self`, so nothing else frees it, and work that uses it
        // was enqueued by unsafe calls whose callers vouch for its order.
        unsafe { memory::free_async(device.driver().runtime(), this.address.as_ptr().cast(), stream.handle()) }
    }
}

fn release(device: &Device, free: impl FnOnce() -> Result<(), HipError>, what: &'static str) {
    if let Err(error) = device.enter().and_then(|_scope| free()) {
        report_leak(what, &error);
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let runtime = self.device.driver().runtime();
        // SAFETY: the address came from `malloc` of this driver and is freed only here.
        release(&self.device, || unsafe { memory::free(runtime, self.address.as_ptr().cast()) }, "device buffer");
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if let Some(layout) = self.plain {
            // SAFETY: the address came from `alloc_zeroed` with this layout and is freed only here.
            return unsafe { dealloc(self.address.as_ptr(), layout) };
        }
        let runtime = self.device.driver().runtime();
        // SAFETY: the address came from `host_malloc` of this driver and is freed only here.
        release(&self.device, || unsafe { memory::host_free(runtime, self.address.as_ptr().cast()) }, "pinned buffer");
    }
}

impl Drop for StreamBuffer<'_> {
    fn drop(&mut self) {
        let runtime = self.device.driver().runtime();
        let stream = self.stream.handle();
        // SAFETY: the address came from `malloc_async` on this stream and is freed only here; work on other streams
        // that uses it was enqueued by unsafe calls whose callers vouch for its order.
        let free = || unsafe { memory::free_async(runtime, self.address.as_ptr().cast(), stream) };
        release(&self.device, free, "stream buffer");
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({:p}, {} bytes, {})", self.address, self.bytes, self.device)
    }
}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer({:p}, {} bytes, {})", self.address, self.bytes, self.device)
    }
}

impl fmt::Debug for StreamBuffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamBuffer({:p}, {} bytes, {})", self.address, self.bytes, self.device)
    }
}
