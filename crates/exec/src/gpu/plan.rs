//! A plan that is ready to run on a GPU.
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use graph::{Plan, plan::Place};
use hip::RawStream;
use kernels::Pointer;

use super::{
    GpuSettings, Program,
    bind::{Arguments, Template},
    blocks::Block,
    candidate::Candidate,
    early,
    flight::{FaultNodes, Flight},
    frame::{Bases, Buffers, Layout},
    host_step::view_range,
    replay::Replays,
    run,
    task::{self, Task, Tasks},
    tune,
    tuned::Entry,
    weights::{Resident, Weights},
};
use crate::{
    ExecError,
    device::{Order, Prepared, Run, RunBy, TunedStep},
};

/// Streams whose flights are kept. If there are more, a flight that nobody looks at any more is used for another stream.
const MOST_FLIGHTS: usize = 8;

/// A plan whose code and constants are on the device.
pub(super) struct GpuPlan {
    pub plan: Plan,
    pub tasks: Vec<Task>,
    /// What was measured of each step, where that decided.
    tuned: Vec<Option<Entry>>,
    pub template: Template,
    pub layout: Layout,
    /// Of each input, as far as steps read it.
    pub input_bytes: Vec<usize>,
    pub faults: FaultNodes,
    pub replays: Replays,
    /// True if every step can be recorded.
    pub is_recordable: bool,
    /// Blocks of captures by others, which may be replayed as long as the plan is there.
    pub captured: Mutex<Vec<Block>>,
    constants: Vec<Option<Resident>>,
    /// Those of runs that have been queued.
    arguments: Mutex<Vec<Arguments>>,
    /// Those of runs on a stream, by its name.
    flights: Mutex<Vec<(usize, Arc<Flight>)>>,
    pub program: Arc<Program>,
}

impl GpuPlan {
    /// A plan of a program, whose steps are measured first if that is wanted.
    pub fn new(plan: Plan, program: &Arc<Program>) -> Result<Self, ExecError> {
        tune::plan(&plan.steps, program);
        Self::of(plan, program, program.graph.inputs().len())
    }

    /// A plan with this many inputs.
    pub fn of(mut plan: Plan, program: &Arc<Program>, inputs: usize) -> Result<Self, ExecError> {
        let start = Instant::now();
        let Tasks { mut tasks, tuned, scratch_bytes, asked, coded } = task::tasks(&plan.steps, program);
        warn_of_host_steps(&plan, &tasks, program);
        let before = start.elapsed();
        let constants = constants(&mut plan, &tasks, program)?;
        let uploaded = start.elapsed() - before;
        let nodes: Vec<usize> = (0..tasks.len()).filter(|&at| reports_faults(&tasks[at])).collect();
        let counters = tasks.iter().map(counters).max().unwrap_or(0);
        let layout = Layout::new(plan.arena_bytes, scratch_bytes, nodes.len(), counters);
        early::mark(&mut tasks, &plan, &program.device.code.arch.target, program.device.device.driver());
        let mut template = Template::default();
        for (at, (task, step)) in tasks.iter_mut().zip(&plan.steps).enumerate() {
            let product_at = task.product_at();
            let buffers = Buffers { plan: &plan, inputs, layout, constants: &constants, product_at };
            let fault = nodes.iter().position(|&node| node == at).unwrap_or(0);
            for (ready, own) in task.launches() {
                ready.args = template.add(&ready.launch, own.unwrap_or(step), fault, &buffers);
            }
        }
        if program.forced.is_none() {
            let (steps, took) = (tasks.len(), start.elapsed());
            tracing::debug!(
                target: "amdgpu_ep::compile",
                "{steps} steps made ready in {took:.1?}: asking who runs them {asked:.1?}, their code {coded:.1?}, \
                 constants {uploaded:.1?}"
            );
        }
        let label = |at: &usize| program.label(plan.steps[*at].node);
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
            program: program.clone(),
            plan,
        })
    }

    /// The steps as errors name them.
    fn span(&self) -> String {
        let label = |step: Option<&graph::Step>| step.map_or_else(String::new, |step| self.program.label(step.node));
        let (first, last) = (label(self.plan.steps.first()), label(self.plan.steps.last()));
        if first == last { first } else { format!("a step from {first} to {last}") }
    }

    /// Where the buffers of a step lie.
    pub fn buffers(&self, step: usize) -> Buffers<'_> {
        let (inputs, layout, product_at) = (self.input_bytes.len(), self.layout, self.tasks[step].product_at());
        Buffers { plan: &self.plan, inputs, layout, constants: &self.constants, product_at }
    }

    /// Arguments that no run is being queued with.
    pub fn take_arguments(&self) -> Arguments {
        let idle = self.arguments.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bases = || Bases::count(self.input_bytes.len(), self.plan.outputs.len());
        idle.unwrap_or_else(|| Arguments::new(&self.template, bases()))
    }

    pub fn give_back(&self, arguments: Arguments) {
        self.arguments.lock().unwrap_or_else(PoisonError::into_inner).push(arguments);
    }

    /// The flight of runs on a stream, where one comes behind the other.
    pub fn flight(&self, stream: RawStream<'_>) -> Result<Arc<Flight>, ExecError> {
        let name = stream.as_ptr().addr();
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, flight)) = flights.iter().find(|(known, _)| *known == name) {
            return Ok(flight.clone());
        }
        // One that nobody looks at any more has no run under way.
        let is_idle = |flight: &Arc<Flight>| Arc::strong_count(flight) == 1;
        if flights.len() >= MOST_FLIGHTS
            && let Some((known, idle)) = flights.iter_mut().find(|(_, flight)| is_idle(flight))
        {
            *known = name;
            return Ok(idle.clone());
        }
        let flight = Arc::new(Flight::new(&self.program.device, self.faults.clone())?);
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

    unsafe fn run(self: Arc<Self>, run: Run<'_>, order: Order<'_>) -> Result<(), ExecError> {
        run.check(self.input_bytes.len(), self.plan.outputs.len())?;
        let device = &self.program.device;
        device.lost.check()?;
        // SAFETY: the caller's promise.
        unsafe { run::run(&self, &run, order) }.map_err(|error| device.lost.told(error, &device.name, || self.span()))
    }
}

impl Program {
    /// The same partition with nothing uploaded, whose steps are run by one way. What it can't run is not told: it is only
    /// tried.
    pub fn forced(&self, way: Candidate) -> Self {
        let (graph, device) = (self.graph.clone(), self.device.clone());
        let settings = GpuSettings { tuned: None, progress: None, ..self.settings.clone() };
        Self { graph, weights: Weights::default(), told: None, settings, forced: Some(way), device }
    }

    /// A node as errors name it.
    pub fn label(&self, node: u32) -> String {
        self.graph.nodes().get(node as usize).map_or_else(String::new, |node| node.label())
    }
}

/// One line for each primitive that has no kernel here, with the first node of the program that wants it.
fn warn_of_host_steps(plan: &Plan, tasks: &[Task], program: &Program) {
    for (step, task) in plan.steps.iter().zip(tasks) {
        let (Task::Host { why }, Some(told)) = (task, &program.told) else { continue };
        let prim = step.prim.name();
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert((prim, why.clone())) {
            let (node, device) = (program.label(step.node), &program.device.name);
            tracing::warn!(target: "amdgpu_ep::compile", "{node}: {prim} runs on the host, not on {device}: {why}");
        }
    }
}

fn reports_faults(task: &Task) -> bool {
    pointers(task).any(|pointer| pointer == Pointer::Fault)
}

/// How many counters a task needs.
fn counters(task: &Task) -> usize {
    pointers(task).map(|pointer| if let Pointer::Counters(count) = pointer { count } else { 0 }).max().unwrap_or(0)
}

fn pointers(task: &Task) -> impl Iterator<Item = Pointer> + '_ {
    let launches = if let Task::Kernels { launches, .. } = task { launches.as_slice() } else { &[] };
    launches.iter().flat_map(|ready| ready.launch.args.pointers()).map(|&(_, pointer)| pointer)
}

/// The constants that the device reads, on the device. The plan keeps the bytes of large ones only where the host reads them too.
fn constants(plan: &mut Plan, tasks: &[Task], program: &Program) -> Result<Vec<Option<Resident>>, ExecError> {
    let count = plan.constants.len();
    let (mut on_device, mut on_host) = (vec![false; count], vec![false; count]);
    for (step, task) in plan.steps.iter().zip(tasks) {
        let read = match task {
            Task::Nothing => continue,
            Task::Host { .. } => &mut on_host,
            _ => &mut on_device,
        };
        for view in &step.inputs {
            if let Place::Constant(number) = plan.place(view) {
                read[*number] = true;
            }
        }
    }
    let wanted = plan.constants.iter().zip(&on_device).filter(|(_, wanted)| **wanted).map(|(tensor, _)| tensor);
    let mut resident = program.weights.resident(&wanted.collect::<Vec<_>>(), &program.device)?.into_iter();
    let resident = on_device.iter().map(|wanted| if *wanted { resident.next() } else { None }).collect();
    for (tensor, on_host) in plan.constants.iter_mut().zip(on_host) {
        if on_host {
            // Now, if an earlier plan left it to the device: runs can't fail for want of it.
            *tensor = program.weights.here(tensor);
        } else if let Some(stored) = program.weights.stored(tensor, &program.device) {
            *tensor = stored;
        }
    }
    program.weights.check()?;
    Ok(resident)
}

fn input_bytes(plan: &Plan, inputs: usize) -> Vec<usize> {
    let mut bytes = vec![0; inputs];
    for view in plan.steps.iter().flat_map(|step| &step.inputs) {
        if let Place::Input(number) = plan.place(view) {
            bytes[*number] = bytes[*number].max(view_range(view).end);
        }
    }
    bytes
}
