//! A partition that is ready to run.
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use graph::lower::InputSpec;
use graph::pass::{self, Fired, Selection};
use graph::{Graph, Plan, Shape, Tensor};

use crate::assignment::Assignment;
use crate::{Device, ExecError, Loaded, Lru, Prepared};

/// Plans cached per partition. A plan holds steps and offsets but no memory, so this is generous.
const KEPT_PLANS: usize = 64;

/// An input of one run.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The extents.
    pub shape: &'a [usize],
    /// The value, for inputs that [`CompiledPartition::needs_value`] asks for.
    pub value: Option<&'a [u8]>,
}

/// Receives every stage of a partition: its name, and its text, which is formatted only if it is displayed.
pub type Watcher = Arc<dyn Fn(&str, &dyn fmt::Display) + Send + Sync>;

/// Called for every prepared plan, with its partition.
pub type Planned = Arc<dyn Fn(&Graph, &dyn Prepared) + Send + Sync>;

/// How a partition is prepared.
#[derive(Clone, Default)]
pub struct Settings {
    /// The passes and planning stages to run.
    pub passes: Selection,
    /// Receives the stages: the graph as `imported`, after each pass under the pass's name, and the stages of each plan
    /// as `plan-N-…`. The last one is `plan-N-run-by`, if hipDNN was asked about a step.
    pub watcher: Option<Watcher>,
    /// Called for every prepared plan.
    pub planned: Option<Planned>,
}

/// A partition with its plans so far.
pub struct CompiledPartition {
    /// Replaced when the device has moved constants.
    graph: RwLock<Arc<Graph>>,
    fired: Vec<Fired>,
    passes: Selection,
    watcher: Option<Watcher>,
    planned: Option<Planned>,
    /// The number of plans made.
    made: AtomicUsize,
    needs_value: Vec<bool>,
    plans: Mutex<Lru<Signature, Arc<dyn Prepared>>>,
    loaded: Box<dyn Loaded>,
}

/// The key of a plan.
#[derive(Debug, PartialEq, Eq)]
struct Signature {
    shapes: Vec<Shape>,
    values: Vec<Option<Box<[u8]>>>,
}

impl Signature {
    fn fits(&self, inputs: &[Input<'_>]) -> bool {
        self.shapes.iter().zip(inputs).all(|(shape, input)| shape.as_slice() == input.shape)
            && self.values.iter().zip(inputs).all(|(value, input)| value.as_deref() == input.value)
    }
}

impl CompiledPartition {
    /// A partition on a device, after all passes, without plans yet.
    ///
    /// # Errors
    /// The device does not have enough memory for it, or the width of a padded mask would choose between constants.
    pub fn new(graph: Graph, device: &dyn Device) -> Result<Self, ExecError> {
        Self::with(graph, device, Settings::default())
    }

    /// Like [`new`](Self::new), with these settings.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with(mut graph: Graph, device: &dyn Device, settings: Settings) -> Result<Self, ExecError> {
        let Settings { passes, watcher, planned } = settings;
        let passes = passes.with_capabilities(device.capabilities());
        let show = |stage: &str, graph: &Graph| watcher.iter().for_each(|watcher| watcher(stage, graph));
        show("imported", &graph);
        graph::quant::unpack(&mut graph);
        let fired = pass::run(&mut graph, &passes, &mut |pass, graph| show(pass.name, graph));
        if let Some(node) = pass::padded_choice(&graph) {
            return Err(ExecError::PaddedChoice { node });
        }
        graph::quant::lay_out(&mut graph, &mut |weights| device.lay_out(weights));
        let (needs_value, graph) = (graph.inputs_with_needed_values(), Arc::new(graph));
        let loaded = device.load(graph.clone())?;
        let plans = Mutex::new(Lru::new(KEPT_PLANS));
        let (graph, made) = (RwLock::new(graph), AtomicUsize::new(0));
        let partition = Self { graph, fired, passes, watcher, planned, made, needs_value, plans, loaded };
        partition.let_go();
        Ok(partition)
    }

    /// The passes that changed the partition.
    pub fn fired(&self) -> &[Fired] {
        &self.fired
    }

    /// The partition after all passes.
    pub fn graph(&self) -> Arc<Graph> {
        self.graph.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.needs_value.len()
    }

    /// True for inputs whose values determine shapes: the caller must provide them.
    pub fn needs_value(&self, input: usize) -> bool {
        self.needs_value.get(input).copied().unwrap_or(false)
    }

    /// The plan for these inputs, from the cache if it was made before.
    ///
    /// # Errors
    /// The shapes break an operator's rules, the plan needs more memory than the device has, or the device is out of
    /// memory.
    pub fn plan(&self, inputs: &[Input<'_>]) -> Result<Arc<dyn Prepared>, ExecError> {
        let wanted = self.inputs();
        if inputs.len() != wanted {
            return Err(ExecError::Count { what: "inputs", found: inputs.len(), wanted });
        }
        let known = self.plans.lock().unwrap_or_else(PoisonError::into_inner).get(|signature| signature.fits(inputs));
        if let Some(plan) = known {
            return Ok(plan);
        }
        // Planned outside the lock, so that runs with other shapes need not wait. Two threads may make the same plan.
        let graph = self.graph();
        let specs: Vec<InputSpec> = graph
            .inputs()
            .iter()
            .zip(inputs)
            .map(|(id, input)| InputSpec {
                shape: input.shape.into(),
                known: input.value.and_then(|bytes| Tensor::from_bytes(graph.value(*id).dtype, input.shape, bytes)),
            })
            .collect();
        let mut fold = |prologue: &Plan| self.loaded.evaluate(prologue);
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let mut watch = |stage: &str, text: &dyn fmt::Display| {
            self.watcher.iter().for_each(|watcher| watcher(&format!("plan-{number}-{stage}"), text));
        };
        let plan = self.loaded.prepare(Plan::watched(
            &graph,
            &specs,
            &self.passes,
            &self.loaded.budget(),
            &mut fold,
            &mut watch,
        )?)?;
        self.let_go();
        let assignment = Assignment { graph: &graph, prepared: &*plan };
        if self.watcher.is_some() && assignment.was_asked() {
            watch("run-by", &assignment);
        }
        self.planned.iter().for_each(|planned| planned(&graph, &*plan));
        let signature = Signature {
            shapes: inputs.iter().map(|input| input.shape.into()).collect(),
            values: inputs.iter().map(|input| input.value.map(Into::into)).collect(),
        };
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).insert(signature, plan.clone());
        Ok(plan)
    }

    /// Drops constants that the device has moved.
    fn let_go(&self) {
        let mut graph = self.graph.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(smaller) = graph.with_constants(|constant| self.loaded.stored(constant)) {
            *graph = Arc::new(smaller);
        }
    }
}
