//! Attribute values, read from the caller's memory and written to it.

use std::ffi::c_void;
use std::sync::Arc;

use hipdnn::sys::AttributeType as T;

use crate::descriptor::Descriptor;
use crate::fault::{Fault, Outcome};
use crate::registry::DESCRIPTORS;

/// The elements of an attribute.
#[derive(Clone, Debug)]
pub enum Value {
    /// 64-bit integers.
    I64s(Vec<i64>),
    /// 32-bit integers, and every enumeration.
    I32s(Vec<i32>),
    /// Floats.
    F32s(Vec<f32>),
    /// Doubles.
    F64s(Vec<f64>),
    /// Booleans and characters.
    Bytes(Vec<u8>),
    /// Addresses: data, or a handle.
    Addresses(Vec<usize>),
    /// Other descriptors.
    Descriptors(Vec<Arc<Descriptor>>),
}

impl Value {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self {
            Self::I64s(values) => values.len(),
            Self::I32s(values) => values.len(),
            Self::F32s(values) => values.len(),
            Self::F64s(values) => values.len(),
            Self::Bytes(values) => values.len(),
            Self::Addresses(values) => values.len(),
            Self::Descriptors(values) => values.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the elements of another value of the same type.
    pub(crate) fn append(&mut self, more: Self) {
        if let (Self::Descriptors(all), Self::Descriptors(more)) = (self, more) {
            all.extend(more);
        }
    }

    /// Reads elements.
    ///
    /// # Safety
    /// `elements` points at `count` elements of this type.
    pub(crate) unsafe fn read(kind: T, count: usize, elements: *const c_void) -> Outcome<Self> {
        // SAFETY: guaranteed by the caller, for each of the types.
        unsafe {
            Ok(match kind {
                T::INT64 => Self::I64s(copy(elements, count)),
                T::FLOAT => Self::F32s(copy(elements, count)),
                T::DOUBLE => Self::F64s(copy(elements, count)),
                T::BOOLEAN | T::CHAR => Self::Bytes(copy(elements, count)),
                T::HANDLE | T::VOID_PTR => Self::Addresses(copy(elements, count)),
                T::BACKEND_DESCRIPTOR => {
                    let numbers: Vec<usize> = copy(elements, count);
                    let found = numbers
                        .into_iter()
                        .map(|number| DESCRIPTORS.get("a descriptor", std::ptr::without_provenance_mut(number)));
                    Self::Descriptors(found.collect::<Outcome<_>>()?)
                }
                T::FLATBUFFER_DATA_STRUCT_EXT => {
                    return Err(Fault::unsupported(format!("attributes of type {kind} are not supported")));
                }
                _ => Self::I32s(copy(elements, count)),
            })
        }
    }

    /// Writes the first `room` elements; descriptors become new ones owned by the caller. Returns how many were
    /// written.
    ///
    /// # Safety
    /// `elements` has room for `room` elements of this value's type.
    pub(crate) unsafe fn write(&self, room: usize, elements: *mut c_void) -> usize {
        let count = room.min(self.len());
        // SAFETY: guaranteed by the caller, for each of the types.
        unsafe {
            match self {
                Self::I64s(values) => paste(&values[..count], elements),
                Self::I32s(values) => paste(&values[..count], elements),
                Self::F32s(values) => paste(&values[..count], elements),
                Self::F64s(values) => paste(&values[..count], elements),
                Self::Bytes(values) => paste(&values[..count], elements),
                Self::Addresses(values) => paste(&values[..count], elements),
                Self::Descriptors(values) => {
                    let numbers: Vec<*mut c_void> =
                        values[..count].iter().map(|descriptor| DESCRIPTORS.add(descriptor.clone())).collect();
                    paste(&numbers, elements);
                }
            }
        }
        count
    }
}

/// # Safety
/// `elements` points at `count` values.
unsafe fn copy<E: Copy>(elements: *const c_void, count: usize) -> Vec<E> {
    // SAFETY: guaranteed by the caller; C callers need not align their arrays as Rust would.
    (0..count).map(|at| unsafe { elements.cast::<E>().add(at).read_unaligned() }).collect()
}

/// # Safety
/// `elements` has room for the values.
unsafe fn paste<E: Copy>(values: &[E], elements: *mut c_void) {
    for (at, value) in values.iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        unsafe { elements.cast::<E>().add(at).write_unaligned(*value) };
    }
}
