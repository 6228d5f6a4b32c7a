//! The loader of Windows.

use std::ffi::{OsStr, OsString, c_void};
use std::os::windows::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use libloading::os::windows::{self, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR};

/// The longest path that Windows supports, in UTF-16 units.
const MAX_PATH_UNITS: usize = 1 << 15;

const FROM_ADDRESS: u32 = 4;
const UNCHANGED_COUNT: u32 = 2;

#[link(name = "kernel32")]
unsafe extern "system" {
    fn GetModuleHandleExW(flags: u32, address: *const c_void, module: *mut *mut c_void) -> i32;
    fn GetModuleFileNameW(module: *mut c_void, name: *mut u16, units: u32) -> u32;
}

/// Bare names are looked up in the program's folder and in System32, and never in the current folder or in `PATH`:
/// anyone may have put a file there.
///
/// # Safety
/// Runs the library's initialisers.
pub(super) unsafe fn open(name: &OsStr) -> Result<libloading::Library, libloading::Error> {
    let is_bare = Path::new(name).components().count() == 1;
    let (name, flags) = match absolute(Path::new(name)) {
        // The libraries that it needs are looked up next to it first.
        Ok(path) if !is_bare => {
            (path.into_os_string(), LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR)
        }
        _ => (name.to_owned(), LOAD_LIBRARY_SEARCH_DEFAULT_DIRS),
    };
    // SAFETY: forwarded to the caller.
    unsafe { windows::Library::load_with_flags(name, flags) }.map(Into::into)
}

/// Windows has one way to resolve symbols.
pub(super) use open as open_lazily;

pub(super) fn already_open(name: &str) -> Option<libloading::Library> {
    windows::Library::open_already_loaded(name).map(Into::into).ok()
}

pub(super) fn file_at(address: usize) -> Option<PathBuf> {
    let mut module = std::ptr::null_mut();
    let flags = FROM_ADDRESS | UNCHANGED_COUNT;
    // SAFETY: `module` is a valid out-pointer, and any address may be asked for.
    if unsafe { GetModuleHandleExW(flags, address as *const c_void, &raw mut module) } == 0 {
        return None;
    }
    let mut name = vec![0; MAX_PATH_UNITS];
    // SAFETY: `name` has room for as many units as the call is told. The module holds the code at `address`, which is
    // about to run or to be called, so it is not unloaded now.
    let units = unsafe { GetModuleFileNameW(module, name.as_mut_ptr(), MAX_PATH_UNITS as u32) } as usize;
    // A name that does not fit is cut off and fills the buffer.
    let name = name.get(..units).filter(|name| !name.is_empty() && name.len() < MAX_PATH_UNITS)?;
    Some(PathBuf::from(OsString::from_wide(name)))
}

/// Unlike `canonicalize`, it gives the usual form of a path: not every program accepts `\\?\C:\folder`.
pub(super) fn absolute(file: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(file)
}

pub(super) fn is_privileged() -> bool {
    false
}
