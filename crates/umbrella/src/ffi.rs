//! The umbrella's only unsafe code: addresses that ONNX Runtime passes, and exported functions.
use std::ffi::{c_char, c_int};
use std::ptr::NonNull;

use hip::{CopyKind, Device, HipError};
use ort_ep::allocator::Block;
use ort_ep::view::RawStream;

use crate::backends::last;
use crate::caching_allocator::{AllocatedBlock, Source};
use crate::memory::{DeviceSource, PinnedSource};
use crate::stream::StreamFences;
use crate::trust;

/// Declares all session options of this process trusted (`trusted` is not 0) or untrusted: only trusted options may
/// load libraries or name files.
// SAFETY: no other symbol of this name exists; the function takes no pointer and cannot panic.
#[unsafe(no_mangle)]
pub extern "C" fn amdgpu_ep_trust_options(trusted: c_int) {
    trust::vouch(trusted != 0);
}

/// Returns the name of the backend of the session that the calling thread created last: `hip`, `migraphx`, `directx`,
/// `hipgpu`, `library`, or an empty string if no backend took it. The text lives as long as the library.
// SAFETY: no other symbol of this name exists; the function takes nothing and cannot panic.
#[unsafe(no_mangle)]
pub extern "C" fn amdgpu_ep_last_backend() -> *const c_char {
    last::last().as_ptr()
}

/// A block of an allocator that ONNX Runtime holds.
pub(crate) struct Lease<S: Source>(pub AllocatedBlock<S, StreamFences>);

impl<S: Source> Lease<S> {
    fn start(&self) -> NonNull<u8> {
        // No driver returns address zero; a dangling pointer covers the impossible case.
        NonNull::new(std::ptr::with_exposed_provenance_mut(self.0.address())).unwrap_or(NonNull::dangling())
    }
}

// SAFETY: the allocator gives each block of the driver's memory to one owner at a time, in the requested size and with
// the driver's alignment, which is 256 bytes or more.
unsafe impl Block for Lease<DeviceSource> {
    fn address(&self) -> NonNull<u8> {
        self.start()
    }
}

// SAFETY: as above.
unsafe impl Block for Lease<PinnedSource> {
    fn address(&self) -> NonNull<u8> {
        self.start()
    }
}

/// The two ends of a copy between tensors that ONNX Runtime keeps alive.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    src: *const u8,
    dst: *mut u8,
    count: usize,
}

impl Bytes {
    /// `None` if an end has no address.
    pub fn new(src: *const u8, dst: *mut u8, count: usize) -> Option<Self> {
        (!src.is_null() && !dst.is_null()).then_some(Self { src, dst, count })
    }

    pub fn src_address(self) -> usize {
        self.src as usize
    }

    pub fn dst_address(self) -> usize {
        self.dst as usize
    }
}

/// Queues a copy on our own stream. The caller waits for it before ONNX Runtime gets the tensors back.
pub(crate) fn queue_copy(stream: &hip::Stream, bytes: Bytes, kind: CopyKind) -> Result<(), HipError> {
    // SAFETY: both tensors hold `count` bytes and are alive until the caller's wait ends; the ends were resolved to
    // match `kind`.
    unsafe { stream.device().copy_raw_async(bytes.dst, bytes.src, bytes.count, kind, stream.raw()) }
}

/// Copies in stream order.
pub(crate) fn copy_on_stream(device: &Device, bytes: Bytes, kind: CopyKind, stream: RawStream) -> Result<(), HipError> {
    // SAFETY: as for `queue_copy`; the caller waits for the stream unless both ends are freed in stream order. ONNX Runtime
    // created the stream through this library for the copy's device.
    unsafe { device.copy_raw_async(bytes.dst, bytes.src, bytes.count, kind, hip::RawStream::from_ptr(stream.as_ptr())) }
}

/// Waits for a stream.
pub(crate) fn wait(device: &Device, stream: RawStream) -> Result<(), HipError> {
    // SAFETY: as for `copy_on_stream`.
    device.stream_synchronize(unsafe { hip::RawStream::from_ptr(stream.as_ptr()) })
}

/// Copies from one device to that of the stream; complete on return.
pub(crate) fn copy_between(from: &Device, to: &hip::Stream, bytes: Bytes) -> Result<(), HipError> {
    // SAFETY: as for `queue_copy`; the wait is below.
    unsafe { to.device().copy_peer_async(bytes.dst, from, bytes.src, bytes.count, to.raw())? };
    to.synchronize()
}

/// Copies between two places in host memory.
pub(crate) fn copy_on_host(bytes: Bytes) {
    // SAFETY: both tensors hold `count` bytes of host memory and are alive for the call. `copy` allows overlap, because
    // a caller may pass two views of one buffer.
    unsafe { std::ptr::copy(bytes.src, bytes.dst, bytes.count) };
}
