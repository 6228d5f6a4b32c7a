//! Events: states, times, handles.

use hip_host::abi::*;

use crate::common::{Event, Gate, NULL_STREAM, Stream, made, ok};
use crate::start;

fn elapsed(start: &Event, end: &Event) -> (i32, f32) {
    let mut ms = f32::NAN;
    // SAFETY: the result is writable.
    (unsafe { hipEventElapsedTime(&mut ms, start.0, end.0) }, ms)
}

#[test]
fn an_event_is_ready_when_its_stream_reaches_it() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let event = Event::new();
    assert_eq!(hipEventQuery(event.0), 0, "never recorded");
    ok(hipEventSynchronize(event.0));
    let gate = Gate::close(&stream);
    event.record(&stream);
    assert_eq!(hipEventQuery(event.0), 600);
    assert_eq!(hipGetLastError(), 0, "hipErrorNotReady is not a failure");
    gate.open();
    ok(hipEventSynchronize(event.0));
    assert_eq!(hipEventQuery(event.0), 0);
}

#[test]
fn a_wait_is_for_the_record_before_it() {
    let _guard = start();
    let (first, second) = (Stream::non_blocking(), Stream::non_blocking());
    let event = Event::new();
    event.record(&first);
    event.hold_back(&second);
    let gate = Gate::close(&first);
    event.record(&first);
    assert_eq!(hipStreamQuery(second.0), 0, "the second record came after the wait");
    drop(event);
    gate.open();
}

#[test]
fn times_are_ordered_and_need_both_events() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let (first, second, never) = (Event::new(), Event::new(), Event::new());
    first.record(&stream);
    assert_eq!(elapsed(&first, &never).0, 400);
    let gate = Gate::close(&stream);
    second.record(&stream);
    assert_eq!(elapsed(&first, &second).0, 600);
    assert_eq!(elapsed(&second, &never).0, 400);
    gate.open();
    stream.sync();
    let (status, ms) = elapsed(&first, &second);
    ok(status);
    assert!(ms > 0.0);
    assert_eq!(elapsed(&second, &first), (0, -ms));
    assert_eq!(elapsed(&first, &first), (0, 0.0));

    // SAFETY: `made` gives a writable pointer.
    let timeless = Event(made(|out| unsafe { hipEventCreateWithFlags(out, 2) }));
    timeless.record(&stream);
    assert_eq!(elapsed(&timeless, &second).0, 400);
    // SAFETY: the test passes no result on purpose.
    assert_eq!(unsafe { hipEventElapsedTime(std::ptr::null_mut(), first.0, second.0) }, 1);
}

#[test]
fn events_are_recorded_on_their_own_device_and_waited_for_on_any() {
    let _guard = start();
    let event = Event::new();
    let here = Stream::non_blocking();
    ok(hipSetDevice(1));
    let there = Stream::non_blocking();
    assert_eq!(hipEventRecord(event.0, there.0), 400);
    assert_eq!(hipEventRecord(event.0, NULL_STREAM), 400);
    let gate = Gate::close(&here);
    event.record(&here);
    event.hold_back(&there);
    assert_eq!(hipStreamQuery(there.0), 600);
    gate.open();
    there.sync();
}

#[test]
fn dead_and_foreign_handles_are_refused() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let alive = Event::new();
    let dead = Event::new().0;
    let mut ms = 0.0;
    for event in [dead, stream.0, NULL_STREAM] {
        assert_eq!(hipEventRecord(event, stream.0), 400);
        assert_eq!(hipEventQuery(event), 400);
        assert_eq!(hipEventSynchronize(event), 400);
        assert_eq!(hipEventDestroy(event), 400);
        assert_eq!(hipStreamWaitEvent(stream.0, event, 0), 400);
        // SAFETY: the result is writable.
        assert_eq!(unsafe { hipEventElapsedTime(&mut ms, event, alive.0) }, 400);
    }
    let mut refused = std::ptr::null_mut();
    // SAFETY: the result is writable.
    assert_eq!(unsafe { hipEventCreateWithFlags(&mut refused, 0x100) }, 1);
}
