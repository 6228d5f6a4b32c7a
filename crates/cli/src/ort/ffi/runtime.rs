//! The loaded library and its function table.

use std::path::Path;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, bail};
use dylib::Library;
use ort_ep_sys::{Api, OrtAllocator, OrtApiBase, Status};

use super::text;
use crate::ort::message;

/// An ONNX Runtime library in this process.
pub struct Runtime {
    pub(super) api: Api,
    version: String,
}

impl Runtime {
    /// Loads the library at `path`.
    ///
    /// # Errors
    /// When it cannot be loaded, is not ONNX Runtime, or is too old.
    pub fn load(path: &Path) -> Result<Rc<Self>> {
        let library = Library::open(path).map_err(|reason| {
            anyhow!(
                "ONNX Runtime could not be loaded from {}: {reason}\n  help: name libonnxruntime.so with --ort",
                path.display()
            )
        })?;
        // SAFETY: this is the signature that ONNX Runtime documents for its only entry point.
        let entry = unsafe { library.symbol::<unsafe extern "system" fn() -> *const OrtApiBase>("OrtGetApiBase") };
        let Some(entry) = entry else {
            bail!("{} is not ONNX Runtime: it has no OrtGetApiBase", path.display());
        };
        // SAFETY: the entry point takes no arguments and returns static data of the library, which is never unloaded.
        let base = unsafe { entry() };
        // SAFETY: as above.
        let api = unsafe { Api::negotiate(base) }.with_context(|| format!("{} cannot be used", path.display()))?;
        // SAFETY: as above; the version is a static string.
        let version = unsafe {
            let version = base.as_ref().and_then(|base| base.GetVersionString);
            version.map(|version| text(version())).unwrap_or_default()
        };
        Ok(Rc::new(Self { api, version }))
    }

    /// Its version, such as `1.31.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Turns a status into a result and releases it.
    pub(super) fn check(&self, status: Status) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: a non-null status is the caller's to read and to release once; the message is copied before that.
        let message = unsafe {
            let message = text(self.api.GetErrorMessage(status));
            self.api.ReleaseStatus(status);
            message
        };
        Err(anyhow!("ONNX Runtime: {}", message::plain(&message)))
    }

    /// The allocator for host memory, which lives as long as the library.
    pub(super) fn allocator(&self) -> Result<NonNull<OrtAllocator>> {
        let mut allocator = ptr::null_mut();
        // SAFETY: the out-pointer is valid.
        self.check(unsafe { self.api.GetAllocatorWithDefaultOptions(&mut allocator) })?;
        NonNull::new(allocator).context("ONNX Runtime has no default allocator")
    }
}
