//! Plugins of engines and heuristics.

use std::ffi::{CString, c_char};
use std::ptr;

use super::{check, require, until_nul};
use crate::Result;
use crate::sys::{Backend, Handle, PluginLoadingMode, PluginUnloadingMode};

/// Sets files or folders of engine plugins.
///
/// # Errors
/// A handle exists already, or the backend rejects the call.
pub fn set_engine_paths(backend: &dyn Backend, paths: &[CString], mode: PluginLoadingMode) -> Result<()> {
    require(backend, "hipdnnSetEnginePluginPaths_ext")?;
    let pointers = pointers(paths);
    // SAFETY: `pointers` has this many strings, which live for the call.
    let status = unsafe { backend.set_engine_plugin_paths(pointers.len(), pointers.as_ptr(), mode) };
    check(backend, || "setting engine plugins".into(), status)
}

/// Sets files or folders of heuristic plugins.
///
/// # Errors
/// A handle exists already, or the backend rejects the call.
pub fn set_heuristic_paths(backend: &dyn Backend, paths: &[CString], mode: PluginLoadingMode) -> Result<()> {
    require(backend, "hipdnnSetHeuristicPluginPaths_ext")?;
    let pointers = pointers(paths);
    // SAFETY: `pointers` has this many strings, which live for the call.
    let status = unsafe { backend.set_heuristic_plugin_paths(pointers.len(), pointers.as_ptr(), mode) };
    check(backend, || "setting heuristic plugins".into(), status)
}

fn pointers(paths: &[CString]) -> Vec<*const c_char> {
    paths.iter().map(|path| path.as_ptr()).collect()
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

/// The files of the engine plugins that are loaded.
///
/// # Errors
/// The backend rejects the call, or does not provide this list.
///
/// # Safety
/// The handle is alive.
pub unsafe fn loaded(backend: &dyn Backend, handle: Handle) -> Result<Vec<String>> {
    require(backend, "hipdnnGetLoadedEnginePluginPaths_ext")?;
    let attempted = || "listing the engine plugins".to_owned();
    let (mut count, mut longest) = (0, 0);
    // SAFETY: without buffers the call only returns the count and the size of the longest string; the caller vouches
    // for the handle.
    let status = unsafe { backend.loaded_engine_plugin_paths(handle, &mut count, ptr::null_mut(), &mut longest) };
    check(backend, attempted, status)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    longest = longest.max(1);
    let mut texts = vec![vec![0u8; longest]; count];
    let mut places: Vec<*mut c_char> = texts.iter_mut().map(|text| text.as_mut_ptr().cast()).collect();
    // SAFETY: there are `count` buffers, each large enough for the longest string; the caller vouches for the
    // handle.
    let status = unsafe { backend.loaded_engine_plugin_paths(handle, &mut count, places.as_mut_ptr(), &mut longest) };
    check(backend, attempted, status)?;
    Ok(texts.iter().take(count).map(|text| until_nul(text)).collect())
}
