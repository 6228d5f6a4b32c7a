//! Errors as ONNX Runtime reports them.
use std::fmt::Display;

use hip::{ErrorKind, HipError};
use ort_ep::{Error, ErrorCode};

use crate::mgx::MgxError;

/// An error of a library below.
pub(crate) trait Failure: Display {
    /// Who can do something about it.
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

/// The status of an error.
pub(crate) fn of(error: impl Failure) -> Error {
    Error::new(code(error.kind()), error.to_string())
}

/// The status of an error, with what was tried.
pub(crate) fn with(tried: &str, error: &impl Failure) -> Error {
    Error::new(code(error.kind()), format!("{tried}: {error}"))
}

/// Only the device's own failures are `EP_FAIL`: ONNX Runtime's Python package moves the session to the CPU for good on it,
/// which neither a bad request nor a full device deserves. docs/debugging.md has the table.
fn code(kind: ErrorKind) -> ErrorCode {
    match kind {
        ErrorKind::Argument => ErrorCode::InvalidArgument,
        ErrorKind::Unsupported => ErrorCode::NotImplemented,
        ErrorKind::Device => ErrorCode::EpFail,
        ErrorKind::Memory | ErrorKind::Bug => ErrorCode::Fail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_device_costs_the_session() {
        for (kind, want) in [
            (ErrorKind::Argument, ErrorCode::InvalidArgument),
            (ErrorKind::Unsupported, ErrorCode::NotImplemented),
            (ErrorKind::Memory, ErrorCode::Fail),
            (ErrorKind::Device, ErrorCode::EpFail),
            (ErrorKind::Bug, ErrorCode::Fail),
        ] {
            assert_eq!(code(kind), want, "{kind:?}");
        }
    }
}
