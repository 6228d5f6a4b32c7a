//! Outputs of runs: existing memory, or tensors that ONNX Runtime allocates.

use std::ptr::{self, NonNull};

use ort::sys::{OrtMemoryInfoDeviceType, OrtValue};

use super::tensor::bytes_of;
use super::{HostTensor, Kind, check};
use crate::error::Doing;
use crate::{Error, Result};

/// Where a run writes an output.
#[derive(Debug)]
pub(crate) enum Output {
    /// Into existing memory, whose shape the result must have.
    Given(HostTensor),
    /// Into a tensor that the run allocates, of any shape.
    Made(MadeTensor),
}

impl Output {
    pub fn kind(&self) -> Kind {
        match self {
            Output::Given(tensor) => tensor.kind(),
            Output::Made(made) => made.kind,
        }
    }

    /// The elements as bytes; empty before the first run into an allocated tensor.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Output::Given(tensor) => tensor.bytes_mut(),
            Output::Made(made) => made.bytes_mut(),
        }
    }

    /// The value to pass to a run: null if the run allocates the tensor.
    pub(super) fn before_run(&mut self) -> *mut OrtValue {
        match self {
            Output::Given(tensor) => tensor.tensor().as_ptr().cast_mut(),
            Output::Made(made) => {
                made.value = None;
                ptr::null_mut()
            }
        }
    }

    /// Takes the value that a run left in the output array.
    ///
    /// # Safety
    /// `value` is the value that the run left where [`before_run`](Self::before_run) was written to, and has no other
    /// owner.
    pub(super) unsafe fn after_run(&mut self, value: *mut OrtValue) -> Result<()> {
        if let (Output::Made(made), Some(value)) = (self, NonNull::new(value)) {
            // Owned from here on, even if it is invalid.
            let value = Value(value);
            let (shape, data) = described(&value).doing("reading a result's shape")?;
            let bytes = bytes_of(made.kind, &shape).ok_or_else(|| {
                Error::request(format!("a result of shape {shape:?} is too large"), "ask for a shorter prompt")
            })?;
            (made.shape, made.bytes, made.data) = (shape, bytes, data);
            made.value = Some(value);
        }
        Ok(())
    }
}

/// A tensor that runs allocate, in host memory.
#[derive(Debug)]
pub(crate) struct MadeTensor {
    kind: Kind,
    shape: Vec<i64>,
    bytes: usize,
    data: *mut u8,
    value: Option<Value>,
}

// SAFETY: the value is owned, and its elements are host memory that moves with it.
unsafe impl Send for MadeTensor {}
// SAFETY: elements are only accessed through `&mut`.
unsafe impl Sync for MadeTensor {}

impl MadeTensor {
    /// An empty tensor, before the first run.
    pub fn new(kind: Kind) -> Self {
        Self { kind, shape: Vec::new(), bytes: 0, data: ptr::null_mut(), value: None }
    }

    /// The shape of the last run's tensor.
    pub fn shape(&self) -> &[i64] {
        if self.value.is_some() { &self.shape } else { &[] }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if self.value.is_none() || self.data.is_null() {
            return &mut [];
        }
        // SAFETY: `described` found the value's elements here, in host memory; they are of `kind`, the session's type
        // for this output, so they have this many bytes. The value lives in `self`, which is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.bytes) }
    }
}

/// An owned ONNX Runtime value.
#[derive(Debug)]
struct Value(NonNull<OrtValue>);

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: a run handed it over in `after_run`, and it has no other owner.
        unsafe { (ort::api().ReleaseValue)(self.0.as_ptr()) };
    }
}

/// The shape of a tensor, and the address of its elements in host memory.
fn described(value: &Value) -> ort::Result<(Vec<i64>, *mut u8)> {
    let (api, value) = (ort::api(), value.0.as_ptr());
    let (mut info, mut memory, mut data) = (ptr::null_mut(), ptr::null(), ptr::null_mut());
    let mut place = OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU;
    // SAFETY: the value is alive; each out-pointer is valid for its call, and its result is used only if the call
    // succeeded. The memory info belongs to the value; the shape info is released below.
    unsafe {
        check((api.GetTensorMemoryInfo)(value, &mut memory))?;
        (api.MemoryInfoGetDeviceType)(memory, &mut place);
        check((api.GetTensorMutableData)(value, &mut data))?;
        check((api.GetTensorTypeAndShape)(value, &mut info))?;
    }
    let mut shape = Vec::new();
    // SAFETY: the info is alive until it is released here, once; the list has the requested number of entries.
    let read = unsafe {
        let mut rank = 0;
        let read = check((api.GetDimensionsCount)(info, &mut rank)).and_then(|()| {
            shape.resize(rank, 0);
            check((api.GetDimensions)(info, shape.as_mut_ptr(), rank))
        });
        (api.ReleaseTensorTypeAndShapeInfo)(info);
        read
    };
    read?;
    if place != OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU {
        return Err(ort::Error::new("ONNX Runtime left a result of a plain run in a device's memory"));
    }
    Ok((shape, data.cast()))
}
