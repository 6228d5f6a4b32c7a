//! Weights stored in external files.
use std::path::PathBuf;

use ort_ep_sys as sys;

use super::os_path;
use crate::{Error, Result, Runtime};

/// The location of an external initializer's data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExternalData {
    /// The file, relative to the model file.
    pub path: PathBuf,
    /// The byte offset in the file.
    pub offset: u64,
    /// The size in bytes.
    pub bytes: usize,
}

impl ExternalData {
    /// Reads a description, then releases it.
    ///
    /// # Safety
    /// `raw` is a live description of `runtime` that nobody else releases.
    pub(super) unsafe fn take(runtime: Runtime, raw: *mut sys::OrtExternalInitializerInfo) -> Result<Self> {
        let api = runtime.api;
        // SAFETY: the caller vouches for `raw`; the path is copied before the release, which is the last use.
        let (path, offset, bytes) = unsafe {
            let path = os_path::path(api.ExternalInitializerInfo_GetFilePath(raw));
            let offset = api.ExternalInitializerInfo_GetFileOffset(raw);
            let bytes = api.ExternalInitializerInfo_GetByteSize(raw);
            api.ReleaseExternalInitializerInfo(raw);
            (path, offset, bytes)
        };
        let offset = u64::try_from(offset).map_err(|_| {
            Error::invalid_argument(format!("external data in {} has the invalid offset {offset}", path.display()))
        })?;
        Ok(Self { path, offset, bytes })
    }
}
