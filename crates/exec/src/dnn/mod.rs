//! hipDNN for the steps of a plan.
//!
//! A hipDNN library can run convolutions, transposed convolutions, matrix products, attention, pooling and
//! normalisations, and products with an epilogue, instead of the device's own code. A device uses this module in three
//! places:
//!
//! 1. Once per session: [`Libraries::offering`] decides which steps are offered to which library, or returns `None` if
//!    hipDNN is turned off. `Libraries` belongs to an object that outlives the process's sessions (a factory): all
//!    sessions on a device share handles and plans. If a library is wanted but missing, [`Offering::fault`] reports it;
//!    that is no reason to refuse a session.
//! 2. When a plan is prepared: [`Offering::make_ready`] builds the plans of many steps in parallel.
//!    [`Offering::parted`] splits steps that hipDNN cannot run as one graph but can run in parts. Then
//!    [`Offering::offer`] returns for each step `None` (hipDNN does not support this operation), a reason, or a [`DnnStep`].
//!    Plans are cached by the step without its buffers, so a graph that occurs often is built once. Keep the reason:
//!    `explain` shows it ([`RunBy`]).
//! 3. In a run: `DnnStep::execute` enqueues the step on a stream. It takes the same function from buffers to
//!    addresses as a device's own code, and [`DnnStep::workspace_bytes`] of device memory, which the next step on the
//!    stream may reuse. Ask [`DnnStep::accepts`] first: engines require aligned addresses, and those of inputs and
//!    outputs come from the user. If `execute` fails, the device's own code can still run the step; the host device
//!    does so, logs it once, and does not ask hipDNN again.
//!
//! This module does not depend on a particular driver: addresses and the stream are the driver's. Capture works if the
//! library's engine can be captured: `execute` on a captured stream is recorded.
//!
//! Sums stay in single precision (double for f64) from the product to the end of its epilogue. Our own primitives round
//! intermediate values that the model stores in half precision, so results may differ in the last bit.
mod ahead;
mod attention;
mod chain;
mod epilogue;
mod library;
mod log;
mod operations;
mod part;
mod scores;
mod sketch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use graph::prim::BufferId;
use graph::{Declined, Prim, Step, View};
use hip::RawStream;
use hipdnn::sys::Backend;
use hipdnn::{Handle, LoadError};

use crate::ffi::RunMemory;
use crate::ffi::device::execute_dnn;
use crate::policy::Offers;
use crate::{ExecError, Lru, RunBy};

pub use crate::policy::{Mode, UnknownMode};

/// Outcomes cached per device. A large model has a few dozen different products and convolutions for each set of input
/// shapes.
const KEPT_OUTCOMES: usize = 512;

/// The libraries in use, one for each device.
#[derive(Default)]
pub struct Libraries(Mutex<Vec<Arc<Dnn>>>);

impl Libraries {
    /// The steps that a session on a device offers to hipDNN; `None` if it does not want hipDNN.
    pub fn offering(&self, device: &hip::Device, mode: Mode) -> Option<Offering> {
        let offers = mode.offers(device.kind(), &device.info().arch)?;
        Some(Offering { library: self.open(device), offers, device: device.clone() })
    }

    /// The library for a device, loaded on first use. Failures are not cached.
    fn open(&self, device: &hip::Device) -> Result<Arc<Dnn>, DnnError> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |dnn: &&Arc<Dnn>| (dnn.device.kind(), dnn.device.ordinal()) == (device.kind(), device.ordinal());
        if let Some(dnn) = open.iter().find(is_same) {
            return Ok(dnn.clone());
        }
        let dnn = Arc::new(Dnn::open(device)?);
        open.push(dnn.clone());
        Ok(dnn)
    }
}

/// The steps that a session offers to hipDNN, and the library that takes them.
pub struct Offering {
    library: Result<Arc<Dnn>, DnnError>,
    offers: Offers,
    device: hip::Device,
}

impl Offering {
    /// Why there is no library, if loading failed.
    pub fn fault(&self) -> Option<&DnnError> {
        self.library.as_ref().err()
    }

    /// The library's version and file.
    pub fn description(&self) -> Option<&str> {
        self.library.as_ref().ok().map(|dnn| dnn.description.as_str())
    }

    /// The driver's device that the library works with.
    pub fn device(&self) -> &hip::Device {
        &self.device
    }

    /// Offers a step. Returns `None` if hipDNN does not support this operation, or a reason if hipDNN cannot run this
    /// step, it is not worthwhile, or there is no library.
    pub fn offer(&self, step: &Step) -> Option<Result<DnnStep, Declined>> {
        operations::is_known(&step.prim).then(|| {
            self.offers.check(step)?;
            self.take(step, None)
        })
    }

    /// Offers a step to the hipDNN engine at this rank in the library's order, best first, even if it is not considered
    /// worthwhile.
    ///
    /// # Errors
    /// There is no such engine, or as for [`offer`](Self::offer).
    pub fn offer_at(&self, step: &Step, rank: usize) -> Result<DnnStep, Declined> {
        if !operations::is_known(&step.prim) {
            return Err(Declined::new("hipDNN does not support this operation"));
        }
        self.take(step, Some(rank))
    }

    /// The step as one graph: as hipDNN's own operation, else as a chain of smaller ones.
    fn take(&self, step: &Step, rank: Option<usize>) -> Result<DnnStep, Declined> {
        let absent = |error: &DnnError| Declined::new(format!("hipDNN is not available: {}", first_line(error)));
        let dnn = self.library.as_ref().map_err(absent)?;
        dnn.take(step, Form::Named, rank).or_else(|declined| {
            if !self.offers.chains(step) {
                return Err(declined);
            }
            let both = |chain: Declined| Declined::new(format!("{}; as a chain: {}", declined.0, chain.0));
            dnn.take(step, Form::Chain, rank).map_err(both)
        })
    }
}

/// Why hipDNN is not available.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DnnError {
    /// The library was not found or cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The library does not work here.
    #[error(transparent)]
    Library(#[from] hipdnn::Error),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] hip::HipError),
}

/// How a step is expressed as a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// hipDNN's operation for it, followed by the epilogue.
    Named,
    /// For attention: its products, with the operations between them one by one.
    Chain,
}

/// The key of a cached plan.
#[derive(PartialEq)]
struct PlanKey {
    /// The step without its buffers.
    step: Step,
    form: Form,
    /// The rank of the engine in the library's order, if one was requested.
    rank: Option<usize>,
}

/// A hipDNN library opened for one device.
struct Dnn {
    outcomes: Mutex<Lru<PlanKey, Result<Arc<Built>, Declined>>>,
    /// One for each thread that builds plans.
    handles: Mutex<Vec<Arc<Mutex<Handle>>>>,
    backend: Arc<dyn Backend>,
    /// Names of hipDNN engines by id.
    engines: BTreeMap<i64, String>,
    description: String,
    device: hip::Device,
    /// Forwards the library's log messages while it is open.
    _log: Option<Arc<log::Log>>,
}

/// A graph on a hipDNN engine.
struct Built {
    plan: Mutex<hipdnn::Plan>,
    /// The handle it was built with. Declared after the plan, which must be dropped first.
    handle: Arc<Mutex<Handle>>,
    engine: String,
    workspace_bytes: usize,
    /// The number of operations in the graph.
    operations: usize,
    /// Pairs each of the step's views used (inputs first) with its uid in the graph.
    operands: Vec<(usize, i64)>,
}

impl Dnn {
    fn open(device: &hip::Device) -> Result<Self, DnnError> {
        let start = Instant::now();
        let backend: Arc<dyn Backend> = Arc::new(library::open(device)?);
        let (description, log) = (backend.describe(), log::listen(&backend));
        let _scope = device.enter()?;
        let handle = Handle::new(backend.clone())?;
        tracing::debug!(target: "amdgpu_ep::load", "opened {description} in {:.1?}", start.elapsed());
        // A library that cannot list its engines still runs graphs.
        let engines = handle.engines().unwrap_or_default().into_iter().map(|engine| (engine.id, engine.name)).collect();
        let outcomes = Mutex::new(Lru::new(KEPT_OUTCOMES));
        let handles = Mutex::new(vec![Arc::new(Mutex::new(handle))]);
        Ok(Self { outcomes, handles, backend, engines, description, device: device.clone(), _log: log })
    }

    /// The step as the library runs it, or the reason why it does not.
    fn take(self: &Arc<Self>, step: &Step, form: Form, rank: Option<usize>) -> Result<DnnStep, Declined> {
        let views: Vec<&View> = step.inputs.iter().chain(&step.outputs).collect();
        let handle = self.handle(0).map_err(|error| Declined::new(first_line(&error)))?;
        let built = self.build(step, form, rank, &handle)?;
        let operand = |&(at, uid): &(usize, i64)| {
            let view = views[at];
            let offset = view.offset.wrapping_mul(view.dtype.bytes().cast_signed());
            Operand { buffer: view.buffer, offset, alignment: sketch::alignment(view), uid }
        };
        Ok(DnnStep { operands: built.operands.iter().map(operand).collect(), built, dnn: self.clone() })
    }

    /// The cached outcome for steps with this signature.
    fn known(&self, key: &PlanKey) -> Option<Result<Arc<Built>, Declined>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).get(|known| known == key)
    }

    /// The plan for all steps with this signature. Builds it with the handle if it is not cached.
    fn build(
        &self,
        step: &Step,
        form: Form,
        rank: Option<usize>,
        handle: &Arc<Mutex<Handle>>,
    ) -> Result<Arc<Built>, Declined> {
        let key = PlanKey { step: signature(step), form, rank };
        if let Some(outcome) = self.known(&key) {
            return outcome;
        }
        // Built outside the lock, so two threads may build the same plan.
        let start = Instant::now();
        let outcome = self.compile(step, form, rank, handle).map(Arc::new);
        let (prim, took) = (step.prim.name(), start.elapsed());
        tracing::trace!(target: "amdgpu_ep::compile", "hipDNN evaluated a {prim} in {took:.1?}");
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert(key, outcome.clone());
        outcome
    }

    fn compile(
        &self,
        step: &Step,
        form: Form,
        rank: Option<usize>,
        handle: &Arc<Mutex<Handle>>,
    ) -> Result<Built, Declined> {
        let mut sketch = match (form, &step.prim) {
            (Form::Chain, Prim::Attention(prim)) => chain::chain(step, prim)?,
            _ => operations::sketch(step)?,
        };
        let refused = |error: hipdnn::Error| Declined::new(first_line(&error));
        let _scope = self.device.enter().map_err(|error| Declined::new(error.to_string()))?;
        let made_with = handle.clone();
        let handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
        let graph = sketch.graph.build(&handle);
        let plan =
            graph.and_then(|graph| rank.map_or_else(|| graph.plan(), |rank| graph.plan_at(rank))).map_err(refused)?;
        let uids = sketch.operands.iter().map(|&(at, id)| Some((at, sketch.graph.uid(id)?)));
        let operands = uids.collect::<Option<_>>().ok_or_else(|| Declined::new("a tensor of its graph has no uid"))?;
        let engine = self.engines.get(&plan.engine()).cloned();
        Ok(Built {
            engine: engine.unwrap_or_else(|| format!("{:#018x}", plan.engine())),
            workspace_bytes: plan.workspace_bytes(),
            operations: sketch.graph.operations(),
            plan: Mutex::new(plan),
            handle: made_with,
            operands,
        })
    }
}

/// A step that hipDNN runs.
pub struct DnnStep {
    operands: Vec<Operand>,
    // Declared before the library: plans must be dropped first.
    built: Arc<Built>,
    dnn: Arc<Dnn>,
}

/// The location of one tensor of the graph.
struct Operand {
    buffer: BufferId,
    /// Bytes from the start of the buffer.
    offset: isize,
    /// The alignment that the address must have.
    alignment: usize,
    uid: i64,
}

impl Operand {
    fn address(&self, address: impl Fn(BufferId) -> *mut u8) -> *mut u8 {
        address(self.buffer).wrapping_offset(self.offset)
    }
}

impl DnnStep {
    /// The name of the hipDNN engine.
    pub fn engine(&self) -> &str {
        &self.built.engine
    }

    /// The backend as shown to users.
    pub fn run_by(&self) -> RunBy<'_> {
        RunBy::HipDnn { engine: self.engine(), operations: self.built.operations }
    }

    /// Bytes of device memory that the step needs as workspace in a run.
    pub fn workspace_bytes(&self) -> usize {
        self.built.workspace_bytes
    }

    /// Whether the engine can use buffers at these addresses. If not, the device's own code runs the step.
    pub fn accepts(&self, address: impl Fn(BufferId) -> *mut u8) -> bool {
        self.operands.iter().all(|operand| operand.address(&address).addr().is_multiple_of(operand.alignment))
    }

    /// Enqueues the step on a stream.
    ///
    /// For each buffer of the step, `address` gives the memory of the run, which holds all its views. `workspace` has
    /// [`workspace_bytes`](Self::workspace_bytes) bytes, aligned to 256, that nothing else on the device uses in the
    /// meantime, or is null if that is 0. The stream belongs to the device that the library was opened for.
    ///
    /// # Errors
    /// The message of the library or the driver.
    pub(crate) fn execute(
        &self,
        memory: RunMemory<'_>,
        address: impl Fn(BufferId) -> *mut u8,
        workspace: *mut u8,
        stream: RawStream<'_>,
    ) -> Result<(), ExecError> {
        let _scope = self.dnn.device.enter()?;
        let handle = self.built.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = self.built.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let tensors = self.operands.iter().map(|operand| (operand.uid, operand.address(&address).cast()));
        execute_dnn(memory, (&plan, &handle), tensors, workspace, stream)
            .map_err(|error| ExecError::Dnn { engine: self.engine().to_owned(), reason: error.to_string() })
    }
}

/// A step without its buffers, which is all its plan depends on. Only the alignment of offsets is kept.
pub(crate) fn signature(step: &Step) -> Step {
    let bare =
        |view: &View| View { buffer: BufferId(0), offset: sketch::alignment(view).cast_signed(), ..view.clone() };
    Step {
        node: 0,
        prim: step.prim.clone(),
        inputs: step.inputs.iter().map(bare).collect(),
        outputs: step.outputs.iter().map(bare).collect(),
    }
}

/// The error without its help text, because reasons are shown in tables.
fn first_line(error: &dyn std::error::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
