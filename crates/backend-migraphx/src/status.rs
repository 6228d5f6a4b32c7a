//! Converts errors to ONNX Runtime statuses.
use std::fmt::Display;

use hip::{ErrorKind, HipError};
use ort_ep::Error;

use crate::mgx::MgxError;

/// An error of an underlying library.
pub(crate) trait Failure: Display {
    /// What kind of error it is, which decides the status code.
    fn kind(&self) -> ErrorKind;
}

impl Failure for MgxError {
    fn kind(&self) -> ErrorKind {
        self.kind()
    }
}

impl Failure for HipError {
    fn kind(&self) -> ErrorKind {
        self.kind()
    }
}

/// The status for an error.
pub(crate) fn of(error: impl Failure) -> Error {
    device_status::of(error.kind(), error)
}

/// The status for an error, prefixed with what was attempted.
pub(crate) fn with(tried: &str, error: &impl Failure) -> Error {
    device_status::of(error.kind(), format!("{tried}: {error}"))
}
