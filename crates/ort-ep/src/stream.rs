//! Ordered queues of device work.
use std::any::Any;

use crate::Result;
use crate::ffi::SyncStream;
use crate::view::RawStream;

/// An ordered queue of device work, created for one session and thread.
pub trait Stream: Any + Send + Sync {
    /// The driver's own handle, as kernels see it.
    fn handle(&self) -> RawStream;

    /// Creates a point in the stream that others can wait for.
    ///
    /// # Errors
    /// Any error of the device.
    fn notification(&self) -> Result<Box<dyn Notification>>;

    /// Waits until the queue is empty.
    ///
    /// # Errors
    /// Any error of the device, including errors of earlier work. ONNX Runtime only logs it: to fail a run, wait in
    /// [`on_run_end`](Self::on_run_end).
    fn flush(&self) -> Result<()>;

    /// A run that used this stream ends; called before the last [`flush`](Self::flush).
    ///
    /// # Errors
    /// Fails the run.
    fn on_run_end(&self) -> Result<()> {
        Ok(())
    }
}

/// A point in a stream. ONNX Runtime only logs errors here.
pub trait Notification: Send + Sync + 'static {
    /// Marks the current end of the stream.
    ///
    /// # Errors
    /// Any error of the device.
    fn activate(&self) -> Result<()>;

    /// Makes another stream wait for the mark; without a stream, waits on the host.
    ///
    /// # Errors
    /// Any error of the device.
    fn wait_on_device(&self, consumer: Option<SyncStream<'_>>) -> Result<()>;

    /// Waits on the host for the mark.
    ///
    /// # Errors
    /// Any error of the device.
    fn wait_on_host(&self) -> Result<()>;
}
