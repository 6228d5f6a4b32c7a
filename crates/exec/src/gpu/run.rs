//! Runs a plan on a stream.
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use hip::{CaptureStatus, DriverKind, PointerKind, RawStream};

use super::bind::Arguments;
use super::blocks::Block;
use super::flight::Flight;
use super::frame::output_bytes;
use super::host_step;
use super::plan::GpuPlan;
use super::task::{ReadyLaunch, Task};
use crate::ExecError;
use crate::device::{Observer, Order};
use crate::ffi::device::{clear, copy_input, copy_output, launch};
use crate::ffi::{GuaranteedRun, RunMemory};

/// Kernels read and write packs of elements of this size. Device memory has a larger alignment.
const PACK: usize = 16;

/// Runs a plan, ordered with other work.
pub(super) fn run(plan: &Arc<GpuPlan>, run: &GuaranteedRun<'_>, order: Order<'_>) -> Result<(), ExecError> {
    let shared = &plan.partition.device;
    match order {
        Order::Now => {
            let stream = shared.stream()?;
            let queued = queue(plan, run, stream.raw());
            let waited = stream.synchronize();
            shared.give_back(stream);
            let flight = queued?;
            waited?;
            flight.outcome()
        }
        Order::Stream { device, stream, ledger } => {
            if device.capture_status(stream)? != CaptureStatus::None {
                let block = record(plan, run, None, stream)?;
                plan.captured.lock().unwrap_or_else(PoisonError::into_inner).push(block);
                return Ok(());
            }
            let flight = queue(plan, run, stream)?;
            if flight.is_reached() {
                ledger.watch(flight);
                return Ok(());
            }
            // The next run would overwrite the fault words of this one.
            device.stream_synchronize(stream)?;
            flight.outcome()
        }
        Order::Record(capture) => {
            let flight = plan.reports_faults().then(|| Flight::new(shared, plan.faults.clone())).transpose()?;
            let block = record(plan, run, flight.as_ref(), capture.stream())?;
            let kept = (plan.clone(), block);
            capture.keep(move || {
                let _ = &kept;
                flight.as_ref().map_or(Ok(()), Flight::outcome)
            });
            Ok(())
        }
    }
}

/// Queues a run on a stream. The returned flight has its fault words once the stream has passed this point.
fn queue(plan: &Arc<GpuPlan>, run: &GuaranteedRun<'_>, stream: RawStream<'_>) -> Result<Arc<Flight>, ExecError> {
    let blocks = &plan.partition.device.blocks;
    let flight = plan.flight(stream)?;
    let mut arguments = plan.take_arguments();
    let moved_bytes = find_moved(plan, run.memory, &mut arguments);
    let queued = blocks.take(plan.layout.bytes + moved_bytes, stream).and_then(|block| {
        let end = block.end().clone();
        let done = work(plan, run, &block, &mut arguments, Some(&flight), stream, true);
        let is_marked = *done.as_ref().unwrap_or(&false);
        done.and(blocks.give_back(block, stream, is_marked))?;
        // Set the end after the event is recorded: a thread that waits for the flight's last run must not see it idle.
        flight.ends(end, stream);
        Ok(())
    });
    plan.give_back(arguments);
    queued.map(|()| flight)
}

/// Queues a run on a stream that is being captured, and returns the block that its replays use.
fn record(
    plan: &Arc<GpuPlan>,
    run: &GuaranteedRun<'_>,
    flight: Option<&Flight>,
    stream: RawStream<'_>,
) -> Result<Block, ExecError> {
    if let Some(at) = plan.tasks.iter().position(|task| matches!(task, Task::Host { .. })) {
        return Err(ExecError::NotRecordable { node: plan.partition.label(plan.plan.steps[at].node) });
    }
    let mut arguments = plan.take_arguments();
    let moved_bytes = find_moved(plan, run.memory, &mut arguments);
    let recorded = plan.partition.device.blocks.take_for_good(plan.layout.bytes + moved_bytes).and_then(|block| {
        work(plan, run, &block, &mut arguments, flight, stream, false)?;
        Ok(block)
    });
    plan.give_back(arguments);
    recorded
}

/// Finds the inputs and outputs that kernels cannot use in place, assigns each copy a place at the end of the block, and
/// returns the size of all copies in bytes.
fn find_moved(plan: &GpuPlan, memory: RunMemory<'_>, arguments: &mut Arguments) -> usize {
    let device = &plan.partition.device.device;
    let inputs = memory.inputs().iter().zip(&plan.input_bytes).map(|(address, bytes)| (address.addr(), *bytes));
    let outputs =
        memory.outputs().iter().enumerate().map(|(at, address)| (address.addr(), output_bytes(&plan.plan, at)));
    let mut moved_bytes = 0;
    arguments.moved.clear();
    for (at, (address, bytes)) in inputs.chain(outputs).enumerate() {
        let stays = bytes == 0 || address.is_multiple_of(PACK) && is_reached(device, address);
        // A cache that is updated in place has one copy.
        let same = memory
            .inputs()
            .iter()
            .zip(&plan.input_bytes)
            .take(at)
            .position(|(input, &held)| at >= memory.inputs().len() && input.addr() == address && held == bytes);
        let place = match same.and_then(|input| arguments.moved[input]) {
            Some(place) => Some(place),
            None if stays => None,
            None => {
                let place = plan.layout.bytes + moved_bytes;
                moved_bytes += bytes.next_multiple_of(graph::plan::ALIGNMENT);
                Some(place)
            }
        };
        arguments.moved.push(place);
    }
    moved_bytes
}

/// Whether kernels can use an address. With the host driver they run on the host and can access everything.
pub(super) fn is_reached(device: &hip::Device, address: usize) -> bool {
    device.kind() == DriverKind::Host || device.driver().pointer_info(address).kind != PointerKind::Unknown
}

/// Queues everything: copies in, steps, fault words, copies out. With `may_replay`, the steps may be one graph. Returns
/// whether the block's event marks the end already.
fn work(
    plan: &GpuPlan,
    run: &GuaranteedRun<'_>,
    block: &Block,
    arguments: &mut Arguments,
    flight: Option<&Flight>,
    stream: RawStream<'_>,
    may_replay: bool,
) -> Result<bool, ExecError> {
    let shared = &plan.partition.device;
    let device = &shared.device;
    let given =
        run.memory.inputs().iter().map(|address| address.cast_mut()).chain(run.memory.outputs().iter().copied());
    for ((base, address), place) in arguments.bases.0.iter_mut().zip(given).zip(&arguments.moved) {
        let address = place.map_or(address, |place| block.address().wrapping_add(place));
        *base = address.expose_provenance();
    }
    let in_block = block.address().wrapping_add(plan.layout.faults_at);
    if let [.., faults, last] = &mut arguments.bases.0[..] {
        let reached = flight.filter(|flight| flight.is_reached());
        *faults = reached.map_or(in_block, |flight| flight.words().address()).expose_provenance();
        *last = block.address().expose_provenance();
    }
    arguments.set(&plan.template);
    let inputs = run.memory.inputs().len();
    for at in 0..inputs {
        if let Some(place) = arguments.moved[at] {
            let (to, bytes) = (block.address().wrapping_add(place), plan.input_bytes[at]);
            copy_input(run.memory, at, (to, bytes), device, stream)?;
        }
    }
    let replays = may_replay && plan.is_recordable && run.observer.is_none() && {
        let mode = plan.partition.settings.graphs;
        // A replay uses the addresses it was recorded with, which the caller of that run guarantees.
        let record =
            |arguments: &mut Arguments, stream: RawStream<'_>| steps(plan, run, block, arguments, stream, None);
        plan.replays.replay(mode, arguments, shared, stream, block.end(), record)?
    };
    if !replays {
        // The steps of a recording run at its replays and cannot be observed from here.
        let observer = run.observer.as_deref().filter(|_| may_replay);
        steps(plan, run, block, arguments, stream, observer)?;
    }
    let mut is_marked = replays;
    if let Some(flight) = flight.filter(|flight| !flight.is_reached()) {
        flight.words().copy_from(run.memory, in_block, device, stream)?;
        is_marked = false;
    }
    for at in 0..run.memory.outputs().len() {
        if let Some(place) = arguments.moved[inputs + at] {
            let (from, bytes) = (block.address().wrapping_add(place), output_bytes(&plan.plan, at));
            copy_output(run.memory, at, (from, bytes), device, stream)?;
            is_marked = false;
        }
    }
    Ok(is_marked)
}

/// Queues the steps.
fn steps(
    plan: &GpuPlan,
    run: &GuaranteedRun<'_>,
    block: &Block,
    arguments: &mut Arguments,
    stream: RawStream<'_>,
    observer: Option<&dyn Observer>,
) -> Result<(), ExecError> {
    let device = &plan.partition.device.device;
    let layout = &plan.layout;
    // Fault words on the host are zero unless a fault is still to be reported.
    let is_in_block = arguments.bases.0.iter().rev().nth(1) == Some(&(block.address().addr() + layout.faults_at));
    let (at, bytes) = match is_in_block {
        true => (layout.faults_at, layout.fault_bytes + layout.counter_bytes),
        false => (layout.counters_at, layout.counter_bytes),
    };
    if bytes > 0 {
        clear(block.buffer(), at..at + bytes, stream)?;
    }
    let mut watch = observer.map(|observer| Watch::new(observer, device, stream)).transpose()?;
    for at in 0..plan.tasks.len() {
        step(plan, at, run, arguments, stream, watch.is_some())?;
        if let Some(watch) = &mut watch {
            watch.mark(stream)?;
        }
    }
    watch.map_or(Ok(()), |watch| watch.report(plan))
}

/// Queues one step. If it is observed, its launches do not begin early, so that the time between two marks is its own.
fn step(
    plan: &GpuPlan,
    at: usize,
    run: &GuaranteedRun<'_>,
    arguments: &mut Arguments,
    stream: RawStream<'_>,
    is_watched: bool,
) -> Result<(), ExecError> {
    let (step, buffers, device) = (&plan.plan.steps[at], plan.buffers(at), &plan.partition.device.device);
    match &plan.tasks[at] {
        Task::Nothing => Ok(()),
        Task::Kernels { launches, .. } => launch_all(plan, run, step.node, launches, arguments, stream, is_watched),
        Task::Blas { before, product, behind } => {
            launch_all(plan, run, step.node, before, arguments, stream, is_watched)?;
            let bases = &arguments.bases;
            let workspace = address_of(bases.0[buffers.block()] + plan.layout.scratch_at);
            product.execute(run.memory, |buffer| buffers.address(buffer, bases), workspace, stream)?;
            launch_all(plan, run, step.node, behind, arguments, stream, is_watched)
        }
        Task::Dnn(dnn) => {
            let bases = &arguments.bases;
            let workspace = address_of(bases.0[buffers.block()] + plan.layout.scratch_at);
            dnn.execute(run.memory, |buffer| buffers.address(buffer, bases), workspace, stream)
        }
        Task::Host { .. } => {
            let node = || plan.partition.label(step.node);
            let address = |buffer| buffers.address(buffer, &arguments.bases);
            host_step::run(run.memory, step, node, &plan.plan, address, (device, stream), run.parallel)
        }
    }
}

/// Queues launches of a step, one after the other.
fn launch_all(
    plan: &GpuPlan,
    run: &GuaranteedRun<'_>,
    node: u32,
    launches: &[ReadyLaunch],
    arguments: &mut Arguments,
    stream: RawStream<'_>,
    is_watched: bool,
) -> Result<(), ExecError> {
    for ready in launches {
        let (argument, is_early) = (arguments.at(ready.args), ready.is_early && !is_watched);
        launch(run.memory, &ready.function, &ready.launch, argument, is_early, stream).map_err(|source| {
            let (node, kernel) = (plan.partition.label(node), ready.launch.kernel.name);
            ExecError::Launch { node, kernel, source: Box::new(source) }
        })?;
    }
    Ok(())
}

fn address_of(number: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(number)
}

/// Measures steps with the device's clock.
struct Watch<'a> {
    observer: &'a dyn Observer,
    device: &'a hip::Device,
    /// One event before the first step and one after each step.
    marks: Vec<hip::Event>,
    start: Instant,
}

impl<'a> Watch<'a> {
    /// Waits for the stream, so that the first step begins now.
    fn new(observer: &'a dyn Observer, device: &'a hip::Device, stream: RawStream<'_>) -> Result<Self, ExecError> {
        device.stream_synchronize(stream)?;
        let mut watch = Self { observer, device, marks: Vec::new(), start: Instant::now() };
        watch.mark(stream)?;
        Ok(watch)
    }

    fn mark(&mut self, stream: RawStream<'_>) -> Result<(), ExecError> {
        let mark = self.device.timing_event()?;
        mark.record(stream)?;
        self.marks.push(mark);
        Ok(())
    }

    fn report(self, plan: &GpuPlan) -> Result<(), ExecError> {
        let (Some(first), Some(last)) = (self.marks.first(), self.marks.last()) else { return Ok(()) };
        last.synchronize()?;
        let shared = &plan.partition.device;
        let since = |since: &hip::Event, event: &hip::Event| {
            event.elapsed_ms(since).map(duration).unwrap_or_else(|error| {
                shared.warned_of_times.call_once(|| {
                    tracing::warn!(target: "amdgpu_ep::run", "could not time the steps on {}: {error}", shared.name);
                });
                Duration::ZERO
            })
        };
        for (at, (step, pair)) in plan.plan.steps.iter().zip(self.marks.windows(2)).enumerate() {
            let (start, took) = (self.start + since(first, &pair[0]), since(&pair[0], &pair[1]));
            self.observer.step(step, plan.tasks[at].run_by(), start, took);
        }
        Ok(())
    }
}

/// Converts an event's time. A negative or invalid one becomes zero.
fn duration(ms: f32) -> Duration {
    Duration::try_from_secs_f32(ms / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_backwards_gives_zero() {
        assert_eq!([-1.0, f32::NAN, f32::INFINITY, 0.0].map(duration), [Duration::ZERO; 4]);
        assert_eq!(duration(1.5), Duration::from_micros(1500));
    }
}
