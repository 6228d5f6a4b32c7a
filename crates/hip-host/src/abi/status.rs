//! Status names and the last error of a thread.

use std::ffi::{c_char, c_int};

use crate::errors;
use crate::thread;

/// The name of a status, for example `hipErrorOutOfMemory`.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorName(status: c_int) -> *const c_char {
    errors::name(status)
}

/// The description of a status.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorString(status: c_int) -> *const c_char {
    errors::text(status)
}

/// The calling thread's last error, which this call resets.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetLastError() -> c_int {
    thread::take_last_error()
}

/// The calling thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn hipPeekAtLastError() -> c_int {
    thread::peek_last_error()
}
