//! A file that the backend writes lines into, because an entry of a session's configuration names it.

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use crate::interrupt::Cleanup;

/// The file; it is gone when this is dropped.
pub struct Record {
    file: NamedTempFile,
    _cleanup: Cleanup,
}

impl Record {
    /// An empty one.
    ///
    /// # Errors
    /// When there is no room for temporary files.
    pub fn new() -> Result<Record> {
        let (file, cleanup) = Cleanup::making(NamedTempFile::new).context("a temporary file could not be made")?;
        Ok(Record { file, _cleanup: cleanup })
    }

    /// The entry's value.
    ///
    /// # Errors
    /// When the folder of temporary files has a name that is no text.
    pub fn path(&self) -> Result<&str> {
        self.file.path().to_str().context("the path of the temporary folder is no text")
    }

    /// What the backend wrote, as `parse` understands it; `what` names it in errors.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub fn read<T>(&self, what: &str, parse: impl FnOnce(&str) -> Result<T>) -> Result<T> {
        let lines = std::fs::read_to_string(self.file.path())
            .with_context(|| format!("the backend's {what} could not be read"))?;
        parse(&lines).with_context(|| format!("the backend's {what} could not be understood"))
    }
}
