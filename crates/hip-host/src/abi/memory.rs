//! Allocation and pointer queries.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::{guard, guard_release, require, store};
use crate::config::Feature;
use crate::device::Device;
use crate::errors::{Status, check_fault};
use crate::memory::{Charge, Kind};
use crate::runtime::Runtime;
use crate::thread;
use crate::work::Task;

/// `hipPointerAttribute_t` of HIP 6 and 7.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerAttributes {
    /// `hipMemoryType`: 0 unregistered, 1 host, 2 device.
    pub memory_type: c_int,
    /// The device it was allocated on.
    pub device: c_int,
    /// The address for devices.
    pub device_pointer: *mut c_void,
    /// The address for the host; NULL for device memory.
    pub host_pointer: *mut c_void,
    /// Always 0.
    pub is_managed: c_int,
    /// The flags it was allocated with.
    pub allocation_flags: c_uint,
}

const _: () = assert!(size_of::<PointerAttributes>() == 32);
const _: () = assert!(std::mem::offset_of!(PointerAttributes, is_managed) == 24);

/// Portable, mapped, write-combined, and HIP's own uncached, NUMA, coherent, non-coherent.
const HOST_FLAGS: c_uint = 0xF000_0007;
/// Portable, mapped, I/O, read-only.
const REGISTER_FLAGS: c_uint = 0xF;

/// Allocates memory; 0 bytes give NULL.
///
/// # Safety
/// `out` is NULL or writable.
unsafe fn allocate(
    runtime: &Runtime,
    out: *mut *mut c_void,
    bytes: usize,
    kind: Kind,
    flags: c_uint,
    charges: impl FnOnce(&Device) -> Result<Vec<Charge>, Status>,
) -> Result<(), Status> {
    require(out)?;
    let device = runtime.current_device()?;
    let address = match bytes {
        0 => 0,
        _ => runtime.memory.allocate(kind, device.index, bytes, flags, charges(device)?)?,
    };
    // SAFETY: guaranteed by the caller.
    unsafe { store(out, std::ptr::with_exposed_provenance_mut(address)) }
}

/// Frees an allocation after all work of its device that may use it.
fn release(runtime: &Runtime, pointer: *mut c_void, accept: fn(Kind) -> bool) -> Result<(), Status> {
    runtime.captures.refuse_unsafe_call()?;
    thread::may_block()?;
    if pointer.is_null() {
        return Ok(());
    }
    let block = runtime.memory.take(pointer.addr(), accept).ok_or(Status::InvalidValue)?;
    for device in runtime.devices.iter().filter(|device| !block.kind.is_device() || device.index == block.device) {
        device.streams.synchronize();
    }
    // Dropping the last reference checks the guard bytes.
    drop(block);
    check_fault()
}

/// Allocates memory of the current device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMalloc(out: *mut *mut c_void, bytes: usize) -> c_int {
    guard(|runtime| {
        runtime.captures.refuse_unsafe_call()?;
        // SAFETY: the module's contract.
        unsafe { allocate(runtime, out, bytes, Kind::Device, 0, |device| Ok(vec![device.budget.charge(bytes)?])) }
    })
}

/// [`hipMalloc`]: all kinds of memory that the flags select are the same RAM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipExtMallocWithFlags(out: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    guard(|runtime| {
        runtime.captures.refuse_unsafe_call()?;
        if !matches!(flags, 0 | 1 | 3 | 4) {
            return Err(Status::InvalidValue);
        }
        // SAFETY: the module's contract.
        unsafe { allocate(runtime, out, bytes, Kind::Device, flags, |device| Ok(vec![device.budget.charge(bytes)?])) }
    })
}

/// Waits for the device, then frees its memory.
#[unsafe(no_mangle)]
pub extern "C" fn hipFree(pointer: *mut c_void) -> c_int {
    guard_release(|runtime| release(runtime, pointer, Kind::is_device))
}

/// Allocates from the device's pool; usable by work submitted to `stream` afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMallocAsync(out: *mut *mut c_void, bytes: usize, stream: *mut c_void) -> c_int {
    // SAFETY: the module's contract.
    guard(|runtime| unsafe { allocate_from_pool(runtime, out, bytes, stream) })
}

/// # Safety
/// `out` is NULL or writable.
pub(super) unsafe fn allocate_from_pool(
    runtime: &Runtime,
    out: *mut *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> Result<(), Status> {
    runtime.need(Feature::Pools)?;
    let stream = runtime.stream(stream)?;
    if let Some(capture) = runtime.captures.of(&stream) {
        return capture.refuse();
    }
    require(out)?;
    if bytes == 0 {
        // SAFETY: guaranteed by the caller.
        return unsafe { store(out, std::ptr::null_mut()) };
    }
    let device = &runtime.devices[stream.device];
    let charge = || Ok::<_, Status>(vec![device.budget.charge(bytes)?, device.pool.usage.charge(bytes)?]);
    let charges = charge().or_else(|status| {
        // Memory freed earlier in this stream counts as free for later work in it.
        thread::may_block().map_err(|_| status)?;
        stream.tail().wait();
        charge()
    })?;
    let address = runtime.memory.allocate(Kind::Pool, device.index, bytes, 0, charges)?;
    // SAFETY: guaranteed by the caller.
    unsafe { store(out, std::ptr::with_exposed_provenance_mut(address)) }
}

/// Frees memory in stream order.
#[unsafe(no_mangle)]
pub extern "C" fn hipFreeAsync(pointer: *mut c_void, stream: *mut c_void) -> c_int {
    guard_release(|runtime| {
        let stream = runtime.stream(stream)?;
        if let Some(capture) = runtime.captures.of(&stream) {
            return capture.refuse();
        }
        if pointer.is_null() {
            return Ok(());
        }
        runtime.captures.refuse_implicit(&stream)?;
        let block = runtime.memory.take(pointer.addr(), Kind::is_device).ok_or(Status::InvalidValue)?;
        stream.run(Task::Release(block));
        Ok(())
    })
}

/// Allocates host memory that every device can access.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipHostMalloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    guard(|runtime| {
        runtime.need(Feature::Pinned)?;
        runtime.captures.refuse_unsafe_call()?;
        if flags & !HOST_FLAGS != 0 {
            return Err(Status::InvalidValue);
        }
        // SAFETY: the module's contract.
        unsafe { allocate(runtime, out, bytes, Kind::Pinned, flags, |_| Ok(Vec::new())) }
    })
}

/// Waits for all devices, then frees host memory.
#[unsafe(no_mangle)]
pub extern "C" fn hipHostFree(pointer: *mut c_void) -> c_int {
    guard_release(|runtime| release(runtime, pointer, |kind| kind == Kind::Pinned))
}

/// The device address of host memory: the same address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipHostGetDevicePointer(out: *mut *mut c_void, host: *mut c_void, flags: c_uint) -> c_int {
    guard(|runtime| {
        let known = runtime.memory.find(host.addr()).filter(|block| !block.kind.is_device());
        if flags != 0 || known.is_none() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: the module's contract.
        unsafe { store(out, host) }
    })
}

/// Registers the caller's own memory.
#[unsafe(no_mangle)]
pub extern "C" fn hipHostRegister(host: *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    guard(|runtime| {
        runtime.need(Feature::Pinned)?;
        runtime.captures.refuse_unsafe_call()?;
        if flags & !REGISTER_FLAGS != 0 {
            return Err(Status::InvalidValue);
        }
        runtime.memory.register(host.expose_provenance(), bytes, runtime.current_device()?.index, flags)
    })
}

/// Undoes [`hipHostRegister`].
#[unsafe(no_mangle)]
pub extern "C" fn hipHostUnregister(host: *mut c_void) -> c_int {
    guard_release(|runtime| {
        thread::may_block()?;
        let taken = runtime.memory.take(host.addr(), |kind| kind == Kind::Registered);
        let block = taken.ok_or(Status::HostMemoryNotRegistered)?;
        runtime.devices.iter().for_each(|device| device.streams.synchronize());
        drop(block);
        Ok(())
    })
}

/// The attributes of a pointer. An unknown pointer gives status 1, like in HIP, with the type "unregistered".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipPointerGetAttributes(out: *mut PointerAttributes, pointer: *const c_void) -> c_int {
    guard(|runtime| {
        let null = std::ptr::null_mut();
        let mut attributes = PointerAttributes {
            memory_type: 0,
            device: -2,
            device_pointer: null,
            host_pointer: null,
            is_managed: 0,
            allocation_flags: 0,
        };
        let block = runtime.memory.find(pointer.addr());
        if let Some(block) = &block {
            let is_device = block.kind.is_device();
            attributes.memory_type = if is_device { 2 } else { 1 };
            attributes.device = block.device as c_int;
            attributes.device_pointer = pointer.cast_mut();
            attributes.host_pointer = if is_device { null } else { pointer.cast_mut() };
            attributes.allocation_flags = block.flags;
        }
        // SAFETY: the module's contract.
        unsafe { store(out, attributes) }?;
        if block.is_some() || pointer.is_null() { Ok(()) } else { Err(Status::InvalidValue) }
    })
}

/// Start and size of the allocation that contains a pointer; either result may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemGetAddressRange(
    base: *mut *mut c_void,
    bytes: *mut usize,
    pointer: *mut c_void,
) -> c_int {
    guard(|runtime| {
        let block: Arc<_> = runtime.memory.find(pointer.addr()).ok_or(Status::NotFound)?;
        if !base.is_null() {
            // SAFETY: the module's contract.
            unsafe { store(base, std::ptr::with_exposed_provenance_mut(block.base)) }?;
        }
        if !bytes.is_null() {
            // SAFETY: the module's contract.
            unsafe { store(bytes, block.bytes) }?;
        }
        Ok(())
    })
}
