//! Plans: fused steps and one arena.
mod append_attention;
mod attention;
mod budget;
mod capability;
mod channels_last;
mod dump;
mod epilogue;
mod fold;
mod fuse;
mod gated;
mod in_place;
mod integer;
mod normed;
mod place;
mod rotary_append;
mod scaled;
mod spec;
mod uses;

use std::fmt;

use crate::expr::Expr;
use crate::lower::{self, Buffer, InputSpec, Lowered, Origin, Storage, Val};
use crate::pass::Selection;
use crate::prim::{BufferId, Map, Prim, View};
use crate::{DType, Graph, LowerError, Shape, Step, Tensor, shape};

pub use budget::Budget;
pub use capability::{Capabilities, Capability};
pub use dump::PlanText;
pub use place::ALIGNMENT;

/// A planning stage that can be disabled.
pub(crate) struct Stage {
    /// The name in lists of passes and in dumps.
    pub name: &'static str,
    /// What a device must be able to do for the stage to run.
    pub needs: Option<Capability>,
    run: fn(&mut Draft, &mut Evaluate<'_>),
}

/// Runs a plan without inputs, and returns its outputs.
type Evaluate<'e> = dyn FnMut(&Plan) -> Option<Vec<Tensor>> + 'e;

impl Stage {
    const fn new(name: &'static str, run: fn(&mut Draft, &mut Evaluate<'_>)) -> Self {
        Self { name, needs: None, run }
    }

    const fn needs(self, capability: Capability) -> Self {
        Self { needs: Some(capability), ..self }
    }
}

/// The stages between lowering and placing, in order.
pub(crate) const STAGES: &[Stage] = &[
    Stage::new("integer-products", |draft, _| integer::multiply_bytes(draft)),
    Stage::new("fused", |draft, _| fuse::fuse(draft)),
    Stage::new("folded", |draft, evaluate| fold::fold(draft, evaluate)),
    Stage::new("scaled-products", |draft, _| scaled::merge(draft)),
    Stage::new("fused-attention", |draft, _| attention::merge(draft)).needs(Capability::Attention),
    Stage::new("epilogues", |draft, _| epilogue::merge(draft)),
    Stage::new("normed-products", |draft, _| normed::merge(draft)).needs(Capability::NormedProducts),
    Stage::new("gated-products", |draft, _| gated::merge(draft)).needs(Capability::GatedProducts),
    Stage::new("rotary-append", |draft, _| rotary_append::merge(draft)),
    Stage::new("append-attention", |draft, _| append_attention::merge(draft)).needs(Capability::AppendAttention),
    Stage::new("channels-last", |draft, evaluate| {
        channels_last::relayout(draft);
        fold::fold(draft, evaluate);
    })
    .needs(Capability::ChannelsLast),
];

/// Called after each stage with the stage's name and the draft as text, which is formatted only if it is shown.
pub type Watch<'w> = dyn FnMut(&'static str, &dyn fmt::Display) + 'w;

/// Where a buffer is stored.
#[derive(Clone, Debug, PartialEq)]
pub enum BufferPlace {
    /// The partition's input with this index.
    Input(usize),
    /// The partition's output with this index.
    Output(usize),
    /// The plan's constant with this index.
    Constant(usize),
    /// In the arena, from this byte offset.
    Arena(usize),
    /// Nowhere: no step uses it any more.
    Unused,
}

/// An output of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSpec {
    /// The element type.
    pub dtype: DType,
    /// The extents.
    pub shape: Shape,
    /// The extents that the caller sees, if its elements are packed: `shape` counts bytes then.
    pub shown: Option<Shape>,
}

/// A partition for one set of input shapes: immutable, shared by all runs with these shapes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Where each buffer is stored.
    pub places: Vec<BufferPlace>,
    /// Constants, each uploaded once.
    pub constants: Vec<Tensor>,
    /// The outputs, in order.
    pub outputs: Vec<OutputSpec>,
    /// The arena's size in bytes.
    pub arena_bytes: usize,
    /// The most arena bytes in use at one step: the arena cannot be smaller.
    pub live_bytes: usize,
}

impl Plan {
    /// Plans a graph for concrete inputs.
    ///
    /// # Errors
    /// The given shapes break an operator's rules.
    pub fn new(graph: &Graph, inputs: &[InputSpec]) -> Result<Self, LowerError> {
        Self::with_folding(graph, inputs, &mut |_| None)
    }

    /// Like [`new`](Self::new), but folds constants: `evaluate` runs a plan without inputs, and returns its outputs. If
    /// it returns `None`, the work stays in the plan.
    ///
    /// # Errors
    /// The same as for [`new`](Self::new).
    pub fn with_folding(
        graph: &Graph,
        inputs: &[InputSpec],
        evaluate: &mut dyn FnMut(&Plan) -> Option<Vec<Tensor>>,
    ) -> Result<Self, LowerError> {
        Self::watched(graph, inputs, &Selection::default(), &Budget::default(), evaluate, &mut |_, _| {})
    }

    /// Like [`with_folding`](Self::with_folding), but without the disabled stages, and `watch` sees the plan after each
    /// of the others. Debug builds check the plan after each stage.
    ///
    /// # Errors
    /// The same as for [`new`](Self::new), and if the plan exceeds the budget.
    pub fn watched(
        graph: &Graph,
        inputs: &[InputSpec],
        selection: &Selection,
        budget: &Budget,
        evaluate: &mut dyn FnMut(&Plan) -> Option<Vec<Tensor>>,
        watch: &mut Watch<'_>,
    ) -> Result<Self, LowerError> {
        let mut seen = |stage: &'static str, draft: &Draft| {
            let fault = if cfg!(debug_assertions) { spec::draft(graph, draft).err() } else { None };
            debug_assert!(fault.is_none(), "stage {stage} broke the plan: {}", fault.unwrap_or_default());
            watch(stage, &dump::DraftText { graph, draft });
        };
        let mut draft = Draft::new(lower::lower(graph, inputs)?)?;
        seen("lowered", &draft);
        for stage in STAGES.iter().filter(|stage| selection.runs_stage(stage)) {
            (stage.run)(&mut draft, evaluate);
            seen(stage.name, &draft);
        }
        in_place::keep_apart(&mut draft);
        let bytes = cfg!(debug_assertions).then(|| draft.buffer_bytes());
        let plan = place::place(draft);
        let fault = bytes.and_then(|bytes| spec::placed(&plan, &bytes).err());
        debug_assert!(fault.is_none(), "placing broke the plan: {}", fault.unwrap_or_default());
        budget.check(graph, &plan)?;
        watch("placed", &PlanText { graph, plan: &plan });
        Ok(plan)
    }

    /// The place of a view's buffer.
    pub fn place(&self, view: &View) -> &BufferPlace {
        &self.places[view.buffer.0 as usize]
    }
}

/// A plan under construction: every output has its own buffer.
pub(crate) struct Draft {
    pub buffers: Vec<Buffer>,
    pub steps: Vec<Step>,
    /// The buffer of each output.
    pub output_buffers: Vec<BufferId>,
    pub outputs: Vec<OutputSpec>,
}

impl Draft {
    fn new(lowered: Lowered) -> Result<Self, LowerError> {
        let Lowered { buffers, steps, outputs, shown } = lowered;
        let mut draft = Self { buffers, steps, output_buffers: Vec::new(), outputs: Vec::new() };
        for (value, shown) in outputs.iter().zip(shown) {
            // A repeated value takes no memory until it is an output.
            if shape::bytes(value.shape(), value.dtype()).is_none() {
                return Err(LowerError::Overflow { node: "an output".to_owned(), shape: value.shape().to_vec() });
            }
            let buffer = draft.output_buffer(value);
            draft.output_buffers.push(buffer);
            draft.outputs.push(OutputSpec { dtype: value.dtype(), shape: value.shape().into(), shown });
        }
        Ok(draft)
    }

    /// The buffer for the output: the one a step wrote, if the value is all of it and it is not an output yet, else a
    /// copy.
    fn output_buffer(&mut self, value: &Val) -> BufferId {
        if let Storage::Buffer(id) = value.storage() {
            let buffer = &self.buffers[id.0 as usize];
            let whole = value.is_dense() && value.offset() == 0 && value.elems() == buffer.elems;
            // A BitCast shows the buffer with another type.
            let whole = whole && value.dtype() == buffer.dtype;
            if whole && buffer.origin == Origin::Step && !self.output_buffers.contains(id) {
                return *id;
            }
        }
        let source = match value.storage() {
            Storage::Buffer(id) => *id,
            Storage::Known(tensor) => self.add(Buffer {
                dtype: tensor.dtype(),
                elems: tensor.elems(),
                origin: Origin::Constant(tensor.clone()),
            }),
        };
        let target = self.add(Buffer { dtype: value.dtype(), elems: value.elems(), origin: Origin::Step });
        if value.elems() > 0 {
            let expr = Expr::copy(value.dtype(), value.dtype());
            let output = View {
                buffer: target,
                dtype: value.dtype(),
                shape: value.shape().into(),
                strides: shape::dense_strides(value.shape()),
                offset: 0,
            };
            self.steps.push(Step {
                node: self.steps.last().map_or(0, |step| step.node),
                prim: Prim::Map(Map { expr }),
                inputs: vec![value.view_of(source)],
                outputs: vec![output],
            });
        }
        target
    }

    fn buffer_bytes(&self) -> Vec<usize> {
        self.buffers.iter().map(|buffer| buffer.elems * buffer.dtype.bytes()).collect()
    }

    pub(crate) fn add(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        BufferId(self.buffers.len() as u32 - 1)
    }
}
