//! Counts the objects that are still alive when ONNX Runtime releases the factory.
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Counts the objects a factory has handed out.
#[derive(Clone, Default)]
pub(super) struct Life(Arc<AtomicUsize>);

impl Life {
    /// Counts one more object until the token is dropped.
    pub fn token(&self) -> LifeToken {
        self.0.fetch_add(1, Ordering::Relaxed);
        LifeToken(self.clone())
    }

    /// How many objects are alive.
    pub fn alive(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// Held by every object that outlives the call it was made in.
pub(super) struct LifeToken(Life);

impl Drop for LifeToken {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// The file this code was loaded from.
pub(super) fn this_library() -> Option<PathBuf> {
    library_of(this_library as fn() -> Option<PathBuf> as *const std::ffi::c_void)
}

/// The file that the code or data at an address was loaded from.
#[cfg(unix)]
pub(super) fn library_of(address: *const std::ffi::c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the loader compares the address and does not read it, and `info` is a valid out-pointer; on success
    // `dli_fname` is the loader's own NUL-terminated path, valid while the library is mapped. Callers pass addresses in
    // libraries that they keep loaded.
    let path = unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 || (*info.as_ptr()).dli_fname.is_null() {
            return None;
        }
        std::ffi::CStr::from_ptr((*info.as_ptr()).dli_fname)
    };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes())))
}

/// The file that the code or data at an address was loaded from; Windows searches the calling library's folder by
/// itself.
#[cfg(windows)]
pub(super) fn library_of(_: *const std::ffi::c_void) -> Option<PathBuf> {
    None
}

/// Keeps this library mapped until the process ends.
///
/// ONNX Runtime lets users unregister a library whose sessions are still alive: it unmaps the code those sessions are
/// about to call. Pinning costs one mapping; without it the process crashes.
#[cfg(unix)]
pub(super) fn pin_this_library() {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    let Some(path) = this_library() else { return };
    // SAFETY: the library is loaded already, so no initialiser runs. The handle is leaked on purpose: it is the pin.
    if let Ok(library) = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE) } {
        std::mem::forget(library);
    }
}

/// Keeps this library mapped until the process ends.
#[cfg(windows)]
pub(super) fn pin_this_library() {
    let mut module = std::mem::MaybeUninit::uninit();
    let here = pin_this_library as fn() as *const std::ffi::c_void;
    const PIN_FROM_ADDRESS: u32 = 0x1 | 0x4;
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetModuleHandleExW(flags: u32, name: *const std::ffi::c_void, module: *mut *mut std::ffi::c_void) -> i32;
    }
    // SAFETY: the address lies in this library and `module` is a valid out-pointer.
    unsafe { GetModuleHandleExW(PIN_FROM_ADDRESS, here, module.as_mut_ptr()) };
}
