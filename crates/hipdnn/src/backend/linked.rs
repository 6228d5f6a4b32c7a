//! A backend library that the linker found.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use super::{check_version, version_text};
use crate::LoadError;
use crate::sys::{
    AttributeName, AttributeType, Backend, Descriptor, DescriptorType, Handle, LogCallbackMode, PluginLoadingMode,
    PluginUnloadingMode, RankingOutcome, SYMBOLS, Severity, Status, UserLogCallback,
};

/// The backend library this program was linked with.
pub struct Linked {
    version: String,
}

impl Linked {
    /// Checks that the library is one this crate can talk to.
    ///
    /// # Errors
    /// The library's major version is another one.
    pub fn new() -> Result<Self, LoadError> {
        // SAFETY: takes nothing and gives a static text or null.
        let version = unsafe { version_text(hipdnnVersionString_ext()) };
        check_version(Path::new("the linked libhipdnn_backend"), &version, &[])?;
        Ok(Self { version })
    }

    /// The library's own version text: `major.minor.patch.tweak`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

macro_rules! implement {
    ($($method:ident = $symbol:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        #[link(name = "hipdnn_backend")]
        unsafe extern "C" {
            $(fn $symbol($($argument: $type),*) -> $result;)*
        }

        // SAFETY: the functions are hipDNN's own.
        unsafe impl Backend for Linked {
            fn describe(&self) -> String {
                format!("hipDNN {} (linked)", self.version)
            }

            fn has(&self, symbol: &str) -> bool {
                SYMBOLS.contains(&symbol)
            }

            $(
                unsafe fn $method(&self, $($argument: $type),*) -> $result {
                    // SAFETY: the caller's promise.
                    unsafe { $symbol($($argument),*) }
                }
            )*
        }
    };
}
crate::with_entry_points!(implement);
