//! The operations of a stream and how they run.

use std::ffi::{c_int, c_void};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::code::Launch;
use crate::errors::Status;
use crate::graph::Graph;
use crate::handles::as_pointer;
use crate::memory::{Block, Memory};
use crate::random::Random;
use crate::thread;

/// `hipHostFn_t`.
pub type HostFn = unsafe extern "C" fn(*mut c_void);
/// `hipStreamCallback_t`.
pub type StreamCallback = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void);

/// `hipMemcpyKind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// Derived from the pointers.
    Default,
}

impl TryFrom<c_int> for Direction {
    type Error = Status;

    fn try_from(kind: c_int) -> Result<Self, Status> {
        Ok(match kind {
            0 => Direction::HostToHost,
            1 => Direction::HostToDevice,
            2 => Direction::DeviceToHost,
            3 | 1024 => Direction::DeviceToDevice,
            4 => Direction::Default,
            _ => return Err(Status::InvalidMemcpyDirection),
        })
    }
}

/// `rows` rows of `width` bytes to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopyRows {
    pub(crate) dst: usize,
    pub(crate) dst_pitch: usize,
    pub(crate) src: usize,
    pub(crate) src_pitch: usize,
    pub(crate) width: usize,
    pub(crate) rows: usize,
    pub(crate) direction: Direction,
}

/// `count` elements of `element` bytes (1, 2 or 4), all set to the low bytes of `value`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fill {
    pub(crate) dst: usize,
    pub(crate) value: u32,
    pub(crate) element: usize,
    pub(crate) count: usize,
}

/// Work that can be captured and replayed: it refers to memory by address and is checked before every run.
#[derive(Clone)]
pub(crate) enum Step {
    Copy(CopyRows),
    Fill(Fill),
    Host { function: HostFn, data: usize },
    Graph(Arc<Graph>),
    Kernel(Arc<Launch>),
}

/// The allocations a step uses, kept alive until it has run.
pub(crate) type Pins = Vec<Arc<Block>>;

impl Step {
    /// Checks every access against the live allocations and keeps these alive.
    pub(crate) fn pin(&self, memory: &Memory, pins: &mut Pins) -> Result<(), Status> {
        match self {
            Step::Copy(copy) => {
                let (from_device, to_device) = match copy.direction {
                    Direction::HostToHost | Direction::Default => (false, false),
                    Direction::HostToDevice => (false, true),
                    Direction::DeviceToHost => (true, false),
                    Direction::DeviceToDevice => (true, true),
                };
                pin_range(memory, copy.dst, extent(copy.dst_pitch, copy.width, copy.rows)?, to_device, pins)?;
                pin_range(memory, copy.src, extent(copy.src_pitch, copy.width, copy.rows)?, from_device, pins)
            }
            Step::Fill(fill) => {
                let bytes = fill.count.checked_mul(fill.element).ok_or(Status::InvalidValue)?;
                if !fill.dst.is_multiple_of(fill.element) {
                    return Err(Status::InvalidValue);
                }
                pin_range(memory, fill.dst, bytes, true, pins)
            }
            // Only their callers know which memory kernels and functions access.
            Step::Host { .. } | Step::Kernel(_) => Ok(()),
            Step::Graph(graph) => graph.pin(memory, pins),
        }
    }

    /// Runs the step; with `random`, graphs run in a random order that respects their edges.
    ///
    /// # Safety
    /// [`Step::pin`] accepted the step, and its pins are alive. Memory the library does not know (the caller's own host
    /// memory, and what a host function accesses) must be valid, as the HIP functions require.
    pub(crate) unsafe fn run(&self, random: Option<&mut Random>) {
        match self {
            // SAFETY: `pin` checked the known side; the caller of the HIP function is responsible for the rest.
            Step::Copy(copy) => unsafe { move_rows(copy) },
            // SAFETY: `pin` checked the whole range and its alignment.
            Step::Fill(fill) => unsafe { fill_elements(fill) },
            Step::Host { function, data } => {
                // SAFETY: function and data came together from one `hipLaunchHostFunc` call, whose caller keeps them
                // valid.
                thread::as_host_function(|| unsafe { function(with_exposed_provenance_mut(*data)) });
            }
            // SAFETY: the caller of `hipModuleLaunchKernel` is responsible for what the kernel accesses.
            Step::Kernel(launch) => unsafe { launch.run() },
            Step::Graph(graph) => graph.each_in_order(random, &mut |step, random| {
                // SAFETY: pinning a graph pins all of its steps.
                unsafe { step.run(random) };
            }),
        }
    }
}

/// One entry of a stream's queue.
pub(crate) enum Task {
    /// Only a position in the stream.
    Marker,
    /// A step with the memory it uses.
    Step(Step, Pins),
    /// An event is reached.
    Reached(Arc<OnceLock<Instant>>),
    /// `hipStreamAddCallback`.
    Callback { stream: usize, function: StreamCallback, data: usize },
    /// `hipFreeAsync`: earlier work of the stream may still use it.
    Release(Arc<Block>),
}

impl Task {
    pub(crate) fn run(self, random: Option<&mut Random>) {
        match self {
            Task::Marker => {}
            // SAFETY: a `Task::Step` is only built from a step and the pins it was checked with.
            Task::Step(step, _pins) => unsafe { step.run(random) },
            Task::Reached(time) => {
                // Only this task sets it.
                let _ = time.set(Instant::now());
            }
            Task::Callback { stream, function, data } => {
                // SAFETY: the three came together from one `hipStreamAddCallback` call, whose caller keeps them valid.
                thread::as_host_function(|| unsafe {
                    function(as_pointer(stream), 0, with_exposed_provenance_mut(data));
                });
            }
            Task::Release(block) => drop(block),
        }
    }
}

/// Bytes from the first to the last one accessed.
fn extent(pitch: usize, width: usize, rows: usize) -> Result<usize, Status> {
    let skipped = pitch.checked_mul(rows.saturating_sub(1)).ok_or(Status::InvalidValue)?;
    skipped.checked_add(width).ok_or(Status::InvalidValue)
}

fn pin_range(
    memory: &Memory,
    address: usize,
    bytes: usize,
    must_be_known: bool,
    pins: &mut Pins,
) -> Result<(), Status> {
    match memory.find(address) {
        Some(block) if block.holds(address, bytes) => pins.push(block),
        None if !must_be_known && address != 0 && address.checked_add(bytes).is_some() => {}
        _ => return Err(Status::InvalidValue),
    }
    Ok(())
}

/// # Safety
/// Source and destination are valid for all rows.
unsafe fn move_rows(copy: &CopyRows) {
    for row in 0..copy.rows {
        let src = with_exposed_provenance::<u8>(copy.src + row * copy.src_pitch);
        let dst = with_exposed_provenance_mut::<u8>(copy.dst + row * copy.dst_pitch);
        // SAFETY: guaranteed by the caller; `copy` allows the two to overlap.
        unsafe { std::ptr::copy(src, dst, copy.width) };
    }
}

/// # Safety
/// The destination is valid for `count * element` bytes and aligned to `element`.
unsafe fn fill_elements(fill: &Fill) {
    /// # Safety
    /// `dst` is aligned and valid for `count` elements.
    unsafe fn fill_with<T: Copy>(dst: *mut T, value: T, count: usize) {
        for at in 0..count {
            // SAFETY: guaranteed by the caller. Written one by one: the memory may not be initialised, so it is not a
            // slice.
            unsafe { dst.add(at).write(value) };
        }
    }
    let dst = with_exposed_provenance_mut::<u8>(fill.dst);
    // SAFETY: guaranteed by the caller.
    unsafe {
        match fill.element {
            1 => dst.write_bytes(fill.value as u8, fill.count),
            2 => fill_with(dst.cast(), fill.value as u16, fill.count),
            _ => fill_with(dst.cast(), fill.value, fill.count),
        }
    }
}
