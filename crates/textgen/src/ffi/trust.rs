//! Vouching for options, which the provider's library counts as untrusted by itself.

use std::ffi::c_int;
use std::path::Path;

use libloading::Library;

/// Runs `register` with the library of a provider loaded, after telling the library that this process vouches for the session
/// options that it passes on. A library without that function is somebody else's and has no such rule.
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
