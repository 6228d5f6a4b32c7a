//! What the provider's library exports besides its factories. A library without these functions is somebody else's.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;

use libloading::Library;

/// Runs `register` with the library of a provider loaded, after telling the library that this process vouches for the session
/// options that it passes on, which the library counts as untrusted by itself. Others have no such rule.
pub fn with_trusted_options<T>(library: &Path, register: impl FnOnce() -> T) -> T {
    // SAFETY: the initialisers of a library that `register` is about to load anyway; the caller names a plugin.
    let opened = unsafe { Library::new(library) };
    if let Ok(opened) = &opened {
        // SAFETY: the only symbol of this name is our provider's, of this type.
        if let Ok(vouch) = unsafe { opened.get::<unsafe extern "C" fn(c_int)>(options::TRUST_FUNCTION) } {
            // SAFETY: it takes a number and only stores it.
            unsafe { vouch(1) };
        }
    }
    // Still open: with the last handle the library would forget it.
    register()
}

/// The backend of the session that this thread made last on a provider whose library is registered; `None` where the library
/// does not say, or no backend took the session.
pub(crate) fn last_backend(library: &Path) -> Option<String> {
    // SAFETY: the library is registered, so its initialisers ran already.
    let opened = unsafe { Library::new(library) }.ok()?;
    // SAFETY: the only symbol of this name is our provider's, of this type.
    let last = unsafe { opened.get::<unsafe extern "C" fn() -> *const c_char>(options::BACKEND_FUNCTION) }.ok()?;
    // SAFETY: it takes nothing, and gives a text that lives as long as the library, which is open here.
    let name = unsafe { CStr::from_ptr(last()) };
    name.to_str().ok().filter(|name| !name.is_empty()).map(str::to_owned)
}
