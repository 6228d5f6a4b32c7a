//! Devices and their properties.

use std::ffi::{c_char, c_int, c_uint};

use super::{guard, guard_release, require, store};
use crate::config::Feature;
use crate::errors::Status;
use crate::{properties, thread};

/// Does nothing but check its flags: the library initialises itself.
#[unsafe(no_mangle)]
pub extern "C" fn hipInit(flags: c_uint) -> c_int {
    guard(|_| if flags == 0 { Ok(()) } else { Err(Status::InvalidValue) })
}

/// The HIP version whose rules the library follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipRuntimeGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the module's contract.
    guard_release(|_| unsafe { store(version, properties::VERSION) })
}

/// The same as [`hipRuntimeGetVersion`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the module's contract.
    guard_release(|_| unsafe { store(version, properties::VERSION) })
}

/// Number of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDeviceCount(count: *mut c_int) -> c_int {
    // SAFETY: the module's contract.
    guard(|runtime| unsafe { store(count, runtime.devices.len() as c_int) })
}

/// The handle of a device, which is its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    guard(|runtime| {
        runtime.device(ordinal)?;
        // SAFETY: the module's contract.
        unsafe { store(device, ordinal) }
    })
}

/// Makes a device the calling thread's current one.
#[unsafe(no_mangle)]
pub extern "C" fn hipSetDevice(device: c_int) -> c_int {
    guard_release(|runtime| {
        thread::set_device(runtime.device(device)?.index);
        Ok(())
    })
}

/// The calling thread's current device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDevice(device: *mut c_int) -> c_int {
    // SAFETY: the module's contract.
    guard_release(|_| unsafe { store(device, thread::device() as c_int) })
}

/// Accepted but has no effect: waiting threads always sleep.
#[unsafe(no_mangle)]
pub extern "C" fn hipSetDeviceFlags(_flags: c_uint) -> c_int {
    guard(|_| Ok(()))
}

/// A device's name, truncated to `bytes` including its NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int) -> c_int {
    guard(|runtime| {
        let text = properties::name(runtime.device(device)?);
        let room = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_sub(1)).ok_or(Status::InvalidValue)?;
        require(name)?;
        let kept = &text.as_bytes()[..text.len().min(room)];
        // SAFETY: the caller guarantees `bytes` writable bytes, and `kept` with its NUL is not longer.
        unsafe {
            name.cast::<u8>().copy_from_nonoverlapping(kept.as_ptr(), kept.len());
            name.add(kept.len()).write(0);
        }
        Ok(())
    })
}

/// One attribute, by HIP's numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    guard(|runtime| {
        runtime.device(device)?;
        runtime.need(Feature::Attributes)?;
        let is_pools = attribute == properties::MEMORY_POOLS && runtime.lacks(Feature::Pools);
        let known = if is_pools { Some(0) } else { properties::attribute(attribute) }.ok_or(Status::InvalidValue)?;
        // SAFETY: the module's contract.
        unsafe { store(value, known) }
    })
}

/// Total memory of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceTotalMem(bytes: *mut usize, device: c_int) -> c_int {
    guard(|runtime| {
        let total = runtime.device(device)?.budget.total;
        let total = if runtime.lacks(Feature::MemoryInfo) { 0 } else { total };
        // SAFETY: the module's contract.
        unsafe { store(bytes, total as usize) }
    })
}

/// Free and total memory of the current device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    guard(|runtime| {
        let budget = &runtime.current_device()?.budget;
        require(total)?;
        let (left, all) = (budget.total.saturating_sub(budget.used()), budget.total);
        let (left, all) = if runtime.lacks(Feature::MemoryInfo) { (0, 0) } else { (left, all) };
        // SAFETY: the module's contract.
        unsafe {
            store(free, left as usize)?;
            store(total, all as usize)
        }
    })
}

/// A device's identity: the same in every process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> c_int {
    guard(|runtime| {
        let bytes = properties::uuid(runtime.device(device)?);
        // SAFETY: the module's contract.
        unsafe { store(uuid, bytes) }
    })
}

/// Always fails: the host is not a PCI device.
#[unsafe(no_mangle)]
pub extern "C" fn hipDeviceGetPCIBusId(_id: *mut c_char, _bytes: c_int, device: c_int) -> c_int {
    guard(|runtime| runtime.device(device).and(Err(Status::NotSupported)))
}

/// Always fails: no device has a PCI bus id.
#[unsafe(no_mangle)]
pub extern "C" fn hipDeviceGetByPCIBusId(_device: *mut c_int, _id: *const c_char) -> c_int {
    guard(|_| Err(Status::InvalidValue))
}

/// Waits for all streams of the current device.
#[unsafe(no_mangle)]
pub extern "C" fn hipDeviceSynchronize() -> c_int {
    guard(|runtime| {
        thread::may_block()?;
        let device = runtime.current_device()?;
        runtime.captures.refuse_on_device(device.index)?;
        device.streams.synchronize();
        Ok(())
    })
}

/// The properties structure of HIP 6 and 7 (1472 bytes).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDevicePropertiesR0600(properties: *mut [u8; 1472], device: c_int) -> c_int {
    guard(|runtime| {
        let bytes = properties::r0600(runtime.device(device)?);
        // SAFETY: the module's contract.
        unsafe { store(properties, bytes) }
    })
}

/// The properties structure of HIP 5 (792 bytes): under this name HIP 6 and 7 still serve old binaries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDeviceProperties(properties: *mut [u8; 792], device: c_int) -> c_int {
    guard(|runtime| {
        let bytes = properties::r0000(runtime.device(device)?);
        // SAFETY: the module's contract.
        unsafe { store(properties, bytes) }
    })
}

/// True for any two different devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int {
    guard(|runtime| {
        let (device, peer) = (runtime.device(device)?.index, runtime.device(peer)?.index);
        // SAFETY: the module's contract.
        unsafe { store(can, c_int::from(device != peer && !runtime.lacks(Feature::Peers))) }
    })
}

/// Lets the current device use the memory of `peer`.
#[unsafe(no_mangle)]
pub extern "C" fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int {
    guard(|runtime| {
        if flags != 0 {
            return Err(Status::InvalidValue);
        }
        runtime.need(Feature::Peers)?;
        runtime.current_device()?.enable_peer(runtime.device(peer)?.index)
    })
}

/// Undoes [`hipDeviceEnablePeerAccess`].
#[unsafe(no_mangle)]
pub extern "C" fn hipDeviceDisablePeerAccess(peer: c_int) -> c_int {
    guard(|runtime| runtime.current_device()?.disable_peer(runtime.device(peer)?.index))
}
