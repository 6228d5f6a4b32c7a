//! Errors of this crate.

use std::fmt;
use std::path::PathBuf;

use crate::safe::Refusal;
use crate::sys::Status;

/// Why no backend library could be loaded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No file could be loaded.
    #[error(
        "no hipDNN backend library was found (tried {})\n  help: install hipDNN, or set HIPDNN_BACKEND_LIBRARY_PATH to its folder",
        list(.tried)
    )]
    NotFound {
        /// Every file that was tried, and the loader's reason.
        tried: Vec<Attempt>,
    },
    /// The library is not hipDNN, or lacks functions that every graph needs.
    #[error("{} is not a usable hipDNN backend: it lacks {}\n  help: install a newer hipDNN", .file.display(), .missing.join(", "))]
    Incompatible {
        /// The library.
        file: PathBuf,
        /// The functions that are missing.
        missing: Vec<&'static str>,
    },
    /// The library's major version is not supported.
    #[error(
        "{} is hipDNN {found}, but this program supports major version {}\n  help: install a hipDNN of that version",
        .file.display(), words(.wanted)
    )]
    VersionMismatch {
        /// The library.
        file: PathBuf,
        /// The version that it reports.
        found: String,
        /// The supported major versions.
        wanted: Vec<u32>,
    },
}

/// A file that could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The path or name.
    pub file: PathBuf,
    /// The loader's reason.
    pub reason: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.reason)
    }
}

/// Consecutive files with the same reason share it: most of them just do not exist.
fn list(tried: &[Attempt]) -> String {
    let group = |group: &[Attempt]| {
        let files: Vec<String> = group.iter().map(|attempt| attempt.file.display().to_string()).collect();
        format!("{}: {}", files.join(", "), group[0].reason)
    };
    tried.chunk_by(|one, next| one.reason == next.reason).map(group).collect::<Vec<_>>().join("; ")
}

fn words(majors: &[u32]) -> String {
    majors.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

/// Why a call or a graph failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The backend rejected a call.
    #[error("{attempted}: {status}{}", said(.text))]
    Backend {
        /// The action that failed.
        attempted: String,
        /// The backend's status.
        status: Status,
        /// The backend's own message; may be empty.
        text: String,
    },
    /// A rule of the graph is violated.
    #[error("{subject}: {rule}")]
    Invalid {
        /// The tensor or operation, by name.
        subject: String,
        /// What is wrong with it.
        rule: String,
    },
    /// No engine of the backend supports this graph.
    #[error("no engine of {backend} runs graph {graph:?}{}", said(.reason))]
    NotSupported {
        /// The library.
        backend: String,
        /// The graph's name.
        graph: String,
        /// The backend's own message; may be empty.
        reason: String,
    },
    /// Some engines support this graph, but none created an acceptable plan.
    #[error("no engine could create a plan for graph {graph:?} ({})", reasons(.refused))]
    NoPlan {
        /// The graph's name.
        graph: String,
        /// Each engine's reason.
        refused: Vec<Refusal>,
    },
    /// The backend is too old for a call.
    #[error("{backend} has no {function}\n  help: install a newer hipDNN")]
    Absent {
        /// The library.
        backend: String,
        /// The missing function.
        function: &'static str,
    },
}

impl Error {
    /// A violated rule.
    pub(crate) fn invalid(subject: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Invalid { subject: subject.into(), rule: rule.into() }
    }

    /// True if the backend, or each of its engines, does not support the request: another implementation may.
    pub fn is_not_supported(&self) -> bool {
        match self {
            Self::Backend { status, .. } => *status == Status::NOT_SUPPORTED,
            Self::NoPlan { refused, .. } => {
                refused.iter().all(|refusal| matches!(refusal.status, None | Some(Status::NOT_SUPPORTED)))
            }
            Self::NotSupported { .. } | Self::Absent { .. } => true,
            Self::Invalid { .. } => false,
        }
    }

    /// The backend's status, if the backend rejected the call.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Backend { status, .. } => Some(*status),
            Self::Absent { .. } => Some(Status::VERSION_MISMATCH),
            _ => None,
        }
    }
}

fn reasons(refused: &[Refusal]) -> String {
    refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
