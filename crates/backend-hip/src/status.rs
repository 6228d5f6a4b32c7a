//! Converts errors to ONNX Runtime statuses.
use exec::{ErrorKind, ExecError};
use hip::HipError;
use ort_ep::{Error, ErrorCode};

/// The status for an engine error.
pub(crate) fn of(error: &ExecError) -> Error {
    Error::new(code(error.kind()), error.to_string())
}

/// The status for a planning error. If the model alone determines all shapes, the model is at fault.
pub(crate) fn of_plan(error: &ExecError, is_fixed: bool) -> Error {
    match error {
        ExecError::Plan(_) if is_fixed => Error::new(ErrorCode::InvalidGraph, error.to_string()),
        _ => of(error),
    }
}

/// The status for a driver error.
pub(crate) fn of_driver(error: &HipError) -> Error {
    Error::new(code(error.kind()), error.to_string())
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
    use graph::LowerError;

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
        let fault = ExecError::Fault { node: "Gather \"lookup\"".into() };
        assert_eq!(of(&fault), Error::invalid_argument(fault.to_string()));
    }

    #[test]
    fn shapes_that_only_the_model_decides_about_are_its_fault() {
        let misfit = ExecError::Plan(LowerError::Overflow { node: "Expand".into(), shape: vec![1 << 40, 1 << 40] });
        assert_eq!(of_plan(&misfit, true).code(), ErrorCode::InvalidGraph);
        assert_eq!(of_plan(&misfit, false).code(), ErrorCode::InvalidArgument);
        assert_eq!(of_plan(&ExecError::OutOfMemory { bytes: 1 }, true).code(), ErrorCode::Fail);
    }
}
