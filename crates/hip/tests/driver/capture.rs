//! Capture, replay and update.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hip::{CaptureMode, CaptureStatus, CopyKind, Device, Graph, HipError, PinnedBuffer, Stream, UpdateResult};

use crate::{Outcome, Row, pattern};

pub const ROWS: &[Row] = &[
    Row::new("a_capture_replays_with_new_data", a_capture_replays_with_new_data),
    Row::new("an_update_changes_what_is_replayed", an_update_changes_what_is_replayed),
    Row::new("an_update_of_another_shape_is_refused", an_update_of_another_shape_is_refused),
    Row::new("captured_host_functions_run_at_every_launch", captured_host_functions_run_at_every_launch),
    Row::new("functions_recorded_by_stream_name_live_as_long_as_their_graph", functions_recorded_by_stream_name),
    Row::new("a_function_that_runs_once_cannot_be_captured", a_function_that_runs_once_cannot_be_captured),
    Row::new("pinned_memory_is_refused_not_replaced_in_a_capture", pinned_memory_is_refused_not_replaced_in_a_capture)
        .skip_where(|device| {
            (device.kind() != hip::DriverKind::Host).then_some("only the host driver is guaranteed to reject it")
        }),
    Row::new("a_fork_and_join_is_captured_whole", a_fork_and_join_is_captured_whole),
    Row::new("a_stream_dropped_in_a_capture_ends_it", a_stream_dropped_in_a_capture_ends_it),
    Row::new("a_stream_works_again_after_an_interrupted_capture", a_stream_works_again_after_an_interrupted_capture),
];

const BYTES: usize = 4096;

struct Setup {
    stream: Stream,
    source: PinnedBuffer,
    target: PinnedBuffer,
    middle: hip::DeviceBuffer,
}

impl Setup {
    fn new(device: &Device) -> Result<Setup, HipError> {
        Ok(Setup {
            stream: device.stream()?,
            source: device.alloc_pinned(BYTES)?,
            target: device.alloc_pinned(BYTES)?,
            middle: device.alloc(BYTES)?,
        })
    }

    /// Records a copy from source to device, a fill of one byte, and a copy from device to target.
    fn record(&self, mark_at: usize, mark: u8) -> Result<Graph, HipError> {
        let (device, stream) = (self.middle.device(), self.stream.raw());
        let middle = self.middle.address().as_ptr();
        self.stream.begin_capture(CaptureMode::ThreadLocal)?;
        assert_eq!(device.capture_status(stream)?, CaptureStatus::Active);
        // SAFETY: `self` holds the buffers and outlives every launch of the graph in this file.
        unsafe {
            device.copy_raw_async(middle, self.source.address().as_ptr(), BYTES, CopyKind::HostToDevice, stream)?;
            device.fill_raw_async(middle.add(mark_at), mark, 1, stream)?;
            device.copy_raw_async(self.target.address().as_ptr(), middle, BYTES, CopyKind::DeviceToHost, stream)?;
        }
        let graph = self.stream.end_capture()?;
        assert_eq!(device.capture_status(stream)?, CaptureStatus::None);
        Ok(graph)
    }

    fn expect(&self, sent: &[u8], mark_at: usize, mark: u8) {
        let mut wanted = sent.to_vec();
        wanted[mark_at] = mark;
        assert!(self.target.as_slice() == wanted, "the replay produced different bytes");
    }
}

fn a_capture_replays_with_new_data(device: &Device) -> Outcome {
    let mut setup = Setup::new(device)?;
    let graph = setup.record(17, 0xEE)?;
    assert_eq!(graph.node_count()?, 3);
    assert!(setup.target.as_slice().iter().all(|&byte| byte == 0), "recording must not run the work");
    let exec = graph.instantiate()?;
    drop(graph);
    for seed in 1..5 {
        let sent = pattern(BYTES, seed);
        setup.source.as_mut_slice().copy_from_slice(&sent);
        exec.launch(setup.stream.raw())?;
        setup.stream.synchronize()?;
        setup.expect(&sent, 17, 0xEE);
    }
    Ok(())
}

fn an_update_changes_what_is_replayed(device: &Device) -> Outcome {
    let mut setup = Setup::new(device)?;
    let exec = setup.record(17, 0xEE)?.instantiate()?;
    let sent = pattern(BYTES, 9);
    setup.source.as_mut_slice().copy_from_slice(&sent);
    exec.launch(setup.stream.raw())?;
    setup.stream.synchronize()?;
    setup.expect(&sent, 17, 0xEE);
    assert_eq!(exec.update(&setup.record(17, 0x11)?)?, UpdateResult::Updated);
    exec.launch(setup.stream.raw())?;
    setup.stream.synchronize()?;
    setup.expect(&sent, 17, 0x11);
    Ok(())
}

fn an_update_of_another_shape_is_refused(device: &Device) -> Outcome {
    let mut setup = Setup::new(device)?;
    let exec = setup.record(17, 0xEE)?.instantiate()?;
    setup.stream.begin_capture(CaptureMode::Relaxed)?;
    // SAFETY: the buffer outlives the graph, which is never launched.
    unsafe { device.fill_raw_async(setup.middle.address().as_ptr(), 1, BYTES, setup.stream.raw())? };
    let other = setup.stream.end_capture()?;
    let result = exec.update(&other)?;
    assert!(matches!(result, UpdateResult::Refused(_)), "{result:?}");
    let sent = pattern(BYTES, 13);
    setup.source.as_mut_slice().copy_from_slice(&sent);
    exec.launch(setup.stream.raw())?;
    setup.stream.synchronize()?;
    setup.expect(&sent, 17, 0xEE);
    Ok(())
}

fn captured_host_functions_run_at_every_launch(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    assert!(stream.capture_host_fn(|| ()).is_err(), "nothing is being captured yet");
    stream.begin_capture(CaptureMode::ThreadLocal)?;
    stream.capture_host_fn(move || {
        seen.fetch_add(1, Ordering::SeqCst);
    })?;
    let exec = stream.end_capture()?.instantiate()?;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    for _ in 0..5 {
        exec.launch(stream.raw())?;
    }
    // Dropping waits for the launches in progress, so that none of them loses its function.
    drop(exec);
    assert_eq!(count.load(Ordering::SeqCst), 5);
    assert_eq!(Arc::strong_count(&count), 1, "the function outlived its graph");
    Ok(())
}

fn functions_recorded_by_stream_name(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let count = Arc::new(AtomicUsize::new(0));
    let add = |step: usize| {
        let seen = count.clone();
        move || {
            seen.fetch_add(step, Ordering::SeqCst);
        }
    };
    assert!(device.record_host_fn(stream.raw(), add(1)).is_err(), "nothing is being captured yet");
    device.begin_capture(stream.raw(), CaptureMode::Relaxed)?;
    let kept = device.record_host_fn(stream.raw(), add(1))?;
    // A dropped function does not run, but the rest of the graph does.
    drop(device.record_host_fn(stream.raw(), add(100))?);
    let exec = device.end_capture_with(stream.raw(), vec![kept])?.instantiate()?;
    for _ in 0..3 {
        exec.launch(stream.raw())?;
    }
    drop(exec);
    assert_eq!(count.load(Ordering::SeqCst), 3);
    assert_eq!(Arc::strong_count(&count), 1, "the function outlived its graph");
    Ok(())
}

fn a_function_that_runs_once_cannot_be_captured(device: &Device) -> Outcome {
    let stream = device.stream()?;
    stream.begin_capture(CaptureMode::ThreadLocal)?;
    let refused = stream.launch_host_fn(|| ());
    assert!(matches!(refused, Err(HipError::Invalid { .. })), "{refused:?}");
    assert_eq!(stream.end_capture()?.node_count()?, 0);
    Ok(())
}

fn pinned_memory_is_refused_not_replaced_in_a_capture(device: &Device) -> Outcome {
    let stream = device.stream()?;
    stream.begin_capture(CaptureMode::ThreadLocal)?;
    let refused = device.alloc_pinned(BYTES).map(|pinned| pinned.is_pinned());
    assert!(matches!(&refused, Err(error) if error.is_capture()), "{refused:?}");
    assert!(matches!(stream.end_capture(), Err(error) if error.is_capture()));
    assert!(device.alloc_pinned(BYTES)?.is_pinned());
    Ok(())
}

fn a_fork_and_join_is_captured_whole(device: &Device) -> Outcome {
    let (main, side) = (device.stream()?, device.stream()?);
    let (fork, join) = (device.event()?, device.event()?);
    let buffer = device.alloc(2 * BYTES)?;
    let target = device.alloc_pinned(2 * BYTES)?;
    let (low, high) = (buffer.address().as_ptr(), buffer.address().as_ptr().wrapping_add(BYTES));
    main.begin_capture(CaptureMode::ThreadLocal)?;
    // SAFETY: both buffers outlive every launch below.
    unsafe {
        fork.record(main.raw())?;
        side.wait(&fork)?;
        device.fill_raw_async(low, 0x21, BYTES, main.raw())?;
        device.fill_raw_async(high, 0x43, BYTES, side.raw())?;
        join.record(side.raw())?;
        main.wait(&join)?;
        device.copy_raw_async(target.address().as_ptr(), low, 2 * BYTES, CopyKind::DeviceToHost, main.raw())?;
    }
    let exec = main.end_capture()?.instantiate()?;
    exec.launch(side.raw())?;
    side.synchronize()?;
    let (first, second) = target.as_slice().split_at(BYTES);
    assert!(first.iter().all(|&byte| byte == 0x21) && second.iter().all(|&byte| byte == 0x43));
    Ok(())
}

fn a_stream_dropped_in_a_capture_ends_it(device: &Device) -> Outcome {
    let stream = device.stream()?;
    stream.begin_capture(CaptureMode::ThreadLocal)?;
    drop(stream);
    let mut buffer = device.alloc(64)?;
    buffer.fill(0, 64, 9)?;
    Ok(())
}

fn a_stream_works_again_after_an_interrupted_capture(device: &Device) -> Outcome {
    let mut setup = Setup::new(device)?;
    setup.stream.begin_capture(CaptureMode::Relaxed)?;
    let interrupted = setup.stream.synchronize();
    assert!(matches!(&interrupted, Err(error) if error.is_capture()), "{interrupted:?}");
    assert!(matches!(setup.stream.end_capture(), Err(error) if error.is_capture()));
    assert_eq!(device.capture_status(setup.stream.raw())?, CaptureStatus::None);
    // The failure affects neither the stream nor synchronous work elsewhere.
    setup.middle.fill(0, 64, 9)?;
    setup.stream.synchronize()?;
    let sent = pattern(BYTES, 5);
    setup.source.as_mut_slice().copy_from_slice(&sent);
    let exec = setup.record(7, 0xEE)?.instantiate()?;
    exec.launch(setup.stream.raw())?;
    setup.stream.synchronize()?;
    setup.expect(&sent, 7, 0xEE);
    Ok(())
}
