//! Device events in ONNX Runtime's profile (API 25 and newer).
use crate::{Result, ffi::ProfilingEventView};

/// Makes a [`Profiler`] for a session or a run.
pub trait Profiling {
    /// Called when the session is made, profiling or not: keep it cheap.
    ///
    /// # Errors
    /// Reported in ONNX Runtime's log; the profile then lacks the device's events.
    fn profiler(&self) -> Result<Box<dyn Profiler>>;
}

/// Collects the events of one profile.
pub trait Profiler: Send + Sync + 'static {
    /// Profiling begins, `offset_ns` after the profile's zero.
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

    /// That event ends.
    ///
    /// # Errors
    /// Reported in ONNX Runtime's log.
    fn stop_event(&self, _correlation_id: u64, _event: ProfilingEventView<'_>) -> Result<()> {
        Ok(())
    }

    /// Profiling ends: gives the events to add.
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
    /// A call of the driver.
    Api,
}

/// One event of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilingEvent {
    /// What it measures.
    pub category: EventCategory,
    /// What is shown.
    pub name: String,
    /// When it began, in microseconds of the profile.
    pub timestamp_us: i64,
    /// How long it took.
    pub duration_us: i64,
    /// More to show, as name and value.
    pub args: Vec<(String, String)>,
}
