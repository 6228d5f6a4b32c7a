//! Modules and kernels, which a host device does not have: every function says so.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::{guard, guard_release};
use crate::errors::Status;

/// Files are no more supported than images.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleLoad(_module: *mut *mut c_void, _path: *const c_char) -> c_int {
    guard(|_| Err(Status::NotSupported))
}

/// 200 for what is not a code object at all, 801 for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLoadData(_module: *mut *mut c_void, image: *const c_void) -> c_int {
    guard(|_| {
        if image.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: not NULL, and every kind of image HIP takes is longer than these four bytes.
        let magic = unsafe { image.cast::<[u8; 4]>().read() };
        // An ELF file, or the start of the marker of a bundle of them.
        if matches!(&magic, b"\x7fELF" | b"__CL") { Err(Status::NotSupported) } else { Err(Status::InvalidImage) }
    })
}

/// As [`hipModuleLoadData`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLoadDataEx(
    module: *mut *mut c_void,
    image: *const c_void,
    _option_count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> c_int {
    // SAFETY: the module's contract, which is the same there.
    unsafe { hipModuleLoadData(module, image) }
}

/// No module can exist.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleUnload(_module: *mut c_void) -> c_int {
    guard_release(|_| Err(Status::InvalidHandle))
}

/// No module can exist.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleGetFunction(
    _function: *mut *mut c_void,
    _module: *mut c_void,
    _name: *const c_char,
) -> c_int {
    guard(|_| Err(Status::InvalidHandle))
}

/// No module can exist.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleGetGlobal(
    _address: *mut *mut c_void,
    _bytes: *mut usize,
    _module: *mut c_void,
    _name: *const c_char,
) -> c_int {
    guard(|_| Err(Status::InvalidHandle))
}

/// Kernels do not run here; use `hipLaunchHostFunc`.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleLaunchKernel(
    _function: *mut c_void,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    _stream: *mut c_void,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    guard(|_| Err(Status::NotSupported))
}

/// No function can exist.
#[unsafe(no_mangle)]
pub extern "C" fn hipFuncGetAttribute(_value: *mut c_int, _attribute: c_int, _function: *mut c_void) -> c_int {
    guard(|_| Err(Status::NotSupported))
}

/// No function can exist.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
    _blocks: *mut c_int,
    _function: *mut c_void,
    _block_size: c_int,
    _shared_bytes: usize,
) -> c_int {
    guard(|_| Err(Status::NotSupported))
}

/// No function can exist.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleOccupancyMaxPotentialBlockSize(
    _grid_size: *mut c_int,
    _block_size: *mut c_int,
    _function: *mut c_void,
    _shared_bytes: usize,
    _limit: c_int,
) -> c_int {
    guard(|_| Err(Status::NotSupported))
}
