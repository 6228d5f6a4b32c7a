//! Queues work on a stream, measures it with events, and lets a second stream wait for the first.
//!
//! `cargo run -p amdgpu-ep-hip --example 03-streams -- [amd|nvidia|host]`

mod course;

use std::error::Error;
use std::process::ExitCode;

use hip::CopyKind;

const BYTES: usize = 4 << 20;

fn main() -> ExitCode {
    course::ended(queue())
}

fn queue() -> Result<(), Box<dyn Error>> {
    let device = course::device()?;
    let (upload, download) = (device.stream()?, device.stream()?);
    let (start, uploaded) = (device.timing_event()?, device.timing_event()?);

    let mut source = device.alloc_pinned(BYTES)?;
    source.as_mut_slice().fill(42);
    let target = device.alloc_pinned(BYTES)?;
    let middle = device.alloc(BYTES)?;
    let (from, there, to) = (source.address().as_ptr(), middle.address().as_ptr(), target.address().as_ptr());

    start.record(upload.raw())?;
    // SAFETY: all three buffers have BYTES bytes, and live until both streams have been waited for.
    unsafe { device.copy_raw_async(there, from, BYTES, CopyKind::HostToDevice, upload.raw())? };
    uploaded.record(upload.raw())?;

    // The host does not wait here. The second stream does, before its copy.
    download.wait(&uploaded)?;
    // SAFETY: as above.
    unsafe { device.copy_raw_async(to, there, BYTES, CopyKind::DeviceToHost, download.raw())? };
    download.synchronize()?;

    assert!(target.as_slice().iter().all(|&byte| byte == 42));
    println!("the upload took {:.3} ms", uploaded.elapsed_ms(&start)?);
    println!("verified: {BYTES} bytes, through two streams");
    Ok(())
}
