//! Handles that are freed when dropped, the lock, and C strings.

use std::ffi::CString;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mgx::MgxError;
use crate::mgx::result::{self, Created};
use crate::mgx::sys::Handle;

/// An owned handle.
pub(super) struct Owned(Created);

impl Owned {
    /// Frees the handle when this value is dropped.
    pub(super) fn new(created: Created) -> Owned {
        Owned(created)
    }

    /// The handle, valid as long as this value lives.
    pub(super) fn raw(&self) -> Handle {
        self.0.raw
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the handle is freed only here.
        if let Err(error) = unsafe { result::destroy(&self.0) } {
            tracing::warn!(target: "amdgpu_ep::lifetime", %error, "MIGraphX did not free a handle");
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
