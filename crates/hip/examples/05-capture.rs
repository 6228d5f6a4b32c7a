//! Records work once and replays it: one call instead of many, for work that repeats.
//!
//! `cargo run -p amdgpu-ep-hip --example 05-capture -- [amd|nvidia|host]`

mod course;

use std::error::Error;
use std::process::ExitCode;

use hip::{CaptureMode, CopyKind};

const BYTES: usize = 4096;

fn main() -> ExitCode {
    course::ended(replay())
}

fn replay() -> Result<(), Box<dyn Error>> {
    let device = course::device()?;
    let stream = device.stream()?;
    // Allocate before the capture: a capture records addresses, and must not allocate.
    let mut source = device.alloc_pinned(BYTES)?;
    let target = device.alloc_pinned(BYTES)?;
    let middle = device.alloc(BYTES)?;

    stream.begin_capture(CaptureMode::ThreadLocal)?;
    let there = middle.address().as_ptr();
    // SAFETY: all three buffers have BYTES bytes, and live until the last replay has been waited for.
    unsafe {
        device.copy_raw_async(there, source.address().as_ptr(), BYTES, CopyKind::HostToDevice, stream.raw())?;
        device.fill_raw_async(there, 0xFF, 1, stream.raw())?;
        device.copy_raw_async(target.address().as_ptr(), there, BYTES, CopyKind::DeviceToHost, stream.raw())?;
    }
    let graph = stream.end_capture()?;
    println!("captured {} nodes, and nothing has run yet", graph.node_count()?);

    let replay = graph.instantiate()?;
    for round in 1..=3 {
        source.as_mut_slice().fill(round);
        replay.launch(stream.raw())?;
        stream.synchronize()?;
        assert_eq!(target.as_slice()[0], 0xFF);
        assert!(target.as_slice()[1..].iter().all(|&byte| byte == round));
    }
    println!("verified: 3 replays with new data");
    Ok(())
}
