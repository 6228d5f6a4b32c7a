//! The lowest layer: hipDNN's C interface as constants, handles and one trait of 38 functions, and the code that loads
//! a library.
//!
//! Everything is an integer or a pointer, and unknown numbers are accepted. [`Backend`] is the interface to a library;
//! [`Loaded`](crate::Loaded) finds one at run time, and crate `hipdnn-linked` provides the one that the linker finds.

use std::ffi::{c_char, c_int, c_void};

mod attribute;
mod code;
mod entry_points;
pub(crate) mod loaded;
mod numbers;
pub(crate) mod search;
pub(crate) mod version;

pub use attribute::AttributeName;
pub use code::{
    AttentionImplementation, AttributeType, BehaviorNote, ConvolutionMode, DataType, DescriptorType, DiagonalAlignment,
    HeurMode, LogCallbackMode, MoeGroupedMatmulMode, NormFwdPhase, OperationType, PaddingMode, PluginLoadingMode,
    PluginUnloadingMode, PointwiseMode, RankingOutcome, ReduceOp, ResampleMode, Severity, Status,
};

/// A library handle: its engines, and the stream that it queues work on.
pub type Handle = *mut c_void;
/// A descriptor of any kind.
pub type Descriptor = *mut c_void;
/// Receives log messages: the pointer that it was registered with, the severity, the text.
pub type UserLogCallback = unsafe extern "C" fn(user: *mut c_void, severity: Severity, message: *const c_char);

/// Serialised data contains a graph.
pub const CONTENT_GRAPH: c_int = 1;
/// Serialised data contains an execution plan.
pub const CONTENT_EXECUTION_PLAN: c_int = 2;

/// The result of a call if the library lacks its function.
trait Absent {
    const ABSENT: Self;
}

impl Absent for Status {
    const ABSENT: Self = Status::VERSION_MISMATCH;
}

impl Absent for () {
    const ABSENT: Self = ();
}

impl Absent for *const c_char {
    const ABSENT: Self = std::ptr::null();
}

macro_rules! backend_trait {
    ($($method:ident = $symbol:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        /// The library's functions. A missing one returns [`Status::VERSION_MISMATCH`] or a null string, or does
        /// nothing; the same applies to a method that an implementation does not override.
        ///
        /// # Safety
        /// The functions behave as hipDNN's header says: they write only through the given pointers, within the given
        /// sizes, and catch their own exceptions.
        pub unsafe trait Backend: Send + Sync {
            /// The name of the library in messages.
            fn describe(&self) -> String;

            /// True if the library has the function with this symbol.
            fn has(&self, symbol: &str) -> bool;

            $(
                #[doc = concat!("`", stringify!($symbol), "`")]
                ///
                /// # Safety
                /// Every pointer is null or valid as the function's contract requires.
                #[allow(clippy::too_many_arguments)]
                unsafe fn $method(&self, $($argument: $type),*) -> $result {
                    let _ = ($($argument,)*);
                    <$result as Absent>::ABSENT
                }
            )*
        }

        /// The symbols of all entry points.
        pub const SYMBOLS: &[&str] = &[$(stringify!($symbol)),*];

        /// Function pointers to the entry points; `None` for those that a library lacks.
        pub(crate) struct Table {
            $(pub $method: Option<unsafe extern "C" fn($($type),*) -> $result>,)*
        }

        impl Table {
            /// Looks up every symbol once.
            ///
            /// # Safety
            /// If `find` returns an address for a symbol, it is the function that hipDNN's header declares with that
            /// name.
            pub unsafe fn resolve(find: impl Fn(&'static str) -> Option<*const c_void>) -> Self {
                // SAFETY: the caller vouches for `find`; a function pointer is as wide as an address.
                Self { $($method: find(stringify!($symbol)).map(|address| unsafe { std::mem::transmute(address) }),)* }
            }

            /// True if the symbol was found.
            pub fn has(&self, symbol: &str) -> bool {
                match symbol {
                    $(stringify!($symbol) => self.$method.is_some(),)*
                    _ => false,
                }
            }

            $(
                /// Calls the function, or returns the value for an absent one.
                ///
                /// # Safety
                /// As for [`Backend`]'s method with this name.
                #[allow(clippy::too_many_arguments)]
                pub unsafe fn $method(&self, $($argument: $type),*) -> $result {
                    match self.$method {
                        // SAFETY: the caller vouches for the arguments.
                        Some(function) => unsafe { function($($argument),*) },
                        None => <$result as Absent>::ABSENT,
                    }
                }
            )*
        }
    };
}
crate::with_entry_points!(backend_trait);
