//! hipDNN's backend library, found by the linker, for the frontend in crate [`hipdnn`].
//!
//! Programs that use this crate are linked with `libhipdnn_backend` and do not start without it. Programs that use only
//! [`hipdnn`] search for it at run time, even if both are built together. `examples/hipdnn-consumer` contains one of
//! each.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let handle = hipdnn::Handle::new(std::sync::Arc::new(hipdnn_linked::Linked::new()?))?;
//! # Ok(()) }
//! ```

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use hipdnn::sys::{
    AttributeName, AttributeType, Backend, Descriptor, DescriptorType, Handle, LogCallbackMode, PluginLoadingMode,
    PluginUnloadingMode, RankingOutcome, SYMBOLS, Severity, Status, UserLogCallback,
};
use hipdnn::{LoadError, checked_version};

/// The backend library that this program was linked with.
pub struct Linked {
    version: String,
}

impl Linked {
    /// Checks that the frontend supports the library.
    ///
    /// # Errors
    /// The library's major version is not supported.
    pub fn new() -> Result<Self, LoadError> {
        let unknown = Self { version: String::new() };
        let version = checked_version(&unknown, Path::new("the linked libhipdnn_backend"), &[])?;
        Ok(Self { version })
    }

    /// The version string that the library reports: `major.minor.patch.tweak`.
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
                    // SAFETY: the caller vouches for the arguments.
                    unsafe { $symbol($($argument),*) }
                }
            )*
        }
    };
}
hipdnn::with_entry_points!(implement);
