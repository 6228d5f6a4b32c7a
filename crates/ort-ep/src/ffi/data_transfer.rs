//! [`OrtDataTransferImpl`](sys::OrtDataTransferImpl) over [`DataTransfer`].
use std::slice;

use ort_ep_sys as sys;

use super::guard::Border;
use super::life::LifeToken;
use super::stream::native_handle;
use crate::view::{Tensor, TensorMut};
use crate::{DataTransfer, Error, MemoryDevice, TensorCopy};

#[repr(C)]
struct DataTransferBox {
    raw: sys::OrtDataTransferImpl,
    inner: Box<dyn DataTransfer>,
    border: Border,
    _token: LifeToken,
}

const _: () = assert!(std::mem::offset_of!(DataTransferBox, raw) == 0);

/// Creates the C object.
pub(super) fn data_transfer_into_raw(
    inner: Box<dyn DataTransfer>,
    border: Border,
    token: LifeToken,
) -> *mut sys::OrtDataTransferImpl {
    let mut raw = sys::OrtDataTransferImpl::empty(border.runtime.api_version());
    raw.Release = Some(release);
    raw.CanCopy = Some(can_copy);
    raw.CopyTensors = Some(copy_tensors);
    Box::into_raw(Box::new(DataTransferBox { raw, inner, border, _token: token })).cast()
}

unsafe extern "system" fn release(this: *mut sys::OrtDataTransferImpl) {
    if this.is_null() {
        return;
    }
    // SAFETY: ONNX Runtime releases each data transfer once.
    let transfer = unsafe { Box::from_raw(this.cast::<DataTransferBox>()) };
    let border = transfer.border;
    border.value("DataTransfer.Release", (), move || {
        drop(transfer);
        Ok(())
    });
}

unsafe extern "system" fn can_copy(
    this: *const sys::OrtDataTransferImpl,
    src: *const sys::OrtMemoryDevice,
    dst: *const sys::OrtMemoryDevice,
) -> bool {
    // SAFETY: ONNX Runtime passes the pointer it was given, and memory devices that are alive for the call.
    let this: &DataTransferBox = unsafe { &*this.cast() };
    this.border.value("CanCopy", false, || {
        // SAFETY: as above.
        let (src, dst) = unsafe {
            (MemoryDevice::from_raw(this.border.runtime, src), MemoryDevice::from_raw(this.border.runtime, dst))
        };
        Ok(this.inner.can_copy(src, dst))
    })
}

unsafe extern "system" fn copy_tensors(
    this: *mut sys::OrtDataTransferImpl,
    src: *mut *const sys::OrtValue,
    dst: *mut *mut sys::OrtValue,
    streams: *mut *mut sys::OrtSyncStream,
    count: usize,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this: &DataTransferBox = unsafe { &*this.cast() };
    this.border.status("CopyTensors", || {
        if count == 0 {
            return Ok(());
        }
        if src.is_null() || dst.is_null() {
            return Err(Error::invalid_argument("CopyTensors got no tensors"));
        }
        let runtime = this.border.runtime;
        // SAFETY: both arrays hold `count` entries, and the values and streams in them are alive for the call.
        let (src, dst) = unsafe { (slice::from_raw_parts(src, count), slice::from_raw_parts(dst, count)) };
        let mut copies = Vec::with_capacity(count);
        for (index, (&src, &dst)) in src.iter().zip(dst).enumerate() {
            if src.is_null() || dst.is_null() {
                return Err(Error::invalid_argument(format!("CopyTensors: tensor {index} is null")));
            }
            // SAFETY: as above; a missing array of streams means that no copy has a stream.
            copies.push(unsafe {
                let stream = if streams.is_null() { None } else { native_handle(runtime, *streams.add(index)) };
                TensorCopy { src: Tensor::from_raw(runtime, src), dst: TensorMut::from_raw(runtime, dst), stream }
            });
        }
        this.inner.copy(&mut copies)
    })
}
