//! Allocates device memory, and copies to it and back.
//!
//! `cargo run -p amdgpu-ep-hip --example 02-memory -- [amd|nvidia|host]`
//!
//! These calls wait until the data has arrived. `03-streams` shows the asynchronous ones.

mod course;

use std::error::Error;
use std::process::ExitCode;

const BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    course::ended(copy())
}

fn copy() -> Result<(), Box<dyn Error>> {
    let device = course::device()?;

    // Ordinary memory works for copies. Page-locked memory is faster, because the device reads it directly.
    let sent: Vec<u8> = (0..BYTES).map(|index| (index * 7) as u8).collect();
    let mut pinned = device.alloc_pinned(BYTES)?;
    pinned.as_mut_slice().copy_from_slice(&sent);

    // A buffer is freed when it is dropped, and keeps its device and driver alive until then.
    let mut first = device.alloc(BYTES)?;
    let mut second = device.alloc(BYTES)?;
    first.copy_from_pinned(0, &pinned, 0, BYTES)?;
    second.fill(0, BYTES, 0)?;
    first.copy_to_buffer(0, &mut second, 0, BYTES / 2)?;

    let mut received = vec![1; BYTES];
    second.copy_to_host(0, &mut received)?;
    assert_eq!(received[..BYTES / 2], sent[..BYTES / 2]);
    assert!(received[BYTES / 2..].iter().all(|&byte| byte == 0));
    println!("verified: {BYTES} bytes made the round trip through {}", device.info().name);
    Ok(())
}
