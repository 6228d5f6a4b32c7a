//! The graph engine's primitives on the CPU.
//!
//! [`run`] does one [`Step`] of a plan on memory the caller names. One primitive family per file; each takes typed,
//! strided [`Tensor`]s. Work is cut into tasks for a [`Parallel`], which the caller brings: ONNX Runtime's thread pool, or
//! [`Serial`].
mod error;
mod parallel;
mod scratch;
mod tensor;

use graph::{Prim, Step, prim::BufferId};

pub use error::OpError;
pub use parallel::{Parallel, Serial};
pub use scratch::Scratch;
pub use tensor::{Element, Tensor, TensorMut};

/// What a step runs on.
pub struct Context<'a> {
    /// Spreads tasks over threads.
    pub parallel: &'a dyn Parallel,
    /// Memory that lives from step to step, so that a warm run allocates nothing.
    pub scratch: &'a mut Scratch,
}

/// Runs one step.
///
/// # Errors
/// The data breaks the operator's rules (an index out of range), or the combination of types is not there.
///
/// # Safety
/// For every view of the step, `address` gives memory that holds the view's buffer, aligned to its element type, readable
/// for inputs and writable for outputs, and not changed by anyone else during the call. An output may share memory with an
/// input only where both are read and written element by element in the same layout, as the planner arranges for maps.
pub unsafe fn run(step: &Step, address: impl Fn(BufferId) -> *mut u8, cx: &mut Context<'_>) -> Result<(), OpError> {
    // SAFETY: the caller vouches for every view's memory.
    let inputs: Vec<Tensor<'_>> = step.inputs.iter().map(|view| unsafe { Tensor::new(view, address(view.buffer)) }).collect();
    // SAFETY: as above.
    let mut outputs: Vec<TensorMut<'_>> =
        step.outputs.iter().map(|view| unsafe { TensorMut::new(view, address(view.buffer)) }).collect();
    let _ = (&inputs, &mut outputs, &cx);
    match &step.prim {
        Prim::Map(_) => Err(OpError::Unsupported { prim: step.prim.name(), dtype: step.outputs[0].dtype }),
        other => Err(OpError::Unsupported { prim: other.name(), dtype: step.outputs[0].dtype }),
    }
}
