//! Missing synchronisation is detected, and adding it fixes the problem.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hip_host::abi::*;

use crate::common::{Buffer, D2H, Event, Exec, Gate, H2D, NULL_STREAM, Stream, made, ok};
use crate::start;

const ROUNDS: usize = 64;

/// The time limit for something that must happen; a test that waits this long fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of rounds in which the consumer did not see the producer's write.
fn stale_reads(producer: &Stream, consumer: *mut c_void, with_wait: bool) -> usize {
    let (source, result) = (Buffer::new(64), Buffer::new(64));
    let event = Event::new();
    let stale = (0..ROUNDS).filter(|round| {
        let value = *round as u8 + 1;
        producer.fill(&source, value);
        if with_wait {
            event.record(producer);
            ok(hipStreamWaitEvent(consumer, event.0, 0));
        }
        // SAFETY: both sides are device memory.
        ok(unsafe { hipMemcpyAsync(result.at, source.at, 64, 3, consumer) });
        ok(hipDeviceSynchronize());
        result.read() != [value; 64]
    });
    stale.count()
}

#[test]
fn a_missing_wait_between_streams_is_found() {
    let _guard = start();
    let (producer, consumer) = (Stream::non_blocking(), Stream::non_blocking());
    assert!(stale_reads(&producer, consumer.0, false) > 0);
    assert_eq!(stale_reads(&producer, consumer.0, true), 0);
}

#[test]
fn the_default_stream_waits_for_blocking_streams_only() {
    let _guard = start();
    assert_eq!(stale_reads(&Stream::blocking(), NULL_STREAM, false), 0);
    assert!(stale_reads(&Stream::non_blocking(), NULL_STREAM, false) > 0);
    assert_eq!(stale_reads(&Stream::non_blocking(), NULL_STREAM, true), 0);
}

#[test]
fn the_per_thread_stream_is_ordered_with_the_default_stream() {
    let _guard = start();
    let per_thread = std::ptr::without_provenance_mut(2);
    let legacy = std::ptr::without_provenance_mut(1);
    let buffer = Buffer::new(16);
    for value in 0..ROUNDS as u8 {
        // SAFETY: the destination is checked by the library.
        unsafe {
            ok(hipMemsetAsync(buffer.at, 0xEE, 16, per_thread));
            ok(hipMemsetAsync(buffer.at, value.into(), 16, legacy));
        }
        ok(hipStreamSynchronize(per_thread));
        ok(hipStreamSynchronize(legacy));
        assert_eq!(buffer.read(), [value; 16]);
    }
}

#[test]
fn reading_an_asynchronous_result_without_waiting_is_found() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let device = Buffer::of(&[7; 32]);
    // SAFETY: `made` gives a writable pointer.
    let host = made(|out| unsafe { hipHostMalloc(out, 32, 0) });
    let mut early = 0;
    for _ in 0..ROUNDS {
        // SAFETY: 32 bytes of pinned memory, read by this thread as a device would leave them.
        unsafe {
            host.cast::<u8>().write_bytes(0, 32);
            ok(hipMemcpyAsync(host, device.at, 32, D2H, stream.0));
            early += usize::from(host.cast::<u8>().read_volatile() != 7);
            stream.sync();
            assert_eq!(host.cast::<[u8; 32]>().read(), [7; 32]);
        }
    }
    assert!(early > 0);
    ok(hipHostFree(host));
}

#[test]
fn memory_freed_in_stream_order_stays_until_the_stream_reaches_it() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let result = Buffer::new(1 << 16);
    for value in 0..32u8 {
        // SAFETY: `made` gives a writable pointer.
        let scratch = made(|out| unsafe { hipMallocAsync(out, 1 << 16, stream.0) });
        // SAFETY: device memory, checked by the library.
        unsafe {
            ok(hipMemsetAsync(scratch, value.into(), 1 << 16, stream.0));
            ok(hipMemcpyAsync(result.at, scratch, 1 << 16, 3, stream.0));
        }
        ok(hipFreeAsync(scratch, stream.0));
        // SAFETY: the library checks the address, which it no longer knows.
        assert_eq!(unsafe { hipMemsetAsync(scratch, 0, 1, stream.0) }, 1);
        stream.sync();
        assert!(result.read().iter().all(|byte| *byte == value));
    }
}

#[test]
fn free_waits_for_work_in_flight() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let result = Buffer::new(4096);
    for value in 0..16u8 {
        let source = Buffer::of(&[value; 4096]);
        stream.copy(&result, &source);
        drop(source);
        assert_eq!(hipStreamQuery(stream.0), 0, "hipFree returned before the copy was done");
        assert_eq!(result.read(), [value; 4096]);
    }
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    let _guard = start();
    let buffer = Buffer::of(&[0; 8]);
    for value in 1..20 {
        let stream = Stream::non_blocking();
        stream.fill(&buffer, value);
        drop(stream);
        ok(hipDeviceSynchronize());
        assert_eq!(buffer.read(), [value; 8]);
    }
}

unsafe extern "C" fn count_up(data: *mut c_void) {
    // SAFETY: the tests pass an `AtomicUsize` that outlives the stream's work.
    unsafe { &*data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn launches_of_one_instance_do_not_overlap() {
    /// Launches running now, and how often two ran at once.
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    static OVERLAPS: AtomicUsize = AtomicUsize::new(0);
    /// Whether a launch waits for another one instead of a fixed time.
    static STAYS: AtomicBool = AtomicBool::new(false);

    unsafe extern "C" fn stay_a_moment(_: *mut c_void) {
        OVERLAPS.fetch_add(INSIDE.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
        let start = Instant::now();
        while STAYS.load(Ordering::SeqCst) && OVERLAPS.load(Ordering::SeqCst) == 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }

    let _guard = start();
    let streams = [Stream::non_blocking(), Stream::non_blocking()];
    ok(hipStreamBeginCapture(streams[0].0, 1));
    // SAFETY: the function does not use its data.
    ok(unsafe { hipLaunchHostFunc(streams[0].0, Some(stay_a_moment), NULL_STREAM) });
    let graph = streams[0].end_capture();
    let launch_twenty = |execs: [&Exec; 2]| {
        OVERLAPS.store(0, Ordering::SeqCst);
        for launch in 0..20 {
            execs[launch % 2].launch(&streams[launch % 2]);
        }
        ok(hipDeviceSynchronize());
        OVERLAPS.load(Ordering::SeqCst)
    };
    let (first, second) = (graph.instantiate(), graph.instantiate());
    assert_eq!(launch_twenty([&first, &first]), 0);
    STAYS.store(true, Ordering::SeqCst);
    assert!(launch_twenty([&first, &second]) > 0, "two instances on two streams do");
}

#[test]
fn many_threads_may_submit_to_one_stream() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let counter = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = &stream;
                for _ in 0..25 {
                    let data = std::ptr::from_ref(&counter).cast_mut().cast();
                    // SAFETY: the counter outlives the scope, and the stream is waited for inside the test.
                    ok(unsafe { hipLaunchHostFunc(stream.0, Some(count_up), data) });
                }
                ok(hipStreamSynchronize(stream.0));
            });
        }
    });
    stream.sync();
    assert_eq!(counter.load(Ordering::SeqCst), 100);
}

/// Threads of this process that the library started.
#[cfg(target_os = "linux")]
fn workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a list of threads");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.flatten().filter_map(name).filter(|name| name.trim_end() == "hip-host stream").count()
}

#[cfg(target_os = "linux")]
#[test]
fn workers_start_with_work_and_end_without() {
    let _guard = start();
    let streams: Vec<_> = (0..8).map(|_| Stream::non_blocking()).collect();
    let buffer = Buffer::of(&[0; 8]);
    let gates: Vec<_> = streams.iter().map(Gate::close).collect();
    assert!(workers() >= 8);
    gates.into_iter().for_each(Gate::open);
    ok(hipDeviceSynchronize());
    // Waits for the state, not for a fixed time: if the workers stay, the test runner's time limit ends the test.
    while workers() > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    streams[0].fill(&buffer, 2);
    streams[0].sync();
    assert_eq!(buffer.read(), [2; 8]);
}

#[test]
fn host_to_device_copies_overlap_with_other_streams() {
    let _guard = start();
    let (busy, free) = (Stream::non_blocking(), Stream::non_blocking());
    let buffer = Buffer::new(4);
    let gate = Gate::close(&busy);
    let content = [1u8, 2, 3, 4];
    // SAFETY: `content` outlives the wait for the stream.
    ok(unsafe { hipMemcpyAsync(buffer.at, content.as_ptr().cast(), 4, H2D, free.0) });
    free.sync();
    assert_eq!(hipStreamQuery(busy.0), 600);
    gate.open();
    assert_eq!(buffer.read(), content);
}
