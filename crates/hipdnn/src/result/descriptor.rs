//! Descriptors and their attributes.

use std::ptr;

use super::check;
use crate::Result;
use crate::sys::{AttributeName, AttributeType, Backend, Descriptor, DescriptorType};

/// A descriptor and its kind, which errors name.
#[derive(Clone, Copy)]
pub struct RawDescriptor {
    pub pointer: Descriptor,
    pub kind: DescriptorType,
}

/// Creates a descriptor.
///
/// # Errors
/// The backend does not know the kind.
pub fn create(backend: &dyn Backend, kind: DescriptorType) -> Result<RawDescriptor> {
    let mut pointer = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    let status = unsafe { backend.create_descriptor(kind, &mut pointer) };
    check(backend, || format!("creating a {kind}"), status)?;
    Ok(RawDescriptor { pointer, kind })
}

/// Destroys a descriptor.
///
/// # Errors
/// The backend rejects the call.
///
/// # Safety
/// The descriptor is alive, of this backend, and not used afterwards.
pub unsafe fn destroy(backend: &dyn Backend, descriptor: RawDescriptor) -> Result<()> {
    // SAFETY: the caller vouches for the descriptor.
    let status = unsafe { backend.destroy_descriptor(descriptor.pointer) };
    check(backend, || format!("destroying a {:?}", descriptor.kind), status)
}

/// Finalizes a descriptor: no attribute can be set afterwards.
///
/// # Errors
/// An attribute is missing or contradicts another.
///
/// # Safety
/// The descriptor is alive and of this backend.
pub unsafe fn finalize(backend: &dyn Backend, descriptor: RawDescriptor) -> Result<()> {
    // SAFETY: the caller vouches for the descriptor.
    let status = unsafe { backend.finalize(descriptor.pointer) };
    check(backend, || format!("finalizing a {:?}", descriptor.kind), status)
}

/// Sets all elements of an attribute.
///
/// # Errors
/// The descriptor has no such attribute, or the backend rejects its values.
///
/// # Safety
/// The descriptor is alive and of this backend. `T` is as wide as an element of `element`; descriptors and handles
/// among the values are alive.
pub unsafe fn set<T: Copy>(
    backend: &dyn Backend,
    descriptor: RawDescriptor,
    name: AttributeName,
    element: AttributeType,
    values: &[T],
) -> Result<()> {
    let (count, from) = (values.len() as i64, values.as_ptr().cast());
    // SAFETY: the pointer and the count come from one slice; the caller vouches for the width of elements and for the
    // descriptor.
    let status = unsafe { backend.set_attribute(descriptor.pointer, name, element, count, from) };
    check(backend, || format!("setting {name:?} of a {:?}", descriptor.kind), status)
}

/// Reads elements of an attribute into `values`; returns how many there are, at most as many as fit.
///
/// # Errors
/// The descriptor has no such attribute, or is not finalized.
///
/// # Safety
/// The descriptor is alive and of this backend. `T` is as wide as an element of `element`; descriptors among the values
/// are null or alive.
pub unsafe fn get<T: Copy>(
    backend: &dyn Backend,
    descriptor: RawDescriptor,
    name: AttributeName,
    element: AttributeType,
    values: &mut [T],
) -> Result<usize> {
    let (room, mut count, to) = (values.len() as i64, 0, values.as_mut_ptr().cast());
    // SAFETY: the buffer has room for `room` elements; the caller vouches for the width of elements and for the
    // descriptor.
    let status = unsafe { backend.get_attribute(descriptor.pointer, name, element, room, &mut count, to) };
    check(backend, || format!("reading {name:?} of a {:?}", descriptor.kind), status)?;
    Ok(usize::try_from(count).unwrap_or(0).min(values.len()))
}

/// The number of elements of an attribute.
///
/// # Errors
/// The descriptor has no such attribute, or is not finalized.
///
/// # Safety
/// The descriptor is alive and of this backend.
pub unsafe fn count(
    backend: &dyn Backend,
    descriptor: RawDescriptor,
    name: AttributeName,
    element: AttributeType,
) -> Result<usize> {
    let mut count = 0;
    // SAFETY: a null array only asks for the count; the caller vouches for the descriptor.
    let status = unsafe { backend.get_attribute(descriptor.pointer, name, element, 0, &mut count, ptr::null_mut()) };
    check(backend, || format!("counting {name:?} of a {:?}", descriptor.kind), status)?;
    Ok(usize::try_from(count).unwrap_or(0))
}
