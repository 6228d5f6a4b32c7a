//! Uploads constants to the device and keeps track of them.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use graph::memory::Store;
use graph::plan::ALIGNMENT;
use graph::{Tensor, WeakTensor};
use hip::DeviceBuffer;

use super::Shared;
use crate::ExecError;
use crate::ffi::pinned::{self, Stage};
use crate::memory::{Counted, Purpose, Share};

/// The size of each of the two pinned staging buffers for uploads: one is filled while the other is copied.
const STAGE_BYTES: usize = 8 << 20;

/// Constants of at least this size are kept only on the device once they are there. Planning needs the values of small
/// ones.
const STORED_BYTES: usize = 64 << 10;

/// The constants of a partition that plans currently use. Each constant is uploaded once; all constants that are new to
/// a plan share one allocation.
#[derive(Default)]
pub(super) struct Weights {
    /// The constants by tensor id.
    known: Mutex<HashMap<u64, Known>>,
    /// Why a constant could not be copied back. Later plans may have used zeros instead.
    failure: Arc<OnceLock<ExecError>>,
}

struct Known {
    memory: Weak<Counted<DeviceBuffer>>,
    offset: usize,
    /// The stand-in for the constant on the host, and a tensor that has its bytes there, as long as something else
    /// refers to them.
    stored: WeakTensor,
    here: WeakTensor,
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
    /// Returns the constants on the device. Uploads those that are missing.
    pub fn resident(&self, tensors: &[&Tensor], device: &Shared) -> Result<Vec<Resident>, ExecError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, entry| entry.memory.strong_count() > 0);
        let mut made: Vec<Option<Resident>> = Vec::with_capacity(tensors.len());
        // Refers to `tensors` by index, because the same tensor may occur twice.
        let mut missing: Vec<(usize, usize)> = Vec::new();
        let mut bytes = 0usize;
        for (at, tensor) in tensors.iter().enumerate() {
            let resident = known.get(&tensor.id()).and_then(Known::resident);
            if resident.is_none() {
                missing.push((at, bytes));
                bytes += tensor.len_bytes().next_multiple_of(ALIGNMENT);
            }
            made.push(resident);
        }
        if !missing.is_empty() {
            let memory = Arc::new(Counted::new(device.blocks.alloc(bytes)?, Purpose::Weights, bytes));
            let parts: Vec<_> = missing.iter().map(|&(at, offset)| (tensors[at].bytes(), offset)).collect();
            upload(&parts, &memory, device)?;
            for (at, offset) in missing {
                let (stored, here) = (WeakTensor::default(), WeakTensor::default());
                let entry = Known { memory: Arc::downgrade(&memory), offset, stored, here };
                known.insert(tensors[at].id(), entry);
                made[at] = Some(Resident { memory: memory.clone(), offset });
            }
        }
        Ok(made.into_iter().flatten().collect())
    }

    /// A stand-in for a large constant that is on the device. It uses no host memory, keeps the device memory alive,
    /// and copies the bytes back if they are read. `None` for other constants, and for tensors that are stand-ins
    /// already.
    pub fn stored(&self, tensor: &Tensor, device: &Arc<Shared>) -> Option<Tensor> {
        if tensor.len_bytes() < STORED_BYTES || !tensor.is_here() {
            return None;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get_mut(&tensor.id())?;
        let resident = entry.resident()?;
        entry.here = tensor.downgrade();
        // If a stand-in was read, only its readers keep it: the others do not need the bytes.
        if let Some(stored) = entry.stored.upgrade(tensor).filter(|stored| !stored.is_here()) {
            return Some(stored);
        }
        let stored =
            tensor.stored(Box::new(OnDevice { resident, device: device.clone(), failure: self.failure.clone() }));
        entry.stored = stored.downgrade();
        Some(stored)
    }

    /// The constant with its bytes on the host: those that another plan holds, or else copied back.
    /// [`check`](Self::check) reports whether that succeeded.
    pub fn here(&self, tensor: &Tensor) -> Tensor {
        let held = || {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&tensor.id())?.here.upgrade(tensor)
        };
        let here = if tensor.is_here() { None } else { held() };
        let here = here.unwrap_or_else(|| tensor.clone());
        here.bytes();
        here
    }

    /// Fails if a constant could not be copied back.
    pub fn check(&self) -> Result<(), ExecError> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }
}

impl Known {
    fn resident(&self) -> Option<Resident> {
        Some(Resident { memory: self.memory.upgrade()?, offset: self.offset })
    }
}

/// A constant that exists only on the device.
struct OnDevice {
    resident: Resident,
    failure: Arc<OnceLock<ExecError>>,
    device: Arc<Shared>,
}

impl Store for OnDevice {
    fn fetch(&self, bytes: &mut [u8]) {
        tracing::debug!(target: "amdgpu_ep::memory", "copying a constant of {} bytes back from the device", bytes.len());
        if let Err(error) = download(&self.resident, bytes, &self.device) {
            bytes.fill(0);
            self.failure.get_or_init(|| error);
        }
    }
}

fn download(from: &Resident, bytes: &mut [u8], device: &Shared) -> Result<(), ExecError> {
    let stream = device.stream()?;
    // The constant's bytes are on the device and never change.
    let copied = pinned::download(&from.memory, from.offset, bytes, &stream);
    device.give_back(stream);
    Ok(copied?)
}

/// Copies pieces of host memory to their places on the device, through pinned memory.
fn upload(parts: &[(&[u8], usize)], memory: &DeviceBuffer, device: &Shared) -> Result<(), ExecError> {
    let total: usize = parts.iter().map(|(bytes, _)| bytes.len()).sum();
    let half = STAGE_BYTES.min(total).max(1);
    let stream = device.stream()?;
    let mut stages = [Stage::new(half, &device.device)?, Stage::new(half, &device.device)?];
    let _share = Share::new(Purpose::Staging, 2 * half);
    let mut turn = 0;
    let mut copy = || {
        for &(bytes, offset) in parts {
            for (at, chunk) in bytes.chunks(half).enumerate() {
                stages[turn].send(chunk, memory, offset + at * half, stream.raw())?;
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
