//! The loader of Unix systems.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libc::{RTLD_LOCAL, RTLD_NOLOAD, RTLD_NOW};
use libloading::os::unix;

/// # Safety
/// Runs the library's initialisers.
pub(super) unsafe fn open(name: &OsStr) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: forwarded to the caller.
    unsafe { unix::Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
}

/// Symbols are resolved when they are first used.
///
/// # Safety
/// Runs the library's initialisers.
pub(super) unsafe fn open_lazily(name: &OsStr) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: forwarded to the caller.
    unsafe { libloading::Library::new(name) }
}

pub(super) fn already_open(name: &str) -> Option<libloading::Library> {
    // SAFETY: nothing is loaded, so no initialiser runs.
    unsafe { unix::Library::open(Some(name), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) }.map(Into::into).ok()
}

pub(super) fn file_at(address: usize) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is a valid out-pointer, and dladdr accepts any address.
    if unsafe { libc::dladdr(address as *const c_void, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed bytes are a valid `Dl_info`, and dladdr has filled it.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr returns a NUL-terminated name that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

pub(super) fn absolute(file: &Path) -> std::io::Result<PathBuf> {
    file.canonicalize()
}

#[cfg(target_os = "linux")]
pub(super) fn is_privileged() -> bool {
    // SAFETY: only reads a number from the process's auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_privileged() -> bool {
    false
}
