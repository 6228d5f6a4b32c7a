//! Arguments: memory with a shape.

use std::ffi::c_void;
use std::ptr;

use super::{Created, Doing, check, created};
use crate::mgx::MgxError;
use crate::mgx::sys::{Handle, Loaded};

/// Creates an argument over memory, which is not accessed yet.
///
/// # Safety
/// The shape is alive. The memory fits it, and lives as long as the argument and its copies are in use.
pub unsafe fn create(
    library: &Loaded,
    shape: Handle,
    memory: *mut c_void,
    doing: Doing<'_>,
) -> Result<Created, MgxError> {
    let table = &library.table;
    created("argument_create", ("argument_destroy", table.argument_destroy), doing, |out| {
        // SAFETY: `out` is a valid out-pointer; the caller vouches for the shape and the memory.
        unsafe { (table.argument_create)(out, shape, memory) }
    })
}

/// The shape of an argument, which lives as long as the argument.
///
/// # Safety
/// The argument is alive.
pub unsafe fn shape(library: &Loaded, argument: Handle, doing: Doing<'_>) -> Result<Handle, MgxError> {
    let mut shape = ptr::null_mut();
    // SAFETY: `shape` is a valid out-pointer; the caller vouches for the argument.
    check("argument_shape", unsafe { (library.table.argument_shape)(&mut shape, argument) }, doing)?;
    Ok(shape)
}

/// The memory of an argument.
///
/// # Safety
/// The argument is alive.
pub unsafe fn buffer(library: &Loaded, argument: Handle, doing: Doing<'_>) -> Result<*mut u8, MgxError> {
    let mut address = ptr::null_mut();
    // SAFETY: `address` is a valid out-pointer; the caller vouches for the argument.
    check("argument_buffer", unsafe { (library.table.argument_buffer)(&mut address, argument) }, doing)?;
    Ok(address.cast())
}

/// The length of a list of arguments.
///
/// # Safety
/// The list is alive.
pub unsafe fn list_len(library: &Loaded, list: Handle, doing: Doing<'_>) -> Result<usize, MgxError> {
    let mut len = 0;
    // SAFETY: `len` is a valid out-pointer; the caller vouches for the list.
    check("arguments_size", unsafe { (library.table.arguments_size)(&mut len, list) }, doing)?;
    Ok(len)
}

/// An argument of a list, which lives as long as the list.
///
/// # Safety
/// The list is alive, and the index below its length.
pub unsafe fn list_get(library: &Loaded, list: Handle, index: usize, doing: Doing<'_>) -> Result<Handle, MgxError> {
    let mut argument = ptr::null_mut();
    // SAFETY: `argument` is a valid out-pointer; the caller vouches for the list and the index.
    check("arguments_get", unsafe { (library.table.arguments_get)(&mut argument, list, index) }, doing)?;
    Ok(argument)
}
