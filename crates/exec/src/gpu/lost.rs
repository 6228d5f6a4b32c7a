//! Handles a device that stopped working.
//!
//! After a memory fault or a lost device, drivers answer every call of the process with the same status. The first run
//! that observes it reports where; all others, in all sessions on the device, get the same error at once, without
//! asking the driver again.
use std::sync::OnceLock;

use crate::ExecError;

/// The error that was reported if the device stopped working.
#[derive(Default)]
pub(super) struct Lost(OnceLock<ExecError>);

impl Lost {
    /// Returns the error if the device has stopped working.
    pub fn check(&self) -> Result<(), ExecError> {
        self.0.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The error to report: a lost device, if the device stopped working. `place` is where that was observed.
    pub fn reported(&self, error: ExecError, device: &str, place: impl FnOnce() -> String) -> ExecError {
        let (node, source) = match error {
            ExecError::Launch { node, source, .. } if source.is_device_lost() => (node, source),
            ExecError::Driver(source) if source.is_device_lost() => (place(), Box::new(source)),
            ExecError::DeviceLost { .. } => return error,
            other if self.0.get().is_none() => return other,
            // Any later failure is a consequence of the lost device.
            other => return self.0.get().cloned().unwrap_or(other),
        };
        let lost = || ExecError::DeviceLost { device: device.to_owned(), node, source };
        let first = self.0.get().is_none();
        let error = self.0.get_or_init(lost).clone();
        if first {
            tracing::error!(target: "amdgpu_ep::run", "{error}");
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use hip::{DriverKind, HipError};

    use super::*;

    fn call(code: i32) -> HipError {
        HipError::Call { driver: DriverKind::Amd, call: "hipModuleLaunchKernel", code, text: "words".into() }
    }

    #[test]
    fn all_sessions_get_the_first_error() {
        let lost = Lost::default();
        let place = || "Conv \"a\"".to_owned();
        let plain = lost.reported(ExecError::Driver(call(1)), "gfx942", place);
        assert_eq!((plain, lost.check()), (ExecError::Driver(call(1)), Ok(())));
        let first = lost.reported(ExecError::Driver(call(700)), "gfx942", place);
        let text = first.to_string();
        assert!(
            text.starts_with("gfx942 stopped working, at Conv \"a\" or before it: ") && text.contains("help: "),
            "{text}"
        );
        assert_eq!(lost.check(), Err(first.clone()));
        for other in [call(719), call(1)] {
            assert_eq!(lost.reported(ExecError::Driver(other), "gfx942", || "elsewhere".into()), first);
        }
    }

    #[test]
    fn a_launch_names_its_own_node() {
        let launch = ExecError::Launch { node: "Gemm \"g\"".into(), kernel: "gemm", source: Box::new(call(719)) };
        let reported = Lost::default().reported(launch, "gfx1100", || "the run".into());
        assert!(reported.to_string().contains("at Gemm \"g\" or before it"), "{reported}");
    }
}
