//! Order within a stream, order between streams, and host functions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use hip::{CopyKind, Device, DriverKind, RawStream};

use crate::{Outcome, Row, pattern};

pub const ROWS: &[Row] = &[
    Row::new("work_of_a_stream_runs_in_order", work_of_a_stream_runs_in_order),
    Row::new("a_stream_waits_for_an_event_of_another", a_stream_waits_for_an_event_of_another),
    Row::new("pending_work_is_not_ready_until_it_is_done", pending_work_is_not_ready_until_it_is_done)
        .skip_where(runs_work_at_once),
    Row::new("events_measure_time", events_measure_time),
    Row::new("an_event_that_was_never_recorded_is_ready", an_event_that_was_never_recorded_is_ready),
    Row::new("a_panic_in_a_host_function_is_contained", a_panic_in_a_host_function_is_contained),
    Row::new("dropping_a_stream_lets_its_work_finish", dropping_a_stream_lets_its_work_finish),
    Row::new("many_threads_share_a_device", many_threads_share_a_device),
    Row::new("the_default_stream_has_a_name", the_default_stream_has_a_name),
];

fn runs_work_at_once(device: &Device) -> Option<&'static str> {
    let threads = std::env::var("AMDGPU_EP_HOST_STREAMS").is_ok_and(|mode| mode == "threads");
    (device.kind() == DriverKind::Host && !threads).then_some("an idle stream of the host driver runs work at once")
}

fn work_of_a_stream_runs_in_order(device: &Device) -> Outcome {
    const BYTES: usize = 1 << 18;
    let stream = device.stream()?;
    let (mut source, target) = (device.alloc_pinned(BYTES)?, device.alloc_pinned(BYTES)?);
    let sent = pattern(BYTES, 3);
    source.as_mut_slice().copy_from_slice(&sent);
    let (first, second) = (device.alloc(BYTES)?, device.alloc(BYTES)?);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let seen = seen.clone();
        stream.launch_host_fn(move || {
            if let Ok(mut seen) = seen.lock() {
                seen.push(what);
            }
        })
    };
    note("before")?;
    // SAFETY: all four buffers live until the stream is synchronised below.
    unsafe {
        let (a, b) = (first.address().as_ptr(), second.address().as_ptr());
        device.copy_raw_async(a, source.address().as_ptr(), BYTES, CopyKind::HostToDevice, stream.raw())?;
        device.copy_raw_async(b, a, BYTES, CopyKind::DeviceToDevice, stream.raw())?;
        device.fill_raw_async(a, 0, BYTES, stream.raw())?;
        device.fill_raw_async(b.add(9), 0xEE, 1, stream.raw())?;
        device.copy_raw_async(target.address().as_ptr(), b, BYTES, CopyKind::Default, stream.raw())?;
    }
    note("after")?;
    stream.synchronize()?;
    assert!(stream.query()?);
    assert_eq!(seen.lock().map_err(|_| "poisoned")?.as_slice(), ["before", "after"]);
    let got = target.as_slice();
    assert!(got[9] == 0xEE && got[..9] == sent[..9] && got[10..] == sent[10..]);
    Ok(())
}

fn a_stream_waits_for_an_event_of_another(device: &Device) -> Outcome {
    for _ in 0..20 {
        let (first, second) = (device.stream()?, device.stream()?);
        let event = device.event()?;
        let counter = Arc::new(AtomicUsize::new(0));
        let (writer, reader) = (counter.clone(), counter.clone());
        let read = Arc::new(AtomicUsize::new(usize::MAX));
        let result = read.clone();
        first.launch_host_fn(move || {
            std::thread::sleep(Duration::from_millis(2));
            writer.store(7, Ordering::SeqCst);
        })?;
        event.record(first.raw())?;
        second.wait(&event)?;
        second.launch_host_fn(move || result.store(reader.load(Ordering::SeqCst), Ordering::SeqCst))?;
        second.synchronize()?;
        assert_eq!(read.load(Ordering::SeqCst), 7, "the second stream did not wait");
        assert!(event.query()?);
    }
    Ok(())
}

fn pending_work_is_not_ready_until_it_is_done(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let event = device.event()?;
    let (go, wait) = mpsc::channel::<()>();
    stream.launch_host_fn(move || {
        // A closed channel also ends the wait, so a failing row cannot hang the stream.
        let _ = wait.recv_timeout(Duration::from_secs(30));
    })?;
    event.record(stream.raw())?;
    let ready = (stream.query()?, event.query()?);
    go.send(())?;
    stream.synchronize()?;
    assert_eq!(ready, (false, false));
    assert!(stream.query()? && event.query()?);
    Ok(())
}

fn events_measure_time(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let (start, end) = (device.timing_event()?, device.timing_event()?);
    let mut buffer = device.alloc(1 << 20)?;
    start.record(stream.raw())?;
    // SAFETY: the buffer lives until the event is synchronised below.
    unsafe { device.fill_raw_async(buffer.address().as_ptr(), 1, buffer.bytes(), stream.raw())? };
    end.record(stream.raw())?;
    end.synchronize()?;
    let milliseconds = end.elapsed_ms(&start)?;
    assert!(milliseconds.is_finite() && milliseconds >= 0.0, "{milliseconds}");
    let untimed = device.event()?;
    untimed.record(stream.raw())?;
    untimed.synchronize()?;
    assert!(end.elapsed_ms(&untimed).is_err(), "an event without timestamps returned a time");
    buffer.fill(0, 1, 0)?;
    Ok(())
}

fn an_event_that_was_never_recorded_is_ready(device: &Device) -> Outcome {
    let event = device.event()?;
    assert!(event.query()?);
    event.synchronize()?;
    device.stream()?.wait(&event)?;
    Ok(())
}

fn a_panic_in_a_host_function_is_contained(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let after = Arc::new(AtomicUsize::new(0));
    let seen = after.clone();
    stream.launch_host_fn(|| std::panic::resume_unwind(Box::new("from a host function")))?;
    stream.launch_host_fn(move || seen.store(1, Ordering::SeqCst))?;
    stream.synchronize()?;
    assert_eq!(after.load(Ordering::SeqCst), 1);
    Ok(())
}

fn dropping_a_stream_lets_its_work_finish(device: &Device) -> Outcome {
    let (done, finished) = mpsc::channel();
    let stream = device.stream()?;
    stream.launch_host_fn(|| std::thread::sleep(Duration::from_millis(5)))?;
    stream.launch_host_fn(move || {
        let _ = done.send(());
    })?;
    drop(stream);
    finished.recv_timeout(Duration::from_secs(30))?;
    Ok(())
}

fn many_threads_share_a_device(device: &Device) -> Outcome {
    let failures: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8u8)
            .map(|seed| {
                scope.spawn(move || -> Result<(), hip::HipError> {
                    for round in 0..20u8 {
                        let sent = pattern(5000, seed.wrapping_mul(31).wrapping_add(round));
                        let mut buffer = device.alloc(sent.len())?;
                        buffer.copy_to_device(0, &sent)?;
                        let mut back = vec![0; sent.len()];
                        buffer.copy_to_host(0, &mut back)?;
                        assert!(back == sent, "thread {seed}, round {round}");
                    }
                    Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .filter_map(|worker| match worker.join() {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("a thread panicked".to_owned()),
            })
            .collect()
    });
    assert!(failures.is_empty(), "{failures:?}");
    Ok(())
}

fn the_default_stream_has_a_name(device: &Device) -> Outcome {
    let event = device.event()?;
    event.record(RawStream::DEFAULT)?;
    device.stream_wait(RawStream::DEFAULT, &event)?;
    device.stream_synchronize(RawStream::DEFAULT)?;
    device.synchronize()?;
    assert!(device.stream_query(RawStream::DEFAULT)?);
    Ok(())
}
