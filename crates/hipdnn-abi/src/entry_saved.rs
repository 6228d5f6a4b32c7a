//! Implementations of the exported functions that serialise graphs and plans; see [`entry`](crate::entry) for their
//! contract.
#![allow(clippy::missing_safety_doc, reason = "one contract for all, in the entry module's documentation")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use hipdnn::sys::Status;

use crate::descriptor::Descriptor;
use crate::entry::{Library, guard, store};
use crate::fault::{Fault, Outcome};
use crate::registry::{DESCRIPTORS, HANDLES};
use crate::saved;

/// Returns bytes by the two-call rule: without a buffer only their number is written.
///
/// # Safety
/// `to` is null or has room for `room` bytes; `size` is null or valid.
unsafe fn give(bytes: &[u8], room: usize, size: *mut usize, to: *mut u8) -> Outcome {
    // SAFETY: guaranteed by the caller.
    unsafe {
        store("the size's address", size, bytes.len())?;
        if to.is_null() || room == 0 {
            return Ok(());
        }
        if room < bytes.len() {
            let text = format!("{} bytes do not fit in {room}", bytes.len());
            return Err(Fault::new(Status::BAD_PARAM_SIZE_INSUFFICIENT, text));
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
    }
    Ok(())
}

/// # Safety
/// `bytes` is null or points at `size` bytes.
unsafe fn given<'b>(bytes: *const u8, size: usize) -> Outcome<&'b [u8]> {
    if bytes.is_null() {
        return Err(Fault::null("the bytes"));
    }
    if size == 0 || isize::try_from(size).is_err() {
        return Err(Fault::bad(format!("invalid size {size}")));
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { std::slice::from_raw_parts(bytes, size) })
}

/// Creates a descriptor from bytes and returns it to the caller.
///
/// # Safety
/// `place` is null or writable; `bytes` is null or points at `size` bytes.
unsafe fn make(
    place: *mut *mut c_void,
    bytes: *const u8,
    size: usize,
    read: impl FnOnce(&[u8]) -> Outcome<Arc<Descriptor>>,
) -> Status {
    guard(|| {
        if place.is_null() {
            return Err(Fault::null("the descriptor's address"));
        }
        // SAFETY: guaranteed by the caller.
        let made = read(unsafe { given(bytes, size)? })?;
        // SAFETY: as above.
        unsafe { store("the descriptor's address", place, DESCRIPTORS.add(made)) }
    })
}

/// Reads a graph; the caller then sets its handle and finalizes it.
pub unsafe fn deserialize_graph(library: Library, graph: *mut *mut c_void, bytes: *const u8, size: usize) -> Status {
    // SAFETY: the module's contract.
    unsafe { make(graph, bytes, size, |bytes| saved::graph_of(bytes, library)) }
}

/// Reads a graph from JSON; the caller then sets its handle and finalizes it.
pub unsafe fn deserialize_json_graph(
    library: Library,
    graph: *mut *mut c_void,
    text: *const c_char,
    size: usize,
) -> Status {
    // SAFETY: the module's contract.
    unsafe { make(graph, text.cast(), size, |text| saved::graph_of_json(text, library)) }
}

/// Reads a plan that is ready to execute.
pub unsafe fn deserialize_plan(
    library: Library,
    handle: *mut c_void,
    plan: *mut *mut c_void,
    bytes: *const u8,
    size: usize,
) -> Status {
    let read = |bytes: &[u8]| {
        HANDLES.get("the handle", handle)?;
        saved::plan_of(bytes, handle.addr(), library)
    };
    // SAFETY: the module's contract.
    unsafe { make(plan, bytes, size, read) }
}

/// Writes a graph, finalized or not.
pub unsafe fn serialized_graph(
    _: Library,
    graph: *mut c_void,
    room: usize,
    size: *mut usize,
    bytes: *mut u8,
) -> Status {
    guard(|| {
        let made = saved::graph_bytes(&*DESCRIPTORS.get("the graph", graph)?)?;
        // SAFETY: the module's contract.
        unsafe { give(&made, room, size, bytes) }
    })
}

/// Writes a graph as JSON.
pub unsafe fn serialized_json_graph(
    _: Library,
    graph: *mut c_void,
    room: usize,
    size: *mut usize,
    text: *mut c_char,
) -> Status {
    guard(|| {
        let made = saved::graph_json(&*DESCRIPTORS.get("the graph", graph)?)? + "\0";
        // SAFETY: the module's contract.
        unsafe { give(made.as_bytes(), room, size, text.cast()) }
    })
}

/// Writes a plan.
pub unsafe fn serialized_plan(_: Library, plan: *mut c_void, room: usize, size: *mut usize, bytes: *mut u8) -> Status {
    guard(|| {
        let made = saved::plan_bytes(&*DESCRIPTORS.get("the plan", plan)?)?;
        // SAFETY: the module's contract.
        unsafe { give(&made, room, size, bytes) }
    })
}

/// Writes a graph, and a plan if it is not null.
pub unsafe fn serialized_graph_and_plan(
    _: Library,
    graph: *mut c_void,
    plan: *mut c_void,
    room: usize,
    size: *mut usize,
    bytes: *mut u8,
) -> Status {
    guard(|| {
        let graph = DESCRIPTORS.get("the graph", graph)?;
        let plan = if plan.is_null() { None } else { Some(DESCRIPTORS.get("the plan", plan)?) };
        let made = saved::container_bytes(&graph, plan.as_deref())?;
        // SAFETY: the module's contract.
        unsafe { give(&made, room, size, bytes) }
    })
}

/// Reports what serialised bytes contain.
pub unsafe fn serialized_contents(_: Library, bytes: *const u8, size: usize, flags: *mut c_int) -> Status {
    guard(|| {
        // SAFETY: the module's contract.
        let found = saved::contents(unsafe { given(bytes, size)? })?;
        // SAFETY: as above.
        unsafe { store("the flags' address", flags, found) }
    })
}
