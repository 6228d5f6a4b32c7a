//! Queues: each is a ring in memory with a thread that processes it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gfx_emu::Fault;

use crate::aperture::Unmapped;
use crate::device::Device;
use crate::memory::{AccessError, Memory};
use crate::queue::aql::PacketError;
use crate::queue::sdma::UnknownCommand;
use crate::trace::{complain, trace};

pub mod aql;
mod compute;
mod copies;
pub mod sdma;

/// A ring, as the runtime registers it. Addresses are GPU addresses.
#[derive(Debug, Clone, Copy)]
pub struct Ring {
    /// Its first byte.
    pub start: u64,
    /// Its size, a power of two.
    pub bytes: u32,
    /// The address of the counter of what the runtime has written.
    pub write_pointer: u64,
    /// The address of the counter of what the machine has processed.
    pub read_pointer: u64,
    /// The kind of its packets.
    pub kind: Kind,
}

/// The kind of packets in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// AQL packets.
    Compute,
    /// SDMA commands.
    Copies,
}

/// Why a queue stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The ring's size is not a power of two, or too small for a packet.
    #[error("a ring of {0} bytes is not valid")]
    Ring(u32),
    /// Memory that does not exist.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A packet that no GPU executes.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A command that this machine does not execute.
    #[error(transparent)]
    Command(#[from] UnknownCommand),
    /// A kernel that did not run to its end.
    #[error("a kernel was stopped: {0}")]
    Kernel(#[from] Fault),
}

impl From<Unmapped> for QueueError {
    fn from(unmapped: Unmapped) -> Self {
        Self::Access(unmapped.into())
    }
}

/// A running queue. Dropping it ends its thread.
#[derive(Debug)]
pub struct Queue {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    /// Starts to process a ring.
    pub fn start(device: Arc<Device>, ring: Ring) -> Self {
        trace(format_args!("{ring:x?}"));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let name = match ring.kind {
            Kind::Compute => "amd-model-aql",
            Kind::Copies => "amd-model-sdma",
        };
        let process = move || {
            let ended = match ring.kind {
                Kind::Compute => compute::process(&device, ring, &stopped),
                Kind::Copies => copies::process(&device, ring, &stopped),
            };
            if let Err(error) = ended {
                fail(&error);
            }
        };
        // Without a thread the queue stays still, and the runtime waits for it.
        let thread = thread::Builder::new().name(name.to_owned()).spawn(process);
        Self { stop, thread: thread.ok() }
    }
}

/// Ends the process, as ROCr does by default when hardware reports a fault. The hook leaves no other way: to handle the
/// error of a queue, ROCr suspends it, and the hook ends the process for that without saying why.
fn fail(error: &QueueError) -> ! {
    complain(format_args!("a queue failed: {error}"));
    std::process::abort()
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits between two looks at memory: briefly at first, then ever longer.
pub(crate) struct Patience {
    looks: u32,
}

impl Patience {
    const SPINS: u32 = 100;
    const SHORT_SLEEPS: u32 = 1000;
    const LONGER_SLEEPS: u32 = 3000;

    pub(crate) const fn new() -> Self {
        Self { looks: 0 }
    }

    const fn has_slept(&self) -> bool {
        self.looks > Self::SPINS
    }

    pub(crate) fn wait(&mut self) {
        self.looks = self.looks.saturating_add(1);
        if self.looks < Self::SPINS {
            std::hint::spin_loop();
        } else if self.looks < Self::SHORT_SLEEPS {
            thread::sleep(Duration::from_micros(20));
        } else if self.looks < Self::LONGER_SLEEPS {
            thread::sleep(Duration::from_micros(300));
        } else {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What a queue does while it has nothing to do.
struct Idle<'a> {
    device: &'a Device,
    stop: &'a AtomicBool,
    /// The last event, until it has been raised twice.
    last_event: Cell<Option<u32>>,
}

impl<'a> Idle<'a> {
    const fn new(device: &'a Device, stop: &'a AtomicBool) -> Self {
        Self { device, stop, last_event: Cell::new(None) }
    }

    /// Raises an event, and once more when the queue next sleeps: ROCr sets events without holding the lock of those
    /// who wait for them, so a thread that is just about to wait can miss one.
    fn raise(&self, event: u32) {
        self.device.raise(event);
        self.last_event.set(Some(event));
    }

    /// Waits until `is_ready` returns true. Returns false if the queue was stopped first.
    fn until(&self, mut is_ready: impl FnMut() -> Result<bool, AccessError>) -> Result<bool, AccessError> {
        let mut patience = Patience::new();
        loop {
            if is_ready()? {
                return Ok(true);
            }
            if self.stop.load(Ordering::Acquire) {
                return Ok(false);
            }
            if patience.has_slept()
                && let Some(event) = self.last_event.take()
            {
                self.device.raise(event);
            }
            patience.wait();
        }
    }
}

impl Ring {
    /// Checks its size for items of `item_bytes`.
    fn check(&self, item_bytes: u32) -> Result<(), QueueError> {
        let is_valid = self.bytes.is_power_of_two() && self.bytes >= item_bytes;
        if is_valid { Ok(()) } else { Err(QueueError::Ring(self.bytes)) }
    }

    fn written(&self, memory: &dyn Memory) -> Result<u64, AccessError> {
        memory.load_u64(self.write_pointer)
    }
}
