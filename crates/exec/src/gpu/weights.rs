//! Constants on the device.
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use graph::{Tensor, plan::ALIGNMENT};
use hip::{CopyKind, DeviceBuffer};

use super::Shared;
use crate::{
    ExecError,
    memory::{Counted, Purpose, Share},
};

/// Pinned memory that an upload goes through, in two halves: one is filled while the other is copied.
const STAGE_BYTES: usize = 8 << 20;

/// The constants of a program that plans use now. A constant is uploaded once, with all others that are new to a plan in
/// one piece of memory.
#[derive(Default)]
pub(super) struct Weights {
    /// By where the tensor's bytes lie on the host.
    known: Mutex<HashMap<*const u8, Known>>,
}

// SAFETY: the addresses are keys, and never followed.
unsafe impl Send for Weights {}
// SAFETY: as above.
unsafe impl Sync for Weights {}

struct Known {
    /// Holds the bytes, so that no other tensor comes to lie there.
    _tensor: Tensor,
    memory: Weak<Counted<DeviceBuffer>>,
    offset: usize,
}

/// A constant on the device.
#[derive(Clone)]
pub(super) struct Resident {
    memory: Arc<Counted<DeviceBuffer>>,
    offset: usize,
}

impl Resident {
    pub fn address(&self) -> *mut u8 {
        self.memory.address().as_ptr().wrapping_add(self.offset)
    }
}

impl Weights {
    /// The constants on the device, uploaded now or before.
    pub fn resident(&self, tensors: &[&Tensor], device: &Shared) -> Result<Vec<Resident>, ExecError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, entry| entry.memory.strong_count() > 0);
        let mut made: Vec<Option<Resident>> = Vec::with_capacity(tensors.len());
        // Held in the list of tensors: the same one may be there twice.
        let mut missing: Vec<(usize, usize)> = Vec::new();
        let mut bytes = 0usize;
        for (at, tensor) in tensors.iter().enumerate() {
            let entry = known.get(&tensor.bytes().as_ptr());
            let resident =
                entry.and_then(|entry| Some(Resident { memory: entry.memory.upgrade()?, offset: entry.offset }));
            if resident.is_none() {
                missing.push((at, bytes));
                bytes += tensor.bytes().len().next_multiple_of(ALIGNMENT);
            }
            made.push(resident);
        }
        if !missing.is_empty() {
            let memory = Arc::new(Counted::new(device.blocks.alloc(bytes)?, Purpose::Weights, bytes));
            let parts: Vec<_> = missing.iter().map(|&(at, offset)| (tensors[at].bytes(), offset)).collect();
            upload(&parts, &memory, device)?;
            for (at, offset) in missing {
                let entry = Known { _tensor: tensors[at].clone(), memory: Arc::downgrade(&memory), offset };
                known.insert(tensors[at].bytes().as_ptr(), entry);
                made[at] = Some(Resident { memory: memory.clone(), offset });
            }
        }
        Ok(made.into_iter().flatten().collect())
    }
}

/// Copies pieces of host memory to their places, through pinned memory.
fn upload(parts: &[(&[u8], usize)], memory: &DeviceBuffer, device: &Shared) -> Result<(), ExecError> {
    let total: usize = parts.iter().map(|(bytes, _)| bytes.len()).sum();
    let half = STAGE_BYTES.min(total).max(1);
    let stream = device.stream()?;
    let mut stages = [device.device.alloc_pinned(half)?, device.device.alloc_pinned(half)?];
    let _share = Share::new(Purpose::Staging, 2 * half);
    let events = [device.device.event()?, device.device.event()?];
    let mut turn = 0;
    let mut copy = || {
        for &(bytes, offset) in parts {
            for (at, chunk) in bytes.chunks(half).enumerate() {
                events[turn].synchronize()?;
                let stage = &mut stages[turn];
                stage.as_mut_slice()[..chunk.len()].copy_from_slice(chunk);
                let to = memory.address().as_ptr().wrapping_add(offset + at * half);
                // SAFETY: the piece has its place in `memory`, and the stage is not changed before the event is reached;
                // both live until the stream is waited for.
                unsafe {
                    let from = stage.address().as_ptr();
                    device.device.copy_raw_async(to, from, chunk.len(), CopyKind::HostToDevice, stream.raw())?;
                }
                events[turn].record(stream.raw())?;
                turn = 1 - turn;
            }
        }
        Ok(())
    };
    let copied: Result<(), hip::HipError> = copy();
    let waited = stream.synchronize();
    device.give_back(stream);
    Ok(copied.and(waited)?)
}
