//! Captured graphs: structure, replay, update.

use std::ptr::null_mut;

use hip_host::abi::*;

use crate::common::{Buffer, D2H, Event, Exec, Graph, H2D, Stream, made, ok};
use crate::start;

unsafe extern "C" fn add_one(data: *mut std::ffi::c_void) {
    // SAFETY: the tests pass the first byte of a live buffer.
    unsafe { data.cast::<u8>().write(data.cast::<u8>().read().wrapping_add(1)) };
}

fn update(exec: &Exec, graph: &Graph) -> (i32, i32, bool) {
    let (mut node, mut result) = (null_mut(), -1);
    // SAFETY: both results are writable.
    let status = unsafe { hipGraphExecUpdate(exec.0, graph.0, &mut node, &mut result) };
    (status, result, graph.nodes().contains(&node))
}

fn kinds(graph: &Graph) -> Vec<i32> {
    let kind = |node: &_| {
        let mut kind = -1;
        // SAFETY: the result is writable.
        ok(unsafe { hipGraphNodeGetType(*node, &mut kind) });
        kind
    };
    graph.nodes().iter().map(kind).collect()
}

#[test]
fn captured_work_runs_at_each_launch_and_not_before() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let (counter, copy) = (Buffer::of(&[5]), Buffer::of(&[0]));
    let mut host = [0u8];
    ok(hipStreamBeginCapture(stream.0, 0));
    assert_eq!(stream.capture_status(), 1);
    // SAFETY: counter and host outlive the launches.
    unsafe {
        ok(hipLaunchHostFunc(stream.0, Some(add_one), counter.at));
        stream.copy(&copy, &counter);
        ok(hipMemcpyAsync(host.as_mut_ptr().cast(), copy.at, 1, D2H, stream.0));
        ok(hipMemsetAsync(copy.at, 0, 1, stream.0));
    }
    let graph = stream.end_capture();
    assert_eq!(stream.capture_status(), 0);
    assert_eq!((counter.read(), host), (vec![5], [0]));
    assert_eq!(kinds(&graph), [3, 1, 1, 2]);
    assert_eq!(graph.edges(), [(0, 1), (1, 2), (2, 3)]);
    let exec = graph.instantiate();
    drop(graph);
    for launch in 1..=3 {
        exec.launch(&stream);
        stream.sync();
        assert_eq!(host, [5 + launch]);
    }
    ok(hipGraphUpload(exec.0, stream.0));
}

#[test]
fn forks_and_joins_become_edges() {
    let _guard = start();
    let (origin, side) = (Stream::non_blocking(), Stream::blocking());
    let (a, b) = (Buffer::new(4), Buffer::new(4));
    let (fork, join) = (Event::new(), Event::new());
    ok(hipStreamBeginCapture(origin.0, 1));
    origin.fill(&a, 1);
    fork.record(&origin);
    fork.hold_back(&side);
    assert_eq!(side.capture_status(), 1);
    side.fill(&b, 2);
    origin.fill(&a, 3);
    join.record(&side);
    join.hold_back(&origin);
    origin.copy(&a, &b);
    let graph = origin.end_capture();
    assert_eq!(side.capture_status(), 0);
    assert_eq!(graph.edges(), [(0, 1), (0, 2), (1, 3), (2, 3)]);
    let exec = graph.instantiate();
    exec.launch(&origin);
    origin.sync();
    assert_eq!(a.read(), [2; 4]);
}

#[test]
fn an_update_accepts_only_parameters_of_the_same_shape() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let (a, b) = (Buffer::of(&[0; 4]), Buffer::of(&[0; 4]));
    let record = |work: &dyn Fn()| {
        ok(hipStreamBeginCapture(stream.0, 2));
        work();
        stream.end_capture()
    };
    let first = record(&|| stream.fill(&a, 1));
    let second = record(&|| stream.fill(&b, 2));
    let other_type = record(&|| stream.copy(&a, &b));
    let longer = record(&|| {
        stream.fill(&a, 1);
        stream.fill(&b, 1);
    });
    let side = Stream::non_blocking();
    let wider = record(&|| {
        let (fork, join) = (Event::new(), Event::new());
        fork.record(&stream);
        fork.hold_back(&side);
        stream.fill(&a, 1);
        side.fill(&b, 1);
        join.record(&side);
        join.hold_back(&stream);
    });
    assert_eq!(update(&longer.instantiate(), &wider), (910, 2, false), "same nodes, other edges");
    let exec = first.instantiate();
    assert_eq!(update(&exec, &second), (0, 0, false));
    assert_eq!(update(&exec, &other_type), (910, 3, true));
    assert_eq!(update(&exec, &longer), (910, 2, false));
    exec.launch(&stream);
    stream.sync();
    assert_eq!((a.read(), b.read()), (vec![0; 4], vec![2; 4]), "the failed updates changed nothing");
}

#[test]
fn a_graph_launched_into_a_capture_becomes_one_node() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let counter = Buffer::of(&[0]);
    ok(hipStreamBeginCapture(stream.0, 2));
    // SAFETY: the counter outlives the launches.
    ok(unsafe { hipLaunchHostFunc(stream.0, Some(add_one), counter.at) });
    let inner = stream.end_capture().instantiate();
    ok(hipStreamBeginCapture(stream.0, 2));
    inner.launch(&stream);
    inner.launch(&stream);
    let outer = stream.end_capture();
    assert_eq!(kinds(&outer), [4, 4]);
    drop(inner);
    outer.instantiate().launch(&stream);
    stream.sync();
    assert_eq!(counter.read(), [2]);
}

#[test]
fn a_launch_after_its_memory_is_gone_is_refused() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let buffer = Buffer::new(4);
    ok(hipStreamBeginCapture(stream.0, 2));
    stream.fill(&buffer, 1);
    let exec = stream.end_capture().instantiate();
    drop(buffer);
    assert_eq!(hipGraphLaunch(exec.0, stream.0), 700);
}

#[test]
fn empty_graphs_and_odd_handles_are_handled() {
    let _guard = start();
    let stream = Stream::non_blocking();
    // SAFETY: `made` gives a writable pointer.
    let graph = Graph(made(|out| unsafe { hipGraphCreate(out, 0) }));
    // SAFETY: `made` gives a writable pointer, and the rest may be NULL.
    let exec = Exec(made(|out| unsafe { hipGraphInstantiate(out, graph.0, null_mut(), null_mut(), 0) }));
    exec.launch(&stream);
    let (dead_graph, dead_exec) = (graph.0, exec.0);
    drop((graph, exec));
    assert_eq!(hipGraphLaunch(dead_exec, stream.0), 400);
    assert_eq!(hipGraphExecDestroy(dead_exec), 400);
    assert_eq!(hipGraphDestroy(dead_graph), 400);
    let (mut out, mut count) = (null_mut(), 0);
    // SAFETY: the results are writable.
    unsafe {
        assert_eq!(hipGraphInstantiateWithFlags(&mut out, dead_graph, 0), 400);
        assert_eq!(hipGraphGetNodes(dead_graph, null_mut(), &mut count), 400);
    }
}

#[test]
fn pinned_memory_is_read_when_the_graph_runs() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let device = Buffer::new(4);
    // SAFETY: `made` gives a writable pointer.
    let pinned = made(|out| unsafe { hipHostMalloc(out, 4, 0) });
    ok(hipStreamBeginCapture(stream.0, 2));
    // SAFETY: four bytes of pinned memory that live until the end of the test.
    ok(unsafe { hipMemcpyAsync(device.at, pinned, 4, H2D, stream.0) });
    let exec = stream.end_capture().instantiate();
    for value in [1u8, 2] {
        // SAFETY: the stream is idle, so only this thread uses the pinned memory.
        unsafe { pinned.cast::<u8>().write_bytes(value, 4) };
        exec.launch(&stream);
        stream.sync();
        assert_eq!(device.read(), [value; 4]);
    }
    ok(hipHostFree(pinned));
}
