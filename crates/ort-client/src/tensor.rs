//! Tensors over memory that the caller owns.

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ort_ep_sys::OrtValue;

use crate::error::check;
use crate::{Element, Error, Memory, MemoryLocation, Result};

/// A tensor over a part of a block of memory, which it keeps alive. Several tensors may share a block, so their elements
/// cannot be accessed; runs that write to the same block at the same time leave unspecified numbers in it.
#[derive(Debug)]
pub struct Tensor {
    value: NonNull<OrtValue>,
    memory: Arc<Memory>,
    /// Where in the block it is.
    range: Range<usize>,
}

// SAFETY: the value is owned and only describes memory, which may also move between threads.
unsafe impl Send for Tensor {}
// SAFETY: `&Tensor` only passes the pointer to ONNX Runtime, which does not change a tensor's description during a run.
unsafe impl Sync for Tensor {}

impl Tensor {
    /// A view of the beginning of a block.
    ///
    /// # Errors
    /// When the block is too small.
    pub fn new(memory: &Arc<Memory>, element: Element, shape: &[i64]) -> Result<Tensor> {
        Tensor::at(memory, 0, element, shape)
    }

    /// A view of a block that starts at the byte `start`.
    ///
    /// # Errors
    /// When the block is too small.
    pub fn at(memory: &Arc<Memory>, start: usize, element: Element, shape: &[i64]) -> Result<Tensor> {
        let (api, place) = (memory.place().api(), memory.place());
        let end = element.bytes_of(shape).and_then(|bytes| start.checked_add(bytes));
        let end = end.filter(|&end| end <= memory.bytes());
        let end = end.ok_or_else(|| Error::LargerThanMemory { shape: shape.to_vec(), bytes: memory.bytes() })?;
        let mut value = ptr::null_mut();
        // SAFETY: the block has at least `end` bytes and outlives the value, which holds it; the place's info is alive.
        check(api, unsafe {
            api.CreateTensorWithDataAsOrtValue(
                place.info(),
                memory.data().byte_add(start),
                end - start,
                shape.as_ptr(),
                shape.len(),
                element.onnx(),
                &mut value,
            )
        })?;
        let value = NonNull::new(value).ok_or(Error::Nothing("tensor"))?;
        Ok(Tensor { value, memory: Arc::clone(memory), range: start..end })
    }

    /// Whether its bytes can be copied to another tensor: there are as many, and none in common.
    pub(crate) fn can_be_copied_to(&self, to: &Tensor) -> bool {
        let is_apart = self.range.end <= to.range.start || to.range.end <= self.range.start;
        self.bytes() == to.bytes() && (is_apart || !Arc::ptr_eq(&self.memory, &to.memory))
    }

    /// Copies its bytes to another tensor if both are in host memory, and returns whether they are. The caller has
    /// checked that they can be copied.
    pub(crate) fn copied_on_host(&self, to: &Tensor) -> bool {
        if !self.memory.place().is_host() || !to.memory.place().is_host() {
            return false;
        }
        // SAFETY: both ranges are inside live blocks of host memory, have the same length and do not overlap. Blocks of
        // a `HostTensor` come here only as long as it is borrowed, and as the destination only mutably. A run that writes to the
        // blocks at the same time leaves unspecified numbers in them, as this type documents.
        unsafe {
            let from = self.memory.data().byte_add(self.range.start).cast::<u8>();
            let to = to.memory.data().byte_add(to.range.start).cast::<u8>();
            from.copy_to_nonoverlapping(to, self.range.len());
        }
        true
    }

    pub(crate) fn bytes(&self) -> usize {
        self.range.len()
    }

    pub(crate) fn as_ptr(&self) -> *const OrtValue {
        self.value.as_ptr()
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: created in `new`, and no run is using it: runs borrow their tensors.
        unsafe { self.memory.place().api().ReleaseValue(self.value.as_ptr()) };
    }
}

/// A tensor in host memory that it shares with no other tensor, so that its elements can be read and written.
#[derive(Debug)]
pub struct HostTensor {
    tensor: Tensor,
    element: Element,
    elems: usize,
}

impl HostTensor {
    /// A tensor of zeros. `place` is host memory.
    ///
    /// # Errors
    /// When `place` is on a device, or the allocation fails.
    pub fn new(place: &Arc<MemoryLocation>, element: Element, shape: &[i64]) -> Result<HostTensor> {
        if !place.is_host() {
            return Err(Error::OnDevice);
        }
        let bytes = bytes_of(element, shape)?;
        let memory = Arc::new(Memory::zeroed(place, bytes)?);
        Ok(HostTensor { tensor: Tensor::new(&memory, element, shape)?, element, elems: bytes / element.bytes() })
    }

    /// Changes the shape. Elements keep their address if they still fit; their values are unspecified afterwards.
    ///
    /// # Errors
    /// When the allocation fails.
    pub fn reshape(&mut self, shape: &[i64]) -> Result<()> {
        let (bytes, memory) = (bytes_of(self.element, shape)?, &self.tensor.memory);
        if bytes <= memory.bytes() {
            self.tensor = Tensor::new(memory, self.element, shape)?;
            self.elems = bytes / self.element.bytes();
        } else {
            *self = HostTensor::new(memory.place(), self.element, shape)?;
        }
        Ok(())
    }

    /// The tensor to pass to a run.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The type of the elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The elements as bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let memory = &self.tensor.memory;
        // SAFETY: the block is host memory, was zeroed, has at least this many bytes and is not shared; runs that write
        // it borrow this tensor mutably (`Call::run`), and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(memory.data().cast(), self.elems * self.element.bytes()) }
    }
}

fn bytes_of(element: Element, shape: &[i64]) -> Result<usize> {
    element.bytes_of(shape).ok_or_else(|| Error::TooLarge { shape: shape.to_vec() })
}
