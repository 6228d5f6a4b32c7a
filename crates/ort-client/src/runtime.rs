//! The library and its function table.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ort_ep_sys::{Api, NegotiationError, OrtAllocator, OrtApiBase};

use crate::error::check;
use crate::text::text;
use crate::{Error, LoadError, Result};

/// A library that says it is ONNX Runtime, whether or not its version is supported. It stays loaded for the life of the
/// process.
#[derive(Debug)]
pub struct Library {
    file: Option<PathBuf>,
    version: String,
    api: Result<Api, NegotiationError>,
}

impl Library {
    /// Opens a library by path, or by a bare name for the system's loader.
    ///
    /// # Errors
    /// When it cannot be opened, or has no entry point of ONNX Runtime.
    pub fn open(name: impl AsRef<OsStr>) -> Result<Library, LoadError> {
        let library = dylib::Library::open(name).map_err(LoadError::Open)?;
        // SAFETY: `OrtGetApiBase` has had this signature in every release of ONNX Runtime.
        let entry = unsafe { library.symbol::<unsafe extern "system" fn() -> *const OrtApiBase>("OrtGetApiBase") };
        let entry = entry.ok_or(LoadError::NotOnnxRuntime)?;
        // SAFETY: it takes no arguments and returns null or static data of the library, which is never unloaded.
        let base = unsafe { entry() };
        // SAFETY: as above; the version is a static string or null.
        let version = unsafe {
            let version = base.as_ref().and_then(|base| base.GetVersionString);
            version.map(|version| text(version())).unwrap_or_default()
        };
        // SAFETY: as above.
        let api = unsafe { Api::negotiate(base) };
        Ok(Library { file: dylib::file_at(entry as *const () as usize), version, api })
    }

    /// The file that the loader chose, on systems that report it.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The version, such as `1.31.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The API version that is used with it: 31 for ONNX Runtime 1.31.
    ///
    /// # Errors
    /// When its version is not supported.
    pub fn api_version(&self) -> Result<u32, &NegotiationError> {
        self.api.as_ref().map(Api::version)
    }
}

/// A usable ONNX Runtime in this process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) api: Api,
    version: Arc<str>,
}

impl Runtime {
    /// Loads the library at `path`.
    ///
    /// # Errors
    /// When it cannot be opened, is not ONNX Runtime, or has an unsupported version.
    pub fn load(path: &Path) -> Result<Runtime, LoadError> {
        let library = Library::open(path)?;
        Ok(Runtime { api: library.api?, version: library.version.into() })
    }

    /// The version, such as `1.31.1`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The allocator for host memory, which lives as long as the library.
pub(crate) fn default_allocator(api: &Api) -> Result<NonNull<OrtAllocator>> {
    let mut allocator = ptr::null_mut();
    // SAFETY: the out-pointer is valid.
    check(api, unsafe { api.GetAllocatorWithDefaultOptions(&mut allocator) })?;
    NonNull::new(allocator).ok_or(Error::Nothing("default allocator"))
}
