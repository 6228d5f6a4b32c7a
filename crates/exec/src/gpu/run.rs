//! Runs a plan on a stream.
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use hip::{CaptureStatus, CopyKind, DriverKind, PointerKind, RawStream};

use super::bind::Arguments;
use super::blocks::Block;
use super::flight::Flight;
use super::frame::output_bytes;
use super::host_step;
use super::plan::GpuPlan;
use super::task::{ReadyLaunch, Task};
use crate::ExecError;
use crate::device::{Observer, Order, Run};

/// Kernels read and write packs of elements of this size. Device memory has a larger alignment.
const PACK: usize = 16;

/// Runs a plan, ordered with other work.
///
/// # Safety
/// As for [`Prepared::run`](crate::Prepared::run).
pub(super) unsafe fn run(plan: &Arc<GpuPlan>, run: &Run<'_>, order: Order<'_>) -> Result<(), ExecError> {
    let shared = &plan.partition.device;
    match order {
        Order::Now => {
            let stream = shared.stream()?;
            // SAFETY: guaranteed by the caller until this call returns; the stream is synchronised before that.
            let queued = unsafe { queue(plan, run, stream.raw()) };
            let waited = stream.synchronize();
            shared.give_back(stream);
            let flight = queued?;
            waited?;
            flight.outcome()
        }
        Order::Stream { device, stream, ledger } => {
            if device.capture_status(stream)? != CaptureStatus::None {
                // SAFETY: guaranteed by the caller for as long as the capture is replayed.
                let block = unsafe { record(plan, run, None, stream) }?;
                plan.captured.lock().unwrap_or_else(PoisonError::into_inner).push(block);
                return Ok(());
            }
            // SAFETY: guaranteed by the caller until the stream has passed this point.
            let flight = unsafe { queue(plan, run, stream) }?;
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
            // SAFETY: guaranteed by the caller until the capture is dropped; the capture owns everything else that is
            // used.
            let block = unsafe { record(plan, run, flight.as_ref(), capture.stream()) }?;
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
///
/// # Safety
/// As for [`run`], until the stream has passed this point.
unsafe fn queue(plan: &Arc<GpuPlan>, run: &Run<'_>, stream: RawStream<'_>) -> Result<Arc<Flight>, ExecError> {
    let blocks = &plan.partition.device.blocks;
    let flight = plan.flight(stream)?;
    let mut arguments = plan.take_arguments();
    let moved_bytes = find_moved(plan, run, &mut arguments);
    let queued = blocks.take(plan.layout.bytes + moved_bytes, stream).and_then(|block| {
        let end = block.end().clone();
        // SAFETY: guaranteed by the caller; the block is returned after the work.
        let done = unsafe { work(plan, run, &block, &mut arguments, Some(&flight), stream, true) };
        let is_marked = *done.as_ref().unwrap_or(&false);
        done.and(blocks.give_back(block, stream, is_marked))?;
        // Only after it is recorded: a thread that waits for the flight's last run must not see this event idle.
        flight.ends(end);
        Ok(())
    });
    plan.give_back(arguments);
    queued.map(|()| flight)
}

/// Queues a run on a stream that is being captured, and returns the block that its replays use.
///
/// # Safety
/// As for [`run`], until the capture is dropped; the block and the flight live as long.
unsafe fn record(
    plan: &Arc<GpuPlan>,
    run: &Run<'_>,
    flight: Option<&Flight>,
    stream: RawStream<'_>,
) -> Result<Block, ExecError> {
    if let Some(at) = plan.tasks.iter().position(|task| matches!(task, Task::Host { .. })) {
        return Err(ExecError::NotRecordable { node: plan.partition.label(plan.plan.steps[at].node) });
    }
    let mut arguments = plan.take_arguments();
    let moved_bytes = find_moved(plan, run, &mut arguments);
    let recorded = plan.partition.device.blocks.take_for_good(plan.layout.bytes + moved_bytes).and_then(|block| {
        // SAFETY: guaranteed by the caller.
        unsafe { work(plan, run, &block, &mut arguments, flight, stream, false) }?;
        Ok(block)
    });
    plan.give_back(arguments);
    recorded
}

/// Finds the inputs and outputs that kernels cannot use in place, assigns each copy a place at the end of the block, and
/// returns the size of all copies in bytes.
fn find_moved(plan: &GpuPlan, run: &Run<'_>, arguments: &mut Arguments) -> usize {
    let device = &plan.partition.device.device;
    let inputs = run.inputs.iter().zip(&plan.input_bytes).map(|(address, bytes)| (address.addr(), *bytes));
    let outputs = run.outputs.iter().enumerate().map(|(at, address)| (address.addr(), output_bytes(&plan.plan, at)));
    let mut moved_bytes = 0;
    arguments.moved.clear();
    for (at, (address, bytes)) in inputs.chain(outputs).enumerate() {
        let stays = bytes == 0 || address.is_multiple_of(PACK) && is_reached(device, address);
        // A cache that is updated in place has one copy.
        let same = run
            .inputs
            .iter()
            .zip(&plan.input_bytes)
            .take(at)
            .position(|(input, &held)| at >= run.inputs.len() && input.addr() == address && held == bytes);
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
///
/// # Safety
/// As for [`run`]; the block and the flight must live until the stream has passed this point or the capture is dropped.
unsafe fn work(
    plan: &GpuPlan,
    run: &Run<'_>,
    block: &Block,
    arguments: &mut Arguments,
    flight: Option<&Flight>,
    stream: RawStream<'_>,
    may_replay: bool,
) -> Result<bool, ExecError> {
    let shared = &plan.partition.device;
    let device = &shared.device;
    let given = run.inputs.iter().map(|address| address.cast_mut()).chain(run.outputs.iter().copied());
    for ((base, address), place) in arguments.bases.0.iter_mut().zip(given).zip(&arguments.moved) {
        let address = place.map_or(address, |place| block.address().wrapping_add(place));
        *base = address.expose_provenance();
    }
    let in_block = block.address().wrapping_add(plan.layout.faults_at);
    if let [.., faults, last] = &mut arguments.bases.0[..] {
        let reached = flight.filter(|flight| flight.is_reached());
        *faults = reached.map_or(in_block, Flight::address).expose_provenance();
        *last = block.address().expose_provenance();
    }
    arguments.set(&plan.template);
    let inputs = run.inputs.len();
    for at in 0..inputs {
        if let Some(place) = arguments.moved[at] {
            let (to, bytes) = (block.address().wrapping_add(place), plan.input_bytes[at]);
            // SAFETY: the caller guarantees the input; the copy has its place in the block.
            unsafe { device.copy_raw_async(to, run.inputs[at], bytes, CopyKind::Default, stream)? };
        }
    }
    let replays = may_replay && plan.is_recordable && run.observer.is_none() && {
        let mode = plan.partition.settings.graphs;
        // SAFETY: guaranteed by the caller. A replay uses the addresses it was recorded with, which the caller of that
        // run guarantees.
        let record = |arguments: &mut Arguments, stream: RawStream<'_>| unsafe {
            steps(plan, run, block, arguments, stream, None)
        };
        plan.replays.replay(mode, arguments, shared, stream, block.end(), record)?
    };
    if !replays {
        // The steps of a recording run at its replays and cannot be observed from here.
        let observer = run.observer.as_deref().filter(|_| may_replay);
        // SAFETY: guaranteed by the caller.
        unsafe { steps(plan, run, block, arguments, stream, observer)? };
    }
    let mut is_marked = replays;
    if let Some(flight) = flight.filter(|flight| !flight.is_reached()) {
        let kind = CopyKind::DeviceToHost;
        // SAFETY: the flight is large enough for all words and lives as the caller guarantees.
        unsafe { device.copy_raw_async(flight.address(), in_block, plan.layout.fault_bytes, kind, stream)? };
        is_marked = false;
    }
    for at in 0..run.outputs.len() {
        if let Some(place) = arguments.moved[inputs + at] {
            let (from, bytes) = (block.address().wrapping_add(place), output_bytes(&plan.plan, at));
            // SAFETY: the caller guarantees the output; the copy has its place in the block.
            unsafe { device.copy_raw_async(run.outputs[at], from, bytes, CopyKind::Default, stream)? };
            is_marked = false;
        }
    }
    Ok(is_marked)
}

/// Queues the steps.
///
/// # Safety
/// As for [`work`].
unsafe fn steps(
    plan: &GpuPlan,
    run: &Run<'_>,
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
        // SAFETY: the words are inside the block.
        unsafe { device.fill_raw_async(block.address().wrapping_add(at), 0, bytes, stream)? };
    }
    let mut watch = observer.map(|observer| Watch::new(observer, device, stream)).transpose()?;
    for at in 0..plan.tasks.len() {
        // SAFETY: guaranteed by the caller.
        unsafe { step(plan, at, run, arguments, stream, watch.is_some())? };
        if let Some(watch) = &mut watch {
            watch.mark(stream)?;
        }
    }
    watch.map_or(Ok(()), |watch| watch.report(plan))
}

/// Queues one step. If it is observed, its launches do not begin early, so that the time between two marks is its own.
///
/// # Safety
/// As for [`work`].
unsafe fn step(
    plan: &GpuPlan,
    at: usize,
    run: &Run<'_>,
    arguments: &mut Arguments,
    stream: RawStream<'_>,
    is_watched: bool,
) -> Result<(), ExecError> {
    let (step, buffers, device) = (&plan.plan.steps[at], plan.buffers(at), &plan.partition.device.device);
    match &plan.tasks[at] {
        Task::Nothing => Ok(()),
        // SAFETY: guaranteed by the caller.
        Task::Kernels { launches, .. } => unsafe { launch(plan, step.node, launches, arguments, stream, is_watched) },
        Task::Blas { before, product, behind } => {
            // SAFETY: guaranteed by the caller.
            unsafe { launch(plan, step.node, before, arguments, stream, is_watched) }?;
            let bases = &arguments.bases;
            let workspace = address_of(bases.0[buffers.block()] + plan.layout.scratch_at);
            // SAFETY: as above; the workspace is the plan's scratch memory, which is large enough for every step.
            unsafe { product.execute(|buffer| buffers.address(buffer, bases), workspace, stream) }?;
            // SAFETY: as above.
            unsafe { launch(plan, step.node, behind, arguments, stream, is_watched) }
        }
        Task::Dnn(dnn) => {
            let bases = &arguments.bases;
            let workspace = address_of(bases.0[buffers.block()] + plan.layout.scratch_at);
            // SAFETY: as above; the workspace is the plan's scratch memory, which is large enough for every step.
            unsafe { dnn.execute(|buffer| buffers.address(buffer, bases), workspace, stream) }
        }
        Task::Host { .. } => {
            let node = || plan.partition.label(step.node);
            let address = |buffer| buffers.address(buffer, &arguments.bases);
            // SAFETY: the planner keeps live buffers disjoint; the caller guarantees inputs and outputs.
            unsafe { host_step::run(step, node, &plan.plan, address, device, stream, run.parallel) }
        }
    }
}

/// Queues launches of a step, one after the other.
///
/// # Safety
/// As for [`work`].
unsafe fn launch(
    plan: &GpuPlan,
    node: u32,
    launches: &[ReadyLaunch],
    arguments: &mut Arguments,
    stream: RawStream<'_>,
    is_watched: bool,
) -> Result<(), ExecError> {
    for ReadyLaunch { function, launch, args, is_early } in launches {
        let (grid, block, lds, mut argument) =
            (launch.grid, [launch.threads, 1, 1], launch.lds_bytes, [arguments.at(*args)]);
        let launched = if *is_early && !is_watched {
            // SAFETY: as below. The work queued before is a launch of ours, and this kernel waits for its end.
            unsafe { function.launch_early(grid, block, lds, stream, &mut argument) }
        } else {
            // SAFETY: the argument is the kernel's structure, with addresses of memory that the planner keeps disjoint
            // and the caller guarantees; the code lives as long as the device does.
            unsafe { function.launch(grid, block, lds, stream, &mut argument) }
        };
        launched.map_err(|source| ExecError::Launch {
            node: plan.partition.label(node),
            kernel: launch.kernel.name,
            source: Box::new(source),
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
    /// One before the first step and one after each.
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
    fn a_clock_that_goes_backwards_says_nothing() {
        assert_eq!([-1.0, f32::NAN, f32::INFINITY, 0.0].map(duration), [Duration::ZERO; 4]);
        assert_eq!(duration(1.5), Duration::from_micros(1500));
    }
}
