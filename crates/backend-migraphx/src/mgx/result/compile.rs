//! Targets, and compiling for one.

use std::ffi::{CStr, c_int};

use super::{Created, Doing, check, created, need};
use crate::mgx::sys::{Handle, Loaded};
use crate::mgx::{Feature, MgxError};

/// Creates a target.
pub fn create_target(library: &Loaded, name: &CStr, doing: Doing<'_>) -> Result<Created, MgxError> {
    let table = &library.table;
    created("target_create", ("target_destroy", table.target_destroy), doing, |out| {
        // SAFETY: `out` is a valid out-pointer. The name is only read during the call.
        unsafe { (table.target_create)(out, name.as_ptr()) }
    })
}

/// Creates options.
pub fn create_options(library: &Loaded, doing: Doing<'_>) -> Result<Created, MgxError> {
    let table = &library.table;
    created("compile_options_create", ("compile_options_destroy", table.compile_options_destroy), doing, |out| {
        // SAFETY: `out` is a valid out-pointer.
        unsafe { (table.compile_options_create)(out) }
    })
}

/// Allows approximate arithmetic.
///
/// # Safety
/// The options are alive.
pub unsafe fn set_fast_math(library: &Loaded, options: Handle, on: bool, doing: Doing<'_>) -> Result<(), MgxError> {
    // SAFETY: the caller vouches for the options.
    let status = unsafe { (library.table.compile_options_set_fast_math)(options, on) };
    check("compile_options_set_fast_math", status, doing)
}

/// Tries every available kernel.
///
/// # Safety
/// The options are alive.
pub unsafe fn set_exhaustive_tune(
    library: &Loaded,
    options: Handle,
    on: bool,
    doing: Doing<'_>,
) -> Result<(), MgxError> {
    // SAFETY: the caller vouches for the options.
    let status = unsafe { (library.table.compile_options_set_exhaustive_tune_flag)(options, on) };
    check("compile_options_set_exhaustive_tune_flag", status, doing)
}

/// Lets MIGraphX copy parameters from and to host memory.
///
/// # Safety
/// The options are alive.
pub unsafe fn set_offload_copy(library: &Loaded, options: Handle, on: bool, doing: Doing<'_>) -> Result<(), MgxError> {
    // SAFETY: the caller vouches for the options.
    let status = unsafe { (library.table.compile_options_set_offload_copy)(options, on) };
    check("compile_options_set_offload_copy", status, doing)
}

/// Sets the compile mode.
///
/// # Safety
/// The options are alive.
pub unsafe fn set_mode(library: &Loaded, options: Handle, mode: c_int, doing: Doing<'_>) -> Result<(), MgxError> {
    let set = need(library, Feature::CompileMode, library.table.compile_options_set_compile_mode)?;
    // SAFETY: the caller vouches for the options.
    check("compile_options_set_compile_mode", unsafe { set(options, mode) }, doing)
}

/// Sets options without a dedicated function.
///
/// # Safety
/// The options are alive.
pub unsafe fn set_backend_options(
    library: &Loaded,
    options: Handle,
    text: &CStr,
    doing: Doing<'_>,
) -> Result<(), MgxError> {
    let set = need(library, Feature::BackendOptions, library.table.compile_options_set_advance_backend_options)?;
    // SAFETY: the format takes exactly one string, which is copied during the call; the caller vouches for the options.
    let status = unsafe { set(options, c"%s".as_ptr(), text.as_ptr()) };
    check("compile_options_set_advance_backend_options", status, doing)
}

/// Compiles a program.
///
/// # Safety
/// All three are alive, and nothing else uses the program.
pub unsafe fn compile(
    library: &Loaded,
    program: Handle,
    target: Handle,
    options: Handle,
    doing: Doing<'_>,
) -> Result<(), MgxError> {
    // SAFETY: the caller vouches for all of them.
    check("program_compile", unsafe { (library.table.program_compile)(program, target, options) }, doing)
}
