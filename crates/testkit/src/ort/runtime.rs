//! The loaded library and its function table.

use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ort_ep_sys::{Api, OrtApiBase, Status};

/// An ONNX Runtime library in this process.
pub struct Runtime {
    pub(super) api: Api,
    // Its threads may outlive the last handle, so it stays mapped until the process ends.
    _library: ManuallyDrop<libloading::Library>,
}

impl Runtime {
    /// Loads the library at `path`.
    ///
    /// # Errors
    /// When it can't be loaded, or is older than the oldest supported version.
    pub fn load(path: &Path) -> Result<Arc<Self>> {
        // SAFETY: the caller names an ONNX Runtime library, whose constructors may run at any time.
        let library = unsafe { libloading::Library::new(path) };
        let library = ManuallyDrop::new(library.with_context(|| format!("can't load {}", path.display()))?);
        // SAFETY: this is the signature that ONNX Runtime documents for its only entry.
        let entry = unsafe { library.get::<unsafe extern "system" fn() -> *const OrtApiBase>(b"OrtGetApiBase\0") };
        let entry = entry.with_context(|| format!("{} has no OrtGetApiBase", path.display()))?;
        // SAFETY: the entry takes nothing and gives static data of the library, which is never unmapped.
        let api = unsafe { Api::negotiate(entry()) }?;
        Ok(Arc::new(Self { api, _library: library }))
    }

    /// The API version in use: 31 in ONNX Runtime 1.31.
    pub fn api_version(&self) -> u32 {
        self.api.version()
    }

    /// Turns a status into a result and releases it.
    pub(super) fn check(&self, status: Status) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: a non-null status is the caller's to read and to release once; the text is copied before that.
        let (code, text) = unsafe {
            let code = self.api.GetErrorCode(status);
            let text = CStr::from_ptr(self.api.GetErrorMessage(status)).to_string_lossy().into_owned();
            self.api.ReleaseStatus(status);
            (code, text)
        };
        bail!("ONNX Runtime error {code}: {text}")
    }
}
