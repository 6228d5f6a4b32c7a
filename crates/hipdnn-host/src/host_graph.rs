//! A compiled graph: a plan of the engine's primitives, and how to stage the caller's tensors.

use std::sync::{Arc, Mutex, PoisonError};

use graph::lower::InputSpec;
use graph::pass::{self, Selection};
use graph::{Plan, Shape};
use hipdnn_abi::{Arguments, Descriptor};
use host_ops::{Bound, Context, Parallel, Scratch};
use smallvec::SmallVec;

use crate::lower;
use crate::port::{Port, Stage, StagingBuffers, words};
use crate::run_error::RunError;

/// A graph that can run.
pub struct HostGraph {
    plan: Plan,
    /// Inputs first, then outputs.
    tensors: Vec<Tensor>,
    inputs: usize,
    /// Memory of finished runs, for reuse.
    spare: Mutex<Vec<Memory>>,
}

struct Tensor {
    uid: i64,
    stage: Stage,
    /// The required alignment of its address.
    alignment: usize,
    /// Bytes of a scalar that is passed by value; 0 for everything else.
    value_bytes: usize,
}

/// The memory that a run needs in addition to the caller's tensors.
pub struct Memory {
    arena: Vec<u64>,
    staging_buffers: Vec<StagingBuffers>,
    scratch: Scratch,
}

/// The caller's address of each tensor.
pub struct Bindings {
    addresses: SmallVec<[usize; 16]>,
    /// Copies of scalars that were passed by value, for work that runs after the call.
    scalars: Vec<u64>,
}

/// Offsets in the arena are multiples of this.
const ALIGNMENT: usize = graph::plan::ALIGNMENT;

impl HostGraph {
    /// Compiles the operations of a graph, or returns why they are not supported.
    pub fn compile(operations: &[Arc<Descriptor>]) -> Result<Self, String> {
        let mut lowered = lower::lower(operations)?;
        pass::run(&mut lowered.graph, &Selection::default(), &mut |_, _| {});
        let specs: Vec<InputSpec> =
            lowered.inputs.iter().map(|port| InputSpec { shape: Shape::from_slice(&port.dims), known: None }).collect();
        let plan = Plan::new(&lowered.graph, &specs).map_err(|error| error.to_string())?;
        for (port, made) in lowered.outputs.iter().zip(&plan.outputs) {
            if port.dims != made.shape.as_slice() {
                let (uid, wanted, found) = (port.uid, &port.dims, &made.shape);
                return Err(format!("tensor {uid} has dimensions {wanted:?}, but its operation produces {found:?}"));
            }
        }
        let stage = |port: &Port| {
            let bytes = port.element_bytes();
            let value_bytes = if port.is_by_value { bytes } else { 0 };
            Ok(Tensor { uid: port.uid, stage: Stage::new(port)?, alignment: bytes.max(1), value_bytes })
        };
        let tensors = lowered.inputs.iter().chain(&lowered.outputs).map(stage).collect::<Result<_, String>>()?;
        Ok(Self { plan, tensors, inputs: lowered.inputs.len(), spare: Mutex::default() })
    }

    /// The uids of the tensors that the caller provides.
    pub fn uids(&self) -> Vec<i64> {
        self.tensors.iter().map(|tensor| tensor.uid).collect()
    }

    /// Looks up the address of each tensor.
    pub fn bind(&self, arguments: &Arguments<'_>) -> Result<Bindings, String> {
        let find = |tensor: &Tensor| {
            let (uid, address) = (tensor.uid, arguments.address(tensor.uid));
            let address = address.ok_or_else(|| format!("the variant pack has no address for tensor {uid}"))?;
            if address.is_multiple_of(tensor.alignment) {
                return Ok(address);
            }
            Err(format!(
                "the address of tensor {uid} is not a multiple of its element size, {} bytes",
                tensor.alignment
            ))
        };
        let addresses = self.tensors.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Bindings { addresses, scalars: Vec::new() })
    }

    /// Copies scalars that are passed by value: the caller may change them before the work runs.
    ///
    /// # Safety
    /// The addresses of the scalars are valid.
    pub unsafe fn keep_scalars(&self, bindings: &mut Bindings) {
        bindings.scalars = vec![0; self.tensors.len()];
        for (at, tensor) in self.tensors.iter().enumerate().filter(|(_, tensor)| tensor.value_bytes > 0) {
            let given = std::ptr::with_exposed_provenance::<u8>(bindings.addresses[at]);
            let kept = (&raw mut bindings.scalars[at]).cast::<u8>();
            // SAFETY: upheld by the caller; no element is wider than eight bytes.
            unsafe { std::ptr::copy_nonoverlapping(given, kept, tensor.value_bytes) };
            bindings.addresses[at] = kept.expose_provenance();
        }
    }

    /// Memory for a run, reused from a finished one or newly allocated.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn memory(&self) -> Result<Memory, RunError> {
        if let Some(memory) = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(memory);
        }
        Ok(Memory {
            arena: words(self.plan.arena_bytes.saturating_add(ALIGNMENT))?,
            staging_buffers: self.tensors.iter().map(|tensor| tensor.stage.staging()).collect::<Result<_, _>>()?,
            scratch: Scratch::default(),
        })
    }

    /// Runs the graph.
    ///
    /// # Safety
    /// Each address is valid for its tensor's dimensions and strides, and no output overlaps another tensor.
    pub unsafe fn run(&self, bindings: &Bindings, parallel: &dyn Parallel) -> Result<(), RunError> {
        let mut memory = self.memory()?;
        // SAFETY: upheld by the caller.
        let outcome = unsafe { self.run_in(bindings, &mut memory, parallel) };
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        outcome
    }

    /// Runs the graph with the given memory.
    ///
    /// # Safety
    /// As for [`run`](Self::run); the memory belongs to this graph.
    pub unsafe fn run_in(
        &self,
        bindings: &Bindings,
        memory: &mut Memory,
        parallel: &dyn Parallel,
    ) -> Result<(), RunError> {
        let Memory { arena, staging_buffers, scratch } = memory;
        let mut context = Context { parallel, scratch };
        let given = |at: usize| std::ptr::with_exposed_provenance_mut::<u8>(bindings.addresses[at]);
        let mut inputs: SmallVec<[*const u8; 16]> = SmallVec::with_capacity(self.inputs);
        let mut outputs: SmallVec<[*mut u8; 16]> = SmallVec::new();
        for (at, (tensor, staging)) in self.tensors.iter().zip(staging_buffers.iter_mut()).enumerate() {
            if at < self.inputs {
                // SAFETY: upheld by the caller.
                unsafe { tensor.stage.bring_in(given(at), staging, &mut context)? };
                inputs.push(tensor.stage.address(given(at), staging).cast_const());
            } else {
                outputs.push(tensor.stage.address(given(at), staging));
            }
        }
        let arena = arena.as_mut_ptr().cast::<u8>();
        let arena = arena.wrapping_add(arena.align_offset(ALIGNMENT));
        let bound = Bound { plan: &self.plan, inputs: &inputs, outputs: &outputs, arena };
        for step in &self.plan.steps {
            // SAFETY: the planner never overlaps live buffers and keeps views within them; the caller vouches for its
            // tensors.
            unsafe { host_ops::run(step, |buffer| bound.address(buffer), &mut context)? };
        }
        for (at, (tensor, staging)) in self.tensors.iter().zip(staging_buffers.iter_mut()).enumerate().skip(self.inputs)
        {
            // SAFETY: upheld by the caller.
            unsafe { tensor.stage.take_out(given(at), staging, &mut context)? };
        }
        Ok(())
    }
}
