//! Memory pools: one per device, which caches nothing.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use super::memory::allocate_from_pool;
use super::{guard, require, store};
use crate::config::Feature;
use crate::device::Pool;
use crate::errors::Status;
use crate::handles::as_pointer;
use crate::runtime::Runtime;

/// The pool behind a handle, if there are pools. An unknown handle is an invalid value, because pools are never
/// destroyed.
fn pool(runtime: &Runtime, handle: *mut c_void) -> Result<(usize, &Pool), Status> {
    runtime.need(Feature::Pools)?;
    let owner = runtime.devices.iter().find(|device| device.pool.handle == handle.addr());
    owner.map(|device| (device.index, &device.pool)).ok_or(Status::InvalidValue)
}

/// The default pool of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetDefaultMemPool(out: *mut *mut c_void, device: c_int) -> c_int {
    guard(|runtime| {
        runtime.need(Feature::Pools)?;
        let handle = runtime.device(device)?.pool.handle;
        // SAFETY: the module's contract.
        unsafe { store(out, as_pointer(handle)) }
    })
}

/// The pool that `hipMallocAsync` allocates from: always the default one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetMemPool(out: *mut *mut c_void, device: c_int) -> c_int {
    // SAFETY: the module's contract, which also applies to the called function.
    unsafe { hipDeviceGetDefaultMemPool(out, device) }
}

/// Accepts the device's own pool, the only one it can have.
#[unsafe(no_mangle)]
pub extern "C" fn hipDeviceSetMemPool(device: c_int, handle: *mut c_void) -> c_int {
    guard(|runtime| {
        let device = runtime.device(device)?.index;
        if pool(runtime, handle)?.0 == device { Ok(()) } else { Err(Status::InvalidValue) }
    })
}

/// Not supported: a second pool would be no different from the first.
#[unsafe(no_mangle)]
pub extern "C" fn hipMemPoolCreate(_out: *mut *mut c_void, _properties: *const c_void) -> c_int {
    guard(|_| Err(Status::NotSupported))
}

/// Not supported: default pools cannot be destroyed, and there are no others.
#[unsafe(no_mangle)]
pub extern "C" fn hipMemPoolDestroy(handle: *mut c_void) -> c_int {
    guard(|runtime| pool(runtime, handle).and(Err(Status::InvalidValue)))
}

/// Allocates from a pool; usable by work submitted to `stream` afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMallocFromPoolAsync(
    out: *mut *mut c_void,
    bytes: usize,
    handle: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    guard(|runtime| {
        let (device, _) = pool(runtime, handle)?;
        if runtime.stream(stream)?.device != device {
            return Err(Status::InvalidValue);
        }
        // SAFETY: the module's contract.
        unsafe { allocate_from_pool(runtime, out, bytes, stream) }
    })
}

/// Sets an attribute: 1 to 3 (reuse, int) and 4 (release threshold, u64) are stored; 6 and 8 (peaks) are reset by 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemPoolSetAttribute(handle: *mut c_void, attribute: c_int, value: *mut c_void) -> c_int {
    guard(|runtime| {
        let (_, pool) = pool(runtime, handle)?;
        require(value)?;
        match attribute {
            1..=3 => {
                // SAFETY: not NULL, and these attributes are ints by HIP's contract.
                let value = unsafe { value.cast::<c_int>().read() };
                pool.reuse[attribute as usize - 1].store(value, Ordering::Relaxed);
            }
            4 => {
                // SAFETY: not NULL, and this attribute is a u64 by HIP's contract.
                let value = unsafe { value.cast::<u64>().read() };
                pool.release_threshold.store(value, Ordering::Relaxed);
            }
            // SAFETY: not NULL, and these attributes are u64 by HIP's contract.
            6 | 8 if unsafe { value.cast::<u64>().read() } == 0 => pool.usage.reset_peak(),
            _ => return Err(Status::InvalidValue),
        }
        Ok(())
    })
}

/// Reads an attribute: those that can be set, and 5 to 8: reserved bytes and their peak, used bytes and their peak.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemPoolGetAttribute(handle: *mut c_void, attribute: c_int, value: *mut c_void) -> c_int {
    guard(|runtime| {
        let (_, pool) = pool(runtime, handle)?;
        let wide = match attribute {
            1..=3 => {
                let reuse = pool.reuse[attribute as usize - 1].load(Ordering::Relaxed);
                // SAFETY: these attributes are ints by HIP's contract.
                return unsafe { store(value.cast(), reuse) };
            }
            4 => pool.release_threshold.load(Ordering::Relaxed),
            5 | 7 => pool.usage.used(),
            6 | 8 => pool.usage.peak(),
            _ => return Err(Status::InvalidValue),
        };
        // SAFETY: these attributes are u64 by HIP's contract.
        unsafe { store(value.cast(), wide) }
    })
}

/// Nothing is cached, so there is nothing to trim.
#[unsafe(no_mangle)]
pub extern "C" fn hipMemPoolTrimTo(handle: *mut c_void, _bytes_to_keep: usize) -> c_int {
    guard(|runtime| pool(runtime, handle).map(drop))
}
