//! Copies between host and device memory.
use crate::view::{RawStream, Tensor, TensorMut};
use crate::{MemoryDevice, Result};

/// A copy that ONNX Runtime asks for.
pub struct TensorCopy<'a> {
    /// The source.
    pub src: Tensor<'a>,
    /// The destination, with as many bytes as `src`.
    pub dst: TensorMut<'a>,
    /// The stream to copy on. Without one, the copy must run after everything already queued on the device, and must be
    /// complete when [`DataTransfer::copy`] returns.
    pub stream: Option<RawStream>,
}

/// Copies tensors between memories. One instance serves the whole environment, others serve single sessions, so it must
/// not depend on an [`Ep`](crate::Ep).
pub trait DataTransfer: Send + Sync + 'static {
    /// True if [`copy`](Self::copy) can go from `src` to `dst`. ONNX Runtime uses the first plugin that returns true,
    /// so claim only pairs that involve your own memory.
    fn can_copy(&self, src: MemoryDevice, dst: MemoryDevice) -> bool;

    /// Does the copies.
    ///
    /// # Errors
    /// Any error of the device.
    fn copy(&self, copies: &mut [TensorCopy<'_>]) -> Result<()>;
}
