//! Runs that are recorded once and replayed.
use std::sync::{Arc, Mutex, PoisonError};

use hip::{CaptureMode, RecordedFn};

use crate::{ExecError, recorded};

/// A recording in progress. Dropping it throws the recording away; its stream runs its work again either way.
pub struct Capture {
    device: hip::Device,
    stream: hip::RawStream<'static>,
    recorded: Mutex<Vec<RecordedFn>>,
    kept: Mutex<Vec<Kept>>,
    failure: Arc<Failure>,
    is_open: bool,
}

/// What recorded work of a device needs, and how to ask how a replay of it went.
type Kept = Box<dyn Fn() -> Result<(), ExecError> + Send + Sync>;

/// The first thing that went wrong in a replay.
#[derive(Default)]
pub(crate) struct Failure(Mutex<Option<ExecError>>);

impl Failure {
    pub fn set(&self, error: ExecError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn take(&self) -> Option<ExecError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Capture {
    /// Starts recording a stream. Other threads may use the device meanwhile.
    ///
    /// # Errors
    /// The driver's status.
    ///
    /// # Safety
    /// The stream lives until the recording is ended or dropped.
    pub unsafe fn begin(device: &hip::Device, stream: hip::RawStream<'_>) -> Result<Self, ExecError> {
        recorded::begin(stream.as_ptr().addr(), || device.begin_capture(stream, CaptureMode::Relaxed))?;
        // SAFETY: the caller keeps the stream alive for as long as the handle is used.
        let stream = unsafe { hip::RawStream::from_ptr(stream.as_ptr()) };
        let (recorded, kept, failure) = (Mutex::default(), Mutex::default(), Arc::default());
        Ok(Self { device: device.clone(), stream, recorded, kept, failure, is_open: true })
    }

    /// The driver's device that the stream belongs to.
    pub fn device(&self) -> &hip::Device {
        &self.device
    }

    /// The stream that is recorded.
    pub fn stream(&self) -> hip::RawStream<'_> {
        self.stream
    }

    /// How many runs were recorded; of one that alternates between hipDNN and the host, each piece counts.
    pub fn len(&self) -> usize {
        let functions = self.recorded.lock().unwrap_or_else(PoisonError::into_inner).len();
        functions + self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True if none was.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records host work; it lives as long as the recording.
    pub(crate) fn record(&self, work: impl Fn(&Failure) + Send + Sync + 'static) -> Result<(), ExecError> {
        let failure = self.failure.clone();
        let recorded = self.device.record_host_fn(self.stream, move || work(&failure))?;
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
        Ok(())
    }

    /// Keeps what work that was recorded needs for as long as it can be replayed; `check` is asked after each replay.
    pub(crate) fn keep(&self, check: impl Fn() -> Result<(), ExecError> + Send + Sync + 'static) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(check));
    }

    /// Ends the recording and makes it ready to replay.
    ///
    /// # Errors
    /// The driver's status: something was asked of the stream that can't be recorded.
    pub fn end(mut self) -> Result<Captured, ExecError> {
        self.is_open = false;
        let recorded = std::mem::take(self.recorded.get_mut().unwrap_or_else(PoisonError::into_inner));
        let exec = self.device.end_capture_with(self.stream, recorded)?.instantiate()?;
        let kept = std::mem::take(self.kept.get_mut().unwrap_or_else(PoisonError::into_inner));
        Ok(Captured { exec, kept, failure: self.failure.clone(), turn: Mutex::default() })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if self.is_open
            && let Err(error) = self.device.end_capture(self.stream)
        {
            tracing::debug!(target: "amdgpu_ep::run", %error, "a capture was abandoned");
        }
        recorded::end(self.stream.as_ptr().addr());
    }
}

/// A recording that can be replayed. It holds everything its work needs but the memory of inputs and outputs.
pub struct Captured {
    // Before what its work needs.
    exec: hip::GraphExec,
    kept: Vec<Kept>,
    failure: Arc<Failure>,
    /// One replay at a time, so that a failure is told to whom it belongs.
    turn: Mutex<()>,
}

impl Captured {
    /// Runs the recorded work on the addresses it was recorded with, and waits for it.
    ///
    /// # Errors
    /// The driver's status, or what went wrong in a step.
    pub fn replay(&self, stream: &hip::Stream) -> Result<(), ExecError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.exec.launch(stream.raw())?;
        stream.synchronize()?;
        self.kept.iter().try_for_each(|check| check())?;
        self.failure.take().map_or(Ok(()), Err)
    }
}
