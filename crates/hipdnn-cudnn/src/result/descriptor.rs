//! Descriptors of the backend interface and their attributes.

use std::ptr;

use hipdnn_abi::Outcome;

use super::check;
use crate::sys::{AttributeName, AttributeType, Cudnn, Descriptor, DescriptorType};

/// A descriptor and its kind, which errors name.
#[derive(Clone, Copy)]
pub struct RawDescriptor {
    pub pointer: Descriptor,
    pub kind: DescriptorType,
}

/// Creates a descriptor.
pub fn create(cudnn: &Cudnn, kind: DescriptorType) -> Outcome<RawDescriptor> {
    let mut pointer = ptr::null_mut();
    // SAFETY: a valid out-pointer.
    let status = unsafe { (cudnn.create_descriptor)(kind, &mut pointer) };
    check(cudnn, || format!("creating {kind:?}"), status)?;
    Ok(RawDescriptor { pointer, kind })
}

/// Destroys a descriptor.
///
/// # Safety
/// The descriptor is alive and not used afterwards.
pub unsafe fn destroy(cudnn: &Cudnn, descriptor: RawDescriptor) -> Outcome {
    // SAFETY: the caller vouches for the descriptor.
    let status = unsafe { (cudnn.destroy_descriptor)(descriptor.pointer) };
    check(cudnn, || format!("destroying {:?}", descriptor.kind), status)
}

/// Finalizes a descriptor.
///
/// # Safety
/// The descriptor is alive.
pub unsafe fn finalize(cudnn: &Cudnn, descriptor: RawDescriptor) -> Outcome {
    // SAFETY: the caller vouches for the descriptor.
    let status = unsafe { (cudnn.finalize)(descriptor.pointer) };
    check(cudnn, || format!("finalizing {:?}", descriptor.kind), status)
}

/// Sets all elements of an attribute.
///
/// # Safety
/// The descriptor is alive. `E` is the C type of `element`; descriptors and handles among the values are alive.
pub unsafe fn set<E: Copy>(
    cudnn: &Cudnn,
    descriptor: RawDescriptor,
    name: AttributeName,
    element: AttributeType,
    values: &[E],
) -> Outcome {
    let (count, from) = (values.len() as i64, values.as_ptr().cast());
    // SAFETY: the pointer and the count come from one slice; the caller vouches for the type of elements and for the
    // descriptor.
    let status = unsafe { (cudnn.set_attribute)(descriptor.pointer, name, element, count, from) };
    check(cudnn, || format!("setting {name:?} of {:?}", descriptor.kind), status)
}

/// Reads elements of an attribute into `values`; returns how many there are, at most as many as fit.
///
/// # Safety
/// The descriptor is alive. `E` is the C type of `element`; descriptors among the values are alive.
pub unsafe fn get<E: Copy>(
    cudnn: &Cudnn,
    descriptor: RawDescriptor,
    name: AttributeName,
    element: AttributeType,
    values: &mut [E],
) -> Outcome<usize> {
    let (room, mut count, to) = (values.len() as i64, 0, values.as_mut_ptr().cast());
    // SAFETY: the buffer has room for `room` elements; the caller vouches for the type of elements and for the
    // descriptor.
    let status = unsafe { (cudnn.get_attribute)(descriptor.pointer, name, element, room, &mut count, to) };
    check(cudnn, || format!("reading {name:?} of {:?}", descriptor.kind), status)?;
    Ok(usize::try_from(count).unwrap_or(0).min(values.len()))
}

/// The number of elements of an attribute.
///
/// # Safety
/// The descriptor is alive.
pub unsafe fn count(
    cudnn: &Cudnn,
    descriptor: RawDescriptor,
    name: AttributeName,
    element: AttributeType,
) -> Outcome<usize> {
    let mut count = 0;
    // SAFETY: without a buffer only the count is written; the caller vouches for the descriptor.
    let status = unsafe { (cudnn.get_attribute)(descriptor.pointer, name, element, 0, &mut count, ptr::null_mut()) };
    check(cudnn, || format!("counting {name:?} of {:?}", descriptor.kind), status)?;
    Ok(usize::try_from(count).unwrap_or(0))
}
