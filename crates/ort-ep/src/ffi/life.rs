//! Counts the objects that are still alive when ONNX Runtime releases the factory.
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    dylib::file_at(this_library as fn() -> Option<PathBuf> as *const () as usize)
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
