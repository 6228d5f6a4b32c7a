//! The lowest layer: function pointers with HIP's signatures, HIP's constants, and the code that loads them.
//!
//! Everything here is an integer or a pointer. `twin` contains every difference between CUDA and HIP.

use std::ffi::{c_int, c_void};

pub mod blas_lt;
pub mod codes;
pub mod loader;
mod names;
pub mod rtc;
pub mod runtime;
pub mod search;
mod table;
pub mod twin;

pub use blas_lt::BlasLtTable;
pub use dylib::{Library, file_at, own_folder};
pub use names::Role;
pub use rtc::RtcTable;
pub use runtime::RuntimeTable;
pub use search::Search;

/// A status: 0 is success, see [`codes`].
pub type Status = c_int;
/// Any opaque handle: stream, event, module, function, graph, matrix layout, ...
pub type Handle = *mut c_void;
/// A function called in stream order.
pub type HostFn = unsafe extern "C" fn(data: *mut c_void);
/// The older form of [`HostFn`], for runtimes before HIP 5.3.
pub type StreamCallback = unsafe extern "C" fn(stream: Handle, status: Status, data: *mut c_void);
