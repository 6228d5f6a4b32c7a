//! Recordings of a stream that the caller keeps alive.
use hip::RawStream;

use crate::{Capture, ExecError};

impl Capture {
    /// Starts recording a stream. Other threads may keep using the device.
    ///
    /// # Errors
    /// The driver's status.
    ///
    /// # Safety
    /// The stream must live until the recording is ended or dropped.
    pub unsafe fn begin(device: &hip::Device, stream: RawStream<'_>) -> Result<Self, ExecError> {
        // SAFETY: the caller keeps the stream alive for as long as the recording uses it.
        Self::begin_on(device, unsafe { RawStream::from_ptr(stream.as_ptr()) })
    }
}
