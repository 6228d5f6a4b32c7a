//! Handles that are freed when dropped, and the status that every call returns.

use std::ffi::CString;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::MgxError;
use super::sys::{Handle, OfHandle, Status};

/// Converts a status to an error that names the call and the step.
pub(super) fn check(call: &'static str, status: Status, doing: impl FnOnce() -> String) -> Result<(), MgxError> {
    if status == 0 { Ok(()) } else { Err(MgxError::Call { call, status, doing: doing() }) }
}

/// An owned handle.
pub(super) struct Owned {
    raw: Handle,
    destroy: OfHandle,
}

impl Owned {
    /// Creates a handle with `create`, which receives the out-pointer.
    pub(super) fn make(
        call: &'static str,
        destroy: OfHandle,
        doing: impl FnOnce() -> String,
        create: impl FnOnce(*mut Handle) -> Status,
    ) -> Result<Owned, MgxError> {
        let mut raw = std::ptr::null_mut();
        check(call, create(&mut raw), doing)?;
        if raw.is_null() {
            return Err(MgxError::answer(format!("a null handle from migraphx_{call}")));
        }
        Ok(Owned { raw, destroy })
    }

    /// The handle, valid as long as this value lives.
    pub(super) fn raw(&self) -> Handle {
        self.raw
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the handle was created by the function that matches `destroy`, and is freed only here.
        let status = unsafe { (self.destroy)(self.raw) };
        if status != 0 {
            tracing::warn!(target: "amdgpu_ep::lifetime", status, "MIGraphX did not free a handle");
        }
    }
}

/// The lock for everything that reads or changes MIGraphX's process-wide registries, which have no locks of their own.
pub(super) fn serialised() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts a string to a C string.
pub(super) fn c_text(what: &str, text: &str) -> Result<CString, MgxError> {
    CString::new(text).map_err(|_| MgxError::refused(format!("{what} {text:?}"), "it contains a NUL byte"))
}

/// Converts a path to a C string.
pub(super) fn c_path(path: &Path) -> Result<CString, MgxError> {
    let refused = |reason| MgxError::refused(format!("the path {}", path.display()), reason);
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    #[cfg(not(unix))]
    let bytes = path.to_str().ok_or_else(|| refused("it is not Unicode"))?.as_bytes();
    CString::new(bytes).map_err(|_| refused("it contains a NUL byte"))
}
