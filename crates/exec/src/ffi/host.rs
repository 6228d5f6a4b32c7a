//! Steps on the host, and the memory that they need.
use graph::plan::{ALIGNMENT, OutputSpec};
use graph::prim::BufferId;
use graph::{Plan, Tensor};
use host_ops::{Bound, Context, OpError, Parallel, Scratch};

use super::run::{KeptRun, RunMemory};
use crate::ExecError;
use crate::memory::{Purpose, Share};

/// The memory a run needs besides its inputs and outputs. It is reused from run to run, so that a warm run allocates
/// nothing.
pub struct RunState {
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

/// Where a state has its arena and workspace, until it grows again or is dropped.
#[derive(Clone, Copy)]
pub struct Reserved {
    arena: *mut u8,
    workspace: *mut u8,
}

// SAFETY: addresses are numbers; the code that uses them keeps the state that they point into.
unsafe impl Send for Reserved {}
// SAFETY: as above.
unsafe impl Sync for Reserved {}

impl RunState {
    /// Grows the arena and the workspace to these sizes in bytes.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn reserve(&mut self, arena_bytes: usize, workspace_bytes: usize) -> Result<Reserved, ExecError> {
        let arena = grown(&mut self.arena, arena_bytes);
        let workspace = match workspace_bytes {
            0 => Ok(std::ptr::null_mut()),
            // Aligned like device memory.
            bytes => grown(&mut self.workspace, bytes.saturating_add(ALIGNMENT))
                .map(|start| start.wrapping_add(start.align_offset(ALIGNMENT))),
        };
        self.held.set((self.arena.len() + self.workspace.len()) * size_of::<Line>());
        Ok(Reserved { arena: arena?, workspace: workspace? })
    }

    /// Counts the scratch memory that steps have allocated so far.
    pub fn count_scratch(&mut self) {
        self.working.set(self.scratch.bytes());
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

/// A plan with the memory of one run: every step of it can be executed.
#[derive(Clone, Copy)]
pub struct BoundPlan<'a> {
    bound: Bound<'a>,
    reserved: Reserved,
    memory: RunMemory<'a>,
}

impl<'a> BoundPlan<'a> {
    /// Binds a plan to the memory of a run of it. `reserved` comes from the state that the steps are run with, which
    /// has reserved the plan's arena.
    pub fn new(plan: &'a Plan, memory: RunMemory<'a>, reserved: Reserved) -> Self {
        let bound = Bound { plan, inputs: memory.inputs(), outputs: memory.outputs(), arena: reserved.arena };
        Self { bound, reserved, memory }
    }

    pub fn plan(&self) -> &'a Plan {
        self.bound.plan
    }

    pub fn memory(&self) -> RunMemory<'a> {
        self.memory
    }

    /// The address of a buffer.
    pub fn address(&self, buffer: BufferId) -> *mut u8 {
        self.bound.address(buffer)
    }

    /// The workspace of hipDNN engines.
    pub fn workspace(&self) -> *mut u8 {
        self.reserved.workspace
    }

    /// Runs one step of the plan. The steps before it are done.
    ///
    /// # Errors
    /// The step found data that breaks its operator's rules, or there is not enough memory.
    pub fn run_step(&self, at: usize, state: &mut RunState, parallel: &dyn Parallel) -> Result<(), OpError> {
        let mut cx = Context { parallel, scratch: &mut state.scratch };
        let address = |buffer| self.bound.address(buffer);
        // SAFETY: the planner keeps live buffers disjoint and every view within its buffer; the proof in `memory`
        // stands for inputs and outputs, and the arena is that of `state`. Constants and inputs are only read: no step
        // writes a buffer that it did not create.
        unsafe { host_ops::run(&self.bound.plan.steps[at], address, &mut cx) }
    }
}

/// The addresses of a run on the host whose steps are executed later. The state is kept beside it.
pub struct KeptHostRun {
    run: KeptRun,
    reserved: Reserved,
}

impl KeptHostRun {
    pub fn new(memory: RunMemory<'_>, reserved: Reserved) -> Self {
        Self { run: memory.keep(), reserved }
    }

    /// Binds the plan that the run belongs to.
    pub fn bind<'a>(&'a self, plan: &'a Plan) -> BoundPlan<'a> {
        BoundPlan::new(plan, self.run.memory(), self.reserved)
    }
}

/// Fresh memory for the outputs of a plan that has no inputs.
pub struct OutputMemory<'a> {
    plan: &'a Plan,
    lines: Vec<Vec<Line>>,
    addresses: Vec<*mut u8>,
}

impl<'a> OutputMemory<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        let fresh = |output| vec![Line([0xA5; 64]); output_bytes(output).div_ceil(64).max(1)];
        let mut lines: Vec<_> = plan.outputs.iter().map(fresh).collect();
        let addresses = lines.iter_mut().map(|lines| lines.as_mut_ptr().cast()).collect();
        Self { plan, lines, addresses }
    }

    /// Binds the plan to this memory.
    pub fn bind(&self, reserved: Reserved) -> BoundPlan<'_> {
        // SAFETY: a plan without inputs has only these outputs, each in fresh memory of the size that the plan names,
        // which nothing else uses while the result borrows it.
        let memory = unsafe { RunMemory::new(&[], &self.addresses) };
        BoundPlan::new(self.plan, memory, reserved)
    }

    /// Copies the outputs.
    pub fn tensors(&self) -> Vec<Tensor> {
        let tensors = self.plan.outputs.iter().zip(&self.lines).map(|(output, lines)| {
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
