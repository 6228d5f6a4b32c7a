//! Copies between memories.
use crate::{
    MemoryDevice, Result,
    view::{RawStream, Tensor, TensorMut},
};

/// One copy that ONNX Runtime asks for.
pub struct TensorCopy<'a> {
    /// What is copied.
    pub src: Tensor<'a>,
    /// Where it goes; as many bytes as `src`.
    pub dst: TensorMut<'a>,
    /// The stream the copy belongs on. Without one it must be complete when [`DataTransfer::copy`] returns, and come
    /// after everything already queued on the device.
    pub stream: Option<RawStream>,
}

/// Copies tensors between memories. One instance serves the whole environment, others serve single sessions: it must not
/// depend on an [`Ep`](crate::Ep).
pub trait DataTransfer: Send + Sync + 'static {
    /// True if [`copy`](Self::copy) can go from `src` to `dst`. The first plugin that says yes is used, so claim only
    /// pairs in which your own memory takes part.
    fn can_copy(&self, src: MemoryDevice, dst: MemoryDevice) -> bool;

    /// Does the copies.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn copy(&self, copies: &mut [TensorCopy<'_>]) -> Result<()>;
}
