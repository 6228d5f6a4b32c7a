//! The middle layer: the same calls returning a `Result`, grouped by topic, and nothing else.

use std::ffi::{CStr, c_char};

use crate::sys::{RuntimeTable, Status, codes};
use crate::{DriverKind, HipError};

pub mod blas_lt;
pub mod device;
pub mod graph;
pub mod memory;
pub mod module;
pub mod rtc;
pub mod stream;

/// A filled table and its driver; the first argument of the functions in this layer.
pub struct Runtime {
    /// The driver of these functions.
    pub kind: DriverKind,
    /// The functions.
    pub table: RuntimeTable,
}

impl Runtime {
    /// Turns a status into a `Result`.
    ///
    /// # Errors
    /// `HipError::Call` for any status but success. This also clears the driver's own record of the error: other users
    /// of the driver in this process must not see an error that has already been reported here.
    pub fn check(&self, call: &'static str, status: Status) -> Result<(), HipError> {
        if status == codes::SUCCESS { Ok(()) } else { Err(self.error(call, status)) }
    }

    /// Like [`Runtime::check`], for queries where "not ready" is a valid result.
    pub(crate) fn check_ready(&self, call: &'static str, status: Status) -> Result<bool, HipError> {
        match status {
            codes::SUCCESS => Ok(true),
            codes::NOT_READY => {
                self.forget_last_error();
                Ok(false)
            }
            other => Err(self.error(call, other)),
        }
    }

    /// The driver's message for a status.
    pub fn text(&self, status: Status) -> String {
        // SAFETY: the function accepts any number and returns a static string or null.
        words(unsafe { (self.table.get_error_string)(status) })
    }

    /// An optional function, or an error saying that it is missing.
    pub(crate) fn need<F>(&self, function: Option<F>, symbol: &'static str) -> Result<F, HipError> {
        function.ok_or(HipError::Unsupported { driver: self.kind, symbol })
    }

    fn error(&self, call: &'static str, code: Status) -> HipError {
        let text = self.text(code);
        self.forget_last_error();
        HipError::Call { driver: self.kind, call, code, text }
    }

    fn forget_last_error(&self) {
        if let Some(get_last_error) = self.table.get_last_error {
            // SAFETY: the function takes no argument and only changes this thread's record.
            unsafe { get_last_error() };
        }
    }
}

/// Copies a static C string; null becomes a placeholder.
pub(crate) fn words(text: *const c_char) -> String {
    if text.is_null() {
        return "no description".to_owned();
    }
    // SAFETY: error-string functions return NUL-terminated strings that live as long as the library.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
