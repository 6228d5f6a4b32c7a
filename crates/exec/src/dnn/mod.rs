//! hipDNN for the steps of a plan.
//!
//! Convolutions, transposed convolutions, matrix products, attention, pooling and normalisations, and products with an
//! epilogue, can be run by a hipDNN library instead of the device's own code. A device uses this module in three places:
//!
//! 1. Once per session: [`Libraries::offering`] says what is offered to which library, or `None` if hipDNN is not wanted.
//!    The `Libraries` belong to whoever lives as long as the process's sessions do (a factory): handles and plans are
//!    shared by all sessions on a device. A library that is wanted and absent is told by [`Offering::fault`], and is no
//!    reason to refuse a session.
//! 2. When a plan is prepared: [`Offering::make_ready`] makes the plans of many steps at the same time.
//!    [`Offering::parted`] takes steps apart that hipDNN does not run as one graph, and runs in parts. Then
//!    [`Offering::offer`] gives for each step `None` (hipDNN has no such operation), a reason, or a [`DnnStep`]. Plans are kept by what the step looks
//!    like without its buffers, so a graph that occurs often is built once. Keep the reason: `explain` shows it
//!    ([`RunBy`](crate::RunBy)).
//! 3. In a run: [`DnnStep::execute`] enqueues the step on a stream, with the same function from buffers to addresses that
//!    a device's own code gets, and [`DnnStep::workspace_bytes`] of device memory, which the next step on the stream may
//!    reuse. Ask [`DnnStep::accepts`] first: engines demand aligned addresses, and those of inputs and outputs are the
//!    user's. A step that `execute` refuses can still be run by the device's own code; the host device does so, says it
//!    once, and does not ask again.
//!
//! Nothing here knows which driver it works with: addresses are the driver's, and so is the stream. Capture works as far as
//! the library's engine can be captured: `execute` on a captured stream is recorded.
//!
//! Sums are kept in single precision (double for f64) from the product to the end of its epilogue. Our own primitives
//! round what the model stores in half precision in between, so results may differ in the last bit.
mod ahead;
mod attention;
mod chain;
mod epilogue;
mod library;
mod log;
mod mode;
mod operations;
mod part;
mod scores;
mod sketch;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use graph::{Declined, Prim, Step, View, prim::BufferId};
use hip::RawStream;
use hipdnn::{Handle, LoadError, sys::Backend};

use crate::{ExecError, Lru, RunBy};

use mode::Offers;
pub use mode::{Mode, UnknownMode};

/// Outcomes kept per device: a large model has a few dozen different products and convolutions for each shape of its
/// inputs.
const KEPT_OUTCOMES: usize = 512;

/// The libraries in use, one for each device.
#[derive(Default)]
pub struct Libraries(Mutex<Vec<Arc<Dnn>>>);

impl Libraries {
    /// What a session on a device offers to hipDNN; `None` if it wants nothing of it.
    pub fn offering(&self, device: &hip::Device, mode: Mode) -> Option<Offering> {
        let offers = mode.offers(device.kind(), &device.info().arch)?;
        Some(Offering { library: self.open(device), offers, device: device.clone() })
    }

    /// The library for a device, loaded now or before. A failure is not remembered.
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

/// What a session offers to hipDNN.
pub struct Offering {
    library: Result<Arc<Dnn>, DnnError>,
    offers: Offers,
    device: hip::Device,
}

impl Offering {
    /// Why there is no library, if there is none.
    pub fn fault(&self) -> Option<&DnnError> {
        self.library.as_ref().err()
    }

    /// The library: its version and file.
    pub fn description(&self) -> Option<&str> {
        self.library.as_ref().ok().map(|dnn| dnn.description.as_str())
    }

    /// The driver's device that the library works with.
    pub fn device(&self) -> &hip::Device {
        &self.device
    }

    /// Offers a step. `None` if hipDNN has no such operation at all; a reason if this step can't be done by it, is not
    /// worth it, or there is no library.
    pub fn offer(&self, step: &Step) -> Option<Result<DnnStep, Declined>> {
        operations::is_known(&step.prim).then(|| {
            self.offers.check(step)?;
            self.take(step, None)
        })
    }

    /// Offers a step to the hipDNN engine at this place of the library's own order, the best first, whether or not it is
    /// thought to be worth it.
    ///
    /// # Errors
    /// There is no such engine, or as for [`offer`](Self::offer).
    pub fn offer_at(&self, step: &Step, rank: usize) -> Result<DnnStep, Declined> {
        if !operations::is_known(&step.prim) {
            return Err(Declined::new("hipDNN has no such operation"));
        }
        self.take(step, Some(rank))
    }

    /// The step as one graph: by hipDNN's own operation, else as a chain of smaller ones.
    fn take(&self, step: &Step, rank: Option<usize>) -> Result<DnnStep, Declined> {
        let absent = |error: &DnnError| Declined::new(format!("there is no hipDNN: {}", first_line(error)));
        let dnn = self.library.as_ref().map_err(absent)?;
        dnn.take(step, Form::Named, rank).or_else(|declined| {
            // Our own attention stores no scores: a chain is for sessions that want all of hipDNN.
            if self.offers != Offers::Everything || !matches!(step.prim, Prim::Attention(_)) {
                return Err(declined);
            }
            let both = |chain: Declined| Declined::new(format!("{}; as a chain: {}", declined.0, chain.0));
            dnn.take(step, Form::Chain, rank).map_err(both)
        })
    }
}

/// Why there is no hipDNN.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DnnError {
    /// There is no library.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The library does not work here.
    #[error(transparent)]
    Library(#[from] hipdnn::Error),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] hip::HipError),
}

/// What a step becomes in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// hipDNN's operation for it, with the epilogue behind it.
    Named,
    /// Of attention: its products, and what is between them operation by operation.
    Chain,
}

/// What a plan is made for.
#[derive(PartialEq)]
struct Look {
    /// The step without its buffers.
    step: Step,
    form: Form,
    /// The place of the engine in the library's order, if one was asked for.
    rank: Option<usize>,
}

/// A hipDNN library at work on one device.
struct Dnn {
    outcomes: Mutex<Lru<Look, Result<Arc<Built>, Declined>>>,
    /// One for each thread that makes plans.
    handles: Mutex<Vec<Arc<Mutex<Handle>>>>,
    backend: Arc<dyn Backend>,
    /// Names of hipDNN engines by their ids.
    engines: BTreeMap<i64, String>,
    description: String,
    device: hip::Device,
    /// What the library says is heard as long as it works.
    _log: Option<Arc<log::Log>>,
}

/// A graph on a hipDNN engine.
struct Built {
    plan: Mutex<hipdnn::Plan>,
    /// What it was made with. Behind the plan, which goes first.
    handle: Arc<Mutex<Handle>>,
    engine: String,
    workspace_bytes: usize,
    /// How many operations the graph has.
    operations: usize,
    /// Which of a step's views, inputs first, has which number in the graph.
    operands: Vec<(usize, i64)>,
}

impl Dnn {
    fn open(device: &hip::Device) -> Result<Self, DnnError> {
        let start = Instant::now();
        let backend: Arc<dyn Backend> = Arc::new(library::open(device)?);
        let (description, log) = (backend.describe(), log::listen(&backend));
        let _scope = device.enter()?;
        let handle = Handle::new(backend.clone())?;
        tracing::debug!(target: "amdgpu_ep::load", "{description} opened in {:.1?}", start.elapsed());
        // A library without a list of engines still runs graphs.
        let engines = handle.engines().unwrap_or_default().into_iter().map(|engine| (engine.id, engine.name)).collect();
        let outcomes = Mutex::new(Lru::new(KEPT_OUTCOMES));
        let handles = Mutex::new(vec![Arc::new(Mutex::new(handle))]);
        Ok(Self { outcomes, handles, backend, engines, description, device: device.clone(), _log: log })
    }

    /// The step as the library runs it, or why it does not.
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

    /// What is known of steps that look like this.
    fn known(&self, look: &Look) -> Option<Result<Arc<Built>, Declined>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).get(|known| known == look)
    }

    /// The plan for all steps that look like this one. If it is new, it is made with the handle.
    fn build(
        &self,
        step: &Step,
        form: Form,
        rank: Option<usize>,
        handle: &Arc<Mutex<Handle>>,
    ) -> Result<Arc<Built>, Declined> {
        let look = Look { step: signature(step), form, rank };
        if let Some(outcome) = self.known(&look) {
            return outcome;
        }
        // Made outside the lock: two threads may make the same plan once.
        let start = Instant::now();
        let outcome = self.compile(step, form, rank, handle).map(Arc::new);
        let (prim, took) = (step.prim.name(), start.elapsed());
        tracing::trace!(target: "amdgpu_ep::compile", "hipDNN was asked for a {prim} for {took:.1?}");
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert(look, outcome.clone());
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
        let operands = uids.collect::<Option<_>>().ok_or_else(|| Declined::new("its graph has no numbers"))?;
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
    // Before the library: plans go first.
    built: Arc<Built>,
    dnn: Arc<Dnn>,
}

/// Where one tensor of the graph lies.
struct Operand {
    buffer: BufferId,
    /// Bytes from the start of the buffer.
    offset: isize,
    /// What the address is a multiple of.
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

    /// As it is shown.
    pub fn run_by(&self) -> RunBy<'_> {
        RunBy::HipDnn { engine: self.engine(), operations: self.built.operations }
    }

    /// Bytes of device memory that [`execute`](Self::execute) needs for itself.
    pub fn workspace_bytes(&self) -> usize {
        self.built.workspace_bytes
    }

    /// Whether buffers lie where the engine can use them. Where not, the device's own code runs the step.
    pub fn accepts(&self, address: impl Fn(BufferId) -> *mut u8) -> bool {
        self.operands.iter().all(|operand| operand.address(&address).addr().is_multiple_of(operand.alignment))
    }

    /// Enqueues the step on a stream.
    ///
    /// # Errors
    /// The library's or the driver's words.
    ///
    /// # Safety
    /// `address` gives for each buffer of the step memory of the device that holds all its views, and that nobody else
    /// changes until the stream has passed this point or, if it is captured, until the capture is gone; outputs overlap
    /// nothing. `workspace` has [`workspace_bytes`](Self::workspace_bytes) bytes, aligned to 256, that nothing else on the
    /// device uses meanwhile, or is null if there are none. The stream is one of the device that the library was opened
    /// for.
    pub unsafe fn execute(
        &self,
        address: impl Fn(BufferId) -> *mut u8,
        workspace: *mut u8,
        stream: RawStream<'_>,
    ) -> Result<(), ExecError> {
        let _scope = self.dnn.device.enter()?;
        let handle = self.built.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = self.built.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let tensors = self.operands.iter().map(|operand| (operand.uid, operand.address(&address).cast()));
        let failed =
            |error: hipdnn::Error| ExecError::Dnn { engine: self.engine().to_owned(), reason: error.to_string() };
        // SAFETY: the caller vouches for the stream during this call, and another one is set before it ends.
        unsafe { handle.set_stream(stream) }.map_err(failed)?;
        // SAFETY: the caller vouches for the memory; the plan was made for views that look like these.
        let done = unsafe { plan.execute(&handle, tensors, workspace.cast()) };
        // SAFETY: the default stream always lives.
        let reset = unsafe { handle.set_stream(RawStream::DEFAULT) };
        done.and(reset).map_err(failed)
    }
}

/// A step without its buffers: what its plan depends on. Of offsets the alignment is left.
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

/// What is wrong, without the help: a reason is shown in tables.
fn first_line(error: &dyn std::error::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
