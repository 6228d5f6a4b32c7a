//! Capture and graphs.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;

use super::{guard, guard_release, require, store};
use crate::capture::{Capture, Mode, Phase};
use crate::config::Feature;
use crate::errors::Status;
use crate::graph::{Exec, Graph, Node, UpdateFailure};
use crate::handles::{as_pointer, fresh};
use crate::runtime::Runtime;
use crate::thread;
use crate::work::Step;

/// Free on launch, upload, device launch, node priority.
const INSTANTIATE_FLAGS: c_ulonglong = 0xF;

/// `hipStreamCaptureStatus`.
fn capture_status(capture: Option<&Arc<Capture>>) -> c_int {
    match capture.map(|capture| capture.phase()) {
        None | Some(Phase::Ended) => 0,
        Some(Phase::Active) => 1,
        Some(Phase::Invalidated) => 2,
    }
}

/// Starts recording the work of a stream.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamBeginCapture(stream: *mut c_void, mode: c_int) -> c_int {
    guard(|runtime| {
        runtime.need(Feature::Capture)?;
        runtime.captures.begin(&runtime.stream(stream)?, mode.try_into()?)
    })
}

/// Ends the capture that began in a stream. After a failure there is no graph (NULL), and the stream no longer
/// captures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> c_int {
    guard(|runtime| {
        // SAFETY: the module's contract.
        unsafe { store(graph, std::ptr::null_mut()) }?;
        let recorded = runtime.captures.end(&*runtime.stream(stream)?)?;
        let handle = fresh();
        runtime.graphs.insert(handle, Arc::new(recorded));
        // SAFETY: the module's contract.
        unsafe { store(graph, as_pointer(handle)) }
    })
}

/// Whether a stream captures: 0 no, 1 yes, 2 yes but the capture is invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamIsCapturing(stream: *mut c_void, status: *mut c_int) -> c_int {
    guard(|runtime| {
        runtime.need(Feature::Capture)?;
        let stream = runtime.stream(stream)?;
        runtime.captures.refuse_implicit(&stream)?;
        let capture = runtime.captures.of(&stream);
        // SAFETY: the module's contract.
        unsafe { store(status, capture_status(capture.as_ref())) }
    })
}

/// Same as [`hipStreamIsCapturing`], with a unique id of the capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamGetCaptureInfo(
    stream: *mut c_void,
    status: *mut c_int,
    id: *mut c_ulonglong,
) -> c_int {
    let no_graph = std::ptr::null_mut();
    // SAFETY: the module's contract, which also applies to the called function.
    unsafe { hipStreamGetCaptureInfo_v2(stream, status, id, no_graph, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// Same as [`hipStreamGetCaptureInfo`]. The graph of a capture is not available before the capture ends, so asking for
/// it or for the dependencies of a capturing stream returns 801.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamGetCaptureInfo_v2(
    stream: *mut c_void,
    status: *mut c_int,
    id: *mut c_ulonglong,
    graph: *mut *mut c_void,
    dependencies: *mut *const *mut c_void,
    count: *mut usize,
) -> c_int {
    guard(|runtime| {
        runtime.need(Feature::Capture)?;
        let stream = runtime.stream(stream)?;
        runtime.captures.refuse_implicit(&stream)?;
        let capture = runtime.captures.of(&stream);
        let wants_graph = !graph.is_null() || !dependencies.is_null() || !count.is_null();
        if capture.is_some() && wants_graph {
            return Err(Status::NotSupported);
        }
        // SAFETY: the module's contract.
        unsafe { store(status, capture_status(capture.as_ref())) }?;
        if let (Some(capture), false) = (capture, id.is_null()) {
            // SAFETY: the module's contract.
            unsafe { store(id, capture.id) }?;
        }
        Ok(())
    })
}

/// Swaps the calling thread's capture mode with `*mode`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    guard(|_| {
        require(mode)?;
        // SAFETY: not NULL, so readable by the module's contract.
        let wanted = Mode::try_from(unsafe { mode.read() })?;
        let before = thread::exchange_capture_mode(wanted);
        // SAFETY: the module's contract.
        unsafe { store(mode, before as c_int) }
    })
}

/// Creates an empty graph. There are no functions to add nodes by hand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphCreate(graph: *mut *mut c_void, flags: c_uint) -> c_int {
    guard(|runtime| {
        require(graph)?;
        if flags != 0 {
            return Err(Status::InvalidValue);
        }
        let handle = fresh();
        runtime.graphs.insert(handle, Arc::default());
        // SAFETY: the module's contract.
        unsafe { store(graph, as_pointer(handle)) }
    })
}

/// Destroys a graph; graphs instantiated from it stay valid.
#[unsafe(no_mangle)]
pub extern "C" fn hipGraphDestroy(graph: *mut c_void) -> c_int {
    guard_release(|runtime| runtime.graphs.remove(graph).map(drop))
}

/// # Safety
/// `exec` is NULL or writable.
unsafe fn instantiate(runtime: &Runtime, exec: *mut *mut c_void, graph: *mut c_void) -> Result<(), Status> {
    require(exec)?;
    let made = Exec::new(runtime.graphs.get(graph)?);
    let handle = fresh();
    runtime.execs.insert(handle, made);
    // SAFETY: guaranteed by the caller.
    unsafe { store(exec, as_pointer(handle)) }
}

/// Makes a graph ready to launch. Instantiating never fails because of a node, so `error_node` and `log` stay
/// untouched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphInstantiate(
    exec: *mut *mut c_void,
    graph: *mut c_void,
    _error_node: *mut *mut c_void,
    _log: *mut c_char,
    _log_bytes: usize,
) -> c_int {
    // SAFETY: the module's contract.
    guard(|runtime| unsafe { instantiate(runtime, exec, graph) })
}

/// Makes a graph ready to launch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphInstantiateWithFlags(
    exec: *mut *mut c_void,
    graph: *mut c_void,
    flags: c_ulonglong,
) -> c_int {
    guard(|runtime| {
        if flags & !INSTANTIATE_FLAGS != 0 {
            return Err(Status::InvalidValue);
        }
        // SAFETY: the module's contract.
        unsafe { instantiate(runtime, exec, graph) }
    })
}

/// Runs a graph in the order of a stream; in a capturing stream it becomes one node.
#[unsafe(no_mangle)]
pub extern "C" fn hipGraphLaunch(exec: *mut c_void, stream: *mut c_void) -> c_int {
    guard(|runtime| {
        runtime.need(Feature::GraphLaunch)?;
        let exec = runtime.execs.get(exec)?;
        let stream = runtime.stream(stream)?;
        if let Some(capture) = runtime.captures.of(&stream) {
            return capture.record(&stream, Step::Graph(exec.graph()));
        }
        runtime.captures.refuse_implicit(&stream)?;
        exec.launch(&runtime.memory, &stream)
    })
}

/// Checks its handles; there is nothing to upload.
#[unsafe(no_mangle)]
pub extern "C" fn hipGraphUpload(exec: *mut c_void, stream: *mut c_void) -> c_int {
    guard(|runtime| {
        runtime.execs.get(exec)?;
        runtime.stream(stream).map(drop)
    })
}

/// Gives an instantiated graph the parameters of a graph with the same structure. The result is 0, or, with status 910,
/// 2 for another topology and 3 for a node of another type, which `error_node` then names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphExecUpdate(
    exec: *mut c_void,
    graph: *mut c_void,
    error_node: *mut *mut c_void,
    result: *mut c_int,
) -> c_int {
    guard(|runtime| {
        require(error_node)?;
        require(result)?;
        let updated = runtime.execs.get(exec)?.update(runtime.graphs.get(graph)?);
        let (node, code, status) = match updated {
            Ok(()) => (0, 0, Ok(())),
            Err(UpdateFailure::Topology) => (0, 2, Err(Status::GraphExecUpdateFailure)),
            Err(UpdateFailure::NodeType(node)) => (node, 3, Err(Status::GraphExecUpdateFailure)),
        };
        // SAFETY: the module's contract.
        unsafe {
            store(error_node, as_pointer(node))?;
            store(result, code)?;
        }
        status
    })
}

/// Destroys an instantiated graph; launches already submitted still run.
#[unsafe(no_mangle)]
pub extern "C" fn hipGraphExecDestroy(exec: *mut c_void) -> c_int {
    guard_release(|runtime| runtime.execs.remove(exec).map(drop))
}

/// If `items` is NULL, stores the number of items; otherwise at most `*count` of them, and fills the rest with NULL.
///
/// # Safety
/// `count` is NULL or valid, and each of `lists` valid for `*count` pointers.
unsafe fn list<const N: usize>(
    items: &[[usize; N]],
    lists: [*mut *mut c_void; N],
    count: *mut usize,
) -> Result<(), Status> {
    require(count)?;
    if lists.iter().all(|list| list.is_null()) {
        // SAFETY: guaranteed by the caller.
        return unsafe { store(count, items.len()) };
    }
    lists.iter().try_for_each(|list| require(*list))?;
    // SAFETY: not NULL, so readable as guaranteed by the caller.
    let room = unsafe { count.read() };
    for at in 0..room {
        for (column, list) in lists.iter().enumerate() {
            let handle = items.get(at).map_or(0, |item| item[column]);
            // SAFETY: `at` is below the room that the caller guarantees.
            unsafe { list.add(at).write(as_pointer(handle)) };
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { store(count, room.min(items.len())) }
}

/// The nodes of a graph, in the order they were recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int {
    guard(|runtime| {
        let graph = runtime.graphs.get(graph)?;
        let handles: Vec<_> = graph.nodes.iter().map(|node| [node.handle]).collect();
        // SAFETY: the module's contract.
        unsafe { list(&handles, [nodes], count) }
    })
}

/// The edges of a graph, as two lists of nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphGetEdges(
    graph: *mut c_void,
    from: *mut *mut c_void,
    to: *mut *mut c_void,
    count: *mut usize,
) -> c_int {
    guard(|runtime| {
        let graph = runtime.graphs.get(graph)?;
        let handles: Vec<_> = graph.edges().map(|(from, to)| [from.handle, to.handle]).collect();
        // SAFETY: the module's contract.
        unsafe { list(&handles, [from, to], count) }
    })
}

/// The type of a node: 0 kernel, 1 copy, 2 memset, 3 host function, 4 graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphNodeGetType(node: *mut c_void, kind: *mut c_int) -> c_int {
    guard(|runtime| {
        let in_graph = |graph: &Arc<Graph>| graph.nodes.iter().find(|own| own.handle == node.addr()).map(Node::kind);
        let found = runtime.graphs.find_map(in_graph).ok_or(Status::InvalidValue)?;
        // SAFETY: the module's contract.
        unsafe { store(kind, found) }
    })
}
