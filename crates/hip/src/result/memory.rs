//! Memory: allocate, free, copy, fill, and query pointers.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use super::Runtime;
use crate::HipError;
use crate::sys::Handle;

/// Allocates on the current device.
///
/// # Errors
/// The driver's status; 2 if there is not enough memory.
pub fn malloc(runtime: &Runtime, bytes: usize) -> Result<*mut c_void, HipError> {
    let mut address = ptr::null_mut();
    // SAFETY: `address` is a valid out-pointer for the length of the call.
    runtime.check("hipMalloc", unsafe { (runtime.table.malloc)(&mut address, bytes) })?;
    Ok(address)
}

/// Frees memory from [`malloc`] or [`malloc_async`], after the device is done with it.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `address` came from this driver, was not freed before and is not used afterwards.
pub unsafe fn free(runtime: &Runtime, address: *mut c_void) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the address.
    runtime.check("hipFree", unsafe { (runtime.table.free)(address) })
}

/// Allocates in stream order.
///
/// # Errors
/// The driver's status, or an error if it has no such function.
///
/// # Safety
/// `stream` is a live stream of the current device.
pub unsafe fn malloc_async(runtime: &Runtime, bytes: usize, stream: Handle) -> Result<*mut c_void, HipError> {
    let function = runtime.need(runtime.table.malloc_async, "hipMallocAsync")?;
    let mut address = ptr::null_mut();
    // SAFETY: `address` is a valid out-pointer; the caller vouches for the stream.
    runtime.check("hipMallocAsync", unsafe { function(&mut address, bytes, stream) })?;
    Ok(address)
}

/// Frees in stream order.
///
/// # Errors
/// The driver's status, or an error if it has no such function.
///
/// # Safety
/// `address` came from [`malloc_async`]; no work after this point of the stream uses it; `stream` is live.
pub unsafe fn free_async(runtime: &Runtime, address: *mut c_void, stream: Handle) -> Result<(), HipError> {
    let function = runtime.need(runtime.table.free_async, "hipFreeAsync")?;
    // SAFETY: the caller vouches for both.
    runtime.check("hipFreeAsync", unsafe { function(address, stream) })
}

/// Allocates host memory that devices can access.
///
/// # Errors
/// The driver's status; 2 if there is not enough memory.
pub fn host_malloc(runtime: &Runtime, bytes: usize, flags: c_uint) -> Result<*mut c_void, HipError> {
    let mut address = ptr::null_mut();
    // SAFETY: `address` is a valid out-pointer for the length of the call.
    runtime.check("hipHostMalloc", unsafe { (runtime.table.host_malloc)(&mut address, bytes, flags) })?;
    Ok(address)
}

/// Frees memory from [`host_malloc`].
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `address` came from [`host_malloc`] of this driver, was not freed before and is not used afterwards.
pub unsafe fn host_free(runtime: &Runtime, address: *mut c_void) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the address.
    runtime.check("hipHostFree", unsafe { (runtime.table.host_free)(address) })
}

/// Copies. On return the host memory is no longer in use; the device side may still be pending.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// Both ranges are valid for `bytes` bytes and match `kind`.
pub unsafe fn copy(
    runtime: &Runtime,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: c_int,
) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the ranges.
    runtime.check("hipMemcpy", unsafe { (runtime.table.memcpy)(dst, src, bytes, kind) })
}

/// Copies in stream order.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// As [`copy`], until the stream has passed this point; `stream` is live.
pub unsafe fn copy_async(
    runtime: &Runtime,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: Handle,
) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the ranges and the stream.
    runtime.check("hipMemcpyAsync", unsafe { (runtime.table.memcpy_async)(dst, src, bytes, kind, stream) })
}

/// Copies between devices in stream order.
///
/// # Errors
/// The driver's status, or an error if it has no such function.
///
/// # Safety
/// Both ranges are valid on their devices until the stream has passed this point; `stream` is live.
pub unsafe fn copy_peer_async(
    runtime: &Runtime,
    (dst, dst_device): (*mut c_void, c_int),
    (src, src_device): (*const c_void, c_int),
    bytes: usize,
    stream: Handle,
) -> Result<(), HipError> {
    let function = runtime.need(runtime.table.memcpy_peer_async, "hipMemcpyPeerAsync")?;
    // SAFETY: the caller vouches for the ranges and the stream.
    let status = unsafe { function(dst, dst_device, src, src_device, bytes, stream) };
    runtime.check("hipMemcpyPeerAsync", status)
}

/// Fills with one byte value in stream order.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// The range is valid device memory until the stream has passed this point; `stream` is live.
pub unsafe fn fill_async(
    runtime: &Runtime,
    dst: *mut c_void,
    value: u8,
    bytes: usize,
    stream: Handle,
) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the range and the stream.
    runtime.check("hipMemsetAsync", unsafe { (runtime.table.memset_async)(dst, c_int::from(value), bytes, stream) })
}

/// Free and total bytes of the current device.
///
/// # Errors
/// The driver's status.
pub fn info(runtime: &Runtime) -> Result<(usize, usize), HipError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are valid out-pointers for the length of the call.
    runtime.check("hipMemGetInfo", unsafe { (runtime.table.mem_get_info)(&mut free, &mut total) })?;
    Ok((free, total))
}

/// The first fields of a pointer's attributes, the same in HIP and CUDA.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerAttributes {
    /// Memory type; the numbers changed with HIP 6.
    pub memory_type: c_int,
    /// Owning device.
    pub device: c_int,
    /// Address for the device.
    pub device_pointer: *mut c_void,
    /// Address for the host.
    pub host_pointer: *mut c_void,
    /// HIP only: managed memory.
    pub is_managed: c_int,
    /// HIP only: allocation flags.
    pub flags: c_uint,
}

const _: () = assert!(size_of::<PointerAttributes>() == 32);

/// The driver's attributes of a pointer; `None` if it does not know the pointer.
pub fn pointer_attributes(runtime: &Runtime, address: usize) -> Option<PointerAttributes> {
    /// CUDA 13's structure has 88 bytes; we read the first fields of a larger one.
    #[repr(C)]
    struct PaddedAttributes {
        head: PointerAttributes,
        rest: [u64; 28],
    }
    let function = runtime.table.pointer_get_attributes?;
    let head = PointerAttributes {
        memory_type: 0,
        device: 0,
        device_pointer: ptr::null_mut(),
        host_pointer: ptr::null_mut(),
        is_managed: 0,
        flags: 0,
    };
    let mut padded = PaddedAttributes { head, rest: [0; 28] };
    let out = ptr::from_mut(&mut padded).cast::<c_void>();
    // SAFETY: `out` has 256 bytes, more than any version's structure; the address is looked up, not dereferenced.
    let status = unsafe { function(out, ptr::without_provenance(address)) };
    runtime.check("hipPointerGetAttributes", status).ok().map(|()| padded.head)
}
