//! Errors of the MIGraphX library.

use std::path::PathBuf;

use dylib::{Attempt, listed};
use hip::ErrorKind;

use super::Feature;

/// MIGraphX's description of a status.
fn words(status: i32) -> &'static str {
    match status {
        1 => "bad parameter",
        3 => "unknown target",
        4 => "unknown error",
        _ => "undocumented status",
    }
}

/// MIGraphX could not be loaded, a call failed, or a request is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MgxError {
    /// No file with any known name could be opened.
    #[error(
        "no MIGraphX could be loaded (tried {})\n  \
         help: install MIGraphX (package migraphx of ROCm), or set AMDGPU_EP_MIGRAPHX_LIBRARY to {}",
        listed(.attempts), dylib::rocm::MIGRAPHX.files[0]
    )]
    NotFound {
        /// Every name that was tried, in order.
        attempts: Vec<Attempt>,
    },
    /// A file was opened, but lacks functions that every release has.
    #[error(
        "{} is not a usable MIGraphX: it lacks {}\n  \
         help: install MIGraphX 2.8 (ROCm 6.0) or newer, or set AMDGPU_EP_MIGRAPHX_LIBRARY to {}",
        .file.display(), .missing.join(", "), dylib::rocm::MIGRAPHX.files[0]
    )]
    Incomplete {
        /// The first file that opened.
        file: PathBuf,
        /// The missing functions.
        missing: Vec<&'static str>,
    },
    /// A call failed.
    #[error(
        "MIGraphX failed while {doing}: migraphx_{call} returned status {status} ({})\n  \
         help: MIGraphX wrote its reason to stderr", words(*.status)
    )]
    Call {
        /// The C function, without its prefix.
        call: &'static str,
        /// The status it returned.
        status: i32,
        /// A description of the step.
        doing: String,
    },
    /// The loaded library is too old for this feature.
    #[error("MIGraphX in {} has no {feature} (added in {})", .file.display(), .feature.since())]
    Unsupported {
        /// The requested feature.
        feature: Feature,
        /// The library.
        file: PathBuf,
    },
    /// A request was rejected before it reached MIGraphX.
    #[error("{what} cannot be passed to MIGraphX: {reason}")]
    Refused {
        /// A description of what was rejected.
        what: String,
        /// Why it was rejected.
        reason: String,
    },
    /// MIGraphX returned something that makes no sense.
    #[error("MIGraphX returned an unusable result: {what}")]
    Answer {
        /// A description of what it returned.
        what: String,
    },
}

impl MgxError {
    /// The kind of error, which decides the status code. Decide it for each new variant.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } | Self::Incomplete { .. } => ErrorKind::Device,
            // The caller passed a bad parameter or an unknown target.
            Self::Call { status: 1 | 3, .. } | Self::Refused { .. } => ErrorKind::Argument,
            Self::Call { .. } => ErrorKind::Device,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Answer { .. } => ErrorKind::Bug,
        }
    }

    pub(super) fn refused(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Refused { what: what.into(), reason: reason.into() }
    }

    pub(super) fn answer(what: impl Into<String>) -> Self {
        Self::Answer { what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_names_the_step_the_function_and_the_status() {
        let error = MgxError::Call { call: "program_compile", status: 4, doing: "compiling for gpu".into() };
        assert_eq!(
            error.to_string(),
            "MIGraphX failed while compiling for gpu: migraphx_program_compile returned status 4 (unknown error)\n  \
             help: MIGraphX wrote its reason to stderr"
        );
    }

    #[test]
    fn errors_in_arguments_are_the_callers_and_others_the_devices() {
        let call = |status| MgxError::Call { call: "program_run", status, doing: "running".into() };
        let file = || PathBuf::from("/l/libmigraphx_c.so.3");
        for (error, want) in [
            (MgxError::NotFound { attempts: Vec::new() }, ErrorKind::Device),
            (MgxError::Incomplete { file: file(), missing: Vec::new() }, ErrorKind::Device),
            (call(1), ErrorKind::Argument),
            (call(3), ErrorKind::Argument),
            (call(4), ErrorKind::Device),
            (MgxError::Unsupported { feature: Feature::Bf16, file: file() }, ErrorKind::Unsupported),
            (MgxError::refused("a name", "it contains a NUL byte"), ErrorKind::Argument),
            (MgxError::answer("no address"), ErrorKind::Bug),
        ] {
            assert_eq!(error.kind(), want, "{error}");
        }
    }

    #[test]
    fn a_missing_feature_names_the_release_that_brought_it() {
        let error = MgxError::Unsupported { feature: Feature::Bf16, file: "/l/libmigraphx_c.so.3".into() };
        let text = error.to_string();
        assert!(text.contains("bf16 quantisation") && text.contains("2.13"), "{text}");
    }
}
