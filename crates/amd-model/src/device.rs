//! One GPU: its memory, its events, and what runs its kernels.

use std::sync::{Mutex, PoisonError};

use gfx_emu::Fault;

use crate::memory::Memory;
use crate::queue::aql::Dispatch;

/// What runs kernels.
pub trait Executor: Send + Sync {
    /// Runs all workgroups of a dispatch; `packet` and `queue` are the GPU addresses of its packet and of its queue's
    /// `amd_queue_t`, which kernels may read.
    ///
    /// # Errors
    /// Why it did not run to its end.
    fn run(&self, dispatch: &Dispatch, packet: u64, queue: u64) -> Result<(), Fault>;
}

/// Raises an event of the runtime by its number.
pub type RaiseEvent = Box<dyn Fn(u32) + Send + Sync>;

/// An emulated GPU.
pub struct Device {
    memory: Box<dyn Memory>,
    executor: Box<dyn Executor>,
    raise_event: Mutex<Option<RaiseEvent>>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Device").finish_non_exhaustive()
    }
}

impl Device {
    /// A GPU with this memory that runs kernels by `executor`.
    pub fn new(memory: Box<dyn Memory>, executor: Box<dyn Executor>) -> Self {
        Self { memory, executor, raise_event: Mutex::new(None) }
    }

    /// Its memory.
    pub fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    /// Sets how events are raised.
    pub fn on_event(&self, raise: RaiseEvent) {
        *self.raise_event.lock().unwrap_or_else(PoisonError::into_inner) = Some(raise);
    }

    /// Raises an event. One at a time: the runtime does not guard its table of events.
    pub fn raise(&self, event: u32) {
        if let Some(raise) = &*self.raise_event.lock().unwrap_or_else(PoisonError::into_inner) {
            raise(event);
        }
    }

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// Why the kernel stopped early.
    pub fn run(&self, dispatch: &Dispatch, packet: u64, queue: u64) -> Result<(), Fault> {
        self.executor.run(dispatch, packet, queue)
    }
}
