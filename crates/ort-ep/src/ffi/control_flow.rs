//! `If`, `Loop` and `Scan` on the device: ONNX Runtime's own kernels, which run the bodies, with our copies. They are
//! registered for every plugin with memory of its own, and run the nodes that it claims one by one.
use std::ffi::c_void;
use std::ptr;
use std::slice;
use std::sync::Arc;

use ort_ep_sys as sys;

use super::guard::Border;
use crate::kernel::ControlFlow;
use crate::view::{OwnedTensor, Tensor, TensorMut};
use crate::{DataTransfer, ElementType, Error, ErrorCode, KernelDef, Result, Runtime, TensorCopy};

/// A later version than any of these operators has.
const LAST: i32 = 99;

/// Kernels for tensors. Conditions and trip counts are read on the host.
pub(super) fn control_flow_kernels(transfer: &Arc<dyn DataTransfer>) -> Vec<KernelDef> {
    let tensors: Vec<ElementType> = ElementType::ALL.iter().copied().filter(|&it| it != ElementType::String).collect();
    let make = |kind, op_type: &str, first: i32| {
        KernelDef::control_flow(kind, op_type, first..=LAST, transfer.clone()).types("V", &tensors)
    };
    vec![
        make(ControlFlow::If, "If", 1).host_input(0),
        make(ControlFlow::Loop, "Loop", 1).host_input(0).host_input(1),
        // Version 8 has a batch axis.
        make(ControlFlow::Scan, "Scan", 9),
    ]
}

/// Creates ONNX Runtime's kernel for a node.
///
/// # Safety
/// `info` describes a node for the call, and `out` is a valid out-pointer.
pub(super) unsafe fn create(
    kind: ControlFlow,
    transfer: &Arc<dyn DataTransfer>,
    border: Border,
    info: *const sys::OrtKernelInfo,
    out: *mut *mut sys::OrtKernelImpl,
) -> Result<()> {
    let api = border.runtime.ep_api;
    // ONNX Runtime releases a helper with its kernel. Whether it does after an error is not known: then it is leaked.
    match kind {
        ControlFlow::If => {
            // SAFETY: the caller's promise.
            border.runtime.check("CreateIfKernel", unsafe { api.CreateIfKernel(info, out) })
        }
        ControlFlow::Loop => {
            let mut raw = sys::OrtLoopKernelHelper::empty(border.runtime.api_version());
            raw.Release = Some(release::<sys::OrtLoopKernelHelper>);
            raw.ConcatOutput = Some(concat_output);
            let helper = helper(raw, transfer, border);
            // SAFETY: as above; the helper starts with its table.
            border.runtime.check("CreateLoopKernel", unsafe { api.CreateLoopKernel(info, helper, out) })
        }
        ControlFlow::Scan => {
            let mut raw = sys::OrtScanKernelHelper::empty(border.runtime.api_version());
            raw.Release = Some(release::<sys::OrtScanKernelHelper>);
            raw.Transpose = Some(transpose);
            let helper = helper(raw, transfer, border);
            // SAFETY: as above.
            border.runtime.check("CreateScanKernel", unsafe { api.CreateScanKernel(info, helper, out) })
        }
    }
}

#[repr(C)]
struct HelperBox<T> {
    raw: T,
    transfer: Arc<dyn DataTransfer>,
    border: Border,
}

const _: () = assert!(std::mem::offset_of!(HelperBox<sys::OrtLoopKernelHelper>, raw) == 0);
const _: () = assert!(std::mem::offset_of!(HelperBox<sys::OrtScanKernelHelper>, raw) == 0);

fn helper<T>(raw: T, transfer: &Arc<dyn DataTransfer>, border: Border) -> *mut T {
    Box::into_raw(Box::new(HelperBox { raw, transfer: transfer.clone(), border })).cast()
}

unsafe extern "system" fn release<T>(this: *mut T) {
    if this.is_null() {
        return;
    }
    // SAFETY: ONNX Runtime releases each helper once.
    let helper = unsafe { Box::from_raw(this.cast::<HelperBox<T>>()) };
    let border = helper.border;
    border.value("KernelHelper.Release", (), move || {
        drop(helper);
        Ok(())
    });
}

/// Writes the outputs of all iterations one after the other.
unsafe extern "system" fn concat_output(
    this: *mut sys::OrtLoopKernelHelper,
    _: *mut c_void,
    values: *const *const sys::OrtValue,
    count: usize,
    output: *mut c_void,
    bytes: usize,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this: &HelperBox<sys::OrtLoopKernelHelper> = unsafe { &*this.cast() };
    this.border.status("ConcatOutput", || {
        if count == 0 {
            return Ok(());
        }
        if values.is_null() {
            return Err(Error::invalid_argument("ConcatOutput got no tensors"));
        }
        let runtime = this.border.runtime;
        // SAFETY: the array holds `count` entries.
        let values = unsafe { slice::from_raw_parts(values, count) };
        // SAFETY: the values are alive for the call.
        let values: Vec<_> = values.iter().map(|&value| unsafe { Tensor::from_raw(runtime, value) }).collect();
        // ONNX Runtime takes the shape of the output from the first iteration, and leaves this check to the helper.
        let (shape, size) = (values[0].shape()?, values[0].size_bytes()?);
        for value in &values {
            let found = value.shape()?;
            if found != shape {
                return Err(Error::invalid_argument(format!(
                    "an output of a Loop has shape {shape:?} in one iteration and {found:?} in another"
                )));
            }
        }
        if size.checked_mul(count) != Some(bytes) {
            return Err(Error::invalid_argument(format!("{count} outputs of {size} bytes do not fill {bytes} bytes")));
        }
        if bytes == 0 {
            return Ok(());
        }
        if output.is_null() {
            return Err(Error::invalid_argument("ConcatOutput got no output"));
        }
        let mut places = Vec::with_capacity(count);
        for (at, &src) in values.iter().enumerate() {
            // SAFETY: the output has `bytes` bytes, which are `count` parts of `size` bytes.
            places.push(unsafe { Place::new(runtime, src, output.cast::<u8>().add(at * size).cast(), size)? });
        }
        // Without a stream the copies wait for the bodies, which may have used another one.
        let copies = values.iter().zip(&places).map(|(&src, place)| {
            // SAFETY: `places` outlives the copies; each value describes a part of the output that nothing else uses now.
            let dst = unsafe { TensorMut::from_raw(runtime, place.raw) };
            TensorCopy { src, dst, stream: None }
        });
        this.transfer.copy(&mut copies.collect::<Vec<_>>())
    })
}

/// A part of an output as a value.
struct Place {
    raw: *mut sys::OrtValue,
    _owner: OwnedTensor,
}

impl Place {
    /// A value of the type and shape of `like`, in its memory.
    ///
    /// # Safety
    /// There are `size` bytes at `address`, in the memory of `like`.
    unsafe fn new(runtime: Runtime, like: Tensor<'_>, address: *mut c_void, size: usize) -> Result<Self> {
        let (shape, element) = (like.shape()?, like.element_type()?);
        let (mut memory, mut raw) = (ptr::null(), ptr::null_mut());
        // SAFETY: the value is alive and the out-pointer valid; the description is part of the value.
        let status = unsafe { runtime.api.GetTensorMemoryInfo(like.as_ptr(), &mut memory) };
        runtime.check("GetTensorMemoryInfo", status)?;
        // SAFETY: the caller's promise; shape and element type give the size.
        let status = unsafe {
            runtime.api.CreateTensorWithDataAsOrtValue(
                memory,
                address,
                size,
                shape.as_ptr(),
                shape.len(),
                element.to_raw(),
                &mut raw,
            )
        };
        runtime.check("CreateTensorWithDataAsOrtValue", status)?;
        // SAFETY: the value was made here.
        Ok(Self { raw, _owner: unsafe { OwnedTensor::from_raw(runtime, raw) } })
    }
}

/// For scans along other axes than the first, which are not claimed.
unsafe extern "system" fn transpose(
    this: *mut sys::OrtScanKernelHelper,
    _: *const usize,
    _: usize,
    _: *const sys::OrtValue,
    _: *mut sys::OrtSyncStream,
    _: *mut sys::OrtValue,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this: &HelperBox<sys::OrtScanKernelHelper> = unsafe { &*this.cast() };
    this.border.status("Transpose", || {
        Err(Error::new(ErrorCode::NotImplemented, "Scan along another axis than the first is not supported"))
    })
}
