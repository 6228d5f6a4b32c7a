//! [`OrtEpProfilerImpl`](sys::OrtEpProfilerImpl) over [`Profiler`] (API 25 and newer).
use std::borrow::Cow;
use std::ffi::CString;
use std::marker::PhantomData;
use std::ptr;

use ort_ep_sys as sys;

use super::guard::Border;
use super::runtime::{c_string, text};
use crate::{Error, EventCategory, Profiler, ProfilingEvent, Result, Runtime};

/// One of ONNX Runtime's own events.
#[derive(Clone, Copy)]
pub struct ProfilingEventView<'a> {
    runtime: Runtime,
    raw: *const sys::OrtProfilingEvent,
    lifetime: PhantomData<&'a ()>,
}

impl<'a> ProfilingEventView<'a> {
    /// The event's name.
    ///
    /// # Errors
    /// The runtime reported an error.
    pub fn name(self) -> Result<Cow<'a, str>> {
        let get = self.runtime.ep_api.ProfilingEvent_GetName().ok_or_else(no_profiling)?;
        let mut out = ptr::null();
        // SAFETY: the event is alive for `'a`, and so is its text.
        unsafe {
            self.runtime.check("ProfilingEvent_GetName", get(self.raw, &mut out))?;
            Ok(text(out))
        }
    }

    /// The value of one of its arguments, such as `op_name`.
    ///
    /// # Errors
    /// The runtime reported an error.
    pub fn arg(self, key: &str) -> Result<Option<Cow<'a, str>>> {
        let get = self.runtime.ep_api.ProfilingEvent_GetArgValue().ok_or_else(no_profiling)?;
        let key = c_string(key);
        let mut out = ptr::null();
        // SAFETY: as above; null means that there is no such argument.
        unsafe {
            self.runtime.check("ProfilingEvent_GetArgValue", get(self.raw, key.as_ptr(), &mut out))?;
            Ok((!out.is_null()).then(|| text(out)))
        }
    }
}

fn no_profiling() -> Error {
    Error::not_implemented("this ONNX Runtime does not support profiling by plugins\n  help: use 1.25 or newer")
}

#[repr(C)]
struct ProfilerBox {
    raw: sys::OrtEpProfilerImpl,
    inner: Box<dyn Profiler>,
    border: Border,
}

const _: () = assert!(std::mem::offset_of!(ProfilerBox, raw) == 0);

/// Creates the C object.
pub(super) fn profiler_into_raw(inner: Box<dyn Profiler>, border: Border) -> *mut sys::OrtEpProfilerImpl {
    let mut raw = sys::OrtEpProfilerImpl::empty(border.runtime.api_version());
    raw.Release = Some(release);
    raw.StartProfiling = Some(start);
    raw.StartEvent = Some(start_event);
    raw.StopEvent = Some(stop_event);
    raw.EndProfiling = Some(end);
    Box::into_raw(Box::new(ProfilerBox { raw, inner, border })).cast()
}

/// The box behind a pointer that ONNX Runtime passes back.
///
/// # Safety
/// `this` came from `profiler_into_raw` and is alive.
unsafe fn of<'a>(this: *mut sys::OrtEpProfilerImpl) -> &'a ProfilerBox {
    // SAFETY: guaranteed by the caller; the table is the box's first field.
    unsafe { &*this.cast() }
}

unsafe extern "system" fn release(this: *mut sys::OrtEpProfilerImpl) {
    if this.is_null() {
        return;
    }
    // SAFETY: ONNX Runtime releases each profiler once.
    let profiler = unsafe { Box::from_raw(this.cast::<ProfilerBox>()) };
    let border = profiler.border.after_session();
    border.value("Profiler.Release", (), move || {
        drop(profiler);
        Ok(())
    });
}

unsafe extern "system" fn start(this: *mut sys::OrtEpProfilerImpl, offset_ns: i64) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.border.status("StartProfiling", || this.inner.start(offset_ns))
}

unsafe extern "system" fn start_event(this: *mut sys::OrtEpProfilerImpl, id: u64) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.border.status("StartEvent", || this.inner.start_event(id))
}

unsafe extern "system" fn stop_event(
    this: *mut sys::OrtEpProfilerImpl,
    id: u64,
    event: *const sys::OrtProfilingEvent,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    let event = ProfilingEventView { runtime: this.border.runtime, raw: event, lifetime: PhantomData };
    this.border.status("StopEvent", || this.inner.stop_event(id, event))
}

unsafe extern "system" fn end(
    this: *mut sys::OrtEpProfilerImpl,
    container: *mut sys::OrtProfilingEventsContainer,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    let runtime = this.border.runtime;
    this.border.status("EndProfiling", || {
        let add = runtime.ep_api.ProfilingEventsContainer_AddEvents().ok_or_else(no_profiling)?;
        for event in this.inner.end()? {
            let event = RawEvent::new(runtime, &event)?;
            // SAFETY: the container is alive for the call and copies the event.
            runtime.check("ProfilingEventsContainer_AddEvents", unsafe { add(container, &event.0.cast_const(), 1) })?;
        }
        Ok(())
    })
}

/// An event of the runtime that we own.
struct RawEvent(*mut sys::OrtProfilingEvent, Runtime);

impl RawEvent {
    fn new(runtime: Runtime, event: &ProfilingEvent) -> Result<Self> {
        let create = runtime.ep_api.CreateProfilingEvent().ok_or_else(no_profiling)?;
        let category = match event.category {
            EventCategory::Session => sys::ORT_PROFILING_SESSION,
            EventCategory::Node => sys::ORT_PROFILING_NODE,
            EventCategory::Kernel => sys::ORT_PROFILING_KERNEL,
            EventCategory::Api => sys::ORT_PROFILING_API,
        };
        let name = c_string(&event.name);
        let (keys, values): (Vec<CString>, Vec<CString>) =
            event.args.iter().map(|(key, value)| (c_string(key), c_string(value))).unzip();
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (key_pointers, value_pointers) = (pointers(&keys), pointers(&values));
        let mut raw = ptr::null_mut();
        // SAFETY: every text is NUL-terminated and copied; -1 stands for an unknown process and thread.
        let status = unsafe {
            create(
                category,
                -1,
                -1,
                name.as_ptr(),
                event.timestamp_us,
                event.duration_us,
                key_pointers.as_ptr(),
                value_pointers.as_ptr(),
                keys.len(),
                &mut raw,
            )
        };
        runtime.check("CreateProfilingEvent", status)?;
        Ok(Self(raw, runtime))
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        if let Some(release) = self.1.ep_api.ReleaseProfilingEvent() {
            // SAFETY: made by `CreateProfilingEvent` and still ours: the container has its own copy.
            unsafe { release(self.0) };
        }
    }
}
