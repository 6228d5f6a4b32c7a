//! Where a backend looks for its plugins, and when it unloads them. Call these functions before creating the first
//! handle.

use std::ffi::CString;
use std::path::Path;

use crate::result::plugins as result;
use crate::sys::{Backend, PluginLoadingMode, PluginUnloadingMode};
use crate::{Error, Result};

/// Sets files or folders of engine plugins, in addition to the default ones or instead of them.
///
/// # Errors
/// A handle exists already, or the backend rejects the call.
pub fn set_engine_paths(backend: &dyn Backend, paths: &[&Path], mode: PluginLoadingMode) -> Result<()> {
    result::set_engine_paths(backend, &texts(paths)?, mode)
}

/// Sets files or folders of heuristic plugins, in addition to the default ones or instead of them.
///
/// # Errors
/// A handle exists already, or the backend rejects the call.
pub fn set_heuristic_paths(backend: &dyn Backend, paths: &[&Path], mode: PluginLoadingMode) -> Result<()> {
    result::set_heuristic_paths(backend, &texts(paths)?, mode)
}

/// Sets whether plugins stay loaded after the last handle is destroyed.
///
/// # Errors
/// The backend rejects the call.
pub fn set_unload_mode(backend: &dyn Backend, mode: PluginUnloadingMode) -> Result<()> {
    result::set_unload_mode(backend, mode)
}

fn texts(paths: &[&Path]) -> Result<Vec<CString>> {
    let text = |path: &&Path| {
        let text = path.to_str().and_then(|text| CString::new(text).ok());
        text.ok_or_else(|| Error::invalid(path.display().to_string(), "a plugin's path must be UTF-8 without NUL"))
    };
    paths.iter().map(text).collect()
}
