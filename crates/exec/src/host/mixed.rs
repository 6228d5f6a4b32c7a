//! Plans in which hipDNN runs some of the steps.
//!
//! The steps between two hipDNN steps form one group of our own work. On an idle stream, or without a stream, the
//! calling thread runs the groups and waits for hipDNN. On a busy stream, and in a recording, the groups are host
//! functions of the driver, queued between hipDNN's work. If hipDNN accepted a step but then fails to run it, our own
//! code runs it from then on.
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use graph::{Declined, Plan};
use hip::RawStream;

use super::HostPlan;
use super::run::execute_part;
use crate::device::{Observer, Order, RunBy};
use crate::dnn::{DnnStep, Offering};
use crate::ffi::host::{BoundPlan, KeptHostRun, RunState};
use crate::ffi::{GuaranteedRun, RunMemory};
use crate::{Capture, ExecError, Ledger};

/// hipDNN on the host driver, for sessions that want it.
pub(super) struct Mixed {
    offering: Offering,
    /// Streams for runs that come without one.
    streams: Mutex<Vec<hip::Stream>>,
}

impl Mixed {
    pub fn new(offering: Offering) -> Self {
        Self { offering, streams: Mutex::default() }
    }

    pub fn has_library(&self) -> bool {
        self.offering.fault().is_none()
    }

    /// See [`Offering::parted`].
    pub fn parted(&self, plan: Plan) -> Plan {
        self.offering.parted(plan, &|_| false)
    }

    fn stream(&self) -> Result<hip::Stream, ExecError> {
        let idle = self.streams.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Ok(self.offering.device().stream()?), Ok)
    }

    fn give_back(&self, stream: hip::Stream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }
}

/// Which backend runs each step of a plan.
pub(super) struct MixedPlan {
    /// The answer for each step: `None` if hipDNN does not support this operation.
    answers: Vec<Option<Result<Taken, Declined>>>,
    workspace_bytes: usize,
    mixed: Arc<Mixed>,
}

/// A step that hipDNN accepted.
struct Taken {
    step: DnnStep,
    /// Set when the library failed to run the step, which our own code runs from then on.
    failure: OnceLock<String>,
}

impl Taken {
    /// Enqueues the step.
    fn execute(&self, bound: BoundPlan<'_>, stream: RawStream<'_>) -> Result<(), ExecError> {
        self.step.execute(bound.memory(), |buffer| bound.address(buffer), bound.workspace(), stream)
    }

    /// Remembers that the library failed to run the step.
    fn fail(&self, node: &str, error: &ExecError) {
        if self.failure.set(error.to_string().lines().next().unwrap_or_default().to_owned()).is_ok() {
            tracing::warn!(target: "amdgpu_ep::run", "{node} runs without hipDNN from now on: {error}");
        }
    }
}

impl MixedPlan {
    /// Offers every step of a plan to hipDNN.
    pub fn new(mixed: &Arc<Mixed>, plan: &Plan) -> Self {
        let take = |step| Taken { step, failure: OnceLock::new() };
        let offer = |step| mixed.offering.offer(step).map(|answer| answer.map(take));
        let answers: Vec<_> = plan.steps.iter().map(offer).collect();
        let taken = answers.iter().flatten().flatten();
        let workspace_bytes = taken.map(|taken: &Taken| taken.step.workspace_bytes()).max().unwrap_or(0);
        Self { answers, workspace_bytes, mixed: mixed.clone() }
    }

    /// True if hipDNN runs any step.
    pub fn is_mixed(&self) -> bool {
        self.answers.iter().any(|answer| matches!(answer, Some(Ok(_))))
    }

    pub fn run_by(&self, step: usize) -> RunBy<'_> {
        match self.answers.get(step) {
            Some(Some(Ok(taken))) => match taken.failure.get() {
                None => taken.step.run_by(),
                Some(why) => RunBy::Own { why: Some(why) },
            },
            Some(Some(Err(reason))) => RunBy::Own { why: Some(&reason.0) },
            _ => RunBy::Own { why: None },
        }
    }

    /// Splits a run on these addresses into groups.
    fn groups(&self, bound: BoundPlan<'_>) -> Vec<StepGroup<'_>> {
        let mut groups = Vec::new();
        let mut own = 0..0;
        for (at, answer) in self.answers.iter().enumerate() {
            match answer {
                Some(Ok(taken))
                    if taken.failure.get().is_none() && taken.step.accepts(|buffer| bound.address(buffer)) =>
                {
                    groups.extend((!own.is_empty()).then(|| StepGroup::Own(own.clone())));
                    groups.push(StepGroup::Dnn(at, taken));
                    own = at + 1..at + 1;
                }
                _ => own.end = at + 1,
            }
        }
        groups.extend((!own.is_empty()).then_some(StepGroup::Own(own)));
        groups
    }
}

/// Steps that are run together.
enum StepGroup<'a> {
    /// By our own code.
    Own(Range<usize>),
    /// By hipDNN, with the step's number.
    Dnn(usize, &'a Taken),
}

/// Runs a plan, ordered with other work.
pub(super) fn run(plan: Arc<HostPlan>, run: GuaranteedRun<'_>, order: Order<'_>) -> Result<(), ExecError> {
    let Some(mixed) = &plan.mixed else { return Ok(()) };
    match order {
        Order::Now => {
            let stream = mixed.mixed.stream()?;
            let done = run_now(&plan, mixed, &run, mixed.mixed.offering.device(), stream.raw());
            mixed.mixed.give_back(stream);
            done
        }
        Order::Stream { device, stream, ledger } => {
            if device.capture_status(stream)? != hip::CaptureStatus::None {
                return Err(ExecError::ForeignCapture);
            }
            if device.stream_query(stream)? {
                return run_now(&plan, mixed, &run, device, stream);
            }
            queue(&plan, mixed, &run, device, stream, ledger)
        }
        Order::Record(capture) => record(&plan, mixed, run.memory, capture),
    }
}

/// Runs everything before it returns. The stream is idle.
fn run_now(
    plan: &HostPlan,
    mixed: &MixedPlan,
    run: &GuaranteedRun<'_>,
    device: &hip::Device,
    stream: RawStream<'_>,
) -> Result<(), ExecError> {
    let mut state = plan.shared.take();
    let observer = run.observer.as_deref();
    let mut work = || {
        let reserved = state.reserve(plan.plan.arena_bytes, mixed.workspace_bytes)?;
        let bound = BoundPlan::new(&plan.plan, run.memory, reserved);
        let graph = &plan.shared.graph;
        for group in mixed.groups(bound) {
            match group {
                StepGroup::Own(steps) => execute_part(graph, bound, steps, &mut state, run.parallel, observer)?,
                StepGroup::Dnn(at, taken) => {
                    let start = observer.is_some().then(Instant::now);
                    let done = taken.execute(bound, stream);
                    // Our own steps that follow read the results, and the caller's memory is valid only until we return.
                    device.stream_synchronize(stream)?;
                    if let Err(error) = done {
                        taken.fail(&plan.label(at), &error);
                        execute_part(graph, bound, at..at + 1, &mut state, run.parallel, observer)?;
                        continue;
                    }
                    if let (Some(observer), Some(start)) = (observer, start) {
                        observer.step(&plan.plan.steps[at], mixed.run_by(at), start, start.elapsed());
                    }
                }
            }
        }
        Ok(())
    };
    let done = work();
    plan.shared.give_back(state);
    done
}

/// A run whose groups are executed later, one after the other, by the driver.
struct Later {
    plan: Arc<HostPlan>,
    /// Available without locking the state, which a group may be using.
    run: KeptHostRun,
    observer: Option<Arc<dyn Observer>>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    state: RunState,
    /// When hipDNN started the current step.
    start: Option<Instant>,
    failure: Option<ExecError>,
}

impl Later {
    /// Allocates all memory that the run needs now: later there is no caller to report a failure to.
    fn new(
        plan: &Arc<HostPlan>,
        mixed: &MixedPlan,
        memory: RunMemory<'_>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Arc<Self>, ExecError> {
        let mut state = plan.shared.take();
        let run = KeptHostRun::new(memory, state.reserve(plan.plan.arena_bytes, mixed.workspace_bytes)?);
        let progress = Mutex::new(Progress { state, ..Progress::default() });
        Ok(Arc::new(Self { plan: plan.clone(), run, observer, progress }))
    }

    fn bound(&self) -> BoundPlan<'_> {
        self.run.bind(&self.plan.plan)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs our own steps on a thread of the driver, which no panic may reach. Does nothing after a failure.
    fn own(&self, steps: Range<usize>) {
        let mut progress = self.progress();
        let Progress { state, failure, .. } = &mut *progress;
        if failure.is_some() {
            return;
        }
        let shared = &self.plan.shared;
        // A panic leaves only bytes that are never read: outputs of a failed run, and memory that the next run
        // overwrites.
        let done = catch_unwind(AssertUnwindSafe(|| {
            execute_part(&shared.graph, self.bound(), steps, state, &*shared.pool, self.observer.as_deref())
        }));
        *failure = done.unwrap_or(Err(ExecError::Panicked)).err();
    }

    /// Called when hipDNN is about to run a step.
    fn start(&self) {
        self.progress().start = Some(Instant::now());
    }

    /// Called when hipDNN has finished a step.
    fn end(&self, at: usize) {
        let start = self.progress().start.take();
        if let (Some(observer), Some(start), Some(mixed)) = (&self.observer, start, &self.plan.mixed) {
            observer.step(&self.plan.plan.steps[at], mixed.run_by(at), start, start.elapsed());
        }
    }
}

/// Queues a run after the work of a stream.
fn queue(
    plan: &Arc<HostPlan>,
    mixed: &MixedPlan,
    run: &GuaranteedRun<'_>,
    device: &hip::Device,
    stream: RawStream<'_>,
    ledger: &Arc<Ledger>,
) -> Result<(), ExecError> {
    let later = Later::new(plan, mixed, run.memory, run.observer.clone())?;
    let ticket = ledger.enter();
    let enqueue = || {
        for group in mixed.groups(later.bound()) {
            let later = later.clone();
            match group {
                StepGroup::Own(steps) => device.launch_host_fn(stream, move || later.own(steps))?,
                StepGroup::Dnn(at, taken) => {
                    let before = later.clone();
                    if later.observer.is_some() {
                        device.launch_host_fn(stream, move || before.start())?;
                    }
                    // The run's memory lives until its last group is done.
                    if let Err(error) = taken.execute(later.bound(), stream) {
                        taken.fail(&plan.label(at), &error);
                        device.launch_host_fn(stream, move || later.own(at..at + 1))?;
                    } else if later.observer.is_some() {
                        device.launch_host_fn(stream, move || later.end(at))?;
                    }
                }
            }
        }
        Ok(())
    };
    let enqueued: Result<(), ExecError> = enqueue();
    let (is_whole, run) = (enqueued.is_ok(), later.clone());
    let last = move || {
        let (state, failure) = {
            let mut progress = later.progress();
            (std::mem::take(&mut progress.state), progress.failure.take())
        };
        later.plan.shared.give_back(state);
        // If the run could not be enqueued completely, the caller gets the error directly.
        ticket.close(failure.filter(|_| is_whole).map_or(Ok(()), Err));
    };
    let ended = device.launch_host_fn(stream, last);
    if ended.is_err() {
        // Work that is already on the stream uses the run's memory.
        let _ = device.stream_synchronize(stream);
    }
    drop(run);
    enqueued.and(ended.map_err(Into::into))
}

/// Records a run.
fn record(plan: &Arc<HostPlan>, mixed: &MixedPlan, memory: RunMemory<'_>, capture: &Capture) -> Result<(), ExecError> {
    let later = Later::new(plan, mixed, memory, None)?;
    for group in mixed.groups(later.bound()) {
        let later = later.clone();
        match group {
            StepGroup::Own(steps) => capture.record(move |_| later.own(steps.clone()))?,
            // The last group keeps the run's memory alive with the capture.
            StepGroup::Dnn(at, taken) => {
                if let Err(error) = taken.execute(later.bound(), capture.stream()) {
                    taken.fail(&plan.label(at), &error);
                    capture.record(move |_| later.own(at..at + 1))?;
                }
            }
        }
    }
    capture.record(move |failure| {
        if let Some(error) = later.progress().failure.take() {
            failure.set(error);
        }
    })
}
