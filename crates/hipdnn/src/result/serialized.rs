//! Graphs and plans as bytes.

use std::ffi::c_int;
use std::ptr;

use super::descriptor::RawDescriptor;
use super::{check, require, until_nul};
use crate::Result;
use crate::sys::{Backend, Descriptor, DescriptorType, Handle, Status};

/// What serialised bytes contain, as the flags of [`sys`](crate::sys).
///
/// # Errors
/// The backend cannot tell.
pub fn contents(backend: &dyn Backend, bytes: &[u8]) -> Result<c_int> {
    require(backend, "hipdnnBackendGetSerializedBinaryContents_ext")?;
    let mut flags = 0;
    // SAFETY: the pointer and the count come from one slice, and the out-pointer is valid.
    let status = unsafe { backend.serialized_contents(bytes.as_ptr(), bytes.len(), &mut flags) };
    check(backend, || "inspecting serialised contents".into(), status)?;
    Ok(flags)
}

/// A graph as bytes.
///
/// # Errors
/// The backend does not support it.
///
/// # Safety
/// The graph is alive and of this backend.
pub unsafe fn graph(backend: &dyn Backend, graph: Descriptor) -> Result<Vec<u8>> {
    require(backend, "hipdnnBackendGetSerializedBinaryGraph_ext")?;
    // SAFETY: `two_calls` provides a buffer of the given size; the caller vouches for the graph.
    let ask = |room, size, to| unsafe { backend.serialized_graph(graph, room, size, to) };
    two_calls(backend, "serialising a graph", ask)
}

/// A graph as JSON.
///
/// # Errors
/// The backend does not support it.
///
/// # Safety
/// The graph is alive and of this backend.
pub unsafe fn json_graph(backend: &dyn Backend, graph: Descriptor) -> Result<String> {
    require(backend, "hipdnnBackendGetSerializedJsonGraph_ext")?;
    // SAFETY: `two_calls` provides a buffer of the given size; the caller vouches for the graph.
    let ask = |room, size, to: *mut u8| unsafe { backend.serialized_json_graph(graph, room, size, to.cast()) };
    Ok(until_nul(&two_calls(backend, "writing a graph as JSON", ask)?))
}

/// A plan as bytes.
///
/// # Errors
/// The backend or the engine does not support it.
///
/// # Safety
/// The plan is alive and of this backend.
pub unsafe fn plan(backend: &dyn Backend, plan: Descriptor) -> Result<Vec<u8>> {
    require(backend, "hipdnnBackendGetSerializedExecutionPlan_ext")?;
    // SAFETY: `two_calls` provides a buffer of the given size; the caller vouches for the plan.
    let ask = |room, size, to| unsafe { backend.serialized_plan(plan, room, size, to) };
    two_calls(backend, "serialising a plan", ask)
}

/// A graph and one of its plans as bytes.
///
/// # Errors
/// The backend or the engine does not support it.
///
/// # Safety
/// Graph and plan are alive and of this backend.
pub unsafe fn graph_and_plan(backend: &dyn Backend, graph: Descriptor, plan: Descriptor) -> Result<Vec<u8>> {
    require(backend, "hipdnnBackendGetSerializedBinaryGraphAndPlan_ext")?;
    // SAFETY: `two_calls` provides a buffer of the given size; the caller vouches for graph and plan.
    let ask = |room, size, to| unsafe { backend.serialized_graph_and_plan(graph, plan, room, size, to) };
    two_calls(backend, "serialising a graph and its plan", ask)
}

/// Asks for the size, then for the bytes.
fn two_calls(
    backend: &dyn Backend,
    attempted: &str,
    ask: impl Fn(usize, *mut usize, *mut u8) -> Status,
) -> Result<Vec<u8>> {
    let mut size = 0;
    check(backend, || attempted.into(), ask(0, &mut size, ptr::null_mut()))?;
    let mut bytes = vec![0u8; size];
    check(backend, || attempted.into(), ask(bytes.len(), &mut size, bytes.as_mut_ptr()))?;
    bytes.truncate(size);
    Ok(bytes)
}

/// Reads a graph from bytes. The caller destroys it.
///
/// # Errors
/// The bytes are not a graph, or not one that the backend can read.
pub fn read_graph(backend: &dyn Backend, bytes: &[u8]) -> Result<RawDescriptor> {
    require(backend, "hipdnnBackendCreateAndDeserializeGraph_ext")?;
    let mut pointer = ptr::null_mut();
    // SAFETY: the pointer and the count come from one slice, and the out-pointer is valid.
    let status = unsafe { backend.deserialize_graph(&mut pointer, bytes.as_ptr(), bytes.len()) };
    check(backend, || "reading a serialised graph".into(), status)?;
    Ok(RawDescriptor { pointer, kind: DescriptorType::OPERATIONGRAPH_DESCRIPTOR })
}

/// Reads a graph from JSON. The caller destroys it.
///
/// # Errors
/// The text is not a graph, or not one that the backend can read.
pub fn read_json_graph(backend: &dyn Backend, text: &str) -> Result<RawDescriptor> {
    require(backend, "hipdnnBackendCreateAndDeserializeJsonGraph_ext")?;
    let mut pointer = ptr::null_mut();
    // SAFETY: the pointer and the count come from one slice, and the out-pointer is valid.
    let status = unsafe { backend.deserialize_json_graph(&mut pointer, text.as_ptr().cast(), text.len()) };
    check(backend, || "reading a graph from JSON".into(), status)?;
    Ok(RawDescriptor { pointer, kind: DescriptorType::OPERATIONGRAPH_DESCRIPTOR })
}

/// Reads a plan from its own bytes, or from those of a graph and its plan. The caller destroys it.
///
/// # Errors
/// The bytes are not a plan, or not one that the backend can read.
///
/// # Safety
/// The handle is alive and of this backend.
pub unsafe fn read_plan(backend: &dyn Backend, handle: Handle, bytes: &[u8]) -> Result<RawDescriptor> {
    require(backend, "hipdnnBackendCreateAndDeserializeExecutionPlan_ext")?;
    let mut pointer = ptr::null_mut();
    // SAFETY: the pointer and the count come from one slice, and the out-pointer is valid; the caller vouches for the
    // handle.
    let status = unsafe { backend.deserialize_plan(handle, &mut pointer, bytes.as_ptr(), bytes.len()) };
    check(backend, || "reading a serialised plan".into(), status)?;
    Ok(RawDescriptor { pointer, kind: DescriptorType::EXECUTION_PLAN_DESCRIPTOR })
}
