//! Device errors as ONNX Runtime reports them.
use hip::{ErrorKind, HipError};
use ort_ep::Error;

use crate::caching_allocator::AllocError;

/// A driver's error.
pub(crate) fn hip_error(error: HipError) -> Error {
    device_status::of_driver(&error)
}

/// An allocator's error.
pub(crate) fn alloc_error(error: AllocError<HipError>) -> Error {
    let kind = match &error {
        AllocError::OutOfMemory { source, .. } => match source.kind() {
            // A device that no longer works cannot allocate memory either.
            ErrorKind::Device => ErrorKind::Device,
            _ => ErrorKind::Memory,
        },
        AllocError::TooLarge { .. } => ErrorKind::Argument,
    };
    device_status::of(kind, error)
}

#[cfg(test)]
mod tests {
    use hip::DriverKind;
    use ort_ep::ErrorCode;

    use super::*;

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
