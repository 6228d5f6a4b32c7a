//! Errors that keep the server from starting or running.

use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of the server itself. Errors of requests are answered over HTTP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the server cannot be read.
    #[error("{} could not be read: {source}\n  help: {help}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
        /// How to fix it.
        help: &'static str,
    },
    /// A setting is wrong.
    #[error("{origin}: {problem}\n  help: {help}")]
    Setting {
        /// The file, or the setting's name.
        origin: String,
        /// The problem.
        problem: String,
        /// How to fix it.
        help: String,
    },
    /// A model cannot be loaded.
    #[error("the model {name} could not be loaded: {source}")]
    Load {
        /// The model's name.
        name: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The thread that loads the models panicked.
    #[error("the thread that loads the models failed: {source}\n  help: this is a bug; report it with the log")]
    LoadingThread {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The address cannot be used.
    #[error("could not listen on {address}: {source}\n  help: choose another --host or --port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system refused something that the server needs.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}
