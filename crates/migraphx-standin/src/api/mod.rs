//! The exported functions, with the signatures of `migraphx.h`.

use std::ffi::{CStr, c_char};

pub mod options;
pub mod program;
pub mod run;
pub mod shape;

/// Declares exported functions: each call is counted, may be made to fail, and never unwinds.
macro_rules! api {
    ($( fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block )*) => {
        $(
            /// As in `migraphx.h`.
            ///
            /// # Safety
            /// Handles are alive and of the right type, strings are C strings, and out-pointers are writable.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> std::ffi::c_int {
                $crate::control::call(stringify!($name), || {
                    // SAFETY: the caller follows the contract of `migraphx.h`, which the helpers used here rely on.
                    unsafe { $body }
                })
            }
        )*
    };
}
pub(crate) use api;

/// A string argument.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> Result<String, String> {
    if text.is_null() {
        return Err("bad parameter: a null string".into());
    }
    // SAFETY: the caller guarantees the string.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// A list argument.
///
/// # Safety
/// `first` is null or points to `count` numbers.
unsafe fn list(first: *const usize, count: usize) -> Vec<usize> {
    if first.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller guarantees the list.
    unsafe { std::slice::from_raw_parts(first, count) }.to_vec()
}
