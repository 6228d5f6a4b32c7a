//! Ordered queues of device work.
use std::any::Any;

use crate::{Result, ffi::SyncStream, view::RawStream};

/// An ordered queue of device work, made for one session and thread.
pub trait Stream: Any + Send + Sync {
    /// The driver's own handle, as kernels see it.
    fn handle(&self) -> RawStream;

    /// Makes a point that others can wait for.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn notification(&self) -> Result<Box<dyn Notification>>;

    /// Waits until the queue is empty.
    ///
    /// # Errors
    /// Whatever the device reports, errors of earlier work included. ONNX Runtime logs it and goes on: to fail a run, wait
    /// in [`on_run_end`](Self::on_run_end).
    fn flush(&self) -> Result<()>;

    /// A run that used this stream ends; comes before the last [`flush`](Self::flush).
    ///
    /// # Errors
    /// Fails the run.
    fn on_run_end(&self) -> Result<()> {
        Ok(())
    }
}

/// A point in a stream. ONNX Runtime logs what fails here and goes on.
pub trait Notification: Send + Sync + 'static {
    /// Marks the stream's present end.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn activate(&self) -> Result<()>;

    /// Lets another stream wait for the mark; without a stream, waits on the host.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn wait_on_device(&self, consumer: Option<SyncStream<'_>>) -> Result<()>;

    /// Waits on the host for the mark.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn wait_on_host(&self) -> Result<()>;
}
