//! The library as part of the test program, so that its allocations can be counted.
#![allow(dead_code)]

use std::ffi::{c_char, c_int, c_void};

use hipdnn::sys::{
    AttributeName, AttributeType, Backend, Descriptor, DescriptorType, Handle, LogCallbackMode, PluginLoadingMode,
    PluginUnloadingMode, RankingOutcome, SYMBOLS, Severity, Status, UserLogCallback,
};

/// The backend that this program contains.
pub struct Inside;

macro_rules! implement {
    ($($method:ident = $symbol:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        // SAFETY: the functions are the library's own.
        unsafe impl Backend for Inside {
            fn describe(&self) -> String {
                "hipdnn-host inside".into()
            }

            fn has(&self, symbol: &str) -> bool {
                SYMBOLS.contains(&symbol)
            }

            $(
                unsafe fn $method(&self, $($argument: $type),*) -> $result {
                    // SAFETY: upheld by the caller.
                    unsafe { hipdnn_host::exported::$symbol($($argument),*) }
                }
            )*
        }
    };
}
hipdnn::with_entry_points!(implement);
