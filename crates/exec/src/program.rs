//! A partition that is ready to run.
use std::sync::{Arc, Mutex, PoisonError};

use graph::{
    Graph, Plan, Shape, Tensor,
    lower::InputSpec,
    pass::{self, Fired, Selection},
};

use crate::{ExecError, Lru, folded::Folded};

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
    graph: Graph,
    fired: Vec<Fired>,
    needs_value: Vec<bool>,
    plans: Mutex<Lru<Signature, Arc<Plan>>>,
    folded: Folded,
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
    /// A program without plans yet, after all passes.
    pub fn new(graph: Graph) -> Self {
        Self::with_passes(graph, &Selection::default())
    }

    /// A program without plans yet, after some passes.
    pub fn with_passes(mut graph: Graph, selection: &Selection) -> Self {
        let fired = pass::run(&mut graph, selection, &mut |_, _| {});
        let needs_value = graph.inputs_with_needed_values();
        Self { graph, fired, needs_value, plans: Mutex::new(Lru::new(KEPT_PLANS)), folded: Folded::default() }
    }

    /// The passes that changed the partition.
    pub fn fired(&self) -> &[Fired] {
        &self.fired
    }

    /// The partition, as the passes left it.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// True for inputs whose values decide about shapes: the caller must give them.
    pub fn needs_value(&self, input: usize) -> bool {
        self.needs_value.get(input).copied().unwrap_or(false)
    }

    /// The plan for these inputs, made now or before.
    ///
    /// # Errors
    /// The shapes break an operator's rules.
    pub fn plan(&self, inputs: &[Input<'_>]) -> Result<Arc<Plan>, ExecError> {
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
        let mut fold = |prologue: &Plan| self.folded.evaluate(&self.graph, prologue);
        let plan = Arc::new(Plan::with_folding(&self.graph, &specs, &mut fold)?);
        let signature = Signature {
            shapes: inputs.iter().map(|input| input.shape.into()).collect(),
            values: inputs.iter().map(|input| input.value.map(Into::into)).collect(),
        };
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).insert(signature, plan.clone());
        self.folded.forget_unused();
        Ok(plan)
    }
}
