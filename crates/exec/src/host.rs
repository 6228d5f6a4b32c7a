//! The host device: RAM and the CPU.
use std::time::{Duration, Instant};

use graph::{
    Graph, Plan, Step, Tensor,
    plan::{OutputSpec, Place},
};
use host_ops::{Context, Parallel, Scratch};

use crate::ExecError;

/// What a run needs besides its inputs and outputs; kept from run to run, so that a warm run allocates nothing.
#[derive(Default)]
pub struct RunState {
    arena: Vec<Line>,
    scratch: Scratch,
}

/// A cache line, which aligns the arena for every element type.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

impl RunState {
    fn arena(&mut self, bytes: usize) -> Result<*mut u8, ExecError> {
        let lines = bytes.div_ceil(size_of::<Line>());
        if let Some(missing) = lines.checked_sub(self.arena.len()) {
            self.arena.try_reserve_exact(missing).map_err(|_| ExecError::OutOfMemory { bytes })?;
            self.arena.resize(lines, Line([0; 64]));
        }
        Ok(self.arena.as_mut_ptr().cast())
    }

    /// How large the arena has grown.
    pub fn arena_bytes(&self) -> usize {
        self.arena.len() * size_of::<Line>()
    }
}

/// Is told of each step that ran: when it began, and how long it took.
pub type Observer<'a> = dyn FnMut(&Step, Instant, Duration) + 'a;

/// Runs a plan. Time is measured only for an `observer`.
///
/// # Errors
/// A step found data that breaks its operator's rules.
///
/// # Safety
/// `inputs` and `outputs` hold one address for each of the plan's inputs and outputs, of as many bytes as the plan was
/// made for, aligned to their element types, and not changed by anyone else during the call; outputs overlap nothing.
/// Addresses of empty tensors may be anything.
pub unsafe fn run(
    graph: &Graph,
    plan: &Plan,
    inputs: &[*const u8],
    outputs: &[*mut u8],
    state: &mut RunState,
    parallel: &dyn Parallel,
    mut observer: Option<&mut Observer<'_>>,
) -> Result<(), ExecError> {
    if outputs.len() != plan.outputs.len() {
        return Err(ExecError::Count { what: "outputs", found: outputs.len(), wanted: plan.outputs.len() });
    }
    let arena = state.arena(plan.arena_bytes)?;
    let address = |buffer: graph::prim::BufferId| match &plan.places[buffer.0 as usize] {
        Place::Input(number) => inputs[*number].cast_mut(),
        Place::Output(number) => outputs[*number],
        Place::Constant(number) => plan.constants[*number].bytes().as_ptr().cast_mut(),
        Place::Arena(offset) => arena.wrapping_add(*offset),
        Place::Unused => std::ptr::null_mut(),
    };
    let mut cx = Context { parallel, scratch: &mut state.scratch };
    for step in &plan.steps {
        let start = observer.is_some().then(Instant::now);
        // SAFETY: the planner keeps live buffers apart and every view within its buffer; the caller vouches for inputs
        // and outputs. Constants and inputs are only read: no step writes a buffer that it did not make.
        let done = unsafe { host_ops::run(step, address, &mut cx) };
        done.map_err(|source| {
            let node = graph.nodes().get(step.node as usize).map_or_else(String::new, |node| node.label());
            ExecError::Step { node, source }
        })?;
        if let (Some(observe), Some(start)) = (&mut observer, start) {
            observe(step, start, start.elapsed());
        }
    }
    Ok(())
}

/// Runs a plan without inputs and gives its outputs; `None` if a step fails, which the run itself will then report.
pub(crate) fn run_prologue(graph: &Graph, plan: &Plan) -> Option<Vec<Tensor>> {
    run_on_tensors(graph, plan, &[], &crate::Serial).ok()
}

/// Runs a graph once on known tensors: for tests, not for speed.
///
/// # Errors
/// As for planning and running.
pub fn run_once(graph: Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
    run_program(&crate::Program::new(graph), inputs)
}

/// Runs a program once on known tensors: for tests, not for speed.
///
/// # Errors
/// As for planning and running.
pub fn run_program(program: &crate::Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
    let given: Vec<crate::Input<'_>> = inputs
        .iter()
        .enumerate()
        .map(|(at, tensor)| crate::Input {
            shape: tensor.shape(),
            value: program.needs_value(at).then(|| tensor.bytes()),
        })
        .collect();
    let plan = program.plan(&given)?;
    let wanted = program.graph().inputs().len();
    if inputs.len() != wanted {
        return Err(ExecError::Count { what: "inputs", found: inputs.len(), wanted });
    }
    run_on_tensors(program.graph(), &plan, inputs, &crate::Serial)
}

/// Runs a plan on whole tensors, of the shapes it was made for.
fn run_on_tensors(
    graph: &Graph,
    plan: &Plan,
    inputs: &[Tensor],
    parallel: &dyn Parallel,
) -> Result<Vec<Tensor>, ExecError> {
    let bytes = |output: &OutputSpec| graph::shape::elems(&output.shape).unwrap_or(0) * output.dtype.bytes();
    let mut made: Vec<Vec<Line>> =
        plan.outputs.iter().map(|output| vec![Line([0xA5; 64]); bytes(output).div_ceil(64).max(1)]).collect();
    let addresses: Vec<*mut u8> = made.iter_mut().map(|lines| lines.as_mut_ptr().cast()).collect();
    let sources: Vec<*const u8> = inputs.iter().map(|tensor| tensor.bytes().as_ptr()).collect();
    // SAFETY: inputs are whole tensors of the shapes planned for, outputs fresh memory of the sizes the plan names.
    unsafe { run(graph, plan, &sources, &addresses, &mut RunState::default(), parallel, None)? };
    let tensors = plan.outputs.iter().zip(&made).map(|(output, lines)| {
        let flat: Vec<u8> = lines.iter().flat_map(|line| line.0).take(bytes(output)).collect();
        Tensor::from_bytes(output.dtype, &output.shape, &flat)
    });
    Ok(tensors.flatten().collect())
}
