//! Where a backend looks for its plugins, and when it lets go of them. To be said before the first handle is made.

use std::ffi::{CString, c_char};
use std::path::Path;

use crate::handle::{check, require};
use crate::sys::{Backend, PluginLoadingMode, PluginUnloadingMode};
use crate::{Error, Result};

/// Names files or folders of engine plugins, besides the usual ones or instead of them.
///
/// # Errors
/// A handle exists already, or the backend refuses.
pub fn set_engine_paths(backend: &dyn Backend, paths: &[&Path], mode: PluginLoadingMode) -> Result<()> {
    require(backend, "hipdnnSetEnginePluginPaths_ext")?;
    let texts = texts(paths)?;
    let places: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    // SAFETY: as many texts as said, alive for the call.
    let status = unsafe { backend.set_engine_plugin_paths(places.len(), places.as_ptr(), mode) };
    check(backend, || "naming engine plugins".into(), status)
}

/// Names files or folders of heuristic plugins, besides the usual ones or instead of them.
///
/// # Errors
/// A handle exists already, or the backend refuses.
pub fn set_heuristic_paths(backend: &dyn Backend, paths: &[&Path], mode: PluginLoadingMode) -> Result<()> {
    require(backend, "hipdnnSetHeuristicPluginPaths_ext")?;
    let texts = texts(paths)?;
    let places: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    // SAFETY: as many texts as said, alive for the call.
    let status = unsafe { backend.set_heuristic_plugin_paths(places.len(), places.as_ptr(), mode) };
    check(backend, || "naming heuristic plugins".into(), status)
}

/// Says whether plugins stay loaded when the last handle is gone.
///
/// # Errors
/// The backend refuses.
pub fn set_unload_mode(backend: &dyn Backend, mode: PluginUnloadingMode) -> Result<()> {
    require(backend, "hipdnnSetPluginUnloadMode_ext")?;
    // SAFETY: takes a number.
    let status = unsafe { backend.set_plugin_unload_mode(mode) };
    check(backend, || "choosing when plugins are unloaded".into(), status)
}

fn texts(paths: &[&Path]) -> Result<Vec<CString>> {
    let text = |path: &&Path| {
        let text = path.to_str().and_then(|text| CString::new(text).ok());
        text.ok_or_else(|| Error::invalid(path.display().to_string(), "a plugin's path must be UTF-8 without NUL"))
    };
    paths.iter().map(text).collect()
}
