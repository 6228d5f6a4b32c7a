//! Modules and kernels: host code objects, which are shared libraries of this machine.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::{guard, guard_release, require, store};
use crate::code::{MAX_LDS_BYTES, MAX_THREADS, Module};
use crate::errors::Status;
use crate::handles::{as_pointer, fresh, lock};
use crate::work::Step;

/// Not supported: code is loaded from memory only.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleLoad(_module: *mut *mut c_void, _path: *const c_char) -> c_int {
    guard(|_| Err(Status::NotSupported))
}

/// Loads a shared library of this machine. 200 if it is not a code object, 801 for code of other machines.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLoadData(module: *mut *mut c_void, image: *const c_void) -> c_int {
    guard(|runtime| {
        require(module)?;
        require(image.cast_mut())?;
        // SAFETY: not NULL, and HIP's images are readable as far as their headers say.
        let loaded = unsafe { Module::load(image.cast()) }?;
        let handle = fresh();
        runtime.modules.insert(handle, loaded);
        // SAFETY: the module's contract.
        unsafe { store(module, as_pointer(handle)) }
    })
}

/// Same as [`hipModuleLoadData`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLoadDataEx(
    module: *mut *mut c_void,
    image: *const c_void,
    _option_count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> c_int {
    // SAFETY: the module's contract, which also applies to the called function.
    unsafe { hipModuleLoadData(module, image) }
}

/// Unloads a module and its functions; launches already submitted still run.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleUnload(module: *mut c_void) -> c_int {
    guard_release(|runtime| {
        let module = runtime.modules.remove(module)?;
        for (_, handle) in lock(&module.functions).drain() {
            runtime.functions.remove(as_pointer(handle))?;
        }
        Ok(())
    })
}

/// A kernel by name; 500 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> c_int {
    guard(|runtime| {
        require(function)?;
        require(name.cast_mut())?;
        let module = runtime.modules.get(module)?;
        // SAFETY: not NULL, so a C string by the module's contract.
        let name = unsafe { CStr::from_ptr(name) };
        let mut functions = lock(&module.functions);
        let handle = match functions.get(name) {
            Some(&known) => known,
            None => {
                let handle = fresh();
                runtime.functions.insert(handle, module.function(name)?);
                functions.insert(name.to_owned(), handle);
                handle
            }
        };
        // SAFETY: the module's contract.
        unsafe { store(function, as_pointer(handle)) }
    })
}

/// Not supported: host code objects have no global variables.
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleGetGlobal(
    _address: *mut *mut c_void,
    _bytes: *mut usize,
    module: *mut c_void,
    _name: *const c_char,
) -> c_int {
    guard(|runtime| {
        runtime.modules.get(module)?;
        Err(Status::NotFound)
    })
}

/// Runs a kernel in the order of a stream. Kernels take one structure; `extra` is not supported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    guard(|runtime| {
        let function = runtime.functions.get(function)?;
        let stream = runtime.stream(stream)?;
        if !extra.is_null() {
            return Err(Status::NotSupported);
        }
        require(parameters)?;
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        // SAFETY: not NULL, so by HIP's contract it points to the address of the kernel's one parameter.
        let launch = unsafe { function.launch(grid, block, shared_bytes, parameters.read().cast()) }?;
        runtime.enqueue(&stream, Step::Kernel(Arc::new(launch)))?;
        Ok(())
    })
}

/// Plausible values for a small kernel: nothing spilled, every block fits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFuncGetAttribute(value: *mut c_int, attribute: c_int, function: *mut c_void) -> c_int {
    const REGISTERS: u32 = 32;
    guard(|runtime| {
        runtime.functions.get(function)?;
        let answer = match attribute {
            0 => MAX_THREADS,
            // Fixed LDS, constants, scratch, versions, cache and carve-out modes.
            1..=3 | 5..=7 | 9 => 0,
            4 => REGISTERS,
            8 => MAX_LDS_BYTES,
            _ => return Err(Status::InvalidValue),
        };
        // SAFETY: the module's contract.
        unsafe { store(value, answer as c_int) }
    })
}

/// A compute unit has 1024 threads and 64 KiB of LDS here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: *mut c_void,
    block_size: c_int,
    shared_bytes: usize,
) -> c_int {
    guard(|runtime| {
        runtime.functions.get(function)?;
        let threads = usize::try_from(block_size).ok().filter(|&threads| threads > 0).ok_or(Status::InvalidValue)?;
        let by_lds = (MAX_LDS_BYTES as usize).checked_div(shared_bytes).unwrap_or(usize::MAX);
        let fitting = (MAX_THREADS as usize / threads).min(by_lds);
        // SAFETY: the module's contract.
        unsafe { store(blocks, fitting as c_int) }
    })
}

/// The largest block, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleOccupancyMaxPotentialBlockSize(
    grid_size: *mut c_int,
    block_size: *mut c_int,
    function: *mut c_void,
    _shared_bytes: usize,
    limit: c_int,
) -> c_int {
    guard(|runtime| {
        runtime.functions.get(function)?;
        let block = if limit > 0 { limit.min(MAX_THREADS as c_int) } else { MAX_THREADS as c_int };
        // SAFETY: the module's contract.
        unsafe { store(grid_size, 1).and_then(|()| store(block_size, block)) }
    })
}
