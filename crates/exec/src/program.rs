//! A partition that is ready to run.
use std::sync::{Arc, Mutex, PoisonError};

use graph::{
    Graph, Plan, Shape, Tensor,
    lower::InputSpec,
    pass::{self, Fired, Selection},
};

use crate::{Device, ExecError, Loaded, Lru, Prepared};

/// Plans kept per partition. A plan holds steps and offsets, not memory, so this is generous.
const KEPT_PLANS: usize = 64;

/// An input of one run.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The extents.
    pub shape: &'a [usize],
    /// The value, for inputs that [`Program::needs_value`] asks for.
    pub value: Option<&'a [u8]>,
}

/// A partition with the plans made for it so far.
pub struct Program {
    graph: Arc<Graph>,
    fired: Vec<Fired>,
    needs_value: Vec<bool>,
    plans: Mutex<Lru<Signature, Arc<dyn Prepared>>>,
    loaded: Box<dyn Loaded>,
}

/// What a plan was made for.
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

impl Program {
    /// A partition on a device, after all passes and without plans yet.
    ///
    /// # Errors
    /// The device has no room for it.
    pub fn new(graph: Graph, device: &dyn Device) -> Result<Self, ExecError> {
        Self::with_passes(graph, device, &Selection::default())
    }

    /// As [`new`](Self::new), after some passes.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_passes(mut graph: Graph, device: &dyn Device, selection: &Selection) -> Result<Self, ExecError> {
        let fired = pass::run(&mut graph, selection, &mut |_, _| {});
        let (needs_value, graph) = (graph.inputs_with_needed_values(), Arc::new(graph));
        let loaded = device.load(graph.clone())?;
        Ok(Self { graph, fired, needs_value, plans: Mutex::new(Lru::new(KEPT_PLANS)), loaded })
    }

    /// The passes that changed the partition.
    pub fn fired(&self) -> &[Fired] {
        &self.fired
    }

    /// The partition, as the passes left it.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// True for inputs whose values decide about shapes: the caller must give them.
    pub fn needs_value(&self, input: usize) -> bool {
        self.needs_value.get(input).copied().unwrap_or(false)
    }

    /// The plan for these inputs, made ready now or before.
    ///
    /// # Errors
    /// The shapes break an operator's rules, or the device has no room for the plan.
    pub fn plan(&self, inputs: &[Input<'_>]) -> Result<Arc<dyn Prepared>, ExecError> {
        let wanted = self.graph.inputs().len();
        if inputs.len() != wanted {
            return Err(ExecError::Count { what: "inputs", found: inputs.len(), wanted });
        }
        let known = self.plans.lock().unwrap_or_else(PoisonError::into_inner).get(|signature| signature.fits(inputs));
        if let Some(plan) = known {
            return Ok(plan);
        }
        // Made outside the lock: another run with other shapes need not wait. Two threads may make the same plan once.
        let specs: Vec<InputSpec> = self
            .graph
            .inputs()
            .iter()
            .zip(inputs)
            .map(|(id, input)| InputSpec {
                shape: input.shape.into(),
                known: input
                    .value
                    .and_then(|bytes| Tensor::from_bytes(self.graph.value(*id).dtype, input.shape, bytes)),
            })
            .collect();
        let mut fold = |prologue: &Plan| self.loaded.evaluate(prologue);
        let plan = self.loaded.prepare(Plan::with_folding(&self.graph, &specs, &mut fold)?)?;
        let signature = Signature {
            shapes: inputs.iter().map(|input| input.shape.into()).collect(),
            values: inputs.iter().map(|input| input.value.map(Into::into)).collect(),
        };
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).insert(signature, plan.clone());
        Ok(plan)
    }
}
