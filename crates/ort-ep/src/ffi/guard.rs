//! Panics must not unwind into ONNX Runtime.
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ort_ep_sys as sys;

use crate::ffi::logging::LoggerHandle;
use crate::{Error, Result, Runtime};

/// What every slot needs from the object it is called on.
#[derive(Clone, Copy)]
pub(super) struct Border {
    pub runtime: Runtime,
    /// The logger of the session, or of the environment for objects created without a session.
    pub logger: LoggerHandle,
    /// The logger of the environment.
    pub lasting: LoggerHandle,
}

impl Border {
    /// Guards an object that belongs to the environment.
    pub fn new(runtime: Runtime, lasting: LoggerHandle) -> Self {
        Self { runtime, logger: lasting, lasting }
    }

    /// Guards an object that belongs to a session.
    pub fn for_session(self, logger: LoggerHandle) -> Self {
        Self { logger, ..self }
    }

    /// The same without the session: for objects that may outlive it, and for releasing all others. ONNX Runtime 1.24
    /// releases execution providers after the session's logger.
    pub fn after_session(self) -> Self {
        Self { logger: self.lasting, ..self }
    }

    /// Runs a slot that reports through a status.
    pub fn status(self, entry: &'static str, body: impl FnOnce() -> Result<()>) -> sys::Status {
        let result = self.run(entry, body);
        self.runtime.status(result)
    }

    /// Runs a slot that can only return a value: an error is logged and `default` returned.
    pub fn value<T>(self, entry: &'static str, default: T, body: impl FnOnce() -> Result<T>) -> T {
        self.run(entry, body).unwrap_or_else(|error| {
            let _scope = self.logger.enter();
            tracing::error!(entry, %error, "call failed");
            default
        })
    }

    fn run<T>(self, entry: &'static str, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let _scope = self.logger.enter();
        guard(entry, body)
    }
}

/// Runs `body` and turns a panic into an error that names `entry`.
pub(super) fn guard<T>(entry: &'static str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    // A panic abandons everything `body` borrowed, so no inconsistent state is seen afterwards.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        // The payload's own destructor may panic too.
        std::mem::forget(panic);
        // Not EP_FAIL: bad data may have caused the panic, and one bad request must not move a Python session to the
        // CPU for good.
        Err(Error::fail(format!(
            "{entry} panicked: {text}\n  help: this is a bug in the execution provider, please report it"
        )))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let known =
        panic.downcast_ref::<&str>().map(|text| text.to_string()).or_else(|| panic.downcast_ref::<String>().cloned());
    known.unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_that_names_the_entry() {
        let error = guard::<()>("Compute", || panic!("index {} out of range", 7)).unwrap_err();
        assert!(error.message().starts_with("Compute panicked: index 7 out of range"), "{error}");
        assert_eq!(error.code(), crate::ErrorCode::Fail);
    }

    #[test]
    fn a_panic_whose_payload_panics_when_dropped_is_handled() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        let error = guard::<()>("Compute", || std::panic::panic_any(Bomb)).unwrap_err();
        assert!(error.message().contains("no message"), "{error}");
    }
}
