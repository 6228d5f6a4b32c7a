//! Streams and notifications.
use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use ort_ep_sys as sys;

use super::guard::Border;
use super::life::LifeToken;
use crate::view::RawStream;
use crate::{Notification, Result, Runtime, Stream};

/// A stream of ONNX Runtime: ours, or another execution provider's.
#[derive(Clone, Copy)]
pub struct SyncStream<'a> {
    runtime: Runtime,
    raw: *mut sys::OrtSyncStream,
    lifetime: PhantomData<&'a ()>,
}

impl<'a> SyncStream<'a> {
    /// # Safety
    /// `raw` is alive for `'a`.
    pub(super) unsafe fn from_raw(runtime: Runtime, raw: *mut sys::OrtSyncStream) -> Option<Self> {
        (!raw.is_null()).then_some(Self { runtime, raw, lifetime: PhantomData })
    }

    /// The driver's own handle.
    pub fn handle(self) -> RawStream {
        // SAFETY: alive for `'a`.
        RawStream::new(unsafe { self.runtime.api.SyncStream_GetHandle(self.raw) })
    }

    /// Our own object behind it; `None` if another library created it or it has another type.
    pub fn downcast<S: Stream>(self) -> Option<&'a S> {
        // SAFETY: alive for `'a`; the result is null or the table its creator filled.
        let raw = unsafe { self.runtime.ep_api.SyncStream_GetImpl(self.raw) };
        // SAFETY: as above; every table has the `Release` slot.
        let ours = !raw.is_null()
            && unsafe {
                (*raw)
                    .Release
                    .is_some_and(|function| ptr::fn_addr_eq(function, stream_release as unsafe extern "system" fn(_)))
            };
        if !ours {
            return None;
        }
        // SAFETY: only this library's boxes carry `stream_release`.
        let stream: &'a StreamBox = unsafe { &*raw.cast() };
        (&*stream.inner as &dyn Any).downcast_ref()
    }
}

/// The driver's handle of a stream.
///
/// # Safety
/// `stream` is null or alive for the call.
pub(super) unsafe fn native_handle(runtime: Runtime, stream: *mut sys::OrtSyncStream) -> Option<RawStream> {
    // SAFETY: guaranteed by the caller.
    unsafe { SyncStream::from_raw(runtime, stream) }.map(SyncStream::handle)
}

#[repr(C)]
struct StreamBox {
    raw: sys::OrtSyncStreamImpl,
    inner: Box<dyn Stream>,
    border: Border,
    _token: LifeToken,
}

#[repr(C)]
struct NotificationBox {
    raw: sys::OrtSyncNotificationImpl,
    inner: Box<dyn Notification>,
    border: Border,
}

const _: () = assert!(std::mem::offset_of!(StreamBox, raw) == 0 && std::mem::offset_of!(NotificationBox, raw) == 0);

/// Creates the C object.
pub(super) fn stream_into_raw(inner: Box<dyn Stream>, border: Border, token: LifeToken) -> *mut sys::OrtSyncStreamImpl {
    let mut raw = sys::OrtSyncStreamImpl::empty(border.runtime.api_version());
    raw.Release = Some(stream_release);
    raw.GetHandle = Some(stream_handle);
    raw.CreateNotification = Some(stream_notification);
    raw.Flush = Some(stream_flush);
    raw.OnSessionRunEnd = Some(stream_on_run_end);
    Box::into_raw(Box::new(StreamBox { raw, inner, border, _token: token })).cast()
}

/// The box behind a pointer that ONNX Runtime passes back.
///
/// # Safety
/// `this` came from `stream_into_raw` and is alive.
unsafe fn stream<'a>(this: *mut sys::OrtSyncStreamImpl) -> &'a StreamBox {
    // SAFETY: guaranteed by the caller; the table is the box's first field.
    unsafe { &*this.cast() }
}

unsafe extern "system" fn stream_release(this: *mut sys::OrtSyncStreamImpl) {
    if this.is_null() {
        return;
    }
    // SAFETY: ONNX Runtime releases each stream once.
    let stream = unsafe { Box::from_raw(this.cast::<StreamBox>()) };
    let border = stream.border.after_session();
    border.value("Stream.Release", (), move || {
        drop(stream);
        Ok(())
    });
}

unsafe extern "system" fn stream_handle(this: *mut sys::OrtSyncStreamImpl) -> *mut c_void {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { stream(this) };
    this.border.value("GetHandle", std::ptr::null_mut(), || Ok(this.inner.handle().as_ptr()))
}

unsafe extern "system" fn stream_notification(
    this: *mut sys::OrtSyncStreamImpl,
    out: *mut *mut sys::OrtSyncNotificationImpl,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { stream(this) };
    this.border.status("CreateNotification", || {
        let inner = this.inner.notification()?;
        let mut raw = sys::OrtSyncNotificationImpl::empty(this.border.runtime.api_version());
        raw.Release = Some(notification_release);
        raw.Activate = Some(notification_activate);
        raw.WaitOnDevice = Some(notification_wait_on_device);
        raw.WaitOnHost = Some(notification_wait_on_host);
        let notification = NotificationBox { raw, inner, border: this.border };
        // SAFETY: a valid out-pointer; ONNX Runtime releases the object.
        unsafe { out.write(Box::into_raw(Box::new(notification)).cast()) };
        Ok(())
    })
}

unsafe extern "system" fn stream_flush(this: *mut sys::OrtSyncStreamImpl) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { stream(this) };
    this.border.status("Flush", || this.inner.flush())
}

unsafe extern "system" fn stream_on_run_end(this: *mut sys::OrtSyncStreamImpl) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { stream(this) };
    this.border.status("OnSessionRunEnd", || this.inner.on_run_end())
}

/// Runs a slot of a notification.
///
/// # Safety
/// `this` came from `stream_notification` and is alive.
unsafe fn notified(
    entry: &'static str,
    this: *mut sys::OrtSyncNotificationImpl,
    body: impl FnOnce(&NotificationBox) -> Result<()>,
) -> sys::Status {
    // SAFETY: guaranteed by the caller; the table is the box's first field.
    let this: &NotificationBox = unsafe { &*this.cast() };
    this.border.status(entry, || body(this))
}

unsafe extern "system" fn notification_release(this: *mut sys::OrtSyncNotificationImpl) {
    if this.is_null() {
        return;
    }
    // SAFETY: ONNX Runtime releases each notification once.
    let notification = unsafe { Box::from_raw(this.cast::<NotificationBox>()) };
    let border = notification.border.after_session();
    border.value("Notification.Release", (), move || {
        drop(notification);
        Ok(())
    });
}

unsafe extern "system" fn notification_activate(this: *mut sys::OrtSyncNotificationImpl) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { notified("Activate", this, |this| this.inner.activate()) }
}

unsafe extern "system" fn notification_wait_on_device(
    this: *mut sys::OrtSyncNotificationImpl,
    consumer: *mut sys::OrtSyncStream,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given; the consumer is null or alive for the call.
    unsafe {
        notified("WaitOnDevice", this, |this| {
            this.inner.wait_on_device(SyncStream::from_raw(this.border.runtime, consumer))
        })
    }
}

unsafe extern "system" fn notification_wait_on_host(this: *mut sys::OrtSyncNotificationImpl) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { notified("WaitOnHost", this, |this| this.inner.wait_on_host()) }
}
