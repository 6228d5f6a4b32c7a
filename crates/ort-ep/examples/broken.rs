//! A test plugin that violates the plugin contract in the way that the variable `BROKEN` selects at load time. It uses
//! the raw tables, because the SDK would not allow this.
//!
//! It claims no nodes: if a session can be created in spite of the fault, it runs on other providers.
#![allow(missing_docs)]
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use ort_ep_sys as sys;

/// The runtime's entry point, needed to create statuses.
static BASE: AtomicPtr<sys::OrtApiBase> = AtomicPtr::new(ptr::null_mut());

fn is(mode: &str) -> bool {
    std::env::var("BROKEN").is_ok_and(|found| found == mode)
}

/// The number after `name=`, if `BROKEN` selects that fault.
fn number(name: &str) -> Option<u32> {
    std::env::var("BROKEN").ok()?.strip_prefix(name)?.strip_prefix('=')?.parse().ok()
}

fn status(text: &std::ffi::CStr) -> sys::Status {
    // SAFETY: the runtime passed the entry, and the text is copied.
    unsafe {
        sys::Api::negotiate(BASE.load(Ordering::Relaxed))
            .map_or(ptr::null_mut(), |api| api.CreateStatus(sys::ORT_FAIL, text.as_ptr()))
    }
}

/// # Safety
/// Only ONNX Runtime, or a library that behaves like it, may call this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateEpFactories(
    _: *const c_char,
    base: *const sys::OrtApiBase,
    _: *const sys::OrtLogger,
    factories: *mut *mut sys::OrtEpFactory,
    room: usize,
    count: *mut usize,
) -> sys::Status {
    BASE.store(base.cast_mut(), Ordering::Relaxed);
    if is("error") {
        return status(c"CreateEpFactories was told to fail");
    }
    let made = if is("zero") { 0 } else { number("factories").map_or(1, |wanted| (wanted as usize).min(room)) };
    for index in 0..made {
        let factory = if is("null_factory") { ptr::null_mut() } else { Box::into_raw(Box::new(factory())) };
        // SAFETY: the caller has room for `room` factories.
        unsafe { factories.add(index).write(factory) };
    }
    // SAFETY: a valid out-pointer.
    unsafe { count.write(made) };
    ptr::null_mut()
}

/// # Safety
/// As above; `factory` came from `CreateEpFactories`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ReleaseEpFactory(factory: *mut sys::OrtEpFactory) -> sys::Status {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { Box::from_raw(factory) });
    if is("release_error") { status(c"ReleaseEpFactory was told to fail") } else { ptr::null_mut() }
}

fn factory() -> sys::OrtEpFactory {
    let mut factory = sys::OrtEpFactory::empty(number("factory_stamp").unwrap_or(sys::MAX_API_VERSION));
    factory.CreateEp = if is("no_create_ep") { None } else { Some(create_ep) };
    factory.ReleaseEp = if is("no_release_ep") { None } else { Some(release_ep) };
    if !is("no_release_allocator") {
        factory.ReleaseAllocator = Some(release_allocator);
    }
    factory
}

unsafe extern "system" fn create_ep(
    _: *mut sys::OrtEpFactory,
    _: *const *const sys::OrtHardwareDevice,
    _: *const *const sys::OrtKeyValuePairs,
    _: usize,
    _: *const sys::OrtSessionOptions,
    _: *const sys::OrtLogger,
    out: *mut *mut sys::OrtEp,
) -> sys::Status {
    if is("ep_error") {
        return status(c"CreateEp was told to fail");
    }
    if is("null_ep") {
        return ptr::null_mut();
    }
    let mut ep = sys::OrtEp::empty(number("ep_stamp").unwrap_or(sys::MAX_API_VERSION));
    ep.GetCapability = if is("no_capability") { None } else { Some(get_capability) };
    if is("null_allocator") || is("no_release_allocator") {
        ep.CreateAllocator = Some(create_no_allocator);
    }
    if is("null_stream") {
        ep.CreateSyncStreamForDevice = Some(create_no_stream);
    }
    if is("registry_error") {
        ep.GetKernelRegistry = Some(get_no_registry);
    }
    // This slot is newer than the stamp: a smaller stamp says that the slot does not exist, whatever the memory holds.
    if number("ep_stamp").is_some_and(|stamp| stamp < sys::MAX_API_VERSION) {
        let trap = ptr::without_provenance::<c_void>(8);
        // SAFETY: never called, because a slot beyond the stamp must not be read.
        ep.GetEpContextDataCallbackSupport = unsafe { std::mem::transmute::<*const c_void, Option<_>>(trap) };
    }
    // SAFETY: a valid out-pointer.
    unsafe { out.write(Box::into_raw(Box::new(ep))) };
    ptr::null_mut()
}

unsafe extern "system" fn release_ep(_: *mut sys::OrtEpFactory, ep: *mut sys::OrtEp) {
    // SAFETY: the caller gives back what `create_ep` gave, once.
    drop(unsafe { Box::from_raw(ep) });
}

unsafe extern "system" fn release_allocator(_: *mut sys::OrtEpFactory, _: *mut sys::OrtAllocator) {}

unsafe extern "system" fn get_capability(
    _: *mut sys::OrtEp,
    _: *const sys::OrtGraph,
    _: *mut sys::OrtEpGraphSupportInfo,
) -> sys::Status {
    ptr::null_mut()
}

unsafe extern "system" fn create_no_allocator(
    _: *mut sys::OrtEp,
    _: *const sys::OrtMemoryInfo,
    _: *mut *mut sys::OrtAllocator,
) -> sys::Status {
    ptr::null_mut()
}

unsafe extern "system" fn create_no_stream(
    _: *mut sys::OrtEp,
    _: *const sys::OrtMemoryDevice,
    _: *mut *mut sys::OrtSyncStreamImpl,
) -> sys::Status {
    ptr::null_mut()
}

unsafe extern "system" fn get_no_registry(_: *mut sys::OrtEp, _: *mut *const sys::OrtKernelRegistry) -> sys::Status {
    status(c"GetKernelRegistry was told to fail")
}
