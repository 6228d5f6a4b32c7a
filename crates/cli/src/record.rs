//! A file for a report of the backend, named by a session configuration entry.

use std::marker::PhantomData;

use anyhow::{Context, Result};
use reports::Report;
use tempfile::NamedTempFile;

use crate::interrupt::Cleanup;

/// The file; removed when this value is dropped.
pub struct Record<R> {
    file: NamedTempFile,
    lines: PhantomData<R>,
    _cleanup: Cleanup,
}

impl<R: Report> Record<R> {
    /// Creates an empty file.
    ///
    /// # Errors
    /// When a temporary file cannot be created.
    pub fn new() -> Result<Record<R>> {
        let (file, cleanup) = Cleanup::making(NamedTempFile::new).context("could not create a temporary file")?;
        Ok(Record { file, lines: PhantomData, _cleanup: cleanup })
    }

    /// The session-config entry that makes the backend write to this file.
    ///
    /// # Errors
    /// When the path of the temporary folder is not valid UTF-8.
    pub fn entry(&self) -> Result<(&'static str, &str)> {
        let path = self.file.path().to_str().context("the path of the temporary folder is not valid UTF-8")?;
        Ok((R::KIND.key(), path))
    }

    /// Reads the backend's lines.
    ///
    /// # Errors
    /// When they cannot be read or parsed.
    pub fn read(&self) -> Result<Vec<R>> {
        let name = R::KIND.name();
        let lines = std::fs::read_to_string(self.file.path())
            .with_context(|| format!("the backend's report {name:?} could not be read"))?;
        reports::parse(&lines).with_context(|| format!("the backend's report {name:?} could not be parsed"))
    }
}
