//! The middle layer: each function of the library returning a `Result`, grouped by topic, and nothing else.
//!
//! A handle or descriptor is still a plain pointer here, so most functions are `unsafe`: the caller keeps it alive.

use std::ffi::CStr;

use crate::sys::{Backend, Status};
use crate::{Error, Result};

pub mod descriptor;
pub mod handle;
pub mod log;
pub mod plan;
pub mod plugins;
pub mod serialized;

/// The longest error message that is read.
const ERROR_TEXT_BYTES: usize = 1024;

/// Turns a status into a result with the backend's own message, which the backend stores per thread.
fn check(backend: &dyn Backend, attempted: impl FnOnce() -> String, status: Status) -> Result<()> {
    if status == Status::SUCCESS {
        return Ok(());
    }
    let text = last_error(backend);
    Err(Error::Backend { attempted: attempted(), status, text })
}

/// Requires a function that older libraries lack.
fn require(backend: &dyn Backend, function: &'static str) -> Result<()> {
    if backend.has(function) {
        return Ok(());
    }
    Err(Error::Absent { backend: backend.describe(), function })
}

/// The backend's message about this thread's last failure; reading it clears it.
pub fn last_error(backend: &dyn Backend) -> String {
    let mut text = [0; ERROR_TEXT_BYTES];
    // SAFETY: the buffer has the given size.
    unsafe { backend.last_error_string(text.as_mut_ptr(), text.len()) };
    text[ERROR_TEXT_BYTES - 1] = 0;
    // SAFETY: the text ends in a NUL, at the latest in the last byte.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}

/// The text in a buffer that the library filled, up to its NUL.
pub fn until_nul(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
