//! Memory used during a run, and copies between host and device.
use ort_ep::{Error, Result};

use crate::status;

/// Memory allocated by this backend.
pub(super) enum Buffer {
    /// Stored as words, so that every element type is aligned.
    Host(Vec<u64>),
    Device(hip::DeviceBuffer),
}

impl Buffer {
    /// Allocates memory on a device, or on the host.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(bytes: usize, device: Option<&hip::Device>) -> Result<Self> {
        match device {
            None => {
                let (mut words, count) = (Vec::new(), bytes.div_ceil(8));
                let reserved = words.try_reserve_exact(count);
                reserved.map_err(|_| Error::fail(format!("could not allocate {bytes} bytes of host memory")))?;
                words.resize(count, 0);
                Ok(Self::Host(words))
            }
            Some(device) => device.alloc(bytes).map(Self::Device).map_err(status::of),
        }
    }

    pub fn address(&mut self) -> *mut u8 {
        match self {
            Self::Host(words) => words.as_mut_ptr().cast(),
            Self::Device(buffer) => buffer.address().as_ptr(),
        }
    }
}

/// Copies data in the order of a run.
#[derive(Clone, Copy)]
pub(super) enum Mover<'a> {
    /// All memory is host memory.
    Host,
    /// Queues copies on a device's stream.
    Stream(&'a hip::Device, hip::RawStream<'a>),
}

impl Mover<'_> {
    /// Copies bytes or queues the copy.
    ///
    /// # Safety
    /// Both ranges are valid until [`wait`](Self::wait) returns. For a host mover, both are host memory.
    pub unsafe fn copy(self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
        match self {
            // SAFETY: guaranteed by the caller; `copy` allows overlap.
            Self::Host => unsafe { std::ptr::copy(from, to, bytes) },
            Self::Stream(device, stream) => {
                // SAFETY: guaranteed by the caller.
                unsafe { device.copy_raw_async(to, from, bytes, hip::CopyKind::Default, stream) }
                    .map_err(status::of)?;
            }
        }
        Ok(())
    }

    /// Fills bytes with zeros or queues the fill.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy); the range is memory that the program uses.
    pub unsafe fn zero(self, to: &mut Buffer, bytes: usize) -> Result<()> {
        match (self, to) {
            (_, Buffer::Host(words)) => words.fill(0),
            // SAFETY: guaranteed by the caller.
            (Self::Stream(device, stream), Buffer::Device(buffer)) => unsafe {
                device.fill_raw_async(buffer.address().as_ptr(), 0, bytes, stream).map_err(status::of)?;
            },
            (Self::Host, Buffer::Device(buffer)) => buffer.fill(0, bytes, 0).map_err(status::of)?,
        }
        Ok(())
    }

    /// Waits for queued work.
    pub fn wait(self) -> Result<()> {
        match self {
            Self::Host => Ok(()),
            Self::Stream(device, stream) => device.stream_synchronize(stream).map_err(status::of),
        }
    }
}
