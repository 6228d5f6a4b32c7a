//! The host device: RAM and the CPU.
mod folded;
mod memory_budget;
mod mixed;
mod run;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use graph::plan::{Budget, Capabilities, Capability};
use graph::quant::QuantWeights;
use graph::{Graph, Plan, Tensor};

use crate::device::{Device, Loaded, Observer, Order, Prepared, RunBy};
use crate::dnn::Offering;
use crate::ffi::host::RunState;
use crate::ffi::{GuaranteedRun, RunMemory};
use crate::{ExecError, Pool};
pub(crate) use folded::Folded;
use memory_budget::HostMemory;
pub(crate) use memory_budget::WALKED;
use mixed::{Mixed, MixedPlan};
use run::execute;

/// The host as a device.
///
/// Work on an idle stream, or without a stream, runs on the calling thread with the threads that the caller provides.
/// Work on a busy stream, and recorded work, is a host function of the driver and uses the device's own few threads.
#[derive(Clone, Default)]
pub struct HostDevice {
    pool: Arc<Pool>,
    memory: Arc<HostMemory>,
    mixed: Option<Arc<Mixed>>,
}

impl HostDevice {
    /// The device, with a thread per processor. No thread is started yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same device for a session that offers steps to hipDNN on the host driver.
    #[must_use]
    pub fn with_dnn(&self, offering: Offering) -> Self {
        let mixed = Some(Arc::new(Mixed::new(offering)));
        Self { pool: self.pool.clone(), memory: self.memory.clone(), mixed }
    }
}

impl Device for HostDevice {
    fn name(&self) -> &str {
        "host"
    }

    fn capabilities(&self) -> Capabilities {
        // hipDNN has an operation for attention; our own code is as fast with separate steps.
        let has_dnn = self.mixed.as_ref().is_some_and(|mixed| mixed.has_library());
        Capabilities::NONE.with_if(has_dnn, Capability::Attention)
    }

    fn lay_out(&self, weights: &QuantWeights) -> Option<QuantWeights> {
        host_ops::interleaved(weights)
    }

    fn load(&self, graph: Arc<Graph>) -> Result<Box<dyn Loaded>, ExecError> {
        let (pool, memory, mixed) = (self.pool.clone(), self.memory.clone(), self.mixed.clone());
        let graph = Arc::new(graph.without_constants());
        let shared = Arc::new(Shared { graph, idle: Mutex::default(), pool, mixed });
        Ok(Box::new(HostProgram { folded: Folded::default(), memory, shared }))
    }
}

/// A partition on the host.
struct HostProgram {
    folded: Folded,
    memory: Arc<HostMemory>,
    shared: Arc<Shared>,
}

/// The state of a partition that its runs share.
struct Shared {
    /// Used for names.
    graph: Arc<Graph>,
    /// Memory of finished runs, for reuse.
    idle: Mutex<Vec<RunState>>,
    pool: Arc<Pool>,
    mixed: Option<Arc<Mixed>>,
}

impl Shared {
    fn take(&self) -> RunState {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_back(&self, state: RunState) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(state);
    }
}

impl Loaded for HostProgram {
    fn evaluate(&self, prologue: &Plan) -> Option<Vec<Tensor>> {
        self.folded.evaluate(&self.shared.graph, prologue)
    }

    fn budget(&self) -> Budget {
        self.memory.budget()
    }

    fn prepare(&self, plan: Plan) -> Result<Arc<dyn Prepared>, ExecError> {
        self.folded.forget_unused();
        let plan = match &self.shared.mixed {
            Some(mixed) => mixed.parted(plan),
            None => plan,
        };
        let mixed = self.shared.mixed.as_ref().map(|mixed| MixedPlan::new(mixed, &plan));
        Ok(Arc::new(HostPlan { plan, mixed, shared: self.shared.clone() }))
    }

    /// A copy of a constant in a mapped file: from large pages it is read nearly twice as fast.
    fn stored(&self, constant: &Tensor) -> Option<Tensor> {
        constant.own()
    }
}

/// A plan on the host: its constants are already in RAM, and its code is linked in.
struct HostPlan {
    plan: Plan,
    /// Which steps hipDNN runs, if it was asked.
    mixed: Option<MixedPlan>,
    shared: Arc<Shared>,
}

impl Prepared for HostPlan {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn run_by(&self, step: usize) -> RunBy<'_> {
        self.mixed.as_ref().map_or(RunBy::Own { why: None }, |mixed| mixed.run_by(step))
    }

    fn start(self: Arc<Self>, run: GuaranteedRun<'_>, order: Order<'_>) -> Result<(), ExecError> {
        run.memory.check(self.shared.graph.inputs().len(), self.plan.outputs.len())?;
        if self.mixed.as_ref().is_some_and(MixedPlan::is_mixed) {
            return mixed::run(self, run, order);
        }
        match order {
            Order::Now => {}
            Order::Stream { device, stream, ledger } => {
                if device.capture_status(stream)? != hip::CaptureStatus::None {
                    return Err(ExecError::ForeignCapture);
                }
                if !device.stream_query(stream)? {
                    let (kept, ticket) = (run.memory.keep(), ledger.enter());
                    let work = move || ticket.close(self.run_later(kept.memory(), run.observer.as_deref()));
                    return Ok(device.launch_host_fn(stream, work)?);
                }
            }
            Order::Record(capture) => {
                let kept = run.memory.keep();
                let mut state = self.shared.take();
                // Allocated now, because a replay cannot report that memory is missing.
                state.reserve(self.plan.arena_bytes, 0)?;
                let state = Mutex::new(state);
                return capture.record(move |failure| {
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Err(error) = self.run_again(kept.memory(), &mut state, None) {
                        failure.set(error);
                    }
                });
            }
        }
        let mut state = self.shared.take();
        let GuaranteedRun { memory, parallel, observer } = run;
        let done = execute(&self.shared.graph, &self.plan, memory, &mut state, parallel, observer.as_deref());
        self.shared.give_back(state);
        done
    }
}

impl HostPlan {
    /// The operator and name of the node that a step came from.
    fn label(&self, step: usize) -> String {
        let node = self.plan.steps.get(step).and_then(|step| self.shared.graph.nodes().get(step.node as usize));
        node.map_or_else(String::new, |node| node.label())
    }

    /// Executes a queued run.
    fn run_later(&self, memory: RunMemory<'_>, observer: Option<&dyn Observer>) -> Result<(), ExecError> {
        let mut state = self.shared.take();
        let done = self.run_again(memory, &mut state, observer);
        self.shared.give_back(state);
        done
    }

    /// Executes a run on a thread of the driver, which no panic may reach.
    fn run_again(
        &self,
        memory: RunMemory<'_>,
        state: &mut RunState,
        observer: Option<&dyn Observer>,
    ) -> Result<(), ExecError> {
        let (graph, pool) = (&*self.shared.graph, &*self.shared.pool);
        // A panic leaves only bytes that are never read: outputs of a failed run, and memory that the next run
        // overwrites.
        catch_unwind(AssertUnwindSafe(|| execute(graph, &self.plan, memory, state, pool, observer)))
            .unwrap_or(Err(ExecError::Panicked))
    }
}
