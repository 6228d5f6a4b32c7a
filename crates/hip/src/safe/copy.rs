//! Copies and fills: safe ones between owned buffers, and raw ones between addresses.

use std::ffi::c_int;
use std::ptr;

use super::buffer::{DeviceBuffer, PinnedBuffer};
use super::device::Device;
use super::stream::RawStream;
use crate::HipError;
use crate::result::{memory, stream};

/// The direction of a copy, numbered as in HIP and CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum CopyKind {
    /// Host to host.
    HostToHost = 0,
    /// Host to device.
    HostToDevice = 1,
    /// Device to host.
    DeviceToHost = 2,
    /// Within a device, or between devices that share addresses.
    DeviceToDevice = 3,
    /// The driver infers it from the addresses.
    Default = 4,
}

impl CopyKind {
    const fn number(self) -> c_int {
        self as c_int
    }
}

/// The default stream, which synchronous copies use, like `hipMemcpy`.
const DEFAULT_STREAM: *mut std::ffi::c_void = ptr::null_mut();

fn check_range(offset: usize, bytes: usize, capacity: usize) -> Result<(), HipError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= capacity => Ok(()),
        _ => Err(HipError::OutOfBounds { offset, bytes, capacity }),
    }
}

impl Device {
    /// Copies through the default stream and returns when the copy is complete. See [`CaptureMode`](crate::CaptureMode)
    /// for its effect while a stream is captured.
    ///
    /// # Errors
    /// The driver's status.
    ///
    /// # Safety
    /// Both ranges are valid for `bytes` bytes, do not overlap, and match `kind`.
    pub unsafe fn copy_raw(&self, dst: *mut u8, src: *const u8, bytes: usize, kind: CopyKind) -> Result<(), HipError> {
        if bytes == 0 {
            return Ok(());
        }
        let _scope = self.enter()?;
        let runtime = self.driver().runtime();
        if matches!(kind, CopyKind::DeviceToHost | CopyKind::HostToHost) {
            // SAFETY: the caller vouches for the ranges. For these directions the plain call is synchronous.
            return unsafe { memory::copy(runtime, dst.cast(), src.cast(), bytes, kind.number()) };
        }
        // The plain call may return before the device side is written: from pageable memory once the data is staged,
        // and between device addresses immediately.
        // SAFETY: the caller vouches for the ranges, which are still borrowed when the wait below ends.
        unsafe {
            memory::copy_async(runtime, dst.cast(), src.cast(), bytes, kind.number(), DEFAULT_STREAM)?;
            stream::synchronize(runtime, DEFAULT_STREAM)
        }
    }

    /// Copies in stream order.
    ///
    /// # Errors
    /// The driver's status.
    ///
    /// # Safety
    /// Both ranges are valid for `bytes` bytes, do not overlap, and match `kind`, until the stream has passed this
    /// point and, if it is captured, for every launch of the capture.
    pub unsafe fn copy_raw_async(
        &self,
        dst: *mut u8,
        src: *const u8,
        bytes: usize,
        kind: CopyKind,
        stream: RawStream<'_>,
    ) -> Result<(), HipError> {
        if bytes == 0 {
            return Ok(());
        }
        let _scope = self.enter()?;
        // SAFETY: the caller vouches for the ranges; a `RawStream` is live for its lifetime.
        unsafe {
            memory::copy_async(self.driver().runtime(), dst.cast(), src.cast(), bytes, kind.number(), stream.handle())
        }
    }

    /// Copies from `source`'s memory to this device's memory in stream order.
    ///
    /// # Errors
    /// The driver's status.
    ///
    /// # Safety
    /// As [`Device::copy_raw_async`]; `dst` is on this device and `src` on `source`.
    pub unsafe fn copy_peer_async(
        &self,
        dst: *mut u8,
        source: &Device,
        src: *const u8,
        bytes: usize,
        stream: RawStream<'_>,
    ) -> Result<(), HipError> {
        self.same_driver("the source device", source)?;
        if bytes == 0 {
            return Ok(());
        }
        let _scope = self.enter()?;
        let (to, from) = ((dst.cast(), self.number()), (src.cast(), source.number()));
        // SAFETY: the caller vouches for the ranges; a `RawStream` is live for its lifetime.
        unsafe { memory::copy_peer_async(self.driver().runtime(), to, from, bytes, stream.handle()) }
    }

    /// Fills device memory with one byte value in stream order.
    ///
    /// # Errors
    /// The driver's status.
    ///
    /// # Safety
    /// The range is valid memory of this device until the stream has passed this point and, if it is captured, for
    /// every launch of the capture.
    pub unsafe fn fill_raw_async(
        &self,
        dst: *mut u8,
        value: u8,
        bytes: usize,
        stream: RawStream<'_>,
    ) -> Result<(), HipError> {
        if bytes == 0 {
            return Ok(());
        }
        let _scope = self.enter()?;
        // SAFETY: the caller vouches for the range; a `RawStream` is live for its lifetime.
        unsafe { memory::fill_async(self.driver().runtime(), dst.cast(), value, bytes, stream.handle()) }
    }
}

impl DeviceBuffer {
    /// Copies `source` into this buffer at `offset`.
    ///
    /// # Errors
    /// [`HipError::OutOfBounds`], or the driver's status.
    pub fn copy_to_device(&mut self, offset: usize, source: &[u8]) -> Result<(), HipError> {
        check_range(offset, source.len(), self.bytes())?;
        // SAFETY: the range is within this buffer; `source` is a host slice; a slice cannot overlap device memory.
        unsafe {
            let dst = self.address().as_ptr().wrapping_add(offset);
            self.device().copy_raw(dst, source.as_ptr(), source.len(), CopyKind::HostToDevice)
        }
    }

    /// Copies from this buffer at `offset` into `target`.
    ///
    /// # Errors
    /// [`HipError::OutOfBounds`], or the driver's status.
    pub fn copy_to_host(&self, offset: usize, target: &mut [u8]) -> Result<(), HipError> {
        check_range(offset, target.len(), self.bytes())?;
        // SAFETY: as for `copy_to_device`.
        unsafe {
            let src = self.address().as_ptr().wrapping_add(offset);
            self.device().copy_raw(target.as_mut_ptr(), src, target.len(), CopyKind::DeviceToHost)
        }
    }

    /// Copies `bytes` bytes of pinned memory into this buffer: the fast path to the device.
    ///
    /// # Errors
    /// [`HipError::OutOfBounds`], [`HipError::Foreign`], or the driver's status.
    pub fn copy_from_pinned(
        &mut self,
        offset: usize,
        source: &PinnedBuffer,
        source_offset: usize,
        bytes: usize,
    ) -> Result<(), HipError> {
        check_range(offset, bytes, self.bytes())?;
        check_range(source_offset, bytes, source.bytes())?;
        self.device().same_driver("the pinned buffer", source.device())?;
        if bytes == 0 {
            return Ok(());
        }
        let dst = self.address().as_ptr().wrapping_add(offset);
        let src = source.address().as_ptr().wrapping_add(source_offset);
        if !source.is_pinned() {
            // SAFETY: both ranges are within their buffers.
            return unsafe { self.device().copy_raw(dst, src, bytes, CopyKind::HostToDevice) };
        }
        let _scope = self.device().enter()?;
        // SAFETY: both ranges are within their buffers. From pinned memory the plain call is synchronous.
        unsafe {
            let kind = CopyKind::HostToDevice.number();
            memory::copy(self.device().driver().runtime(), dst.cast(), src.cast(), bytes, kind)
        }
    }

    /// Copies `bytes` bytes of this buffer into another one, on the same or another device of the driver.
    ///
    /// # Errors
    /// [`HipError::OutOfBounds`], [`HipError::Foreign`], or the driver's status.
    pub fn copy_to_buffer(
        &self,
        offset: usize,
        target: &mut DeviceBuffer,
        target_offset: usize,
        bytes: usize,
    ) -> Result<(), HipError> {
        check_range(offset, bytes, self.bytes())?;
        check_range(target_offset, bytes, target.bytes())?;
        target.device().same_driver("the source buffer", self.device())?;
        let src = self.address().as_ptr().wrapping_add(offset);
        let dst = target.address().as_ptr().wrapping_add(target_offset);
        let device = target.device();
        if device == self.device() {
            // SAFETY: both ranges are within their buffers, which are distinct because one is borrowed exclusively.
            return unsafe { device.copy_raw(dst, src, bytes, CopyKind::DeviceToDevice) };
        }
        // SAFETY: as above; both buffers are borrowed until the wait ends.
        unsafe { device.copy_peer_async(dst, self.device(), src, bytes, RawStream::DEFAULT)? };
        device.stream_synchronize(RawStream::DEFAULT)
    }

    /// Fills `bytes` bytes at `offset` with one value.
    ///
    /// # Errors
    /// [`HipError::OutOfBounds`], or the driver's status.
    pub fn fill(&mut self, offset: usize, bytes: usize, value: u8) -> Result<(), HipError> {
        check_range(offset, bytes, self.bytes())?;
        let dst = self.address().as_ptr().wrapping_add(offset);
        // SAFETY: the range is within this buffer, which is borrowed until the wait ends.
        unsafe { self.device().fill_raw_async(dst, value, bytes, RawStream::DEFAULT)? };
        self.device().stream_synchronize(RawStream::DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_range_is_accepted_exactly_when_every_byte_exists(
            offset in prop_oneof![0usize..40, Just(usize::MAX), Just(usize::MAX - 3)],
            bytes in prop_oneof![0usize..40, Just(usize::MAX)],
            capacity in 0usize..40,
        ) {
            let exists = u128::try_from(offset).unwrap() + u128::try_from(bytes).unwrap() <= capacity as u128;
            prop_assert_eq!(check_range(offset, bytes, capacity).is_ok(), exists);
        }
    }
}
