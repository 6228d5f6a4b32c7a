//! Device errors as ONNX Runtime reports them.
use hip::{ErrorKind, HipError};
use ort_ep::{Error, ErrorCode};

use crate::caching_allocator::AllocError;

/// A driver's error.
pub(crate) fn hip_error(error: HipError) -> Error {
    Error::new(code(error.kind()), error.to_string())
}

/// An allocator's error.
pub(crate) fn alloc_error(error: AllocError<HipError>) -> Error {
    let kind = match &error {
        AllocError::OutOfMemory { source, .. } => match source.kind() {
            // A device that no longer works can't allocate memory either.
            ErrorKind::Device => ErrorKind::Device,
            _ => ErrorKind::Memory,
        },
        AllocError::TooLarge { .. } => ErrorKind::Argument,
    };
    Error::new(code(kind), error.to_string())
}

/// Only failures of the device itself are `EP_FAIL`: ONNX Runtime's Python package reacts to it by moving the session
/// to the CPU for good, which is wrong for a bad request or a full device. docs/debugging.md has the table.
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

    #[test]
    fn a_full_device_keeps_its_sessions_and_a_lost_one_does_not() {
        let driver = DriverKind::Amd;
        let lost = HipError::Call { driver, call: "hipMalloc", code: 719, text: "launch failure".into() };
        let full = HipError::OutOfMemory { driver, device: 0, bytes: 9, free: 1, total: 8 };
        for (source, want) in [(full, ErrorCode::Fail), (lost, ErrorCode::EpFail)] {
            let error = AllocError::OutOfMemory { asked: 9, in_use: 7, cached: 0, source };
            assert_eq!(alloc_error(error).code(), want);
        }
        assert_eq!(alloc_error(AllocError::TooLarge { asked: usize::MAX }).code(), ErrorCode::InvalidArgument);
    }
}
