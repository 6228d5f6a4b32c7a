//! Adds steps to ONNX Runtime's profile.
//!
//! ONNX Runtime creates one profiler per session, and another for each run that is profiled separately. It tells each
//! profiler which of its events are open on which thread, so each one records only the steps of its own runs.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use exec::{Peak, RunBy, ThreadId};
use graph::{Graph, Step, View};
use ort_ep::{EventCategory, Profiler, Profiling, ProfilingEvent, ProfilingEventView, Result};

use crate::timed;

/// The same limit as in ONNX Runtime's own profiler.
const MAX_EVENTS: usize = 1_000_000;

/// The profilers of a session.
#[derive(Clone, Default)]
pub(crate) struct Profiles(Arc<Open>);

/// ONNX Runtime events that are currently open.
#[derive(Default)]
struct Open {
    /// The number of spans, so that an unprofiled run needs to check nothing else.
    count: AtomicUsize,
    spans: Mutex<Vec<Span>>,
}

struct Span {
    thread: ThreadId,
    recorder: Arc<Recorder>,
}

impl Profiles {
    /// The profilers that watch this thread; usually none.
    pub fn watching(&self) -> Vec<Arc<Recorder>> {
        if self.0.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let thread = ThreadId::current();
        let mut found: Vec<Arc<Recorder>> = Vec::new();
        for span in self.0.lock().iter().filter(|span| span.thread == thread) {
            if !found.iter().any(|known| Arc::ptr_eq(known, &span.recorder)) {
                found.push(span.recorder.clone());
            }
        }
        found
    }
}

impl Profiling for Profiles {
    fn profiler(&self) -> Result<Box<dyn Profiler>> {
        Ok(Box::new(StepProfiler { open: self.0.clone(), recorder: Arc::default() }))
    }
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Vec<Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Span>)) {
        let mut spans = self.lock();
        change(&mut spans);
        self.count.store(spans.len(), Ordering::Relaxed);
    }
}

/// The steps recorded by one profiler.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Recording>);

#[derive(Default)]
struct Recording {
    /// When profiling began: the local clock, and nanoseconds on the profile's clock.
    began: Option<(Instant, i64)>,
    events: Vec<ProfilingEvent>,
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a step that began at `start`.
    pub fn add(&self, graph: &Graph, step: &Step, by: RunBy<'_>, start: Instant, took: Duration, peak: Option<Peak>) {
        let mut recording = self.lock();
        let Some((zero, offset_ns)) = recording.began else { return };
        if recording.events.len() >= MAX_EVENTS {
            return;
        }
        let node = graph.nodes().get(step.node as usize);
        let (op, name) = node.map_or(("", ""), |node| (node.op.name(), node.name.as_str()));
        let since_ns = i64::try_from(start.saturating_duration_since(zero).as_nanos()).unwrap_or(i64::MAX);
        recording.events.push(ProfilingEvent {
            category: EventCategory::Kernel,
            name: plain(format!("{} {op} {name}", step.prim.name()).trim_end()),
            timestamp_us: offset_ns.saturating_add(since_ns) / 1000,
            duration_us: i64::try_from(took.as_micros()).unwrap_or(i64::MAX),
            args: args(step, op, by, took, peak),
        });
    }
}

fn args(step: &Step, op: &str, by: RunBy<'_>, took: Duration, peak: Option<Peak>) -> Vec<(String, String)> {
    let cost = step.cost();
    let mut args = vec![
        ("op_name".to_owned(), op.to_owned()),
        ("run_by".to_owned(), plain(&by.label(step))),
        ("inputs".to_owned(), shapes(&step.inputs)),
        ("outputs".to_owned(), shapes(&step.outputs)),
        ("bytes".to_owned(), cost.bytes.to_string()),
        ("flops".to_owned(), cost.flops.to_string()),
    ];
    if let Some(share) = timed::share_of_peak(step, took, peak) {
        args.push(("share_of_peak".to_owned(), format!("{share:.3}")));
    }
    args
}

/// Replaces characters that would break the profile: ONNX Runtime writes names into its JSON without escaping them
/// (seen in 1.26.0 and 1.30.0; 1.31.1 escapes its own).
fn plain(text: &str) -> String {
    text.chars().map(|one| if one.is_control() || matches!(one, '"' | '\\') { '_' } else { one }).collect()
}

fn shapes(views: &[View]) -> String {
    let texts: Vec<_> = views.iter().map(|view| format!("{}{:?}", view.dtype, view.shape.as_slice())).collect();
    texts.join(" ")
}

/// A profiler of one session or run.
struct StepProfiler {
    open: Arc<Open>,
    recorder: Arc<Recorder>,
}

impl StepProfiler {
    fn is_own(&self, span: &Span) -> bool {
        Arc::ptr_eq(&span.recorder, &self.recorder)
    }
}

impl Profiler for StepProfiler {
    fn start(&self, offset_ns: i64) -> Result<()> {
        self.recorder.lock().began = Some((Instant::now(), offset_ns));
        Ok(())
    }

    fn start_event(&self, _: u64) -> Result<()> {
        let span = Span { thread: ThreadId::current(), recorder: self.recorder.clone() };
        self.open.change(|spans| spans.push(span));
        Ok(())
    }

    fn stop_event(&self, _: u64, _: ProfilingEventView<'_>) -> Result<()> {
        let thread = ThreadId::current();
        self.open.change(|spans| {
            if let Some(at) = spans.iter().rposition(|span| span.thread == thread && self.is_own(span)) {
                spans.remove(at);
            }
        });
        Ok(())
    }

    fn end(&self) -> Result<Vec<ProfilingEvent>> {
        // A failed run may have left events open.
        self.open.change(|spans| spans.retain(|span| !self.is_own(span)));
        let mut recording = self.recorder.lock();
        recording.began = None;
        if recording.events.len() >= MAX_EVENTS {
            tracing::warn!(target: "amdgpu_ep::run", "the profile has only the first {MAX_EVENTS} steps");
        }
        Ok(std::mem::take(&mut recording.events))
    }
}

impl Drop for StepProfiler {
    fn drop(&mut self) {
        self.open.change(|spans| spans.retain(|span| !self.is_own(span)));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn names_cannot_break_the_profile() {
        assert_eq!(plain("map Add a/\"b\"\\\n/größe"), "map Add a/_b___/größe");
    }

    #[test]
    fn a_profiler_watches_only_threads_with_its_own_event() {
        let profiles = Profiles::default();
        let first = profiles.profiler().unwrap();
        let second = profiles.profiler().unwrap();
        assert!(profiles.watching().is_empty());
        first.start_event(1).unwrap();
        first.start_event(2).unwrap();
        assert_eq!(profiles.watching().len(), 1);
        second.start_event(3).unwrap();
        assert_eq!(profiles.watching().len(), 2);
        thread::scope(|scope| scope.spawn(|| assert!(profiles.watching().is_empty())).join().unwrap());
        first.end().unwrap();
        assert_eq!(profiles.watching().len(), 1);
        drop(second);
        assert!(profiles.watching().is_empty());
        assert_eq!(profiles.0.count.load(Ordering::Relaxed), 0);
    }
}
