//! The backend's log.

use std::ffi::{CStr, c_void};

use super::{check, require};
use crate::Result;
use crate::sys::{Backend, LogCallbackMode, Severity, UserLogCallback};

/// Registers a callback under `user` for messages of at least this severity; `Severity::OFF` removes it.
///
/// # Errors
/// The backend rejects the call, or does not support callbacks.
///
/// # Safety
/// The callback may be called with `user` on any thread, even shortly after it was removed.
pub unsafe fn set_callback(
    backend: &dyn Backend,
    callback: UserLogCallback,
    least: Severity,
    mode: LogCallbackMode,
    user: *mut c_void,
) -> Result<()> {
    require(backend, "hipdnnSetUserLogCallback_ext")?;
    // SAFETY: the caller vouches for the callback.
    let status = unsafe { backend.set_user_log_callback(Some(callback), least, mode, user) };
    check(backend, || "registering a log callback".into(), status)
}

/// The lowest severity that the backend logs.
///
/// # Errors
/// The backend cannot report it.
pub fn level(backend: &dyn Backend) -> Result<Severity> {
    require(backend, "hipdnnBackendGetGlobalLogLevel_ext")?;
    let mut level = Severity::OFF;
    // SAFETY: a valid out-pointer.
    let status = unsafe { backend.global_log_level(&mut level) };
    check(backend, || "reading the log level".into(), status)?;
    Ok(level)
}

/// Sets the lowest severity that the backend logs.
///
/// # Errors
/// The backend does not know the severity.
pub fn set_level(backend: &dyn Backend, level: Severity) -> Result<()> {
    require(backend, "hipdnnBackendSetGlobalLogLevel_ext")?;
    // SAFETY: the function only takes a number.
    let status = unsafe { backend.set_global_log_level(level) };
    check(backend, || format!("setting the log level to {level:?}"), status)
}

/// Writes a line to the backend's log; a backend without this function drops it.
pub fn write(backend: &dyn Backend, severity: Severity, text: &CStr) {
    // SAFETY: the text lives for the call.
    unsafe { backend.log(severity, text.as_ptr()) };
}
