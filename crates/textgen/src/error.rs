//! Errors, grouped by what the caller can do about them.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the model folder is missing or cannot be read.
    #[error("{} could not be read: {source}\n  help: {help}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
        /// How to fix it.
        help: String,
    },
    /// A field of the model folder's configuration is wrong.
    #[error("{}: {field}: {problem}\n  help: {help}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The field, such as `model.vocab_size`.
        field: String,
        /// The problem.
        problem: String,
        /// How to fix it.
        help: String,
    },
    /// The tokenizer or the chat template of the folder cannot be used.
    #[error("{}: {problem}\n  help: {help}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
        /// How to fix it.
        help: String,
    },
    /// ONNX Runtime cannot be loaded.
    #[error("ONNX Runtime could not be loaded from {}: {problem}\n  help: {help}", path.display())]
    Runtime {
        /// The library.
        path: PathBuf,
        /// The problem.
        problem: String,
        /// How to fix it.
        help: String,
    },
    /// The provider is not available.
    #[error("{problem}\n  help: {help}")]
    Provider {
        /// What was tried, and why it failed.
        problem: String,
        /// How to fix it.
        help: String,
    },
    /// The ONNX model cannot be loaded, or does not fit the configuration.
    #[error("{}: {problem}\n  help: {help}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
        /// How to fix it.
        help: String,
    },
    /// The caller made an invalid request.
    #[error("{problem}\n  help: {help}")]
    Request {
        /// What is wrong with the request.
        problem: String,
        /// How to fix it.
        help: String,
    },
    /// The caller's request is valid, but something inside failed: a filter of the caller's program, or a bug.
    #[error("{problem}\n  help: {help}")]
    Internal {
        /// What failed.
        problem: String,
        /// Who can fix it.
        help: String,
    },
    /// The generation was cancelled; it can be continued.
    #[error("the generation was cancelled")]
    Cancelled,
    /// A call to ONNX Runtime failed.
    #[error("{doing}: {}", source.message())]
    Ort {
        /// What the call was for.
        doing: &'static str,
        /// ONNX Runtime's error.
        source: ort_client::Error,
    },
}

/// The help of an error that only we can fix.
pub(crate) const BUG: &str = "this is a bug in textgen";

impl Error {
    pub(crate) fn request(problem: impl Into<String>, help: impl Into<String>) -> Error {
        Error::Request { problem: problem.into(), help: help.into() }
    }

    pub(crate) fn internal(problem: impl Into<String>, help: impl Into<String>) -> Error {
        Error::Internal { problem: problem.into(), help: help.into() }
    }
}

/// Adds to an ONNX Runtime error what the call was for.
pub(crate) trait Doing<T> {
    /// Adds the context.
    fn doing(self, doing: &'static str) -> Result<T>;
}

impl<T> Doing<T> for ort_client::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T> {
        use ort_client::Error as Failure;

        const SMALLER: &str =
            "ask for a smaller max_length (search.max_length in genai_config.json) or a smaller batch";
        self.map_err(|source| match &source {
            Failure::OutOfMemory { .. } => Error::request(source.to_string(), SMALLER),
            Failure::TooLarge { .. } => {
                Error::request(source.to_string(), "ask for a shorter prompt or a smaller batch")
            }
            Failure::Nul(_) => Error::request(source.to_string(), "use a text without one"),
            Failure::LargerThanMemory { .. } | Failure::Count { .. } | Failure::Copy { .. } => {
                Error::internal(source.to_string(), BUG)
            }
            _ => Error::Ort { doing, source },
        })
    }
}
