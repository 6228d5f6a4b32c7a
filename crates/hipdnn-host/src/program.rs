//! A compiled graph: a plan of the engine's primitives, and how the caller's tensors lie in memory.

use std::sync::{Arc, Mutex, PoisonError};

use graph::lower::InputSpec;
use graph::pass::{self, Selection};
use graph::plan::Place;
use graph::prim::BufferId;
use graph::{Plan, Shape};
use hipdnn_abi::{Arguments, Descriptor};
use host_ops::{Context, Parallel, Scratch};
use smallvec::SmallVec;

use crate::lower;
use crate::port::{Port, Room, Stage, words};
use crate::trouble::Trouble;

/// A graph that can run.
pub struct Program {
    plan: Plan,
    /// Inputs first, then outputs.
    tensors: Vec<Tensor>,
    inputs: usize,
    /// Memory of runs that are over, for those to come.
    spare: Mutex<Vec<Memory>>,
}

struct Tensor {
    uid: i64,
    stage: Stage,
    /// What its address is a multiple of.
    alignment: usize,
    /// Bytes of a scalar that is given by value; 0 for everything else.
    value_bytes: usize,
}

/// What a run needs besides the caller's tensors.
pub struct Memory {
    arena: Vec<u64>,
    rooms: Vec<Room>,
    scratch: Scratch,
}

/// The caller's address of each tensor.
pub struct Bindings {
    addresses: SmallVec<[usize; 16]>,
    /// Scalars that were given by value, for work that runs after the call.
    scalars: Vec<u64>,
}

/// Offsets in the arena are multiples of this.
const ALIGNMENT: usize = graph::plan::ALIGNMENT;

impl Program {
    /// Compiles the operations of a graph, or says what it can't do.
    pub fn compile(operations: &[Arc<Descriptor>]) -> Result<Self, String> {
        let mut lowered = lower::lower(operations)?;
        pass::run(&mut lowered.graph, &Selection::default(), &mut |_, _| {});
        let specs: Vec<InputSpec> =
            lowered.inputs.iter().map(|port| InputSpec { shape: Shape::from_slice(&port.dims), known: None }).collect();
        let plan = Plan::new(&lowered.graph, &specs).map_err(|error| error.to_string())?;
        for (port, made) in lowered.outputs.iter().zip(&plan.outputs) {
            if port.dims != made.shape.as_slice() {
                let (uid, wanted, found) = (port.uid, &port.dims, &made.shape);
                return Err(format!("tensor {uid} has dimensions {wanted:?}, and its operation makes {found:?}"));
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

    /// The tensors that the caller brings.
    pub fn uids(&self) -> Vec<i64> {
        self.tensors.iter().map(|tensor| tensor.uid).collect()
    }

    /// Finds an address for each tensor.
    pub fn bind(&self, arguments: &Arguments<'_>) -> Result<Bindings, String> {
        let find = |tensor: &Tensor| {
            let (uid, address) = (tensor.uid, arguments.address(tensor.uid));
            let address = address.ok_or_else(|| format!("the variant pack has no address for tensor {uid}"))?;
            if address.is_multiple_of(tensor.alignment) {
                return Ok(address);
            }
            Err(format!("the address of tensor {uid} is no multiple of its element's {} bytes", tensor.alignment))
        };
        let addresses = self.tensors.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Bindings { addresses, scalars: Vec::new() })
    }

    /// Copies scalars that are given by value: the caller may change them before the work runs.
    ///
    /// # Safety
    /// Their addresses are valid.
    pub unsafe fn keep_scalars(&self, bindings: &mut Bindings) {
        bindings.scalars = vec![0; self.tensors.len()];
        for (at, tensor) in self.tensors.iter().enumerate().filter(|(_, tensor)| tensor.value_bytes > 0) {
            let given = std::ptr::with_exposed_provenance::<u8>(bindings.addresses[at]);
            let kept = (&raw mut bindings.scalars[at]).cast::<u8>();
            // SAFETY: the caller's promise; no element is wider than eight bytes.
            unsafe { std::ptr::copy_nonoverlapping(given, kept, tensor.value_bytes) };
            bindings.addresses[at] = kept.expose_provenance();
        }
    }

    /// Memory for a run: that of one which is over, or new.
    ///
    /// # Errors
    /// There is not enough.
    pub fn memory(&self) -> Result<Memory, Trouble> {
        if let Some(memory) = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(memory);
        }
        Ok(Memory {
            arena: words(self.plan.arena_bytes.saturating_add(ALIGNMENT))?,
            rooms: self.tensors.iter().map(|tensor| tensor.stage.room()).collect::<Result<_, _>>()?,
            scratch: Scratch::default(),
        })
    }

    /// Runs the graph.
    ///
    /// # Safety
    /// Each address is valid for its tensor's dimensions and strides, and no output overlaps another tensor.
    pub unsafe fn run(&self, bindings: &Bindings, parallel: &dyn Parallel) -> Result<(), Trouble> {
        let mut memory = self.memory()?;
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.run_in(bindings, &mut memory, parallel) };
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        outcome
    }

    /// Runs the graph in memory of the caller's.
    ///
    /// # Safety
    /// As for [`run`](Self::run); the memory is this program's.
    pub unsafe fn run_in(
        &self,
        bindings: &Bindings,
        memory: &mut Memory,
        parallel: &dyn Parallel,
    ) -> Result<(), Trouble> {
        let Memory { arena, rooms, scratch } = memory;
        let mut context = Context { parallel, scratch };
        let given = |at: usize| std::ptr::with_exposed_provenance_mut::<u8>(bindings.addresses[at]);
        let mut addresses: SmallVec<[*mut u8; 16]> = SmallVec::with_capacity(self.tensors.len());
        for (at, (tensor, room)) in self.tensors.iter().zip(rooms.iter_mut()).enumerate() {
            if at < self.inputs {
                // SAFETY: the caller's promise.
                unsafe { tensor.stage.bring_in(given(at), room, &mut context)? };
            }
            addresses.push(tensor.stage.address(given(at), room));
        }
        let arena = arena.as_mut_ptr().cast::<u8>();
        let arena = arena.wrapping_add(arena.align_offset(ALIGNMENT));
        let place = |buffer: BufferId| match &self.plan.places[buffer.0 as usize] {
            Place::Input(number) => addresses[*number],
            Place::Output(number) => addresses[self.inputs + *number],
            Place::Constant(number) => self.plan.constants[*number].bytes().as_ptr().cast_mut(),
            Place::Arena(offset) => arena.wrapping_add(*offset),
            Place::Unused => std::ptr::null_mut(),
        };
        for step in &self.plan.steps {
            // SAFETY: the planner keeps live buffers apart and views within them; the caller vouches for its tensors.
            unsafe { host_ops::run(step, place, &mut context)? };
        }
        for (at, (tensor, room)) in self.tensors.iter().zip(rooms.iter_mut()).enumerate().skip(self.inputs) {
            // SAFETY: the caller's promise.
            unsafe { tensor.stage.take_out(given(at), room, &mut context)? };
        }
        Ok(())
    }
}
