//! The thread of a copy queue.

use std::sync::atomic::AtomicBool;

use super::sdma::{Command, MOST_WORDS};
use super::{Idle, QueueError, Ring};
use crate::device::Device;
use crate::trace::trace;

/// Processes commands in order until the queue is stopped.
///
/// # Errors
/// When a command fails.
pub(super) fn process(device: &Device, ring: Ring, stop: &AtomicBool) -> Result<(), QueueError> {
    ring.check(4 * MOST_WORDS as u32)?;
    let (memory, idle) = (device.memory(), Idle::new(device, stop));
    let mut done = memory.load_u64(ring.read_pointer)?;
    loop {
        if !idle.until(|| Ok(ring.written(memory)? > done))? {
            return Ok(());
        }
        let mut words = [0; MOST_WORDS];
        for (word, at) in words.iter_mut().zip((done..).step_by(4)) {
            *word = memory.load_u32(ring.start + (at & u64::from(ring.bytes - 1)))?;
        }
        let (command, length) = Command::parse(&words)?;
        if command != Command::Nop {
            trace(format_args!("{command:x?}"));
        }
        match command {
            Command::Trap { event } => idle.raise(event),
            Command::Poll { address, value, mask, comparison } => {
                let is_met = || Ok(comparison.holds(memory.load_u32(address)? & mask, value));
                if !idle.until(is_met)? {
                    return Ok(());
                }
            }
            other => other.run(memory)?,
        }
        done += 4 * u64::from(length);
        memory.store_u64(ring.read_pointer, done)?;
    }
}
