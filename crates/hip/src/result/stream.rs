//! Streams and events.

use std::ffi::c_void;
use std::ptr;

use super::Runtime;
use crate::HipError;
use crate::sys::{Handle, HostFn, StreamCallback};

/// Creates a stream on the current device.
///
/// # Errors
/// The driver's status.
pub fn create(runtime: &Runtime, flags: u32) -> Result<Handle, HipError> {
    let mut stream = ptr::null_mut();
    // SAFETY: `stream` is a valid out-pointer for the length of the call.
    let status = unsafe { (runtime.table.stream_create_with_flags)(&mut stream, flags) };
    runtime.check("hipStreamCreateWithFlags", status)?;
    Ok(stream)
}

/// Destroys a stream once its work is done.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `stream` came from [`create`] and is not used afterwards.
pub unsafe fn destroy(runtime: &Runtime, stream: Handle) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the handle.
    runtime.check("hipStreamDestroy", unsafe { (runtime.table.stream_destroy)(stream) })
}

/// Waits for all work on a stream.
///
/// # Errors
/// The driver's status, which may be that of earlier work.
///
/// # Safety
/// `stream` is live.
pub unsafe fn synchronize(runtime: &Runtime, stream: Handle) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the handle.
    runtime.check("hipStreamSynchronize", unsafe { (runtime.table.stream_synchronize)(stream) })
}

/// Whether all work on a stream is done.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `stream` is live.
pub unsafe fn query(runtime: &Runtime, stream: Handle) -> Result<bool, HipError> {
    // SAFETY: the caller vouches for the handle.
    runtime.check_ready("hipStreamQuery", unsafe { (runtime.table.stream_query)(stream) })
}

/// Makes later work on a stream wait for an event.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// Both handles are live.
pub unsafe fn wait_event(runtime: &Runtime, stream: Handle, event: Handle) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the handles; the flags must be 0.
    runtime.check("hipStreamWaitEvent", unsafe { (runtime.table.stream_wait_event)(stream, event, 0) })
}

/// Calls a function in stream order.
///
/// # Errors
/// The driver's status, or an error if it has no such function.
///
/// # Safety
/// `function` may be called with `data` on any thread until the stream has passed this point, and once per launch of
/// a graph it was captured into; `stream` is live.
pub unsafe fn launch_host_fn(
    runtime: &Runtime,
    stream: Handle,
    function: HostFn,
    data: *mut c_void,
) -> Result<(), HipError> {
    let launch = runtime.need(runtime.table.launch_host_func, "hipLaunchHostFunc")?;
    // SAFETY: the caller vouches for the function, its data and the stream.
    runtime.check("hipLaunchHostFunc", unsafe { launch(stream, function, data) })
}

/// The older form of [`launch_host_fn`], which cannot be captured.
///
/// # Errors
/// The driver's status, or an error if it has no such function.
///
/// # Safety
/// As [`launch_host_fn`].
pub unsafe fn add_callback(
    runtime: &Runtime,
    stream: Handle,
    callback: StreamCallback,
    data: *mut c_void,
) -> Result<(), HipError> {
    let add = runtime.need(runtime.table.stream_add_callback, "hipStreamAddCallback")?;
    // SAFETY: the caller vouches for the callback, its data and the stream; the flags must be 0.
    runtime.check("hipStreamAddCallback", unsafe { add(stream, callback, data, 0) })
}

/// Creates an event on the current device.
///
/// # Errors
/// The driver's status.
pub fn event_create(runtime: &Runtime, flags: u32) -> Result<Handle, HipError> {
    let mut event = ptr::null_mut();
    // SAFETY: `event` is a valid out-pointer for the length of the call.
    let status = unsafe { (runtime.table.event_create_with_flags)(&mut event, flags) };
    runtime.check("hipEventCreateWithFlags", status)?;
    Ok(event)
}

/// Destroys an event.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `event` came from [`event_create`] and is not used afterwards.
pub unsafe fn event_destroy(runtime: &Runtime, event: Handle) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the handle.
    runtime.check("hipEventDestroy", unsafe { (runtime.table.event_destroy)(event) })
}

/// Records an event at the current end of the stream.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// Both handles are live and belong to the same device.
pub unsafe fn event_record(runtime: &Runtime, event: Handle, stream: Handle) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the handles.
    runtime.check("hipEventRecord", unsafe { (runtime.table.event_record)(event, stream) })
}

/// Waits for an event.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `event` is live.
pub unsafe fn event_synchronize(runtime: &Runtime, event: Handle) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the handle.
    runtime.check("hipEventSynchronize", unsafe { (runtime.table.event_synchronize)(event) })
}

/// Whether an event has been reached.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `event` is live.
pub unsafe fn event_query(runtime: &Runtime, event: Handle) -> Result<bool, HipError> {
    // SAFETY: the caller vouches for the handle.
    runtime.check_ready("hipEventQuery", unsafe { (runtime.table.event_query)(event) })
}

/// Milliseconds from one event to another.
///
/// # Errors
/// The driver's status: 600 if an event has not been reached, 400 if an event has no time stamp.
///
/// # Safety
/// Both handles are live.
pub unsafe fn event_elapsed(runtime: &Runtime, start: Handle, end: Handle) -> Result<f32, HipError> {
    let mut milliseconds = 0.0;
    // SAFETY: `milliseconds` is a valid out-pointer; the caller vouches for the handles.
    let status = unsafe { (runtime.table.event_elapsed_time)(&mut milliseconds, start, end) };
    runtime.check("hipEventElapsedTime", status)?;
    Ok(milliseconds)
}
