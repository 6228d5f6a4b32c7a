//! The 38 symbols.

/// Exports hipDNN's functions for a library, a static that implements [`Implementation`](crate::Implementation).
#[macro_export]
macro_rules! export {
    ($library:path) => {
        /// hipDNN's functions, as C sees them.
        #[allow(non_snake_case, reason = "the names are hipDNN's")]
        #[allow(clippy::missing_safety_doc, reason = "hipDNN's contract, in the entry module of hipdnn-abi")]
        #[allow(clippy::too_many_arguments, reason = "hipDNN's signatures")]
        pub mod exported {
            use std::ffi::{c_char, c_int, c_void};

            use $crate::sys::{
                AttributeName, AttributeType, Descriptor, DescriptorType, Handle, LogCallbackMode, PluginLoadingMode,
                PluginUnloadingMode, RankingOutcome, Severity, Status, UserLogCallback,
            };

            static LIBRARY: $crate::entry::Library = &$library;

            $crate::with_entry_points!($crate::export_symbols);
        }
    };
}

/// One exported function per row of hipDNN's table.
#[doc(hidden)]
#[macro_export]
macro_rules! export_symbols {
    ($($method:ident = $symbol:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "`")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> $result {
                // SAFETY: guaranteed by the caller, under hipDNN's contract.
                unsafe { $crate::entry::$method(LIBRARY, $($argument),*) }
            }
        )*
    };
}
