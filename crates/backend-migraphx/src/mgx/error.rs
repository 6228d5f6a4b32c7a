//! What can go wrong with MIGraphX.

use std::path::PathBuf;

use dylib::{Attempt, listed};
use hip::ErrorKind;

use super::Feature;

/// MIGraphX's words for a status.
fn words(status: i32) -> &'static str {
    match status {
        1 => "bad parameter",
        3 => "unknown target",
        4 => "unknown error",
        _ => "undocumented status",
    }
}

/// MIGraphX could not be loaded, refused a call, or was asked for something it cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MgxError {
    /// No file of any known name could be opened.
    #[error(
        "no MIGraphX could be loaded (tried {})\n  \
         help: install MIGraphX (package migraphx of ROCm), or set AMDGPU_EP_MIGRAPHX_LIBRARY to libmigraphx_c.so.3",
        listed(.attempts)
    )]
    NotFound {
        /// Every name tried, in order.
        attempts: Vec<Attempt>,
    },
    /// A file opened, but functions that every release has are not in it.
    #[error(
        "{} is not a usable MIGraphX: it lacks {}\n  \
         help: install MIGraphX 2.8 (ROCm 6.0) or newer, or set AMDGPU_EP_MIGRAPHX_LIBRARY to libmigraphx_c.so.3",
        .file.display(), .missing.join(", ")
    )]
    Incomplete {
        /// The first file that opened.
        file: PathBuf,
        /// What it lacks.
        missing: Vec<&'static str>,
    },
    /// A call failed.
    #[error(
        "MIGraphX failed while {doing}: migraphx_{call} gave status {status} ({})\n  \
         help: MIGraphX wrote its reason to stderr", words(*.status)
    )]
    Call {
        /// The C function, without its prefix.
        call: &'static str,
        /// What it gave back.
        status: i32,
        /// The step in words.
        doing: String,
    },
    /// The loaded library is too old for this.
    #[error("MIGraphX in {} has no {feature} (it came with {})", .file.display(), .feature.since())]
    Unsupported {
        /// What was asked for.
        feature: Feature,
        /// The library.
        file: PathBuf,
    },
    /// Something was refused before MIGraphX saw it.
    #[error("{what} cannot be given to MIGraphX: {reason}")]
    Refused {
        /// The thing in words.
        what: String,
        /// Why not.
        reason: String,
    },
    /// MIGraphX answered with something that makes no sense.
    #[error("MIGraphX answered {what}, which cannot be used")]
    Answer {
        /// The answer in words.
        what: String,
    },
}

impl MgxError {
    /// Who can do something about it. Adding a variant means deciding this.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } | Self::Incomplete { .. } => ErrorKind::Device,
            // A bad parameter or an unknown target, which were given to it.
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
            "MIGraphX failed while compiling for gpu: migraphx_program_compile gave status 4 (unknown error)\n  \
             help: MIGraphX wrote its reason to stderr"
        );
    }

    #[test]
    fn what_was_given_to_migraphx_is_the_callers_and_what_it_does_itself_is_the_devices() {
        let call = |status| MgxError::Call { call: "program_run", status, doing: "running".into() };
        let file = || PathBuf::from("/l/libmigraphx_c.so.3");
        for (error, want) in [
            (MgxError::NotFound { attempts: Vec::new() }, ErrorKind::Device),
            (MgxError::Incomplete { file: file(), missing: Vec::new() }, ErrorKind::Device),
            (call(1), ErrorKind::Argument),
            (call(3), ErrorKind::Argument),
            (call(4), ErrorKind::Device),
            (MgxError::Unsupported { feature: Feature::Bf16, file: file() }, ErrorKind::Unsupported),
            (MgxError::refused("a name", "it holds a NUL byte"), ErrorKind::Argument),
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
