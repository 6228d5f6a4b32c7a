//! Events: a position in a stream or in a capture.

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use crate::capture::{Capture, Dependencies};
use crate::errors::Status;
use crate::handles::lock;
use crate::stream::{Stream, Ticket};
use crate::work::Task;

/// `hipEventDisableTiming`.
const DISABLE_TIMING: u32 = 2;
/// Blocking sync, no timing, interprocess, no system fence, release to device, release to system.
const KNOWN_FLAGS: u32 = 0xE000_0007;

pub(crate) struct Event {
    pub(crate) device: usize,
    timed: bool,
    state: Mutex<State>,
}

/// The result of the last record.
#[derive(Clone)]
pub(crate) enum State {
    Never,
    Recorded { ticket: Ticket, time: Arc<OnceLock<Instant>> },
    Captured { capture: Weak<Capture>, tips: Dependencies },
}

impl Event {
    pub(crate) fn new(device: usize, flags: u32) -> Result<Arc<Self>, Status> {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Status::InvalidValue);
        }
        Ok(Arc::new(Event { device, timed: flags & DISABLE_TIMING == 0, state: Mutex::new(State::Never) }))
    }

    pub(crate) fn state(&self) -> State {
        lock(&self.state).clone()
    }

    pub(crate) fn set(&self, state: State) {
        *lock(&self.state) = state;
    }

    /// Records a position in a stream that is not capturing.
    pub(crate) fn record(&self, stream: &Arc<Stream>) {
        let time = Arc::new(OnceLock::new());
        let submission = stream.submit(Vec::new(), Task::Reached(Arc::clone(&time)));
        self.set(State::Recorded { ticket: submission.ticket(), time });
        submission.finish();
    }

    /// The position to wait for, or `None` if the event was never recorded.
    ///
    /// # Errors
    /// [`Status::CapturedEvent`] if it was last recorded in a capture, which this invalidates: that position will never
    /// be reached.
    pub(crate) fn ticket(&self) -> Result<Option<Ticket>, Status> {
        match self.state() {
            State::Never => Ok(None),
            State::Recorded { ticket, .. } => Ok(Some(ticket)),
            State::Captured { capture, .. } => {
                if let Some(capture) = capture.upgrade() {
                    capture.invalidate();
                }
                Err(Status::CapturedEvent)
            }
        }
    }

    fn time(&self) -> Result<Instant, Status> {
        if !self.timed {
            return Err(Status::InvalidHandle);
        }
        match self.state() {
            State::Recorded { ticket, time } if ticket.is_done() => time.get().copied().ok_or(Status::NotReady),
            State::Recorded { .. } => Err(Status::NotReady),
            State::Captured { .. } => Err(Status::CapturedEvent),
            State::Never => Err(Status::InvalidHandle),
        }
    }
}

/// Milliseconds from `start` to `end`, negative if they were reached in the opposite order.
pub(crate) fn elapsed_ms(start: &Event, end: &Event) -> Result<f32, Status> {
    // Both are checked first, so that an event that can never complete is not reported as not ready.
    let (from, to) = match (start.time(), end.time()) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(Status::NotReady), Err(status)) | (Err(status), _) | (_, Err(status)) => return Err(status),
    };
    let seconds = match to.checked_duration_since(from) {
        Some(forward) => forward.as_secs_f64(),
        None => -from.duration_since(to).as_secs_f64(),
    };
    Ok((seconds * 1e3) as f32)
}
