//! A compiled graph: a plan of the engine's primitives, and how the caller's tensors lie in memory.

use std::sync::{Arc, Mutex, PoisonError};

use graph::lower::InputSpec;
use graph::plan::Place;
use graph::{DType, Plan, Shape};
use hipdnn_abi::{Arguments, Descriptor};
use host_ops::{Context, Scratch, Serial};

use crate::lower::{self, Port};

/// A graph that can run.
pub struct Program {
    plan: Plan,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// Memory of runs that are over, for those to come.
    spare: Mutex<Vec<Memory>>,
}

/// What a run needs: the arena, and a dense copy of each tensor that does not lie dense.
#[derive(Default)]
struct Memory {
    arena: Vec<u64>,
    inputs: Vec<Vec<u64>>,
    outputs: Vec<Vec<u64>>,
    scratch: Scratch,
}

/// The caller's address of each tensor.
pub struct Bindings {
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

impl Program {
    /// Compiles the operations of a graph, or says what it can't do.
    pub fn compile(operations: &[Arc<Descriptor>]) -> Result<Self, String> {
        let lowered = lower::lower(operations)?;
        let specs: Vec<InputSpec> =
            lowered.inputs.iter().map(|port| InputSpec { shape: Shape::from_slice(&port.dims), known: None }).collect();
        let plan = Plan::new(&lowered.graph, &specs).map_err(|error| error.to_string())?;
        for (port, made) in lowered.outputs.iter().zip(&plan.outputs) {
            if port.dims != made.shape.as_slice() {
                let (wanted, found) = (&port.dims, &made.shape);
                return Err(format!(
                    "tensor {} has dimensions {wanted:?}, and its operation makes {found:?}",
                    port.uid
                ));
            }
        }
        Ok(Self { plan, inputs: lowered.inputs, outputs: lowered.outputs, spare: Mutex::default() })
    }

    /// The tensors that the caller brings.
    pub fn uids(&self) -> Vec<i64> {
        self.inputs.iter().chain(&self.outputs).map(|port| port.uid).collect()
    }

    /// Finds an address for each tensor. Scalars given by value are read when the work runs.
    pub fn bind(&self, arguments: &Arguments<'_>) -> Result<Bindings, String> {
        let find = |ports: &[Port]| {
            let found = ports.iter().map(|port| {
                let address = arguments.address(port.uid);
                address.ok_or_else(|| format!("the variant pack has no address for tensor {}", port.uid))
            });
            found.collect::<Result<Vec<_>, _>>()
        };
        Ok(Bindings { inputs: find(&self.inputs)?, outputs: find(&self.outputs)? })
    }

    /// Runs the graph.
    ///
    /// # Safety
    /// Each address is valid for its tensor's dimensions and strides, and no output overlaps another tensor.
    pub unsafe fn run(&self, bindings: &Bindings) -> Result<(), String> {
        let taken = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut memory = taken.unwrap_or_else(|| self.memory());
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.run_in(bindings, &mut memory) };
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        outcome
    }

    fn memory(&self) -> Memory {
        let words = |port: &Port| if port.is_dense() { Vec::new() } else { vec![0; port.bytes().div_ceil(8)] };
        Memory {
            arena: vec![0; self.plan.arena_bytes.div_ceil(8) + 8],
            inputs: self.inputs.iter().map(words).collect(),
            outputs: self.outputs.iter().map(words).collect(),
            scratch: Scratch::default(),
        }
    }

    /// # Safety
    /// As for `run`.
    unsafe fn run_in(&self, bindings: &Bindings, memory: &mut Memory) -> Result<(), String> {
        let Memory { arena, inputs, outputs, scratch } = memory;
        let mut sources = Vec::with_capacity(self.inputs.len());
        for ((port, &address), dense) in self.inputs.iter().zip(&bindings.inputs).zip(inputs.iter_mut()) {
            let given = std::ptr::with_exposed_provenance_mut::<u8>(address);
            if port.is_dense() {
                sources.push(given);
            } else {
                let copy = dense.as_mut_ptr().cast::<u8>();
                // SAFETY: the caller's tensor has these strides, the copy room for all its elements.
                unsafe { port.each_element(|at, offset| move_element(port, given.add(offset), copy.add(at))) };
                sources.push(copy);
            }
        }
        let mut targets = Vec::with_capacity(self.outputs.len());
        for ((port, &address), dense) in self.outputs.iter().zip(&bindings.outputs).zip(outputs.iter_mut()) {
            let given = std::ptr::with_exposed_provenance_mut::<u8>(address);
            targets.push(if port.is_dense() { given } else { dense.as_mut_ptr().cast::<u8>() });
        }
        // Offsets in the arena are multiples of 64 bytes: keep that in memory too.
        let arena = arena.as_mut_ptr().cast::<u8>();
        let arena = arena.wrapping_add(arena.align_offset(64));
        let place = |buffer: graph::prim::BufferId| match &self.plan.places[buffer.0 as usize] {
            Place::Input(number) => sources[*number],
            Place::Output(number) => targets[*number],
            Place::Constant(number) => self.plan.constants[*number].bytes().as_ptr().cast_mut(),
            Place::Arena(offset) => arena.wrapping_add(*offset),
            Place::Unused => std::ptr::null_mut(),
        };
        let mut context = Context { parallel: &Serial, scratch };
        for step in &self.plan.steps {
            // SAFETY: the planner keeps live buffers apart and views within them; the caller vouches for its tensors.
            unsafe { host_ops::run(step, place, &mut context) }.map_err(|error| error.to_string())?;
        }
        for ((port, &address), dense) in self.outputs.iter().zip(&bindings.outputs).zip(outputs.iter()) {
            if !port.is_dense() {
                let given = std::ptr::with_exposed_provenance_mut::<u8>(address);
                let copy = dense.as_ptr().cast::<u8>();
                // SAFETY: as for the inputs.
                unsafe { port.each_element(|at, offset| move_element(port, copy.add(at), given.add(offset))) };
            }
        }
        Ok(())
    }
}

/// # Safety
/// Both addresses hold one element of the port's type.
unsafe fn move_element(port: &Port, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, port.dtype.bytes()) };
}

impl Port {
    /// True if the elements lie one behind the other.
    pub fn is_dense(&self) -> bool {
        let mut step = 1;
        self.dims.iter().zip(&self.strides).rev().all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == step;
            step *= extent;
            fits
        })
    }

    fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * self.dtype.bytes()
    }

    /// Calls with the byte offset of each element in a dense copy and in the tensor.
    fn each_element(&self, mut visit: impl FnMut(usize, usize)) {
        let size = self.dtype.bytes();
        let mut index = vec![0usize; self.dims.len()];
        let mut offset = 0;
        for at in 0..self.dims.iter().product::<usize>() {
            visit(at * size, offset * size);
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                offset += self.strides[axis];
                if index[axis] < self.dims[axis] {
                    break;
                }
                offset -= self.strides[axis] * self.dims[axis];
                index[axis] = 0;
            }
        }
    }
}

/// Our element type for one of hipDNN's; `None` for those the engine does not compute with.
pub fn dtype_of(code: i32) -> Option<DType> {
    use hipdnn::sys::DataType as C;
    Some(match C(code) {
        C::FLOAT => DType::F32,
        C::DOUBLE => DType::F64,
        C::HALF => DType::F16,
        C::BFLOAT16 => DType::Bf16,
        C::INT8 => DType::I8,
        C::UINT8 => DType::U8,
        C::INT32 => DType::I32,
        C::INT64 => DType::I64,
        C::BOOLEAN => DType::Bool,
        _ => return None,
    })
}
