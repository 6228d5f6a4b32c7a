//! Converts errors to ONNX Runtime statuses.
use std::fmt::Display;

use hip::{ErrorKind, HipError};
use ort_ep::{Error, ErrorCode};

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
    Error::new(code(error.kind()), error.to_string())
}

/// The status for an error, prefixed with what was attempted.
pub(crate) fn with(tried: &str, error: &impl Failure) -> Error {
    Error::new(code(error.kind()), format!("{tried}: {error}"))
}

/// Only failures of the device itself are `EP_FAIL`: on that code, ONNX Runtime's Python package permanently moves the
/// session to the CPU, which is wrong for a bad request or a full device. See the table in docs/debugging.md.
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
    fn only_device_errors_end_the_session() {
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
