//! Host memory that copies or kernels use while the host does too.
use std::sync::atomic::{AtomicU32, Ordering};

use hip::{CopyKind, DeviceBuffer, Event, HipError, PinnedBuffer, RawStream, Stream};

use super::run::RunMemory;

/// Words that kernels set and the host takes. Zero means not set.
pub struct FaultWords {
    /// `None` if there are none.
    memory: Option<PinnedBuffer>,
    count: usize,
}

impl FaultWords {
    /// # Errors
    /// There is not enough memory.
    pub fn new(count: usize, device: &hip::Device) -> Result<Self, HipError> {
        let memory = (count > 0).then(|| device.alloc_pinned(count * size_of::<u32>())).transpose()?;
        Ok(Self { memory, count })
    }

    /// The address of the first word; null if there are none.
    pub fn address(&self) -> *mut u8 {
        self.memory.as_ref().map_or(std::ptr::null_mut(), |memory| memory.address().as_ptr())
    }

    /// Whether a word was set. Clears it.
    pub fn take(&self, at: usize) -> bool {
        assert!(at < self.count, "word {at} of {}", self.count);
        // SAFETY: the word is inside the memory and aligned as pinned memory is. Kernels may write to it at the same
        // time, so it is read and cleared in one atomic operation.
        let word = unsafe { AtomicU32::from_ptr(self.address().cast::<u32>().wrapping_add(at)) };
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Acquire) != 0
    }

    /// Copies all words from the run's block, for kernels that cannot write to them. The words live until the stream
    /// has passed this point or the capture is dropped: the run's flight holds them.
    ///
    /// # Errors
    /// The driver's status.
    pub fn copy_from(
        &self,
        _: RunMemory<'_>,
        block: *const u8,
        device: &hip::Device,
        stream: RawStream<'_>,
    ) -> Result<(), HipError> {
        let bytes = self.count * size_of::<u32>();
        // SAFETY: the block has as many words, and the flight keeps these, as the function's contract says.
        unsafe { device.copy_raw_async(self.address(), block, bytes, CopyKind::DeviceToHost, stream) }
    }
}

/// Pinned memory through which data goes to a device piece by piece.
pub struct Stage {
    memory: PinnedBuffer,
    /// Completes when the last piece is on the device.
    sent: Event,
}

impl Stage {
    /// # Errors
    /// There is not enough memory.
    pub fn new(bytes: usize, device: &hip::Device) -> Result<Self, HipError> {
        Ok(Self { memory: device.alloc_pinned(bytes)?, sent: device.event()? })
    }

    /// Copies a piece, which is no larger than the stage, to a place in a buffer, in stream order. Waits for the stage's
    /// last piece first.
    ///
    /// # Errors
    /// The piece is not inside the buffer, or the driver's status.
    pub fn send(
        &mut self,
        piece: &[u8],
        to: &DeviceBuffer,
        offset: usize,
        stream: RawStream<'_>,
    ) -> Result<(), HipError> {
        check(to, offset, piece.len())?;
        self.sent.synchronize()?;
        self.memory.as_mut_slice()[..piece.len()].copy_from_slice(piece);
        let (to, from) = (to.address().as_ptr().wrapping_add(offset), self.memory.address().as_ptr());
        // SAFETY: the piece has its place in the buffer, as checked above, and freeing the buffer waits for the copy.
        // The stage is changed only after `sent`, and `drop` waits for it too.
        unsafe { self.memory.device().copy_raw_async(to, from, piece.len(), CopyKind::HostToDevice, stream)? };
        self.sent.record(stream)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The caller already has the error: the driver only repeats it here.
        let _ = self.sent.synchronize();
    }
}

/// Copies a part of a buffer to the host and waits for the stream.
///
/// # Errors
/// The part is not inside the buffer, or the driver's status.
pub fn download(from: &DeviceBuffer, offset: usize, to: &mut [u8], stream: &Stream) -> Result<(), HipError> {
    check(from, offset, to.len())?;
    let start = from.address().as_ptr().wrapping_add(offset);
    // SAFETY: the part is inside the buffer, as checked above; both sides are borrowed until the stream is synchronised
    // below.
    let copied =
        unsafe { from.device().copy_raw_async(to.as_mut_ptr(), start, to.len(), CopyKind::DeviceToHost, stream.raw()) };
    copied.and(stream.synchronize())
}

fn check(buffer: &DeviceBuffer, offset: usize, bytes: usize) -> Result<(), HipError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= buffer.bytes() => Ok(()),
        _ => Err(HipError::OutOfBounds { offset, bytes, capacity: buffer.bytes() }),
    }
}
