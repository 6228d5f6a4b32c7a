//! Modules, functions and launches.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use super::Runtime;
use crate::HipError;
use crate::sys::{Handle, twin};

/// Loads compiled code onto the current device.
///
/// # Errors
/// The driver's status; 209 when the code is for another target.
///
/// # Safety
/// `image` points to a complete code object in a format that the driver supports: no length is passed.
pub unsafe fn load(runtime: &Runtime, image: *const c_void) -> Result<Handle, HipError> {
    let function = runtime.need(runtime.table.module_load_data, "hipModuleLoadData")?;
    let mut module = ptr::null_mut();
    // SAFETY: `module` is a valid out-pointer; the caller vouches for the image.
    runtime.check("hipModuleLoadData", unsafe { function(&mut module, image) })?;
    Ok(module)
}

/// Unloads a module.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `module` is live, none of its functions is running, and neither is used afterwards.
pub unsafe fn unload(runtime: &Runtime, module: Handle) -> Result<(), HipError> {
    let function = runtime.need(runtime.table.module_unload, "hipModuleUnload")?;
    // SAFETY: the caller vouches for the handle.
    runtime.check("hipModuleUnload", unsafe { function(module) })
}

/// A function of a module.
///
/// # Errors
/// The driver's status; 500 if there is no function with that name.
///
/// # Safety
/// `module` is live.
pub unsafe fn function(runtime: &Runtime, module: Handle, name: &CStr) -> Result<Handle, HipError> {
    let get = runtime.need(runtime.table.module_get_function, "hipModuleGetFunction")?;
    let mut function = ptr::null_mut();
    // SAFETY: `function` is a valid out-pointer; the caller vouches for the module.
    runtime.check("hipModuleGetFunction", unsafe { get(&mut function, module, name.as_ptr()) })?;
    Ok(function)
}

/// An attribute of a function by its number.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `function` is live.
pub unsafe fn function_attribute(runtime: &Runtime, function: Handle, number: c_int) -> Result<c_int, HipError> {
    let get = runtime.need(runtime.table.func_get_attribute, "hipFuncGetAttribute")?;
    let mut value = 0;
    // SAFETY: `value` is a valid out-pointer; the caller vouches for the function.
    runtime.check("hipFuncGetAttribute", unsafe { get(&mut value, number, function) })?;
    Ok(value)
}

/// Lets a function use more dynamic LDS than every device allows by default; does nothing on HIP.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `function` is live.
pub unsafe fn allow_dynamic_lds(runtime: &Runtime, function: Handle, bytes: u32) -> Result<(), HipError> {
    let Some(set) = runtime.table.twin_func_set_attribute else { return Ok(()) };
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    // SAFETY: the caller vouches for the function.
    runtime.check("cuFuncSetAttribute", unsafe { set(function, twin::MAX_DYNAMIC_SHARED, bytes) })
}

/// Blocks of a function that fit on one compute unit at a time.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// `function` is live.
pub unsafe fn max_active_blocks(
    runtime: &Runtime,
    function: Handle,
    block_threads: c_int,
    lds_bytes: usize,
) -> Result<c_int, HipError> {
    let call = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor";
    let ask = runtime.need(runtime.table.occupancy_max_active_blocks, call)?;
    let mut blocks = 0;
    // SAFETY: `blocks` is a valid out-pointer; the caller vouches for the function.
    runtime.check(call, unsafe { ask(&mut blocks, function, block_threads, lds_bytes) })?;
    Ok(blocks)
}

/// Launches a function in stream order.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// Both handles are live; `arguments` has one pointer per kernel parameter, each to a value of its type; memory that
/// the kernel accesses stays valid until the stream has passed this point.
pub unsafe fn launch(
    runtime: &Runtime,
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    lds_bytes: u32,
    stream: Handle,
    arguments: *mut *mut c_void,
) -> Result<(), HipError> {
    let launch = runtime.need(runtime.table.module_launch_kernel, "hipModuleLaunchKernel")?;
    let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
    // SAFETY: the caller vouches for the handles and the arguments; `extra` is unused.
    let status = unsafe { launch(function, gx, gy, gz, bx, by, bz, lds_bytes, stream, arguments, ptr::null_mut()) };
    runtime.check("hipModuleLaunchKernel", status)
}

/// Like [`launch`], but the blocks may start before the previous launch has ended, if the driver supports it.
///
/// # Errors
/// The driver's status.
///
/// # Safety
/// As for [`launch`]. Blocks do not access memory that earlier work on the stream reads or writes until they have
/// waited for that work to end.
pub unsafe fn launch_early(
    runtime: &Runtime,
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    lds_bytes: u32,
    stream: Handle,
    arguments: *mut *mut c_void,
) -> Result<(), HipError> {
    let Some(launch_ex) = runtime.table.twin_launch_kernel_ex else {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { launch(runtime, function, grid, block, lds_bytes, stream, arguments) };
    };
    let attribute = twin::LaunchAttribute::EARLY;
    let config =
        twin::LaunchConfig { grid, block, lds_bytes, stream, attributes: &raw const attribute, attribute_count: 1 };
    // SAFETY: the configuration and its attribute live for the call; the caller vouches for the rest.
    let status = unsafe { launch_ex(&raw const config, function, arguments, ptr::null_mut()) };
    runtime.check("cuLaunchKernelEx", status)
}
