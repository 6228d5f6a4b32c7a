//! Shapes, and lists of them.

use std::{ptr, slice};

use super::{Created, Doing, check, created};
use crate::mgx::MgxError;
use crate::mgx::sys::{Datatype, Handle, Loaded, Status};

/// Creates a dense shape.
pub fn create(library: &Loaded, element: Datatype, lengths: &[usize], doing: Doing<'_>) -> Result<Created, MgxError> {
    let table = &library.table;
    created("shape_create", ("shape_destroy", table.shape_destroy), doing, |out| {
        // SAFETY: `out` is a valid out-pointer. The lengths are only read during the call.
        unsafe { (table.shape_create)(out, element, lengths.as_ptr(), lengths.len()) }
    })
}

/// The number of its element type.
///
/// # Safety
/// The shape is alive.
pub unsafe fn element(library: &Loaded, shape: Handle, doing: Doing<'_>) -> Result<Datatype, MgxError> {
    let mut number = 0;
    // SAFETY: `number` is a valid out-pointer; the caller vouches for the shape.
    check("shape_type", unsafe { (library.table.shape_type)(&mut number, shape) }, doing)?;
    Ok(number)
}

/// Bytes from the first element to the end of the last.
///
/// # Safety
/// The shape is alive.
pub unsafe fn bytes(library: &Loaded, shape: Handle, doing: Doing<'_>) -> Result<usize, MgxError> {
    let mut bytes = 0;
    // SAFETY: `bytes` is a valid out-pointer; the caller vouches for the shape.
    check("shape_bytes", unsafe { (library.table.shape_bytes)(&mut bytes, shape) }, doing)?;
    Ok(bytes)
}

/// The size of each axis.
///
/// # Safety
/// The shape is alive.
pub unsafe fn lengths(library: &Loaded, shape: Handle, doing: Doing<'_>) -> Result<Vec<usize>, MgxError> {
    // SAFETY: the caller vouches for the shape.
    unsafe { numbers("shape_lengths", library.table.shape_lengths, shape, doing) }
}

/// The stride of each axis, in elements.
///
/// # Safety
/// The shape is alive.
pub unsafe fn strides(library: &Loaded, shape: Handle, doing: Doing<'_>) -> Result<Vec<usize>, MgxError> {
    // SAFETY: the caller vouches for the shape.
    unsafe { numbers("shape_strides", library.table.shape_strides, shape, doing) }
}

/// # Safety
/// The shape is alive.
unsafe fn numbers(
    call: &'static str,
    function: unsafe extern "C" fn(*mut *const usize, *mut usize, Handle) -> Status,
    shape: Handle,
    doing: Doing<'_>,
) -> Result<Vec<usize>, MgxError> {
    let (mut first, mut count) = (ptr::null(), 0);
    // SAFETY: the out-pointers are valid; the caller vouches for the shape.
    check(call, unsafe { function(&mut first, &mut count, shape) }, doing)?;
    if count == 0 || first.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: MIGraphX returned the list and its length. It lives as long as the shape.
    Ok(unsafe { slice::from_raw_parts(first, count) }.to_vec())
}

/// The length of a list of shapes.
///
/// # Safety
/// The list is alive.
pub unsafe fn list_len(library: &Loaded, list: Handle, doing: Doing<'_>) -> Result<usize, MgxError> {
    let mut len = 0;
    // SAFETY: `len` is a valid out-pointer; the caller vouches for the list.
    check("shapes_size", unsafe { (library.table.shapes_size)(&mut len, list) }, doing)?;
    Ok(len)
}

/// A shape of a list, which lives as long as the list.
///
/// # Safety
/// The list is alive, and the index below its length.
pub unsafe fn list_get(library: &Loaded, list: Handle, index: usize, doing: Doing<'_>) -> Result<Handle, MgxError> {
    let mut shape = ptr::null_mut();
    // SAFETY: `shape` is a valid out-pointer; the caller vouches for the list and the index.
    check("shapes_get", unsafe { (library.table.shapes_get)(&mut shape, list, index) }, doing)?;
    Ok(shape)
}
