//! Runs that are recorded once and then replayed.
use std::sync::{Arc, Mutex, PoisonError};

use hip::{CaptureMode, CaptureStatus, RecordedFn};

use crate::{ExecError, recorded};

/// A recording in progress. Dropping it discards the recording. Either way, the stream executes its work again
/// afterwards.
pub struct Capture {
    device: hip::Device,
    stream: hip::RawStream<'static>,
    recorded: Mutex<Vec<RecordedFn>>,
    retained: Mutex<Vec<Retained>>,
    failure: Arc<Failure>,
    is_open: bool,
}

/// Owns what recorded work needs, and reports how a replay of it went.
type Retained = Box<dyn Fn() -> Result<(), ExecError> + Send + Sync>;

/// The first error of a replay.
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
    /// Starts recording a stream, which lives until the recording is ended or dropped: see [`begin`](Self::begin).
    pub(crate) fn begin_on(device: &hip::Device, stream: hip::RawStream<'static>) -> Result<Self, ExecError> {
        recorded::begin(stream.as_ptr().addr(), || device.begin_capture(stream, CaptureMode::Relaxed))?;
        let (recorded, retained, failure) = (Mutex::default(), Mutex::default(), Arc::default());
        Ok(Self { device: device.clone(), stream, recorded, retained, failure, is_open: true })
    }

    /// The driver's device that the stream belongs to.
    pub fn device(&self) -> &hip::Device {
        &self.device
    }

    /// The stream being recorded.
    pub fn stream(&self) -> hip::RawStream<'_> {
        self.stream
    }

    /// True if the recording was ended from outside: another thread called something that the driver does not allow
    /// while this stream is captured.
    pub fn is_interrupted(&self) -> bool {
        self.device.capture_status(self.stream).is_ok_and(|status| status != CaptureStatus::Active)
    }

    /// The number of recorded runs. A run that alternates between hipDNN and the host counts once per piece.
    pub fn len(&self) -> usize {
        let functions = self.recorded.lock().unwrap_or_else(PoisonError::into_inner).len();
        functions + self.retained.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True if nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records host work. The recording keeps it alive.
    pub(crate) fn record(&self, work: impl Fn(&Failure) + Send + Sync + 'static) -> Result<(), ExecError> {
        let failure = self.failure.clone();
        let recorded = self.device.record_host_fn(self.stream, move || work(&failure))?;
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
        Ok(())
    }

    /// Keeps alive what recorded work needs, for as long as it can be replayed. Calls `check` after each replay.
    pub(crate) fn keep(&self, check: impl Fn() -> Result<(), ExecError> + Send + Sync + 'static) {
        self.retained.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(check));
    }

    /// Ends the recording and makes it ready to replay.
    ///
    /// # Errors
    /// The driver's status: the stream was asked for something that cannot be recorded.
    pub fn end(mut self) -> Result<Captured, ExecError> {
        self.is_open = false;
        let recorded = std::mem::take(self.recorded.get_mut().unwrap_or_else(PoisonError::into_inner));
        let exec = self.device.end_capture_with(self.stream, recorded)?.instantiate()?;
        let retained = std::mem::take(self.retained.get_mut().unwrap_or_else(PoisonError::into_inner));
        Ok(Captured { exec, retained, failure: self.failure.clone(), turn: Mutex::default() })
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

/// A recording that can be replayed. It owns everything its work needs except the memory of inputs and outputs.
pub struct Captured {
    // Declared first, so that it is dropped before the resources it uses.
    exec: hip::GraphExec,
    retained: Vec<Retained>,
    failure: Arc<Failure>,
    /// Serialises replays, so that a failure is reported to the replay that caused it.
    turn: Mutex<()>,
}

impl Captured {
    /// Runs the recorded work on the addresses it was recorded with and waits for it.
    ///
    /// # Errors
    /// The driver's status, or the error of a step.
    pub fn replay(&self, stream: &hip::Stream) -> Result<(), ExecError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.exec.launch(stream.raw())?;
        stream.synchronize()?;
        self.retained.iter().try_for_each(|check| check())?;
        self.failure.take().map_or(Ok(()), Err)
    }
}
