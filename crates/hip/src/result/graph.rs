//! Captures: recording a stream into a graph and launching it.

use std::ffi::c_int;
use std::ptr;

use super::Runtime;
use crate::HipError;
use crate::sys::{Handle, codes, twin};

/// Starts recording a stream.
///
/// # Errors
/// The driver's status, or an error if it does not support captures.
///
/// # Safety
/// `stream` is live.
pub unsafe fn begin_capture(runtime: &Runtime, stream: Handle, mode: c_int) -> Result<(), HipError> {
    let function = runtime.need(runtime.table.stream_begin_capture, "hipStreamBeginCapture")?;
    // SAFETY: the caller vouches for the handle.
    runtime.check("hipStreamBeginCapture", unsafe { function(stream, mode) })
}

/// Ends recording and returns the graph.
///
/// # Errors
/// The driver's status; 900 to 908 for work that cannot be captured.
///
/// # Safety
/// `stream` is live.
pub unsafe fn end_capture(runtime: &Runtime, stream: Handle) -> Result<Handle, HipError> {
    let function = runtime.need(runtime.table.stream_end_capture, "hipStreamEndCapture")?;
    let mut graph = ptr::null_mut();
    // SAFETY: `graph` is a valid out-pointer; the caller vouches for the stream.
    runtime.check("hipStreamEndCapture", unsafe { function(stream, &mut graph) })?;
    Ok(graph)
}

/// 0: not capturing, 1: capturing, 2: capturing but already invalid.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `stream` is live.
pub unsafe fn capture_status(runtime: &Runtime, stream: Handle) -> Result<c_int, HipError> {
    let Some(function) = runtime.table.stream_is_capturing else { return Ok(0) };
    let mut status = 0;
    // SAFETY: `status` is a valid out-pointer; the caller vouches for the stream.
    match runtime.check("hipStreamIsCapturing", unsafe { function(stream, &mut status) }) {
        // A driver without captures is never capturing.
        Err(error) if error.code() == Some(codes::NOT_SUPPORTED) => Ok(0),
        other => other.map(|()| status),
    }
}

/// Makes a graph ready to launch.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `graph` is live.
pub unsafe fn instantiate(runtime: &Runtime, graph: Handle) -> Result<Handle, HipError> {
    let function = runtime.need(runtime.table.graph_instantiate_with_flags, "hipGraphInstantiateWithFlags")?;
    let mut exec = ptr::null_mut();
    // SAFETY: `exec` is a valid out-pointer; the caller vouches for the graph.
    runtime.check("hipGraphInstantiateWithFlags", unsafe { function(&mut exec, graph, 0) })?;
    Ok(exec)
}

/// Launches an instantiated graph in stream order.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// Both handles are live; all memory that the captured work accesses is still valid.
pub unsafe fn launch(runtime: &Runtime, exec: Handle, stream: Handle) -> Result<(), HipError> {
    let function = runtime.need(runtime.table.graph_launch, "hipGraphLaunch")?;
    // SAFETY: the caller vouches for the handles.
    runtime.check("hipGraphLaunch", unsafe { function(exec, stream) })
}

/// Updates the parameters of an instantiated graph; returns 0 on success, otherwise HIP's number for the reason.
///
/// # Errors
/// The driver's status, unless it reports that the graph cannot be updated.
///
/// # Safety
/// Both handles are live.
pub unsafe fn update(runtime: &Runtime, exec: Handle, graph: Handle) -> Result<c_int, HipError> {
    // SAFETY: the caller vouches for the handles.
    let answer = unsafe { twin::graph_exec_update(&runtime.table, exec, graph) };
    let (status, result) = runtime.need(answer, "hipGraphExecUpdate")?;
    match runtime.check("hipGraphExecUpdate", status) {
        Ok(()) => Ok(result),
        Err(error) if error.code() == Some(codes::GRAPH_EXEC_UPDATE_FAILURE) => Ok(result.max(1)),
        Err(error) => Err(error),
    }
}

/// The number of nodes of a graph.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `graph` is live.
pub unsafe fn node_count(runtime: &Runtime, graph: Handle) -> Result<usize, HipError> {
    let function = runtime.need(runtime.table.graph_get_nodes, "hipGraphGetNodes")?;
    let mut count = 0;
    // SAFETY: a null array asks for the count only; the caller vouches for the graph.
    runtime.check("hipGraphGetNodes", unsafe { function(graph, ptr::null_mut(), &mut count) })?;
    Ok(count)
}

/// Destroys an instantiated graph.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `exec` is live and not used afterwards.
pub unsafe fn exec_destroy(runtime: &Runtime, exec: Handle) -> Result<(), HipError> {
    let function = runtime.need(runtime.table.graph_exec_destroy, "hipGraphExecDestroy")?;
    // SAFETY: the caller vouches for the handle.
    runtime.check("hipGraphExecDestroy", unsafe { function(exec) })
}

/// Destroys a graph.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `graph` is live and not used afterwards.
pub unsafe fn destroy(runtime: &Runtime, graph: Handle) -> Result<(), HipError> {
    let function = runtime.need(runtime.table.graph_destroy, "hipGraphDestroy")?;
    // SAFETY: the caller vouches for the handle.
    runtime.check("hipGraphDestroy", unsafe { function(graph) })
}
