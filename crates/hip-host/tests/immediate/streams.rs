//! Streams: order, handles, host functions.

use std::ffi::c_void;
use std::sync::Mutex;
use std::thread::ThreadId;

use hip_host::abi::*;

use crate::common::{Buffer, Event, Gate, NULL_STREAM, Stream, made, ok};
use crate::start;

/// The calls of a host function, in order.
static CALLS: Mutex<Vec<(usize, ThreadId)>> = Mutex::new(Vec::new());

unsafe extern "C" fn note_call(data: *mut c_void) {
    CALLS.lock().expect("no panic").push((data.addr(), std::thread::current().id()));
}

fn call(stream: &Stream, number: usize) {
    // SAFETY: the function does not dereference its data.
    ok(unsafe { hipLaunchHostFunc(stream.0, Some(note_call), std::ptr::without_provenance_mut(number)) });
}

fn calls() -> Vec<(usize, ThreadId)> {
    std::mem::take(&mut *CALLS.lock().expect("no panic"))
}

#[test]
fn an_idle_stream_works_on_the_calling_thread_and_a_busy_one_on_its_own() {
    let _guard = start();
    calls();
    let me = std::thread::current().id();
    let stream = Stream::non_blocking();
    call(&stream, 1);
    assert_eq!(calls(), [(1, me)]);

    let gate = Gate::close(&stream);
    call(&stream, 2);
    call(&stream, 3);
    assert_eq!(calls(), []);
    assert_eq!(hipStreamQuery(stream.0), 600);
    gate.open();
    stream.sync();
    let late = calls();
    assert_eq!(late.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3]);
    assert!(late.iter().all(|(_, thread)| *thread != me));

    assert_eq!(hipStreamQuery(stream.0), 0);
    call(&stream, 4);
    assert_eq!(calls(), [(4, me)]);
}

#[test]
fn waiting_for_an_event_holds_back_only_the_waiting_stream() {
    let _guard = start();
    let (first, second, third) = (Stream::non_blocking(), Stream::non_blocking(), Stream::non_blocking());
    let (held, free) = (Buffer::of(&[0; 4]), Buffer::of(&[0; 4]));
    let gate = Gate::close(&first);
    let event = Event::new();
    event.record(&first);
    event.hold_back(&second);
    second.fill(&held, 1);
    third.fill(&free, 1);
    assert_eq!(hipStreamQuery(third.0), 0);
    assert_eq!(hipStreamQuery(second.0), 600);
    gate.open();
    second.sync();
    assert_eq!((held.read(), free.read()), (vec![1; 4], vec![1; 4]));
}

#[test]
fn the_default_stream_is_ordered_with_blocking_streams_of_its_device() {
    let _guard = start();
    let (blocking, independent) = (Stream::blocking(), Stream::non_blocking());
    let buffer = Buffer::new(4);
    let gate = Gate::close(&blocking);
    // SAFETY: the destination is checked by the library.
    ok(unsafe { hipMemsetAsync(buffer.at, 1, 4, NULL_STREAM) });
    assert_eq!(hipStreamQuery(NULL_STREAM), 600);
    let later = Stream::blocking();
    later.fill(&buffer, 2);
    assert_eq!(hipStreamQuery(later.0), 600, "behind the default stream");
    independent.sync();
    ok(hipSetDevice(1));
    assert_eq!(hipStreamQuery(NULL_STREAM), 0, "the other device has its own");
    ok(hipSetDevice(0));
    gate.open();
    ok(hipStreamSynchronize(NULL_STREAM));
    later.sync();
    assert_eq!(buffer.read(), [2; 4]);
}

#[test]
fn dead_and_foreign_handles_are_refused() {
    let _guard = start();
    let event = Event::new();
    let dead = Stream::blocking().0;
    let odd = [dead, event.0, std::ptr::without_provenance_mut(3), std::ptr::without_provenance_mut(usize::MAX)];
    let buffer = Buffer::new(8);
    let mut number = 0;
    for stream in odd {
        assert_eq!(hipStreamSynchronize(stream), 400);
        assert_eq!(hipStreamQuery(stream), 400);
        assert_eq!(hipStreamDestroy(stream), 400);
        assert_eq!(hipStreamWaitEvent(stream, event.0, 0), 400);
        assert_eq!(hipEventRecord(event.0, stream), 400);
        assert_eq!(hipStreamBeginCapture(stream, 0), 400);
        // SAFETY: results are writable, and the destination is checked by the library.
        unsafe {
            assert_eq!(hipMemsetAsync(buffer.at, 0, 8, stream), 400);
            assert_eq!(hipLaunchHostFunc(stream, Some(note_call), stream), 400);
            assert_eq!(hipStreamGetPriority(stream, &mut number), 400);
        }
    }
    assert_eq!(hipStreamDestroy(NULL_STREAM), 400);
    // SAFETY: the test passes no function on purpose.
    assert_eq!(unsafe { hipLaunchHostFunc(NULL_STREAM, None, NULL_STREAM) }, 1);
}

#[test]
fn streams_report_their_flags_and_priority() {
    let _guard = start();
    ok(hipSetDevice(1));
    // SAFETY: `made` gives a writable pointer.
    let stream = Stream(made(|out| unsafe { hipStreamCreateWithPriority(out, 1, -100) }));
    ok(hipSetDevice(0));
    let (mut flags, mut priority, mut device, mut least) = (0, 0, 0, 0);
    // SAFETY: all results are writable.
    unsafe {
        ok(hipStreamGetFlags(stream.0, &mut flags));
        ok(hipStreamGetPriority(stream.0, &mut priority));
        ok(hipStreamGetDevice(stream.0, &mut device));
        let mut greatest = 0;
        ok(hipDeviceGetStreamPriorityRange(&mut least, &mut greatest));
        assert_eq!((flags, priority, device), (1, greatest, 1));
        assert!(greatest < least);
        let mut refused = std::ptr::null_mut();
        assert_eq!(hipStreamCreateWithFlags(&mut refused, 2), 1);
        assert_eq!(hipStreamCreate(std::ptr::null_mut()), 1);
    }
}

unsafe extern "C" fn try_to_wait(data: *mut c_void) {
    // SAFETY: the test passes an array of four statuses that outlives the call.
    let statuses = unsafe { &mut *data.cast::<[i32; 4]>() };
    *statuses = [
        hipDeviceSynchronize(),
        hipStreamSynchronize(NULL_STREAM),
        hipFree(std::ptr::without_provenance_mut(0x100)),
        // SAFETY: the call is rejected, so none of these bytes are accessed.
        unsafe { hipMemcpy(data, data, 4, 0) },
    ];
}

#[test]
fn waiting_in_a_host_function_is_an_error() {
    let _guard = start();
    let stream = Stream::blocking();
    let mut statuses = [0; 4];
    // SAFETY: the array outlives the wait.
    ok(unsafe { hipLaunchHostFunc(stream.0, Some(try_to_wait), std::ptr::from_mut(&mut statuses).cast()) });
    stream.sync();
    assert_eq!(statuses, [801; 4]);
}

unsafe extern "C" fn on_callback(stream: *mut c_void, status: i32, data: *mut c_void) {
    // SAFETY: the test passes a pair that outlives the call.
    unsafe { data.cast::<(usize, i32)>().write((stream.addr(), status)) };
}

#[test]
fn callbacks_get_their_stream_and_success() {
    let _guard = start();
    let stream = Stream::blocking();
    let mut seen = (0, -1);
    let data: *mut c_void = std::ptr::from_mut(&mut seen).cast();
    // SAFETY: the pair outlives the wait.
    unsafe {
        ok(hipStreamAddCallback(stream.0, Some(on_callback), data, 0));
        assert_eq!(hipStreamAddCallback(stream.0, Some(on_callback), data, 1), 1);
    }
    stream.sync();
    assert_eq!(seen, (stream.0.addr(), 0));
}
