//! Functions that the provider's library exports besides its factories. Libraries of other providers do not have them.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;

use libloading::Library;

/// Runs `register` with a provider's library loaded, after telling the library that this process vouches for the
/// session options that it passes on; by default the library treats them as untrusted. Other providers have no such
/// rule.
pub fn with_trusted_options<T>(library: &Path, register: impl FnOnce() -> T) -> T {
    // SAFETY: `register` is about to load the library anyway, so its initialisers run either way; the caller names a
    // plugin.
    let opened = unsafe { Library::new(library) };
    if let Ok(opened) = &opened {
        // SAFETY: only our provider exports a symbol of this name, and it has this type.
        if let Ok(vouch) = unsafe { opened.get::<unsafe extern "C" fn(c_int)>(options::TRUST_FUNCTION) } {
            // SAFETY: it takes an integer and only stores it.
            unsafe { vouch(1) };
        }
    }
    // The library must stay open here: closing the last handle would lose the setting.
    register()
}

/// The backend of the session that this thread created last, for a provider whose library is registered; `None` if the
/// library does not report it, or no backend took the session.
pub(crate) fn last_backend(library: &Path) -> Option<String> {
    // SAFETY: the library is registered, so its initialisers ran already.
    let opened = unsafe { Library::new(library) }.ok()?;
    // SAFETY: only our provider exports a symbol of this name, and it has this type.
    let last = unsafe { opened.get::<unsafe extern "C" fn() -> *const c_char>(options::BACKEND_FUNCTION) }.ok()?;
    // SAFETY: it takes no arguments, and returns a string that lives as long as the library, which is open here.
    let name = unsafe { CStr::from_ptr(last()) };
    name.to_str().ok().filter(|name| !name.is_empty()).map(str::to_owned)
}
