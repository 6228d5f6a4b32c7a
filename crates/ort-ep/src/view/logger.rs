//! The runtime's logger.
use std::ffi::c_int;

use ort_ep_sys as sys;

use super::os_path;
use crate::Result;
use crate::ffi::runtime::c_string;

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Detailed tracing.
    Verbose,
    /// Progress, once per session.
    Info,
    /// Something a user may want to change.
    Warning,
    /// Something failed.
    Error,
    /// Unrecoverable.
    Fatal,
}

impl Severity {
    /// The severity for the runtime's number; unknown numbers count as the most severe.
    pub fn from_raw(raw: sys::OrtLoggingLevel) -> Self {
        match raw {
            ..=sys::ORT_LOGGING_LEVEL_VERBOSE => Self::Verbose,
            sys::ORT_LOGGING_LEVEL_INFO => Self::Info,
            sys::ORT_LOGGING_LEVEL_WARNING => Self::Warning,
            sys::ORT_LOGGING_LEVEL_ERROR => Self::Error,
            sys::ORT_LOGGING_LEVEL_FATAL.. => Self::Fatal,
        }
    }

    /// The runtime's number.
    pub fn to_raw(self) -> sys::OrtLoggingLevel {
        match self {
            Self::Verbose => sys::ORT_LOGGING_LEVEL_VERBOSE,
            Self::Info => sys::ORT_LOGGING_LEVEL_INFO,
            Self::Warning => sys::ORT_LOGGING_LEVEL_WARNING,
            Self::Error => sys::ORT_LOGGING_LEVEL_ERROR,
            Self::Fatal => sys::ORT_LOGGING_LEVEL_FATAL,
        }
    }
}

/// Where a log line comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogLocation<'a> {
    /// The source file.
    pub file: &'a str,
    /// The line in it.
    pub line: u32,
    /// The function or the area.
    pub function: &'a str,
}

view! {
    /// A logger of the runtime: the default one, a session's or a run's.
    Logger(OrtLogger)
}

// SAFETY: the runtime's loggers accept lines from any thread; the lifetime keeps them alive.
unsafe impl Send for Logger<'_> {}
// SAFETY: as above.
unsafe impl Sync for Logger<'_> {}

impl Logger<'_> {
    /// The lowest severity that is logged; the runtime drops anything below.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn severity(self) -> Result<Severity> {
        let mut level = 0;
        // SAFETY: `from_raw`'s caller vouches for the logger; the out-pointer is ours.
        unsafe { call!(self.runtime, Logger_GetLoggingSeverityLevel(self.raw, &mut level))? };
        Ok(Severity::from_raw(level))
    }

    /// Writes one line.
    ///
    /// # Errors
    /// If the runtime cannot write it.
    pub fn log(self, severity: Severity, message: &str, location: LogLocation<'_>) -> Result<()> {
        let (message, function) = (c_string(message), c_string(location.function));
        let file = os_path::terminated(location.file);
        let line = c_int::try_from(location.line).unwrap_or(c_int::MAX);
        // SAFETY: as above; the texts are NUL-terminated and used only during the call.
        unsafe {
            call!(
                self.runtime,
                Logger_LogMessage(
                    self.raw,
                    severity.to_raw(),
                    message.as_ptr(),
                    file.as_ptr(),
                    line,
                    function.as_ptr()
                )
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_keep_their_number_and_their_order() {
        let all = [Severity::Verbose, Severity::Info, Severity::Warning, Severity::Error, Severity::Fatal];
        for (number, severity) in (0..).zip(all) {
            assert_eq!(severity.to_raw(), number);
            assert_eq!(Severity::from_raw(number), severity);
        }
        assert!(all.is_sorted());
    }

    #[test]
    fn unknown_severities_are_the_nearest_known_one() {
        assert_eq!(Severity::from_raw(-1), Severity::Verbose);
        assert_eq!(Severity::from_raw(99), Severity::Fatal);
    }
}
