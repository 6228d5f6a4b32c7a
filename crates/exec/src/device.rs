//! What a device offers the engine.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use graph::{Declined, Graph, Op, Plan, Step, Tensor, plan::Budget, quant::QuantWeights};
use host_ops::Parallel;
use kernels::Peak;

use crate::{Capture, ExecError, Ledger};

/// What runs plans: the host, or a GPU.
///
/// # Contract
/// The planner has checked types, ranks and extents; a device does not check again. It declines what it has no code for
/// in [`supports`](Self::supports), and fails later only for what nobody could foresee: no memory, a lost device, data
/// that breaks an operator's rules.
pub trait Device: Send + Sync {
    /// What it is called in messages: `host`, `gfx1100`.
    fn name(&self) -> &str;

    /// Whether it has code for everything that an operator is lowered to, whatever the shapes: they are not known yet when
    /// a node is claimed.
    ///
    /// # Errors
    /// Why not.
    fn supports(&self, op: &dyn Op) -> Result<(), Declined>;

    /// Whether its convolutions are best on images with their channels innermost. Plans then lay images out so.
    fn wants_channels_last(&self) -> bool {
        false
    }

    /// Whether it has code for attention as one step, for whatever planning makes one of.
    fn wants_attention(&self) -> bool {
        false
    }

    /// Whether it normalises few rows while it multiplies them.
    fn wants_normed_products(&self) -> bool {
        false
    }

    /// Whether it puts both halves of a product's columns together while it multiplies few rows.
    fn wants_gated_products(&self) -> bool {
        false
    }

    /// Whether it puts a token's key and value into the cache while it attends to those before.
    fn wants_append_attention(&self) -> bool {
        false
    }

    /// Constant weights of a quantised product in the layout that its code reads best; `None` leaves them as they are. Asked
    /// once for each product when a partition is made ready, before any shape is known: plans and runs see the new layout
    /// only.
    fn lay_out(&self, weights: &QuantWeights) -> Option<QuantWeights> {
        let _ = weights;
        None
    }

    /// Whether making a plan ready takes so long that it is worth doing before the first run, where shapes are known.
    fn plans_ahead(&self) -> bool {
        false
    }

    /// What the chip can do at most, if that is known.
    fn peak(&self) -> Option<Peak> {
        None
    }

    /// Takes a partition in.
    ///
    /// # Errors
    /// The device has no room for it.
    fn load(&self, graph: Arc<Graph>) -> Result<Box<dyn Loaded>, ExecError>;
}

/// A partition on a device, with everything that its plans share: weights in the layouts that its steps read, and the
/// memory of runs that have ended.
pub trait Loaded: Send + Sync {
    /// Runs a plan without inputs, which works on constants only, and gives its outputs. The same work is done once for
    /// all plans. `None` leaves the work in the plan.
    fn evaluate(&self, prologue: &Plan) -> Option<Vec<Tensor>>;

    /// What a plan may take at this moment: more is refused before anything is allocated.
    fn budget(&self) -> Budget {
        Budget::default()
    }

    /// Makes a plan ready to run: its constants are where its steps read them, its code is compiled.
    ///
    /// # Errors
    /// The device has no room for it.
    fn prepare(&self, plan: Plan) -> Result<Arc<dyn Prepared>, ExecError>;

    /// The constant where the device has it, if that is another place by now: the one given is then let go. Asked for all
    /// constants when the partition is loaded, and when a plan is ready.
    fn stored(&self, constant: &Tensor) -> Option<Tensor> {
        let _ = constant;
        None
    }
}

/// A plan that is ready to run, any number of times at once.
pub trait Prepared: Send + Sync {
    /// The plan.
    fn plan(&self) -> &Plan;

    /// Who runs the step with this number.
    fn run_by(&self, step: usize) -> RunBy<'_> {
        let _ = step;
        RunBy::Own { why: None }
    }

    /// What was measured of the step with this number, where that decided who runs it.
    fn tuned(&self, step: usize) -> Option<TunedStep> {
        let _ = step;
        None
    }

    /// Runs it, in an order with other work.
    ///
    /// # Errors
    /// What is known when the call returns; the rest is reported through the [`Ledger`] or by
    /// [`Captured::replay`](crate::Captured::replay).
    ///
    /// # Safety
    /// The addresses of `run` are one for each of the plan's inputs and outputs, in memory that the device reaches, of as
    /// many bytes as the plan was made for, aligned to their element types; outputs overlap nothing, but for caches that are
    /// updated in place ([`Append`](graph::prim::Append)). Addresses of empty tensors may be anything. All this holds, and nobody else changes the memory, until the call returns, the stream
    /// has passed this point, or the capture is dropped, as `order` says.
    unsafe fn run(self: Arc<Self>, run: Run<'_>, order: Order<'_>) -> Result<(), ExecError>;
}

/// One run of a plan.
pub struct Run<'a> {
    /// Where the inputs lie.
    pub inputs: &'a [*const u8],
    /// Where the outputs go.
    pub outputs: &'a [*mut u8],
    /// Threads for host work that is done before the call returns.
    pub parallel: &'a dyn Parallel,
    /// Is told of every step.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Run<'_> {
    /// Refuses another number of addresses than there are inputs and outputs.
    pub(crate) fn check(&self, inputs: usize, outputs: usize) -> Result<(), ExecError> {
        for (what, found, wanted) in [("inputs", self.inputs.len(), inputs), ("outputs", self.outputs.len(), outputs)] {
            if found != wanted {
                return Err(ExecError::Count { what, found, wanted });
            }
        }
        Ok(())
    }
}

/// When a run happens.
#[derive(Clone, Copy)]
pub enum Order<'a> {
    /// Before the call returns.
    Now,
    /// Behind all work of a stream. The host device does it at once where there is none left.
    Stream {
        /// The driver's device that the stream belongs to.
        device: &'a hip::Device,
        /// The stream. It is waited for before it is closed: another one may get its name.
        stream: hip::RawStream<'a>,
        /// Where failures go that come after the call.
        ledger: &'a Arc<Ledger>,
    },
    /// At every replay of a capture, and not now.
    Record(&'a Capture),
}

/// Is told of the steps of a run. Time is measured only where there is one.
pub trait Observer: Send + Sync {
    /// A step ran: who did it, when it began, and how long it took.
    fn step(&self, step: &Step, by: RunBy<'_>, start: Instant, took: Duration);
}

/// Who runs a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunBy<'a> {
    /// The device's own code.
    Own {
        /// Why hipDNN does not, where it was asked.
        why: Option<&'a str>,
    },
    /// A hipDNN engine.
    HipDnn {
        /// Its name.
        engine: &'a str,
        /// How many operations its graph has.
        operations: usize,
    },
    /// The vendor's library for matrix products.
    BlasLt {
        /// Why hipDNN does not, where it was asked.
        why: Option<&'a str>,
    },
    /// The host, although the device is another one.
    Host {
        /// Why the device does not.
        why: &'a str,
    },
}

/// What was measured of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedStep {
    /// The best way to run it: `own-1`, `blaslt-3`, `hipdnn-0`.
    pub choice: String,
    /// What it takes.
    pub micros: f32,
    /// What the step takes as it is run without tuning.
    pub usual_micros: f32,
    /// How many ways were tried.
    pub tried: usize,
}

impl RunBy<'_> {
    /// As it is shown: `own: conv`, `hipDNN: MIOPEN_ENGINE`, and of a graph of several `hipDNN: MIOPEN_ENGINE, 4 operations`.
    pub fn label(self, step: &Step) -> String {
        match self {
            Self::Own { .. } => format!("own: {}", step.prim.name()),
            Self::HipDnn { engine, operations: 1 } => format!("hipDNN: {engine}"),
            Self::HipDnn { engine, operations } => format!("hipDNN: {engine}, {operations} operations"),
            Self::BlasLt { .. } => format!("BLASLt: {}", step.prim.name()),
            Self::Host { .. } => format!("host: {}", step.prim.name()),
        }
    }

    /// Why hipDNN, which was asked, or the device does not run the step.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Own { why } | Self::BlasLt { why } => *why,
            Self::Host { why } => Some(why),
            Self::HipDnn { .. } => None,
        }
    }
}
