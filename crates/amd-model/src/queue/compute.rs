//! The thread of a compute queue.

use std::sync::atomic::AtomicBool;

use super::aql::{self, Packet, Work};
use super::{Idle, QueueError, Ring};
use crate::device::Device;
use crate::memory::AccessError;
use crate::signal::{self, Signal};
use crate::trace::trace;

/// The offset of the read pointer, which the runtime registers, in `amd_queue_t`.
const READ_POINTER: u64 = 128;

/// Processes packets in order until the queue is stopped.
///
/// # Errors
/// When a packet fails.
pub(super) fn process(device: &Device, ring: Ring, stop: &AtomicBool) -> Result<(), QueueError> {
    ring.check(aql::BYTES as u32)?;
    let (memory, idle) = (device.memory(), Idle::new(device, stop));
    let slots = u64::from(ring.bytes) / aql::BYTES;
    let mut done = memory.load_u64(ring.read_pointer)?;
    loop {
        let slot = ring.start + done % slots * aql::BYTES;
        let is_written = || Ok(ring.written(memory)? > done && memory.load_u32(slot)? & 0xff != aql::INVALID);
        if !idle.until(is_written)? {
            return Ok(());
        }
        let mut bytes = [0; 64];
        memory.read(slot, &mut bytes)?;
        let Some(packet) = Packet::parse(&bytes)? else { continue };
        trace(format_args!("{packet:x?}"));
        let start = signal::ticks();
        if !perform(device, packet.work, slot, ring, &idle)? {
            return Ok(());
        }
        if let Some(event) = packet.completion.map(|signal| signal.complete(start, memory)).transpose()?.flatten() {
            idle.raise(event);
        }
        memory.store_u32(slot, aql::INVALID)?;
        done += 1;
        memory.store_u64(ring.read_pointer, done)?;
    }
}

/// Does what a packet asks for. Returns false if the queue was stopped while the packet waited.
fn perform(device: &Device, work: Work, slot: u64, ring: Ring, idle: &Idle<'_>) -> Result<bool, QueueError> {
    let memory = device.memory();
    let is_zero = |signal: &Signal| Ok(signal.value(memory)? == 0);
    match work {
        Work::Commands => Ok(true),
        Work::Dispatch(dispatch) => {
            device.run(&dispatch, slot, ring.read_pointer.wrapping_sub(READ_POINTER))?;
            Ok(true)
        }
        Work::BarrierAnd(signals) => Ok(idle.until(|| all(signals.iter().flatten().map(is_zero)))?),
        Work::BarrierOr(signals) => {
            let none = signals.iter().all(Option::is_none);
            Ok(idle.until(|| Ok(none || any(signals.iter().flatten().map(is_zero))?))?)
        }
        Work::BarrierValue { signal: None, .. } => Ok(true),
        Work::BarrierValue { signal: Some(signal), value, mask, condition } => {
            Ok(idle.until(|| Ok(condition.holds(signal.value(memory)? & mask, value)))?)
        }
    }
}

fn all(mut each: impl Iterator<Item = Result<bool, AccessError>>) -> Result<bool, AccessError> {
    each.try_fold(true, |so_far, one| Ok(so_far & one?))
}

fn any(mut each: impl Iterator<Item = Result<bool, AccessError>>) -> Result<bool, AccessError> {
    each.try_fold(false, |so_far, one| Ok(so_far | one?))
}
