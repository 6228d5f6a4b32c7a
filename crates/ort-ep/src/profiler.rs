//! Device events in ONNX Runtime's profile (API 25 and newer).
use crate::Result;
use crate::ffi::ProfilingEventView;

/// Creates a [`Profiler`] for a session or a run.
pub trait Profiling {
    /// Called when the session is created, even without profiling: keep it cheap.
    ///
    /// # Errors
    /// Reported in ONNX Runtime's log; the profile then lacks the device's events.
    fn profiler(&self) -> Result<Box<dyn Profiler>>;
}

/// Collects the events of one profile.
pub trait Profiler: Send + Sync + 'static {
    /// Profiling starts, `offset_ns` after the profile's time zero.
    ///
    /// # Errors
    /// Reported in ONNX Runtime's log.
    fn start(&self, offset_ns: i64) -> Result<()>;

    /// One of ONNX Runtime's own events begins on this thread; events nest.
    ///
    /// # Errors
    /// Reported in ONNX Runtime's log.
    fn start_event(&self, _correlation_id: u64) -> Result<()> {
        Ok(())
    }

    /// One of ONNX Runtime's own events ends.
    ///
    /// # Errors
    /// Reported in ONNX Runtime's log.
    fn stop_event(&self, _correlation_id: u64, _event: ProfilingEventView<'_>) -> Result<()> {
        Ok(())
    }

    /// Profiling ends: returns the events to add.
    ///
    /// # Errors
    /// Reported in ONNX Runtime's log.
    fn end(&self) -> Result<Vec<ProfilingEvent>>;
}

/// What an event measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventCategory {
    /// A whole session.
    Session,
    /// One node.
    Node,
    /// One kernel on the device.
    Kernel,
    /// A driver call.
    Api,
}

/// A device event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilingEvent {
    /// What it measures.
    pub category: EventCategory,
    /// The name to show.
    pub name: String,
    /// The start, in microseconds of the profile's clock.
    pub timestamp_us: i64,
    /// The duration in microseconds.
    pub duration_us: i64,
    /// Further names and values to show.
    pub args: Vec<(String, String)>,
}
