//! The hook's C interface, version 0.4 (`hsakmtmodeliface.h` of ROCr 7.2).
//!
//! ROCr calls `create` once for each GPU of the topology, in the order of the nodes, and holds a lock during all calls.

mod code_objects;
mod kernels;
mod opening;
#[cfg(target_arch = "x86_64")]
mod pace;
mod waiting;
mod window;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::aperture::{Allocations, Aperture};
use crate::chips::Chip;
use crate::device::Device;
use crate::queue::{Kind, Queue, Ring};
use crate::trace::{complain, trace};
use crate::{sanitizer, topology};
use kernels::Kernels;
use window::Window;

/// `KFD_IOC_QUEUE_TYPE_COMPUTE_AQL`; besides these, the hook passes on only SDMA queues.
const COMPUTE_AQL: u32 = 2;

/// ROCr's description of a queue.
#[repr(C)]
#[derive(Debug)]
pub struct QueueInfo {
    ring: u64,
    write_pointer: u64,
    read_pointer: u64,
    /// Not set by ROCr 7.2.
    doorbell: *mut u64,
    ring_bytes: u32,
    kind: u32,
}

const _: () = assert!(size_of::<QueueInfo>() == 40 && std::mem::offset_of!(QueueInfo, kind) == 36);

type SetEvent = unsafe extern "C" fn(data: *mut c_void, event: u32);

/// The table that [`get_hsakmt_model_functions`] returns.
#[repr(C)]
pub struct Functions {
    major: u32,
    minor: u32,
    create: unsafe extern "C" fn() -> *mut Model,
    destroy: unsafe extern "C" fn(*mut Model),
    set_global_aperture: unsafe extern "C" fn(*mut Model, *mut c_void, u64),
    alloced_memory: unsafe extern "C" fn(*mut Model, *mut c_void, u64, u32),
    freed_memory: unsafe extern "C" fn(*mut Model, *mut c_void, u64),
    set_notify_event: unsafe extern "C" fn(*mut Model, *mut c_void, *mut c_void),
    set_wait_event: unsafe extern "C" fn(*mut Model, *mut c_void, *mut c_void),
    register_queue: unsafe extern "C" fn(*mut Model, *const QueueInfo) -> *mut Queue,
    set_set_event: unsafe extern "C" fn(*mut Model, SetEvent, *mut c_void),
    destroy_queue: unsafe extern "C" fn(*mut Model, *mut Queue),
}

const _: () = assert!(size_of::<Functions>() == 8 + 10 * size_of::<usize>());

static FUNCTIONS: Functions = Functions {
    major: 0,
    minor: 4,
    create,
    destroy,
    set_global_aperture,
    alloced_memory,
    freed_memory,
    set_notify_event,
    set_wait_event,
    register_queue,
    set_set_event,
    destroy_queue,
};

/// The allocations of all devices: ROCr reports each only to the device that it was made for, but maps it to others too.
static ALLOCATIONS: Allocations = Allocations::new();

/// The number of GPUs that ROCr has created.
static CREATED: AtomicUsize = AtomicUsize::new(0);

/// One GPU as ROCr holds it.
pub struct Model {
    chip: &'static Chip,
    /// Set when ROCr has reported where memory is.
    device: OnceLock<Arc<Device>>,
    /// How to raise events, if ROCr reports that before the memory.
    set_event: Mutex<Option<Events>>,
}

/// ROCr's function that raises events, with its argument.
#[derive(Clone, Copy)]
struct Events {
    set: SetEvent,
    data: *mut c_void,
}

// SAFETY: ROCr's function may be called by any thread, with the argument that came with it.
unsafe impl Send for Events {}
// SAFETY: as above.
unsafe impl Sync for Events {}

impl Events {
    fn raise(&self, event: u32) {
        // SAFETY: ROCr promised that this function works as long as the model lives, which outlives its queues.
        unsafe { (self.set)(self.data, event) }
    }
}

impl Model {
    fn connect(&self) {
        let events = *self.set_event.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(device), Some(events)) = (self.device.get(), events) {
            device.on_event(Box::new(move |event| events.raise(event)));
        }
    }
}

/// Runs the body of an entry point; a panic must not unwind into C.
fn guard<T>(entry: &str, otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        complain(format_args!("{entry} panicked"));
        otherwise
    })
}

/// The entry point that ROCr looks up.
#[unsafe(no_mangle)]
pub extern "C" fn get_hsakmt_model_functions() -> *const Functions {
    guard("get_hsakmt_model_functions", (), opening::begin);
    &raw const FUNCTIONS
}

unsafe extern "C" fn create() -> *mut Model {
    guard("create", (), opening::end);
    guard("create", ptr::null_mut(), || match chip(CREATED.fetch_add(1, Ordering::Relaxed)) {
        Ok(chip) => Box::into_raw(Box::new(Model { chip, device: OnceLock::new(), set_event: Mutex::new(None) })),
        Err(reason) => {
            complain(format_args!("the GPU cannot be emulated: {reason}"));
            ptr::null_mut()
        }
    })
}

/// The topology's GPU with this place.
fn chip(place: usize) -> Result<&'static Chip, String> {
    let folder = std::env::var_os("HSA_MODEL_TOPOLOGY").ok_or("HSA_MODEL_TOPOLOGY is not set")?;
    let chips = topology::chips(folder.as_ref()).map_err(|error| error.to_string())?;
    chips.get(place).copied().ok_or_else(|| format!("the topology has {} GPUs", chips.len()))
}

unsafe extern "C" fn destroy(model: *mut Model) {
    if !model.is_null() {
        // SAFETY: ROCr returns what `create` made, once.
        guard("destroy", (), || drop(unsafe { Box::from_raw(model) }));
    }
}

unsafe extern "C" fn set_global_aperture(model: *mut Model, base: *mut c_void, bytes: u64) {
    let aperture = Aperture::new(base.expose_provenance() as u64, bytes, &ALLOCATIONS);
    // SAFETY: ROCr passes what `create` made and it has not destroyed. It reserves `bytes` bytes at `base` for good, and
    // maps there what it allocates.
    let (model, window) = unsafe { (&*model, Window::new(aperture)) };
    // SAFETY: as above.
    let kernels = unsafe { Kernels::new(model.chip.target, base, bytes) };
    guard("set_global_aperture", (), || {
        trace(format_args!("aperture of {bytes:#x} bytes at {base:p}"));
        if let Some(sanitizer) = sanitizer::active() {
            // Memory of the process that is not in the aperture.
            sanitizer.shadow().leave_unchecked(bytes..u64::MAX);
        }
        let _ = model.device.set(Arc::new(Device::new(Box::new(window), Box::new(kernels))));
        model.connect();
    });
}

unsafe extern "C" fn alloced_memory(_: *mut Model, address: *mut c_void, bytes: u64, flags: u32) {
    guard("alloced_memory", (), || {
        trace(format_args!("allocated {bytes:#x} bytes at {address:p}, flags {flags:#x}"));
        ALLOCATIONS.add(address.addr() as u64, bytes);
        sanitizer::allocated(address.addr() as u64, bytes, flags);
    });
}

unsafe extern "C" fn freed_memory(_: *mut Model, address: *mut c_void, bytes: u64) {
    guard("freed_memory", (), || {
        trace(format_args!("freed {bytes:#x} bytes at {address:p}"));
        ALLOCATIONS.remove(address.addr() as u64);
        sanitizer::freed(address.addr() as u64);
    });
}

/// Deprecated: ROCr 7.2 does not call it.
unsafe extern "C" fn set_notify_event(_: *mut Model, _: *mut c_void, _: *mut c_void) {}

/// For models that share a thread between queues: ROCr 7.2 does not call it.
unsafe extern "C" fn set_wait_event(_: *mut Model, _: *mut c_void, _: *mut c_void) {}

unsafe extern "C" fn register_queue(model: *mut Model, info: *const QueueInfo) -> *mut Queue {
    // SAFETY: ROCr passes what `create` made and it has not destroyed, and a description that lives during the call.
    let (model, info) = unsafe { (&*model, &*info) };
    guard("register_queue", ptr::null_mut(), || {
        let Some(device) = model.device.get() else { return ptr::null_mut() };
        let ring = Ring {
            start: info.ring,
            bytes: info.ring_bytes,
            write_pointer: info.write_pointer,
            read_pointer: info.read_pointer,
            kind: if info.kind == COMPUTE_AQL { Kind::Compute } else { Kind::Copies },
        };
        Box::into_raw(Box::new(Queue::start(Arc::clone(device), ring)))
    })
}

unsafe extern "C" fn set_set_event(model: *mut Model, set: SetEvent, data: *mut c_void) {
    // SAFETY: ROCr passes what `create` made and it has not destroyed.
    let model = unsafe { &*model };
    guard("set_set_event", (), || {
        *model.set_event.lock().unwrap_or_else(PoisonError::into_inner) = Some(Events { set, data });
        model.connect();
    });
}

unsafe extern "C" fn destroy_queue(_: *mut Model, queue: *mut Queue) {
    if !queue.is_null() {
        // SAFETY: ROCr returns what `register_queue` made, once.
        guard("destroy_queue", (), || drop(unsafe { Box::from_raw(queue) }));
    }
}
