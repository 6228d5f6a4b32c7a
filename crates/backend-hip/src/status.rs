//! Converts errors to ONNX Runtime statuses.
pub(crate) use device_status::of_driver;
use exec::ExecError;
use ort_ep::{Error, ErrorCode};

/// The status for an engine error.
pub(crate) fn of(error: &ExecError) -> Error {
    device_status::of(error.kind(), error)
}

/// The status for a planning error. If the model alone determines all shapes, the model is at fault.
pub(crate) fn of_plan(error: &ExecError, is_fixed: bool) -> Error {
    match error {
        ExecError::Plan(_) if is_fixed => Error::new(ErrorCode::InvalidGraph, error.to_string()),
        _ => of(error),
    }
}

#[cfg(test)]
mod tests {
    use graph::LowerError;

    use super::*;

    #[test]
    fn data_that_breaks_an_operator_is_the_requests_fault() {
        let fault = ExecError::Fault { node: "Gather \"lookup\"".into() };
        assert_eq!(of(&fault), Error::invalid_argument(fault.to_string()));
    }

    #[test]
    fn shapes_that_only_the_model_determines_are_the_models_fault() {
        let misfit = ExecError::Plan(LowerError::Overflow { node: "Expand".into(), shape: vec![1 << 40, 1 << 40] });
        assert_eq!(of_plan(&misfit, true).code(), ErrorCode::InvalidGraph);
        assert_eq!(of_plan(&misfit, false).code(), ErrorCode::InvalidArgument);
        assert_eq!(of_plan(&ExecError::OutOfMemory { bytes: 1 }, true).code(), ErrorCode::Fail);
    }
}
