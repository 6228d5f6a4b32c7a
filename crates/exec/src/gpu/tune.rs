//! Measures the candidates for a step.
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use graph::plan::BufferPlace;
use graph::prim::BufferId;
use graph::{Plan, Step, View};
use hip::DeviceBuffer;

use super::candidate::Candidate;
use super::host_step::view_range;
use super::plan::GpuPlan;
use super::progress::Activity;
use super::tuned::{Entry, Tuned, digest};
use super::{PartitionState, Shared, task};
use crate::device::{Observer, Prepared, RunBy};
use crate::{ExecError, ffi};

/// Runs before measuring starts: the first one may load code.
const WARM_UPS: usize = 2;
/// Measured runs; the median counts.
const RUNS: usize = 15;
/// Time limit per candidate: slow and simulated devices use fewer runs.
const LIMIT: Duration = Duration::from_millis(400);
/// A candidate must be at least this much faster than the usual one: smaller differences are noise.
const WORTH: f32 = 0.97;

/// Measures the steps of a plan that have no measurement yet, if tuning is on.
pub(super) fn plan(steps: &[Step], partition: &PartitionState) {
    let Some(tuned) = &partition.settings.tuned else { return };
    let start = Instant::now();
    let (mut measured, mut changed) = (0, 0);
    let mut seen = HashSet::new();
    let all = steps.iter().map(|step| (step, digest(step, partition.settings.tf32)));
    let open: Vec<_> = all.filter(|(_, digest)| tuned.wants(digest) && seen.insert(digest.clone())).collect();
    let count = open.len();
    for (at, (step, digest)) in open.into_iter().enumerate() {
        if let Some(entry) = best(step, partition) {
            measured += 1;
            changed += usize::from(entry.micros < entry.usual_micros);
            let (prim, candidate, micros, usual) =
                (step.prim.name(), entry.candidate, entry.micros, entry.usual_micros);
            tracing::debug!(target: "amdgpu_ep::compile", "{prim} by {candidate}: {micros:.1} µs, by default {usual:.1} µs");
            tuned.put(digest, entry);
        }
        if let Some(progress) = &partition.settings.progress {
            progress(Activity::Steps, at + 1, count);
        }
    }
    if measured > 0 {
        tuned.save();
        let (took, name) = (start.elapsed(), &partition.device.name);
        tracing::info!(target: "amdgpu_ep::compile", "measured {measured} steps on {name} in {took:.1?}; {changed} are faster than the default");
    }
}

/// The fastest candidate; `None` if there is only one, or none can be measured.
fn best(step: &Step, partition: &PartitionState) -> Option<Entry> {
    let (settings, device) = (&partition.settings, &*partition.device);
    if device.warned_of_times.is_completed() {
        return None;
    }
    let usual = task::usual(step, settings, device)?;
    let mut candidates = task::candidates(step, settings, device);
    candidates.retain(|candidate| *candidate != usual);
    if candidates.is_empty() {
        return None;
    }
    let operands = Operands::new(step, device).map_err(log_unmeasured).ok()?;
    let usual_micros = operands.time(usual, partition).map_err(log_unmeasured).ok()?;
    let mut entry = Entry { candidate: usual, micros: usual_micros, usual_micros, tried: 1 };
    for candidate in candidates {
        let Ok(micros) = operands.time(candidate, partition).map_err(log_unmeasured) else { continue };
        entry.tried += 1;
        if micros < entry.micros && micros < usual_micros * WORTH {
            (entry.candidate, entry.micros) = (candidate, micros);
        }
    }
    Some(entry)
}

fn log_unmeasured(error: ExecError) {
    tracing::debug!(target: "amdgpu_ep::compile", "could not measure an implementation of a step: {error}");
}

fn untimed() -> ExecError {
    ExecError::Untimed { why: "this driver's events have no timestamps".to_owned() }
}

/// A step on separate memory, filled with zeros: zero is a valid index everywhere.
struct Operands {
    plan: Plan,
    memory: Vec<DeviceBuffer>,
}

impl Operands {
    fn new(step: &Step, device: &Shared) -> Result<Self, ExecError> {
        let mut buffers: Vec<(BufferId, usize)> = Vec::new();
        let mut step = step.clone();
        // Decoders update their caches in place.
        for &(past, present) in step.updates() {
            if step.inputs[past].shape == step.outputs[present].shape {
                step.outputs[present].buffer = step.inputs[past].buffer;
            }
        }
        for view in step.inputs.iter_mut().chain(&mut step.outputs) {
            let end = view_range(view).end;
            let at = buffers.iter().position(|(buffer, _)| *buffer == view.buffer).unwrap_or_else(|| {
                buffers.push((view.buffer, 0));
                buffers.len() - 1
            });
            buffers[at].1 = buffers[at].1.max(end);
            *view = View { buffer: BufferId(at as u32), ..view.clone() };
        }
        let stream = device.stream()?;
        let memory = buffers.iter().map(|&(_, bytes)| {
            let memory = device.blocks.alloc(bytes.max(1))?;
            ffi::device::clear(&memory, 0..bytes, stream.raw())?;
            Ok(memory)
        });
        let memory = memory.collect::<Result<Vec<_>, ExecError>>();
        let waited = stream.synchronize();
        device.give_back(stream);
        waited?;
        let places = (0..buffers.len()).map(BufferPlace::Input).collect();
        let (steps, constants, outputs) = (vec![step], Vec::new(), Vec::new());
        Ok(Self { plan: Plan { steps, places, constants, outputs, arena_bytes: 0, live_bytes: 0 }, memory: memory? })
    }

    /// The time of a run on the device, in microseconds.
    fn time(&self, candidate: Candidate, partition: &PartitionState) -> Result<f32, ExecError> {
        let plan = Arc::new(GpuPlan::of(self.plan.clone(), &Arc::new(partition.forced(candidate)), self.memory.len())?);
        if let RunBy::Host { why } = plan.run_by(0) {
            return Err(ExecError::Untimed { why: why.to_owned() });
        }
        let (watch, start) = (Arc::new(Times::default()), Instant::now());
        for turn in 0..WARM_UPS + RUNS {
            let observer = Some(watch.clone() as Arc<dyn Observer>);
            match ffi::run::run_on_buffers(plan.clone(), &self.memory, observer) {
                // Zeros can break an operator's rules; the time is still valid.
                Ok(()) | Err(ExecError::Fault { .. }) => {}
                Err(error) => return Err(error),
            }
            if partition.device.warned_of_times.is_completed() {
                return Err(untimed());
            }
            if turn >= WARM_UPS && start.elapsed() > LIMIT {
                break;
            }
            if turn + 1 == WARM_UPS && start.elapsed() < LIMIT {
                watch.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
        }
        let mut times = std::mem::take(&mut *watch.0.lock().unwrap_or_else(PoisonError::into_inner));
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        if median.is_zero() {
            return Err(untimed());
        }
        Ok(median.as_secs_f32() * 1e6)
    }
}

/// The times of steps.
#[derive(Default)]
struct Times(Mutex<Vec<Duration>>);

impl Observer for Times {
    fn step(&self, _: &Step, _: RunBy<'_>, _: Instant, took: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(took);
    }
}

impl Tuned {
    /// The fastest known candidate for a step.
    pub(super) fn find(&self, step: &Step, tf32: bool) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        self.get(&digest(step, tf32))
    }
}
