//! A backend library that the linker found.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::sys::{
    AttributeName, AttributeType, Backend, Descriptor, DescriptorType, Handle, LogCallbackMode, PluginLoadingMode,
    PluginUnloadingMode, RankingOutcome, SYMBOLS, Severity, Status, UserLogCallback,
};

/// The backend library this program was linked with.
pub struct Linked;

macro_rules! implement {
    ($($method:ident = $symbol:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        #[link(name = "hipdnn_backend")]
        unsafe extern "C" {
            $(fn $symbol($($argument: $type),*) -> $result;)*
        }

        // SAFETY: the functions are hipDNN's own.
        unsafe impl Backend for Linked {
            fn describe(&self) -> String {
                // SAFETY: takes nothing and gives a static text or null.
                let version = unsafe { hipdnnVersionString_ext() };
                // SAFETY: as above.
                let shown = (!version.is_null()).then(|| unsafe { CStr::from_ptr(version) }.to_string_lossy());
                format!("hipDNN {} (linked)", shown.unwrap_or_default())
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
