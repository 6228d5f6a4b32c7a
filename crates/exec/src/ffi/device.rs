//! Copies, fills, launches and library calls on a stream.
//!
//! Addresses that are not inputs or outputs lie in the run's block. It is returned in stream order, or kept with the
//! capture, so it is valid for as long as the inputs and outputs are.
use std::ffi::c_void;
use std::ops::Range;

use hip::{CopyKind, DeviceBuffer, HipError, MatmulAddresses, RawStream};
use kernels::Launch;

use super::run::RunMemory;

/// Copies an input to its place in the run's block.
///
/// # Errors
/// The driver's status.
pub fn copy_input(
    memory: RunMemory<'_>,
    at: usize,
    (to, bytes): (*mut u8, usize),
    device: &hip::Device,
    stream: RawStream<'_>,
) -> Result<(), HipError> {
    // SAFETY: the caller of the run guarantees the input; the plan has a place for the copy in its block.
    unsafe { device.copy_raw_async(to, memory.inputs()[at], bytes, CopyKind::Default, stream) }
}

/// Copies an output from its place in the run's block.
///
/// # Errors
/// The driver's status.
pub fn copy_output(
    memory: RunMemory<'_>,
    at: usize,
    (from, bytes): (*const u8, usize),
    device: &hip::Device,
    stream: RawStream<'_>,
) -> Result<(), HipError> {
    // SAFETY: as for `copy_input`.
    unsafe { device.copy_raw_async(memory.outputs()[at], from, bytes, CopyKind::Default, stream) }
}

/// Sets a part of a buffer to zero. Freeing the buffer waits for this.
///
/// # Errors
/// The part is not inside the buffer, or the driver's status.
pub fn clear(buffer: &DeviceBuffer, part: Range<usize>, stream: RawStream<'_>) -> Result<(), HipError> {
    let (offset, bytes, capacity) = (part.start, part.len(), buffer.bytes());
    if part.end > capacity {
        return Err(HipError::OutOfBounds { offset, bytes, capacity });
    }
    let start = buffer.address().as_ptr().wrapping_add(offset);
    // SAFETY: the part is inside the buffer, and freeing device memory waits for the work that uses it.
    unsafe { buffer.device().fill_raw_async(start, 0, bytes, stream) }
}

/// Launches a kernel of ours. With `is_early` its blocks may start before the previous launch of ours has ended.
///
/// # Errors
/// The driver's status.
pub fn launch(
    _: RunMemory<'_>,
    function: &hip::Function,
    launch: &Launch,
    argument: *mut c_void,
    is_early: bool,
    stream: RawStream<'_>,
) -> Result<(), HipError> {
    let (grid, block, lds, mut argument) = (launch.grid, [launch.threads, 1, 1], launch.lds_bytes, [argument]);
    if is_early {
        // SAFETY: as below. `early::mark` chose launches that follow another launch of ours, and all our kernels wait
        // for its end.
        unsafe { function.launch_early(grid, block, lds, stream, &mut argument) }
    } else {
        // SAFETY: the argument is the kernel's structure. Its addresses are inputs and outputs, which the caller of the
        // run guarantees, and parts of the block and constants, which the planner keeps disjoint. The code lives as
        // long as the device does.
        unsafe { function.launch(grid, block, lds, stream, &mut argument) }
    }
}

/// Enqueues a matrix product.
///
/// # Errors
/// The library's status.
pub fn matmul(
    _: RunMemory<'_>,
    matmul: &hip::Matmul,
    algorithm: &hip::Algorithm,
    addresses: MatmulAddresses,
    stream: RawStream<'_>,
) -> Result<(), HipError> {
    // SAFETY: the caller of the run guarantees inputs and outputs, everything else is in the run's block; the
    // description matches the step's views, and the algorithm belongs to it.
    unsafe { matmul.run_with(algorithm, addresses, stream) }
}

/// Enqueues a hipDNN plan. The workspace has as many bytes as the plan needs.
///
/// # Errors
/// The library's status.
pub fn execute_dnn(
    _: RunMemory<'_>,
    (plan, handle): (&hipdnn::Plan, &hipdnn::Handle),
    tensors: impl IntoIterator<Item = (i64, *mut c_void)>,
    workspace: *mut u8,
    stream: RawStream<'_>,
) -> Result<(), hipdnn::Error> {
    // SAFETY: the stream is valid during this call, and another one is set before it ends.
    unsafe { handle.set_stream(stream) }?;
    // SAFETY: the caller of the run guarantees inputs and outputs, and everything else belongs to the run; the plan was
    // built for views with the same signature.
    let done = unsafe { plan.execute(handle, tensors, workspace.cast()) };
    // SAFETY: the default stream is always valid.
    let reset = unsafe { handle.set_stream(RawStream::DEFAULT) };
    done.and(reset)
}
