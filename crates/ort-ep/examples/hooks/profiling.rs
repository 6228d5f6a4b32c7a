//! A profiler that reports one event of its own and the ONNX Runtime events it saw.
use std::sync::{Mutex, PoisonError};

use ort_ep::{EventCategory, Profiler, Profiling, ProfilingEvent, ProfilingEventView, Result};

use crate::control::{Gone, note};

/// Makes the profilers of a session.
pub struct HooksProfiling;

impl Profiling for HooksProfiling {
    fn profiler(&self) -> Result<Box<dyn Profiler>> {
        note("profiling.profiler", "")?;
        Ok(Box::new(HooksProfiler { seen: Mutex::default(), _gone: Gone("profiler.drop") }))
    }
}

struct HooksProfiler {
    seen: Mutex<Vec<String>>,
    _gone: Gone,
}

impl Profiler for HooksProfiler {
    fn start(&self, offset_ns: i64) -> Result<()> {
        note("profiler.start", offset_ns >= 0)
    }

    fn start_event(&self, _: u64) -> Result<()> {
        note("profiler.start_event", "")
    }

    fn stop_event(&self, _: u64, event: ProfilingEventView<'_>) -> Result<()> {
        note("profiler.stop_event", "")?;
        let op = event.arg("op_name")?.unwrap_or_default();
        let line = format!("{}/{op}", event.name()?);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        Ok(())
    }

    fn end(&self) -> Result<Vec<ProfilingEvent>> {
        note("profiler.end", "")?;
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).join(" ");
        Ok(vec![ProfilingEvent {
            category: EventCategory::Kernel,
            name: "hooks_kernel".into(),
            timestamp_us: 11,
            duration_us: 5,
            args: vec![("seen".into(), seen), ("größe".into(), "1".into())],
        }])
    }
}
