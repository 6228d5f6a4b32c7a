//! Errors of devices as statuses of ONNX Runtime, the same for the umbrella and its backends.
#![forbid(unsafe_code)]

use std::fmt::Display;

use hip::{ErrorKind, HipError};
use ort_ep::{Error, ErrorCode};

/// The status for an error of this kind.
pub fn of(kind: ErrorKind, error: impl Display) -> Error {
    Error::new(code(kind), error.to_string())
}

/// The status for a driver error.
pub fn of_driver(error: &HipError) -> Error {
    of(error.kind(), error)
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
    use hip::DriverKind;

    use super::*;

    #[test]
    fn only_device_failures_cost_the_session() {
        for (kind, want) in [
            (ErrorKind::Argument, ErrorCode::InvalidArgument),
            (ErrorKind::Unsupported, ErrorCode::NotImplemented),
            (ErrorKind::Memory, ErrorCode::Fail),
            (ErrorKind::Device, ErrorCode::EpFail),
            (ErrorKind::Bug, ErrorCode::Fail),
        ] {
            assert_eq!(of(kind, "it failed"), Error::new(want, "it failed"), "{kind:?}");
        }
    }

    #[test]
    fn a_full_device_keeps_its_sessions_and_a_lost_one_does_not() {
        let driver = DriverKind::Amd;
        let lost = HipError::Call { driver, call: "hipMalloc", code: 719, text: "launch failure".into() };
        let full = HipError::OutOfMemory { driver, device: 0, bytes: 9, free: 1, total: 8 };
        assert_eq!(of_driver(&lost).code(), ErrorCode::EpFail);
        assert_eq!(of_driver(&full).code(), ErrorCode::Fail);
    }
}
