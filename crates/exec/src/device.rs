//! The interface between a device and the engine.
use std::sync::Arc;
use std::time::{Duration, Instant};

use graph::plan::{Budget, Capabilities};
use graph::quant::QuantWeights;
use graph::{Graph, Plan, Step, Tensor};
use host_ops::Parallel;
use kernels::Peak;

use crate::ffi::GuaranteedRun;
use crate::{Capture, ExecError, Ledger};

/// Something that runs plans: the host or a GPU.
///
/// # Contract
/// The planner has checked types, ranks and extents; a device does not check them again. It runs every primitive: a GPU
/// runs those without a kernel on the host. It fails only for reasons that cannot be known in advance: out of memory, a
/// lost device, or data that breaks an operator's rules.
pub trait Device: Send + Sync {
    /// The name used in messages: `host`, `gfx1100`.
    fn name(&self) -> &str;

    /// What it can do beyond the primitives. Planning stages that need something else do not run.
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    /// Returns the constant weights of a quantised product in the layout that its code reads best, or `None` to leave
    /// them as they are. Called once for each product when a partition is prepared, before any shape is known. Plans
    /// and runs see only the new layout.
    fn lay_out(&self, weights: &QuantWeights) -> Option<QuantWeights> {
        let _ = weights;
        None
    }

    /// Whether preparing a plan takes so long that it should be done before the first run if shapes are known.
    fn plans_ahead(&self) -> bool {
        false
    }

    /// The peak performance of the chip, if known.
    fn peak(&self) -> Option<Peak> {
        None
    }

    /// Loads a partition onto the device.
    ///
    /// # Errors
    /// The device does not have enough memory for it.
    fn load(&self, graph: Arc<Graph>) -> Result<Box<dyn Loaded>, ExecError>;
}

/// A partition on a device, with everything its plans share: weights in the layouts that its steps read, and memory
/// that finished runs left for reuse.
pub trait Loaded: Send + Sync {
    /// Runs a plan that has no inputs and works only on constants, and returns its outputs, so that the work is done
    /// once for all plans. `None` leaves the work in the plan.
    fn evaluate(&self, prologue: &Plan) -> Option<Vec<Tensor>>;

    /// How much a plan may take right now. A plan that needs more is refused before anything is allocated.
    fn budget(&self) -> Budget {
        Budget::default()
    }

    /// Prepares a plan to run: places its constants where its steps read them and compiles its code.
    ///
    /// # Errors
    /// The device does not have enough memory for it.
    fn prepare(&self, plan: Plan) -> Result<Arc<dyn Prepared>, ExecError>;

    /// Returns the constant at its place on the device, if it has been moved there. The caller then drops the one it
    /// passed in. Called for all constants when the partition is loaded and after each plan is prepared.
    fn stored(&self, constant: &Tensor) -> Option<Tensor> {
        let _ = constant;
        None
    }
}

/// A plan that is ready to run. Any number of runs may be in progress at the same time.
pub trait Prepared: Send + Sync {
    /// The plan.
    fn plan(&self) -> &Plan;

    /// Which backend runs the step with this number.
    fn run_by(&self, step: usize) -> RunBy<'_> {
        let _ = step;
        RunBy::Own { why: None }
    }

    /// The measurements of the step with this number, if tuning chose its backend.
    fn tuned(&self, step: usize) -> Option<TunedStep> {
        let _ = step;
        None
    }

    /// Runs the plan, ordered with other work. Callers use `run`, which is unsafe and turns their guarantee about the
    /// addresses into the argument of this function. The argument's type has no public name, so no other crate can
    /// implement a device.
    ///
    /// # Errors
    /// Those of `run`.
    fn start(self: Arc<Self>, run: GuaranteedRun<'_>, order: Order<'_>) -> Result<(), ExecError>;
}

/// A run of a plan.
pub struct Run<'a> {
    /// Addresses of the inputs.
    pub inputs: &'a [*const u8],
    /// Addresses of the outputs.
    pub outputs: &'a [*mut u8],
    /// Threads for host work that runs before the call returns.
    pub parallel: &'a dyn Parallel,
    /// Notified of every step.
    pub observer: Option<Arc<dyn Observer>>,
}

/// When a run happens.
#[derive(Clone, Copy)]
pub enum Order<'a> {
    /// Before the call returns.
    Now,
    /// After all earlier work of a stream. The host device runs at once if the stream has no work left.
    Stream {
        /// The driver's device that the stream belongs to.
        device: &'a hip::Device,
        /// The stream. It is drained before it is closed, so a reused handle is safe.
        stream: hip::RawStream<'a>,
        /// Receives failures that occur after the call returns.
        ledger: &'a Arc<Ledger>,
    },
    /// At every replay of a capture, and not when the call is made.
    Record(&'a Capture),
}

/// Notified of the steps of a run. Steps are timed only if there is an observer.
pub trait Observer: Send + Sync {
    /// A step ran: which backend ran it, when it started, and how long it took.
    fn step(&self, step: &Step, by: RunBy<'_>, start: Instant, took: Duration);
}

/// The backend that runs a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunBy<'a> {
    /// The device's own code.
    Own {
        /// Why hipDNN does not run it, if it was asked.
        why: Option<&'a str>,
    },
    /// A hipDNN engine.
    HipDnn {
        /// The name.
        engine: &'a str,
        /// The number of operations in its graph.
        operations: usize,
    },
    /// The vendor's library for matrix products.
    BlasLt {
        /// Why hipDNN does not run it, if it was asked.
        why: Option<&'a str>,
    },
    /// The host, although the device is not the host.
    Host {
        /// Why the device does not run it.
        why: &'a str,
    },
}

/// The measurements of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedStep {
    /// The fastest candidate: `own-1`, `blaslt-3`, `hipdnn-0`.
    pub choice: String,
    /// The time.
    pub micros: f32,
    /// The time of the step as it runs without tuning.
    pub usual_micros: f32,
    /// The number of candidates measured.
    pub tried: usize,
}

impl RunBy<'_> {
    /// The text shown to users: `own: conv`, `hipDNN: MIOPEN_ENGINE`, or, for a graph of several operations, `hipDNN:
    /// MIOPEN_ENGINE, 4 operations`.
    pub fn label(self, step: &Step) -> String {
        match self {
            Self::Own { .. } => format!("own: {}", step.prim.name()),
            Self::HipDnn { engine, operations: 1 } => format!("hipDNN: {engine}"),
            Self::HipDnn { engine, operations } => format!("hipDNN: {engine}, {operations} operations"),
            Self::BlasLt { .. } => format!("BLASLt: {}", step.prim.name()),
            Self::Host { .. } => format!("host: {}", step.prim.name()),
        }
    }

    /// Why the step is not run by hipDNN (if it was asked) or by the device.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Own { why } | Self::BlasLt { why } => *why,
            Self::Host { why } => Some(why),
            Self::HipDnn { .. } => None,
        }
    }
}
