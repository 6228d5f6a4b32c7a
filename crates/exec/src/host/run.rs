//! Executes the steps of a plan, one after the other.
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use graph::plan::{ALIGNMENT, OutputSpec};
use graph::{Graph, Plan, Tensor};
use host_ops::{Bound, Context, Parallel, Pool, Scratch, Serial};

use super::HostDevice;
use crate::device::{Observer, Order, Run, RunBy};
use crate::memory::{Purpose, Share};
use crate::{CompiledPartition, ExecError};

/// The memory a run needs besides its inputs and outputs. It is reused from run to run, so that a warm run allocates
/// nothing.
pub(super) struct RunState {
    arena: Vec<Line>,
    /// Workspace of hipDNN engines.
    workspace: Vec<Line>,
    scratch: Scratch,
    /// Counts arena and workspace.
    held: Share,
    /// Counts scratch memory.
    working: Share,
}

impl Default for RunState {
    fn default() -> Self {
        let (arena, workspace) = (Vec::new(), Vec::new());
        let (held, working) = (Share::new(Purpose::Arena, 0), Share::new(Purpose::Working, 0));
        Self { arena, workspace, scratch: Scratch::default(), held, working }
    }
}

/// A cache line. It aligns the arena for every element type.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

impl RunState {
    /// The arena, grown to this many bytes.
    pub fn arena(&mut self, bytes: usize) -> Result<*mut u8, ExecError> {
        let start = grown(&mut self.arena, bytes)?;
        self.count();
        Ok(start)
    }

    /// The workspace, grown to this many bytes and aligned like device memory; null if `bytes` is 0.
    pub fn workspace(&mut self, bytes: usize) -> Result<*mut u8, ExecError> {
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        let start = grown(&mut self.workspace, bytes.saturating_add(ALIGNMENT))?;
        self.count();
        Ok(start.wrapping_add(start.align_offset(ALIGNMENT)))
    }

    fn count(&mut self) {
        self.held.set((self.arena.len() + self.workspace.len()) * size_of::<Line>());
    }
}

fn grown(memory: &mut Vec<Line>, bytes: usize) -> Result<*mut u8, ExecError> {
    let lines = bytes.div_ceil(size_of::<Line>());
    if let Some(missing) = lines.checked_sub(memory.len()) {
        memory.try_reserve_exact(missing).map_err(|_| ExecError::OutOfMemory { bytes })?;
        memory.resize(lines, Line([0; 64]));
    }
    Ok(memory.as_mut_ptr().cast())
}

/// Runs a plan. Steps are timed only if there is an `observer`.
///
/// # Errors
/// A step found data that breaks its operator's rules.
///
/// # Safety
/// `inputs` and `outputs` hold one address for each of the plan's inputs and outputs. Each has as many bytes as the
/// plan was made for, is aligned to its element type, and is not changed by anything else during the call. Outputs
/// overlap nothing, except caches that are updated in place ([`Append`](graph::prim::Append)). Addresses of empty
/// tensors may be anything.
pub(super) unsafe fn execute(
    graph: &Graph,
    plan: &Plan,
    inputs: &[*const u8],
    outputs: &[*mut u8],
    state: &mut RunState,
    parallel: &dyn Parallel,
    observer: Option<&dyn Observer>,
) -> Result<(), ExecError> {
    let bound = Bound { plan, inputs, outputs, arena: state.arena(plan.arena_bytes)? };
    // SAFETY: guaranteed by the caller.
    unsafe { execute_part(graph, bound, 0..plan.steps.len(), state, parallel, observer) }
}

/// Runs some of a plan's steps.
///
/// # Errors
/// As for [`execute`].
///
/// # Safety
/// As for [`execute`], for the addresses in `bound`; the arena is that of `state`, and the steps before these are done.
pub(super) unsafe fn execute_part(
    graph: &Graph,
    bound: Bound<'_>,
    steps: Range<usize>,
    state: &mut RunState,
    parallel: &dyn Parallel,
    observer: Option<&dyn Observer>,
) -> Result<(), ExecError> {
    let address = |buffer| bound.address(buffer);
    let mut cx = Context { parallel, scratch: &mut state.scratch };
    let done = bound.plan.steps[steps].iter().try_for_each(|step| {
        let start = observer.is_some().then(Instant::now);
        // SAFETY: the planner keeps live buffers disjoint and every view within its buffer; the caller guarantees
        // inputs and outputs. Constants and inputs are only read: no step writes a buffer that it did not create.
        let done = unsafe { host_ops::run(step, address, &mut cx) };
        done.map_err(|source| {
            let node = graph.nodes().get(step.node as usize).map_or_else(String::new, |node| node.label());
            ExecError::Step { node, source }
        })?;
        if let (Some(observer), Some(start)) = (observer, start) {
            observer.step(step, RunBy::Own { why: None }, start, start.elapsed());
        }
        Ok(())
    });
    state.working.set(state.scratch.bytes());
    done
}

/// Runs a plan without inputs and returns its outputs; `None` if a step fails, which the run itself will then report.
pub(super) fn run_prologue(graph: &Graph, plan: &Plan) -> Option<Vec<Tensor>> {
    let mut made = OutputMemory::new(plan);
    let outputs = made.addresses();
    // Threads start only if the work is large enough, and end here: all weights of a model may need a new layout.
    let pool = Pool::new();
    // SAFETY: there are no inputs, and outputs are fresh memory of the sizes the plan names.
    unsafe { execute(graph, plan, &[], &outputs, &mut RunState::default(), &pool, None) }.ok()?;
    Some(made.tensors(plan))
}

/// Runs a graph once on given tensors. Meant for tests, not for speed.
///
/// # Errors
/// As for planning and running.
pub fn run_once(graph: Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
    run_partition(&CompiledPartition::new(graph, &HostDevice::new())?, inputs)
}

/// Runs a partition once on given tensors. Meant for tests, not for speed.
///
/// # Errors
/// As for planning and running.
pub fn run_partition(partition: &CompiledPartition, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
    let given: Vec<crate::Input<'_>> = inputs
        .iter()
        .enumerate()
        .map(|(at, tensor)| crate::Input {
            shape: tensor.shape(),
            value: partition.needs_value(at).then(|| tensor.bytes()),
        })
        .collect();
    let prepared = partition.plan(&given)?;
    let mut made = OutputMemory::new(prepared.plan());
    let (sources, outputs) =
        (inputs.iter().map(|tensor| tensor.bytes().as_ptr()).collect::<Vec<_>>(), made.addresses());
    let run = Run { inputs: &sources, outputs: &outputs, parallel: &Serial, observer: None };
    // SAFETY: inputs are complete tensors of the planned shapes; outputs are fresh memory of the sizes in the plan.
    unsafe { Arc::clone(&prepared).run(run, Order::Now)? };
    Ok(made.tensors(prepared.plan()))
}

/// Fresh memory for the outputs of a plan.
struct OutputMemory(Vec<Vec<Line>>);

impl OutputMemory {
    fn new(plan: &Plan) -> Self {
        let lines = |output| vec![Line([0xA5; 64]); output_bytes(output).div_ceil(64).max(1)];
        Self(plan.outputs.iter().map(lines).collect())
    }

    fn addresses(&mut self) -> Vec<*mut u8> {
        self.0.iter_mut().map(|lines| lines.as_mut_ptr().cast()).collect()
    }

    fn tensors(&self, plan: &Plan) -> Vec<Tensor> {
        let tensors = plan.outputs.iter().zip(&self.0).map(|(output, lines)| {
            let mut flat = Vec::with_capacity(size_of_val(&**lines));
            lines.iter().for_each(|line| flat.extend_from_slice(&line.0));
            flat.truncate(output_bytes(output));
            Tensor::from_bytes(output.dtype, &output.shape, &flat)
        });
        tensors.flatten().collect()
    }
}

fn output_bytes(output: &OutputSpec) -> usize {
    graph::shape::elems(&output.shape).unwrap_or(0) * output.dtype.bytes()
}
