//! Calls that are rejected while streams capture: their statuses, and whether the capture stays valid.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use hip_host::abi::*;

use crate::common::{Buffer, Event, H2D, NULL_STREAM, Stream, ok};
use crate::start;

const GLOBAL: c_int = 0;
const THREAD_LOCAL: c_int = 1;
const RELAXED: c_int = 2;

/// Captures in `mode`, tries `call`, and returns its status and the status of ending the capture (0: still valid).
fn during_capture(stream: &Stream, mode: c_int, call: impl FnOnce() -> c_int) -> (c_int, c_int) {
    ok(hipStreamBeginCapture(stream.0, mode));
    let status = call();
    let mut graph = null_mut();
    // SAFETY: the result is writable.
    let end = unsafe { hipStreamEndCapture(stream.0, &mut graph) };
    assert_eq!(end == 0, !graph.is_null());
    hipGraphDestroy(graph);
    assert_eq!(stream.capture_status(), 0);
    (status, end)
}

fn exchange(mode: c_int) -> c_int {
    let mut mode = mode;
    // SAFETY: the mode is writable.
    ok(unsafe { hipThreadExchangeStreamCaptureMode(&mut mode) });
    mode
}

fn malloc() -> c_int {
    let mut at = null_mut();
    // SAFETY: the result is writable.
    let status = unsafe { hipMalloc(&mut at, 16) };
    hipFree(at);
    status
}

#[test]
fn waiting_for_a_capturing_stream_invalidates_the_capture() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let nothing = std::ptr::without_provenance_mut::<c_void>(16);
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        assert_eq!(during_capture(&stream, mode, || hipStreamSynchronize(stream.0)), (900, 901));
        assert_eq!(during_capture(&stream, mode, || hipStreamQuery(stream.0)), (900, 901));
        assert_eq!(during_capture(&stream, mode, || hipDeviceSynchronize()), (900, 901));
        assert_eq!(during_capture(&stream, mode, || hipFreeAsync(nothing, stream.0)), (900, 901));
    }
}

#[test]
fn work_in_an_invalidated_capture_is_refused() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let buffer = Buffer::new(4);
    let event = Event::new();
    ok(hipStreamBeginCapture(stream.0, RELAXED));
    assert_eq!(hipStreamQuery(stream.0), 900);
    assert_eq!(stream.capture_status(), 2);
    // SAFETY: the destination is checked by the library.
    assert_eq!(unsafe { hipMemsetAsync(buffer.at, 0, 4, stream.0) }, 901);
    assert_eq!(hipEventRecord(event.0, stream.0), 901);
    assert_eq!(stream.failed_capture(), 901);
    stream.fill(&buffer, 3);
    stream.sync();
    assert_eq!(buffer.read(), [3; 4]);
}

#[test]
fn unsafe_calls_depend_on_both_modes() {
    let _guard = start();
    let stream = Stream::non_blocking();
    assert_eq!(during_capture(&stream, GLOBAL, malloc), (900, 901));
    assert_eq!(during_capture(&stream, THREAD_LOCAL, malloc), (900, 901));
    assert_eq!(during_capture(&stream, RELAXED, malloc), (0, 0));
    let elsewhere = || std::thread::spawn(malloc).join().expect("no panic");
    assert_eq!(during_capture(&stream, GLOBAL, elsewhere), (900, 901));
    assert_eq!(during_capture(&stream, THREAD_LOCAL, elsewhere), (0, 0));

    assert_eq!(exchange(RELAXED), GLOBAL);
    assert_eq!(during_capture(&stream, GLOBAL, malloc), (0, 0));
    assert_eq!(exchange(THREAD_LOCAL), RELAXED);
    assert_eq!(during_capture(&stream, THREAD_LOCAL, malloc), (900, 901));
    assert_eq!(exchange(GLOBAL), THREAD_LOCAL);
    let mut wrong = 3;
    // SAFETY: the mode is writable.
    assert_eq!(unsafe { hipThreadExchangeStreamCaptureMode(&mut wrong) }, 1);
}

#[test]
fn the_default_stream_runs_nothing_while_any_stream_captures() {
    let _guard = start();
    let (blocking, independent) = (Stream::blocking(), Stream::non_blocking());
    let buffer = Buffer::of(&[1; 4]);
    // SAFETY: the destination is checked by the library.
    let on_default = || unsafe { hipMemsetAsync(buffer.at, 0, 4, NULL_STREAM) };
    for stream in [&blocking, &independent] {
        assert_eq!(during_capture(stream, RELAXED, on_default), (906, 901));
    }
    let content = [2u8; 4];
    // SAFETY: the source is valid for four bytes.
    let synchronous = || unsafe { hipMemcpy(buffer.at, content.as_ptr().cast(), 4, H2D) };
    for stream in [&blocking, &independent] {
        assert_eq!(during_capture(stream, RELAXED, synchronous), (906, 901));
    }
    assert_eq!(buffer.read(), [1; 4]);
    let wait = || hipStreamSynchronize(NULL_STREAM);
    assert_eq!(during_capture(&blocking, RELAXED, wait), (906, 901));
    assert_eq!(during_capture(&independent, RELAXED, wait), (0, 0), "waiting for an event is not work");
    assert_eq!(hipStreamBeginCapture(NULL_STREAM, RELAXED), 900);
}

#[test]
fn captures_end_where_and_by_whom_they_began() {
    let _guard = start();
    let (stream, side) = (Stream::non_blocking(), Stream::non_blocking());
    assert_eq!(stream.failed_capture(), 401, "nothing began");
    assert_eq!(hipStreamBeginCapture(stream.0, 3), 1);
    ok(hipStreamBeginCapture(stream.0, THREAD_LOCAL));
    assert_eq!(hipStreamBeginCapture(stream.0, THREAD_LOCAL), 401);
    std::thread::scope(|scope| {
        let stream = &stream;
        assert_eq!(scope.spawn(|| stream.failed_capture()).join().expect("no panic"), 908);
    });
    let fork = Event::new();
    fork.record(&stream);
    fork.hold_back(&side);
    assert_eq!(side.failed_capture(), 903);
    assert!(stream.end_capture().nodes().is_empty());
    ok(hipStreamBeginCapture(stream.0, RELAXED));
    std::thread::scope(|scope| {
        let stream = &stream;
        scope.spawn(|| drop(stream.end_capture()));
    });
}

#[test]
fn work_forked_off_must_be_joined() {
    let _guard = start();
    let (stream, side) = (Stream::non_blocking(), Stream::non_blocking());
    let buffer = Buffer::new(4);
    let (fork, join) = (Event::new(), Event::new());
    ok(hipStreamBeginCapture(stream.0, RELAXED));
    fork.record(&stream);
    fork.hold_back(&side);
    side.fill(&buffer, 1);
    join.record(&side);
    side.fill(&buffer, 2);
    join.hold_back(&stream);
    assert_eq!(stream.failed_capture(), 904, "the second fill came after the join");
    assert_eq!(side.capture_status(), 0);
    side.fill(&buffer, 5);
    side.sync();
    assert_eq!(buffer.read(), [5; 4]);
}

#[test]
fn dependencies_do_not_cross_the_boundary_of_a_capture() {
    let _guard = start();
    let (stream, other) = (Stream::non_blocking(), Stream::non_blocking());
    let (outside, inside, never) = (Event::new(), Event::new(), Event::new());
    outside.record(&other);
    let wait = |on: &Stream, event: &Event| hipStreamWaitEvent(on.0, event.0, 0);
    assert_eq!(during_capture(&stream, RELAXED, || wait(&stream, &outside)), (905, 901));
    assert_eq!(during_capture(&stream, RELAXED, || wait(&stream, &never)), (905, 901));

    ok(hipStreamBeginCapture(other.0, RELAXED));
    let merge = || {
        inside.record(&other);
        wait(&stream, &inside)
    };
    assert_eq!(during_capture(&stream, RELAXED, merge), (902, 901));
    assert_eq!(other.failed_capture(), 901);
    assert_eq!(wait(&stream, &inside), 907, "its capture has ended");
    assert_eq!(wait(&other, &outside), 0);
}

#[test]
fn events_of_a_capture_cannot_be_waited_for_by_the_host() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let event = Event::new();
    let query = || {
        event.record(&stream);
        hipEventQuery(event.0)
    };
    assert_eq!(during_capture(&stream, RELAXED, query), (907, 901));
    let synchronize = || {
        event.record(&stream);
        hipEventSynchronize(event.0)
    };
    assert_eq!(during_capture(&stream, RELAXED, synchronize), (907, 901));
    assert_eq!(hipEventSynchronize(event.0), 907);
    event.record(&stream);
    ok(hipEventSynchronize(event.0));

    let earlier = Event::new();
    earlier.record(&stream);
    assert_eq!(during_capture(&stream, RELAXED, || hipEventQuery(earlier.0)), (907, 901));
    assert_eq!(during_capture(&stream, RELAXED, || hipEventSynchronize(earlier.0)), (907, 901));
    ok(hipEventQuery(earlier.0));

    let uninvolved = Event::new();
    assert_eq!(during_capture(&stream, GLOBAL, || hipEventQuery(uninvolved.0)), (900, 901));
    assert_eq!(during_capture(&stream, RELAXED, || hipEventQuery(uninvolved.0)), (0, 0));
}

#[test]
fn destroying_a_capturing_stream_ends_the_capture() {
    let _guard = start();
    let (origin, side) = (Stream::non_blocking(), Stream::non_blocking());
    let fork = Event::new();
    ok(hipStreamBeginCapture(origin.0, GLOBAL));
    fork.record(&origin);
    fork.hold_back(&side);
    drop(origin);
    assert_eq!(side.capture_status(), 0);
    ok(malloc());
}

#[test]
fn capture_information_identifies_captures() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let info = || {
        let (mut status, mut id) = (-1, 0);
        // SAFETY: both results are writable.
        ok(unsafe { hipStreamGetCaptureInfo(stream.0, &mut status, &mut id) });
        (status, id)
    };
    assert_eq!(info(), (0, 0));
    ok(hipStreamBeginCapture(stream.0, RELAXED));
    let first = info();
    stream.end_capture();
    ok(hipStreamBeginCapture(stream.0, RELAXED));
    let second = info();
    stream.end_capture();
    assert_eq!((first.0, second.0), (1, 1));
    assert_ne!(first.1, second.1);
}
