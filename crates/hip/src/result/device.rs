//! Devices and versions.

use std::ffi::{c_char, c_int, c_void};

use super::Runtime;
use crate::HipError;
use crate::sys::{codes, twin};

/// Initialises the driver. Optional for the runtime functions, required by the twin's module functions.
///
/// # Errors
/// The driver's status; 100 or 101 if there is no device.
pub fn init(runtime: &Runtime) -> Result<(), HipError> {
    match runtime.table.init {
        // SAFETY: takes flags only; 0 is the only value defined.
        Some(init) => runtime.check("hipInit", unsafe { init(0) }),
        None => Ok(()),
    }
}

/// The number of devices.
///
/// # Errors
/// The driver's status; 100 if there is no device.
pub fn count(runtime: &Runtime) -> Result<usize, HipError> {
    let mut count = 0;
    // SAFETY: `count` is a valid out-pointer for the length of the call.
    runtime.check("hipGetDeviceCount", unsafe { (runtime.table.get_device_count)(&mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// This thread's current device.
///
/// # Errors
/// The driver's status.
pub fn current(runtime: &Runtime) -> Result<c_int, HipError> {
    let mut device = 0;
    // SAFETY: `device` is a valid out-pointer for the length of the call.
    runtime.check("hipGetDevice", unsafe { (runtime.table.get_device)(&mut device) })?;
    Ok(device)
}

/// Makes a device current on this thread.
///
/// # Errors
/// The driver's status; 101 for an unknown ordinal.
pub fn set_current(runtime: &Runtime, device: c_int) -> Result<(), HipError> {
    // SAFETY: any number may be passed.
    runtime.check("hipSetDevice", unsafe { (runtime.table.set_device)(device) })
}

/// Waits for all work on the current device.
///
/// # Errors
/// The driver's status, which may be that of earlier work.
pub fn synchronize(runtime: &Runtime) -> Result<(), HipError> {
    // SAFETY: the function takes no argument.
    runtime.check("hipDeviceSynchronize", unsafe { (runtime.table.device_synchronize)() })
}

/// The runtime library's version number.
pub fn runtime_version(runtime: &Runtime) -> Option<i32> {
    let mut version = 0;
    // SAFETY: `version` is a valid out-pointer for the length of the call.
    let status = unsafe { (runtime.table.runtime_get_version)(&mut version) };
    runtime.check("hipRuntimeGetVersion", status).ok().map(|()| version).filter(|&version| version != 0)
}

/// The installed driver's version number.
pub fn driver_version(runtime: &Runtime) -> Option<i32> {
    let mut version = 0;
    // SAFETY: `version` is a valid out-pointer for the length of the call.
    let status = unsafe { runtime.table.driver_get_version?(&mut version) };
    runtime.check("hipDriverGetVersion", status).ok().map(|()| version).filter(|&version| version != 0)
}

/// An attribute by its HIP number; `None` if the driver rejects it.
pub fn attribute(runtime: &Runtime, device: c_int, hip: c_int) -> Option<c_int> {
    let number = twin::attribute(runtime.kind, hip)?;
    let mut value = 0;
    // SAFETY: `value` is a valid out-pointer for the length of the call; any attribute number may be queried.
    let status = unsafe { (runtime.table.device_get_attribute)(&mut value, number, device) };
    runtime.check("hipDeviceGetAttribute", status).ok().map(|()| value)
}

/// The marketing name; `None` if the driver has none.
pub fn name(runtime: &Runtime, device: c_int) -> Option<String> {
    let function = runtime.table.device_get_name?;
    // SAFETY: both drivers write at most `length` bytes.
    text_answer(runtime, "hipDeviceGetName", |buffer, length| unsafe { function(buffer, length, device) })
}

/// The PCI bus id as the driver formats it.
pub fn pci_bus_id(runtime: &Runtime, device: c_int) -> Option<String> {
    let function = runtime.table.device_get_pci_bus_id?;
    // SAFETY: both drivers write at most `length` bytes.
    text_answer(runtime, "hipDeviceGetPCIBusId", |buffer, length| unsafe { function(buffer, length, device) })
}

/// The raw properties structure in a buffer larger than any known version of it.
pub fn properties(runtime: &Runtime, device: c_int) -> Option<Vec<u8>> {
    const BYTES: usize = 8192;
    let function = runtime.table.get_device_properties?;
    // u64 elements, because the structure contains 8-byte fields.
    let mut buffer = vec![0u64; BYTES / 8];
    // SAFETY: the structure is at most 1472 bytes in every published version; the buffer has 8192 zeroed bytes.
    let status = unsafe { function(buffer.as_mut_ptr().cast::<c_void>(), device) };
    runtime.check("hipGetDeviceProperties", status).ok()?;
    Some(buffer.iter().flat_map(|word| word.to_ne_bytes()).collect())
}

/// The total memory of a device.
pub fn total_memory(runtime: &Runtime, device: c_int) -> Option<usize> {
    let function = runtime.table.device_total_mem?;
    let mut bytes = 0;
    // SAFETY: `bytes` is a valid out-pointer for the length of the call.
    runtime.check("hipDeviceTotalMem", unsafe { function(&mut bytes, device) }).ok().map(|()| bytes)
}

/// Whether one device can access another's memory.
pub fn can_access_peer(runtime: &Runtime, device: c_int, peer: c_int) -> bool {
    let Some(function) = runtime.table.device_can_access_peer else { return false };
    let mut answer = 0;
    // SAFETY: `answer` is a valid out-pointer for the length of the call.
    let status = unsafe { function(&mut answer, device, peer) };
    runtime.check("hipDeviceCanAccessPeer", status).is_ok() && answer != 0
}

/// Lets the current device access a peer's memory; succeeds if already enabled.
///
/// # Errors
/// The driver's status.
pub fn enable_peer_access(runtime: &Runtime, peer: c_int) -> Result<(), HipError> {
    let function = runtime.need(runtime.table.device_enable_peer_access, "hipDeviceEnablePeerAccess")?;
    // SAFETY: any ordinal may be passed; the flags must be 0.
    match runtime.check("hipDeviceEnablePeerAccess", unsafe { function(peer, 0) }) {
        Err(error) if error.code() == Some(codes::PEER_ACCESS_ALREADY_ENABLED) => Ok(()),
        other => other,
    }
}

fn text_answer(runtime: &Runtime, call: &'static str, ask: impl FnOnce(*mut c_char, c_int) -> c_int) -> Option<String> {
    let mut buffer = [0u8; 257];
    // One byte less than the buffer has, so that a NUL always follows.
    let status = ask(buffer.as_mut_ptr().cast::<c_char>(), 256);
    runtime.check(call, status).ok()?;
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    Some(String::from_utf8_lossy(&buffer[..end]).trim().to_owned())
}
