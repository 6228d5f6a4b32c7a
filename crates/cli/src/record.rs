//! A file for the backend to write lines into, named by a session configuration entry.

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use crate::interrupt::Cleanup;

/// The file; removed when this value is dropped.
pub struct Record {
    file: NamedTempFile,
    _cleanup: Cleanup,
}

impl Record {
    /// Creates an empty file.
    ///
    /// # Errors
    /// When a temporary file cannot be created.
    pub fn new() -> Result<Record> {
        let (file, cleanup) = Cleanup::making(NamedTempFile::new).context("a temporary file could not be made")?;
        Ok(Record { file, _cleanup: cleanup })
    }

    /// The path, as the entry's value.
    ///
    /// # Errors
    /// When the path of the temporary folder is not valid UTF-8.
    pub fn path(&self) -> Result<&str> {
        self.file.path().to_str().context("the path of the temporary folder is not valid UTF-8")
    }

    /// Reads and parses the backend's lines; `what` names them in errors.
    ///
    /// # Errors
    /// When they cannot be read or parsed.
    pub fn read<T>(&self, what: &str, parse: impl FnOnce(&str) -> Result<T>) -> Result<T> {
        let lines = std::fs::read_to_string(self.file.path())
            .with_context(|| format!("the backend's {what} could not be read"))?;
        parse(&lines).with_context(|| format!("the backend's {what} could not be understood"))
    }
}
