//! Events: points in a stream.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::device::Device;
use super::open_streams::OpenStream;
use super::report_leak;
use super::stream::RawStream;
use crate::result::stream;
use crate::sys::{Handle, codes};
use crate::{DriverKind, HipError};

/// A point in a stream that can be waited for.
pub struct Event {
    device: Device,
    handle: Handle,
    /// The stream of the last record, if we own it.
    recorded_on: Mutex<Option<OpenStream>>,
}

// SAFETY: an event handle may be used from any thread; the driver does its own locking.
unsafe impl Send for Event {}
// SAFETY: as above; `recorded_on` is behind a mutex.
unsafe impl Sync for Event {}

impl Device {
    /// Creates an event without time stamps.
    ///
    /// # Errors
    /// The driver's status.
    pub fn event(&self) -> Result<Event, HipError> {
        self.event_with(codes::EVENT_DISABLE_TIMING)
    }

    /// Creates an event with time stamps.
    ///
    /// # Errors
    /// The driver's status.
    pub fn timing_event(&self) -> Result<Event, HipError> {
        self.event_with(0)
    }

    fn event_with(&self, flags: u32) -> Result<Event, HipError> {
        let _scope = self.enter()?;
        let handle = stream::event_create(self.driver().runtime(), flags)?;
        Ok(Event { device: self.clone(), handle, recorded_on: Mutex::new(None) })
    }
}

impl Event {
    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Moves the event to the current end of a stream of the same device.
    ///
    /// # Errors
    /// The driver's status.
    pub fn record(&self, stream: RawStream<'_>) -> Result<(), HipError> {
        let _scope = self.device.enter()?;
        let mut recorded_on = self.recorded_on.lock().unwrap_or_else(PoisonError::into_inner);
        *recorded_on = self.device.driver().streams().find(stream.handle());
        // SAFETY: the handle is ours and live; a `RawStream` is live for its lifetime.
        unsafe { stream::event_record(self.device.driver().runtime(), self.handle, stream.handle()) }
    }

    /// Whether the recorded point has been reached; true before any record.
    ///
    /// # Errors
    /// The driver's status.
    pub fn query(&self) -> Result<bool, HipError> {
        let _scope = self.device.enter()?;
        // SAFETY: the handle is ours and live.
        self.while_valid(true, || unsafe { stream::event_query(self.device.driver().runtime(), self.handle) })
    }

    /// Waits for the recorded point; returns immediately before any record.
    ///
    /// # Errors
    /// The driver's status.
    pub fn synchronize(&self) -> Result<(), HipError> {
        let _scope = self.device.enter()?;
        // SAFETY: the handle is ours and live.
        self.while_valid((), || unsafe { stream::event_synchronize(self.device.driver().runtime(), self.handle) })
    }

    /// Calls the driver, unless AMD's runtime would then access a stream that no longer exists. It finishes the work on
    /// a stream before it destroys it, so in that case the event has been reached.
    fn while_valid<T>(&self, reached: T, ask: impl FnOnce() -> Result<T, HipError>) -> Result<T, HipError> {
        if self.device.kind() != DriverKind::Amd {
            return ask();
        }
        let recorded_on = self.recorded_on.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match recorded_on {
            Some(stream) => stream.while_open(reached, ask),
            None => ask(),
        }
    }

    /// Milliseconds since an earlier event. Some drivers return zero for short work; invalid times are reported as zero
    /// too.
    ///
    /// # Errors
    /// The driver's status: 600 if either event has not been reached, 400 if either has no time stamp.
    pub fn elapsed_ms(&self, since: &Event) -> Result<f32, HipError> {
        self.device.same_driver("the earlier event", &since.device)?;
        let _scope = self.device.enter()?;
        // SAFETY: both handles are live while borrowed.
        let time = unsafe { stream::event_elapsed(self.device.driver().runtime(), since.handle, self.handle) }?;
        Ok(if time.is_finite() { time.max(0.0) } else { 0.0 })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let runtime = self.device.driver().runtime();
        // SAFETY: the handle came from `event_create` on this driver and is destroyed only here.
        let destroyed = self.device.enter().and_then(|_scope| unsafe { stream::event_destroy(runtime, self.handle) });
        if let Err(error) = destroyed {
            report_leak("event", &error);
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:p}, {})", self.handle, self.device)
    }
}
