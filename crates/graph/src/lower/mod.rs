//! Lowering: concrete shapes in, steps out.
//!
//! An operator is a function from [`Val`]s to [`Val`]s. A `Val` is a view of a buffer that a step will fill, or of a
//! tensor whose value is already known. The methods of [`Lower`] work on both alike: on known values they compute the
//! result at once, on buffers they emit a step. So shape arithmetic never reaches the device, and needs no special
//! treatment.
mod gather;
mod known;
mod map;
mod matmul;
mod movement;
mod packed;
mod pad;
mod reduce;
mod scatter;
mod val;

use crate::ops::MAX_RANK;
use crate::prim::BufferId;
use crate::shape::{self, dense_strides};
use crate::{DType, Graph, LowerError, NodeId, Prim, Shape, Step, Tensor, View};

pub use pad::{Outside, SliceSpec};
pub(crate) use reduce::{axis_back, axis_last, needs_floats};
pub use val::{Storage, Val};

/// The planner computes values of up to this many elements itself if all their inputs are known.
const KNOWN_ELEMS: usize = 4096;

/// The same limit for values that shapes depend on: only the planner can compute them.
pub(crate) const NEEDED_ELEMS: usize = 1 << 24;

/// A buffer, before it is placed.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The element type.
    pub dtype: DType,
    /// How many elements it holds.
    pub elems: usize,
    /// Where its contents come from.
    pub origin: Origin,
}

/// Where a buffer's contents come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// The partition's input with this number.
    Input(usize),
    /// A value known to the planner: a weight, or something it computed.
    Constant(Tensor),
    /// A step.
    Step,
}

/// The state while lowering.
pub struct Lower<'g> {
    graph: &'g Graph,
    node: NodeId,
    /// Whether the planner must know the current node's outputs.
    needed: bool,
    buffers: Vec<Buffer>,
    steps: Vec<Step>,
}

/// The result of lowering.
pub struct Lowered {
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The partition's outputs.
    pub outputs: Vec<Val>,
    /// The extents of outputs whose elements are packed; the values are their bytes.
    pub shown: Vec<Option<Shape>>,
}

/// An input of the partition for one run.
#[derive(Clone, Debug)]
pub struct InputSpec {
    /// The extents.
    pub shape: Shape,
    /// The value, if an operator needs it to plan shapes.
    pub known: Option<Tensor>,
}

/// Lowers a graph for concrete inputs.
///
/// # Errors
/// The given shapes break an operator's rules.
pub fn lower(graph: &Graph, inputs: &[InputSpec]) -> Result<Lowered, LowerError> {
    let needed = graph.needed_values();
    let mut cx = Lower { graph, node: NodeId(0), needed: false, buffers: Vec::new(), steps: Vec::new() };
    let mut values: Vec<Option<Val>> = vec![None; graph.values().len()];
    for (number, (id, spec)) in graph.inputs().iter().zip(inputs).enumerate() {
        let dtype = graph.value(*id).dtype.stored();
        let declared = graph.value(*id).dtype;
        values[id.0 as usize] = Some(match &spec.known {
            Some(tensor) => Val::known(tensor.as_stored()),
            None if declared.is_packed() => {
                let bytes = packed::bytes(declared, &spec.shape).ok_or_else(|| cx.invalid("an input is too large"))?;
                let packed = cx.buffer_val(DType::U8, &[bytes], Origin::Input(number))?;
                cx.unpacked(&packed, declared, &spec.shape)?
            }
            None => cx.buffer_val(dtype, &spec.shape, Origin::Input(number))?,
        });
    }
    for (at, value) in graph.values().iter().enumerate() {
        if let (None, Some(constant)) = (&values[at], &value.constant) {
            values[at] = Some(Val::known(constant.as_stored()));
        }
    }
    for (at, node) in graph.nodes().iter().enumerate() {
        cx.node = NodeId(at as u32);
        cx.needed = node.outputs.iter().flatten().any(|output| needed[output.0 as usize]);
        let mut arguments = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            let value =
                input.map(|id| values[id.0 as usize].clone().ok_or_else(|| cx.invalid("an input is never produced")));
            arguments.push(value.transpose()?);
        }
        if let Some(rank) = arguments.iter().flatten().map(Val::rank).max().filter(|&rank| rank > MAX_RANK) {
            return Err(cx.invalid(format!("rank {rank} exceeds the maximum of {MAX_RANK}")));
        }
        let results = node.op.lower(&mut cx, &arguments)?;
        for (output, result) in node.outputs.iter().zip(results) {
            if let Some(id) = output {
                let wanted = graph.value(*id).dtype;
                if result.dtype() != wanted.stored() {
                    return Err(cx.invalid(format!("produces {}, but the model declares {wanted}", result.dtype())));
                }
                values[id.0 as usize] = Some(result);
            }
        }
    }
    let mut outputs = Vec::with_capacity(graph.outputs().len());
    let mut shown = Vec::with_capacity(graph.outputs().len());
    for id in graph.outputs() {
        let value = values[id.0 as usize].clone().ok_or_else(|| cx.invalid("an output is never produced"))?;
        let declared = graph.value(*id).dtype;
        shown.push(declared.is_packed().then(|| value.shape().into()));
        outputs.push(if declared.is_packed() { cx.packed(&value, declared)? } else { value });
    }
    Ok(Lowered { buffers: cx.buffers, steps: cx.steps, outputs, shown })
}

impl Lower<'_> {
    /// The planner computes values of up to this many elements itself if all their inputs are known.
    pub fn known_limit(&self) -> usize {
        if self.needed { NEEDED_ELEMS } else { KNOWN_ELEMS }
    }

    /// True if shapes depend on the current node's outputs.
    pub fn is_needed(&self) -> bool {
        self.needed
    }

    /// An error at the current node.
    pub fn invalid(&self, reason: impl Into<String>) -> LowerError {
        LowerError::Invalid { node: self.label(), reason: reason.into() }
    }

    /// The bytes of a tensor that the current node reads or writes.
    ///
    /// # Errors
    /// They exceed any memory.
    pub fn bytes(&self, dtype: DType, shape: &[usize]) -> Result<usize, LowerError> {
        shape::bytes(shape, dtype).ok_or_else(|| LowerError::Overflow { node: self.label(), shape: shape.to_vec() })
    }

    /// The current node: its operator and name.
    fn label(&self) -> String {
        self.graph.nodes().get(self.node.0 as usize).map_or_else(String::new, |node| node.label())
    }

    /// A required input.
    ///
    /// # Errors
    /// It is missing.
    pub fn required<'v>(&self, inputs: &'v [Option<Val>], index: usize) -> Result<&'v Val, LowerError> {
        inputs.get(index).and_then(Option::as_ref).ok_or_else(|| self.invalid(format!("input {index} is missing")))
    }

    /// The value of an input that the planner must know.
    ///
    /// # Errors
    /// It is missing, or known only at run time.
    pub fn known(&self, inputs: &[Option<Val>], index: usize) -> Result<Tensor, LowerError> {
        let value = self.required(inputs, index)?;
        if value.is_known() && value.elems() > NEEDED_ELEMS {
            let elems = value.elems();
            return Err(self.invalid(format!(
                "input {index} has {elems} elements, but inputs that shapes depend on may have at most {NEEDED_ELEMS}"
            )));
        }
        value.to_tensor().ok_or_else(|| {
            self.invalid(format!("shapes depend on input {index}, but its value is not known at planning time"))
        })
    }

    /// Like [`known`](Self::known), but as integers; `None` if the input is missing.
    ///
    /// # Errors
    /// It is known only at run time.
    pub fn known_i64s(&self, inputs: &[Option<Val>], index: usize) -> Result<Option<Vec<i64>>, LowerError> {
        match inputs.get(index).and_then(Option::as_ref) {
            None => Ok(None),
            Some(_) => self.known(inputs, index).map(|tensor| Some(tensor.to_i64s())),
        }
    }

    /// A new buffer that a step will fill, as a dense value.
    ///
    /// # Errors
    /// It is too large.
    pub fn fresh(&mut self, dtype: DType, shape: &[usize]) -> Result<Val, LowerError> {
        self.buffer_val(dtype, shape, Origin::Step)
    }

    fn buffer_val(&mut self, dtype: DType, shape: &[usize], origin: Origin) -> Result<Val, LowerError> {
        let elems = self.bytes(dtype, shape)? / dtype.bytes();
        self.buffers.push(Buffer { dtype, elems, origin });
        let buffer = BufferId(self.buffers.len() as u32 - 1);
        Ok(Val::new(dtype, shape.into(), dense_strides(shape), 0, Storage::Buffer(buffer)))
    }

    /// The value as a view of a buffer; a known value becomes a constant buffer.
    pub fn view(&mut self, value: &Val) -> View {
        let buffer = match value.storage() {
            Storage::Buffer(buffer) => *buffer,
            Storage::Known(tensor) => {
                // A weight that is used twice gets one buffer.
                let same = |buffer: &Buffer| matches!(&buffer.origin, Origin::Constant(known) if known.is_same(tensor));
                let at = self.buffers.iter().position(same).unwrap_or_else(|| {
                    let elems = tensor.elems();
                    self.buffers.push(Buffer {
                        dtype: tensor.dtype(),
                        elems,
                        origin: Origin::Constant(tensor.clone()),
                    });
                    self.buffers.len() - 1
                });
                BufferId(at as u32)
            }
        };
        value.view_of(buffer)
    }

    /// Emits a step.
    pub fn emit(&mut self, prim: Prim, inputs: &[&Val], outputs: &[&Val]) {
        let inputs = inputs.iter().map(|value| self.view(value)).collect();
        let outputs = outputs.iter().map(|value| self.view(value)).collect();
        self.steps.push(Step { node: self.node.0, prim, inputs, outputs });
    }

    /// Emits a primitive with one new dense output, and returns that.
    ///
    /// # Errors
    /// The output is too large.
    pub fn apply(&mut self, prim: Prim, inputs: &[&Val], dtype: DType, shape: &[usize]) -> Result<Val, LowerError> {
        let output = self.fresh(dtype, shape)?;
        if output.elems() > 0 {
            self.emit(prim, inputs, &[&output]);
        }
        Ok(output)
    }
}
