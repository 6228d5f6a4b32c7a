//! A plan that is ready to run on a GPU.
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use graph::Plan;
use graph::plan::BufferPlace;
use hip::RawStream;
use kernels::Pointer;

use super::bind::{Arguments, Template};
use super::blocks::Block;
use super::candidate::Candidate;
use super::flight::{FaultNodes, Flight};
use super::frame::{Bases, Buffers, Layout};
use super::host_step::view_range;
use super::replay::Replays;
use super::task::{self, Task, Tasks};
use super::tuned::Entry;
use super::weights::{Resident, Weights};
use super::{GpuSettings, PartitionState, early, run, tune};
use crate::ExecError;
use crate::device::{Order, Prepared, RunBy, TunedStep};
use crate::ffi::GuaranteedRun;

/// The number of streams whose flights are kept. If there are more, an idle flight is reused for another stream.
const MAX_FLIGHTS: usize = 8;

/// A plan whose code and constants are on the device.
pub(super) struct GpuPlan {
    pub plan: Plan,
    pub tasks: Vec<Task>,
    /// The measurements of each step, if they chose its backend.
    tuned: Vec<Option<Entry>>,
    pub template: Template,
    pub layout: Layout,
    /// For each input, the number of bytes that steps read.
    pub input_bytes: Vec<usize>,
    pub faults: FaultNodes,
    pub replays: Replays,
    /// True if every step can be recorded.
    pub is_recordable: bool,
    /// Blocks of captures by others, which may be replayed for as long as the plan exists.
    pub captured: Mutex<Vec<Block>>,
    constants: Vec<Option<Resident>>,
    /// Arguments of runs that have been queued, for reuse.
    arguments: Mutex<Vec<Arguments>>,
    /// The flights of runs, by stream handle.
    flights: Mutex<Vec<(usize, Arc<Flight>)>>,
    pub partition: Arc<PartitionState>,
}

impl GpuPlan {
    /// Prepares a plan of a partition. Measures its steps first if tuning is on.
    pub fn new(plan: Plan, partition: &Arc<PartitionState>) -> Result<Self, ExecError> {
        tune::plan(&plan.steps, partition);
        Self::of(plan, partition, partition.graph.inputs().len())
    }

    /// Prepares a plan with this many inputs.
    pub fn of(mut plan: Plan, partition: &Arc<PartitionState>, inputs: usize) -> Result<Self, ExecError> {
        let start = Instant::now();
        let Tasks { mut tasks, tuned, scratch_bytes, asked, coded } = task::tasks(&plan.steps, partition);
        warn_of_host_steps(&plan, &tasks, partition);
        let before = start.elapsed();
        let constants = constants(&mut plan, &tasks, partition)?;
        let uploaded = start.elapsed() - before;
        let nodes: Vec<usize> = (0..tasks.len()).filter(|&at| reports_faults(&tasks[at])).collect();
        let counters = tasks.iter().map(counters).max().unwrap_or(0);
        let layout = Layout::new(plan.arena_bytes, scratch_bytes, nodes.len(), counters);
        early::mark(&mut tasks, &plan, &partition.device.code.arch, partition.device.device.driver());
        let mut template = Template::default();
        for (at, (task, step)) in tasks.iter_mut().zip(&plan.steps).enumerate() {
            let product_at = task.product_at();
            let buffers = Buffers { plan: &plan, inputs, layout, constants: &constants, product_at };
            let fault = nodes.iter().position(|&node| node == at).unwrap_or(0);
            for (ready, own) in task.launches() {
                ready.args = template.add(&ready.launch, own.unwrap_or(step), fault, &buffers);
            }
        }
        if partition.forced.is_none() {
            let (steps, took) = (tasks.len(), start.elapsed());
            tracing::debug!(
                target: "amdgpu_ep::compile",
                "prepared {steps} steps in {took:.1?}: assignment {asked:.1?}, kernels {coded:.1?}, constants {uploaded:.1?}"
            );
        }
        let label = |at: &usize| partition.label(plan.steps[*at].node);
        Ok(Self {
            faults: nodes.iter().map(label).collect(),
            replays: Replays::default(),
            is_recordable: !tasks.iter().any(|task| matches!(task, Task::Host { .. })),
            captured: Mutex::default(),
            input_bytes: input_bytes(&plan, inputs),
            tasks,
            tuned,
            template,
            layout,
            constants,
            arguments: Mutex::default(),
            flights: Mutex::default(),
            partition: partition.clone(),
            plan,
        })
    }

    /// The range of steps as shown in errors.
    fn span(&self) -> String {
        let label = |step: Option<&graph::Step>| step.map_or_else(String::new, |step| self.partition.label(step.node));
        let (first, last) = (label(self.plan.steps.first()), label(self.plan.steps.last()));
        if first == last { first } else { format!("a step from {first} to {last}") }
    }

    /// The locations of a step's buffers.
    pub fn buffers(&self, step: usize) -> Buffers<'_> {
        let (inputs, layout, product_at) = (self.input_bytes.len(), self.layout, self.tasks[step].product_at());
        Buffers { plan: &self.plan, inputs, layout, constants: &self.constants, product_at }
    }

    /// Arguments that are not in use by a run being queued.
    pub fn take_arguments(&self) -> Arguments {
        let idle = self.arguments.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bases = || Bases::count(self.input_bytes.len(), self.plan.outputs.len());
        idle.unwrap_or_else(|| Arguments::new(&self.template, bases()))
    }

    pub fn give_back(&self, arguments: Arguments) {
        self.arguments.lock().unwrap_or_else(PoisonError::into_inner).push(arguments);
    }

    /// The flight of runs on a stream, which run one after the other.
    pub fn flight(&self, stream: RawStream<'_>) -> Result<Arc<Flight>, ExecError> {
        let name = stream.as_ptr().addr();
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, flight)) = flights.iter().find(|(known, _)| *known == name) {
            return Ok(flight.clone());
        }
        // A flight without other references has no run in flight.
        let is_idle = |flight: &Arc<Flight>| Arc::strong_count(flight) == 1;
        if flights.len() >= MAX_FLIGHTS
            && let Some((known, idle)) = flights.iter_mut().find(|(_, flight)| is_idle(flight))
        {
            *known = name;
            return Ok(idle.clone());
        }
        let flight = Arc::new(Flight::new(&self.partition.device, self.faults.clone())?);
        flights.push((name, flight.clone()));
        Ok(flight)
    }

    /// True if a step may find data that breaks its operator's rules.
    pub fn reports_faults(&self) -> bool {
        !self.faults.is_empty()
    }
}

impl Prepared for GpuPlan {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn run_by(&self, step: usize) -> RunBy<'_> {
        self.tasks.get(step).map_or(RunBy::Own { why: None }, Task::run_by)
    }

    fn tuned(&self, step: usize) -> Option<TunedStep> {
        self.tuned.get(step)?.as_ref().map(Entry::shown)
    }

    fn start(self: Arc<Self>, run: GuaranteedRun<'_>, order: Order<'_>) -> Result<(), ExecError> {
        run.memory.check(self.input_bytes.len(), self.plan.outputs.len())?;
        let device = &self.partition.device;
        device.lost.check()?;
        run::run(&self, &run, order).map_err(|error| device.lost.reported(error, &device.name, || self.span()))
    }
}

impl PartitionState {
    /// The same partition with nothing uploaded, whose steps all use one candidate. Steps that it cannot run are not
    /// logged: this is only a trial.
    pub fn forced(&self, way: Candidate) -> Self {
        let (graph, device) = (self.graph.clone(), self.device.clone());
        let settings = GpuSettings { tuned: None, progress: None, ..self.settings.clone() };
        Self { graph, weights: Weights::default(), warned: None, settings, forced: Some(way), device }
    }

    /// A node's label as shown in errors.
    pub fn label(&self, node: u32) -> String {
        self.graph.nodes().get(node as usize).map_or_else(String::new, |node| node.label())
    }
}

/// Logs one line for each primitive without a kernel here, with the first node of the partition that needs it.
fn warn_of_host_steps(plan: &Plan, tasks: &[Task], partition: &PartitionState) {
    for (step, task) in plan.steps.iter().zip(tasks) {
        let (Task::Host { why }, Some(warned)) = (task, &partition.warned) else { continue };
        let prim = step.prim.name();
        let mut warned = warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert((prim, why.clone())) {
            let (node, device) = (partition.label(step.node), &partition.device.name);
            tracing::warn!(target: "amdgpu_ep::compile", "{node}: {prim} runs on the host, not on {device}: {why}");
        }
    }
}

fn reports_faults(task: &Task) -> bool {
    pointers(task).any(|pointer| pointer == Pointer::Fault)
}

/// The number of counters that a task needs.
fn counters(task: &Task) -> usize {
    pointers(task).map(|pointer| if let Pointer::Counters(count) = pointer { count } else { 0 }).max().unwrap_or(0)
}

fn pointers(task: &Task) -> impl Iterator<Item = Pointer> + '_ {
    let launches = if let Task::Kernels { launches, .. } = task { launches.as_slice() } else { &[] };
    launches.iter().flat_map(|ready| ready.launch.args.pointers()).map(|&(_, pointer)| pointer)
}

/// Uploads the constants that the device reads. The plan keeps the bytes of large ones only if the host reads them too.
fn constants(plan: &mut Plan, tasks: &[Task], partition: &PartitionState) -> Result<Vec<Option<Resident>>, ExecError> {
    let count = plan.constants.len();
    let (mut on_device, mut on_host) = (vec![false; count], vec![false; count]);
    for (step, task) in plan.steps.iter().zip(tasks) {
        let read = match task {
            Task::Nothing => continue,
            Task::Host { .. } => &mut on_host,
            _ => &mut on_device,
        };
        for view in &step.inputs {
            if let BufferPlace::Constant(number) = plan.place(view) {
                read[*number] = true;
            }
        }
    }
    let wanted = plan.constants.iter().zip(&on_device).filter(|(_, wanted)| **wanted).map(|(tensor, _)| tensor);
    let mut resident = partition.weights.resident(&wanted.collect::<Vec<_>>(), &partition.device)?.into_iter();
    let resident = on_device.iter().map(|wanted| if *wanted { resident.next() } else { None }).collect();
    for (tensor, on_host) in plan.constants.iter_mut().zip(on_host) {
        if on_host {
            // Fetch it now if an earlier plan left it only on the device, so that runs cannot fail because it is
            // missing.
            *tensor = partition.weights.here(tensor);
        } else if let Some(stored) = partition.weights.stored(tensor, &partition.device) {
            *tensor = stored;
        }
    }
    partition.weights.check()?;
    Ok(resident)
}

fn input_bytes(plan: &Plan, inputs: usize) -> Vec<usize> {
    let mut bytes = vec![0; inputs];
    for view in plan.steps.iter().flat_map(|step| &step.inputs) {
        if let BufferPlace::Input(number) = plan.place(view) {
            bytes[*number] = bytes[*number].max(view_range(view).end);
        }
    }
    bytes
}
