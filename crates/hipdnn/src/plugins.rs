//! Where a backend looks for its plugins, and when it unloads them. Call these functions before creating the first
//! handle.

use std::ffi::{CString, c_char};
use std::path::Path;

use crate::handle::{check, require};
use crate::sys::{Backend, PluginLoadingMode, PluginUnloadingMode};
use crate::{Error, Result};

/// Sets files or folders of engine plugins, in addition to the default ones or instead of them.
///
/// # Errors
/// A handle exists already, or the backend rejects the call.
pub fn set_engine_paths(backend: &dyn Backend, paths: &[&Path], mode: PluginLoadingMode) -> Result<()> {
    require(backend, "hipdnnSetEnginePluginPaths_ext")?;
    let texts = texts(paths)?;
    let places: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    // SAFETY: there are as many strings as given, alive for the call.
    let status = unsafe { backend.set_engine_plugin_paths(places.len(), places.as_ptr(), mode) };
    check(backend, || "setting engine plugins".into(), status)
}

/// Sets files or folders of heuristic plugins, in addition to the default ones or instead of them.
///
/// # Errors
/// A handle exists already, or the backend rejects the call.
pub fn set_heuristic_paths(backend: &dyn Backend, paths: &[&Path], mode: PluginLoadingMode) -> Result<()> {
    require(backend, "hipdnnSetHeuristicPluginPaths_ext")?;
    let texts = texts(paths)?;
    let places: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    // SAFETY: there are as many strings as given, alive for the call.
    let status = unsafe { backend.set_heuristic_plugin_paths(places.len(), places.as_ptr(), mode) };
    check(backend, || "setting heuristic plugins".into(), status)
}

/// Sets whether plugins stay loaded after the last handle is destroyed.
///
/// # Errors
/// The backend rejects the call.
pub fn set_unload_mode(backend: &dyn Backend, mode: PluginUnloadingMode) -> Result<()> {
    require(backend, "hipdnnSetPluginUnloadMode_ext")?;
    // SAFETY: the function only takes a number.
    let status = unsafe { backend.set_plugin_unload_mode(mode) };
    check(backend, || "setting when plugins are unloaded".into(), status)
}

fn texts(paths: &[&Path]) -> Result<Vec<CString>> {
    let text = |path: &&Path| {
        let text = path.to_str().and_then(|text| CString::new(text).ok());
        text.ok_or_else(|| Error::invalid(path.display().to_string(), "a plugin's path must be UTF-8 without NUL"))
    };
    paths.iter().map(text).collect()
}
