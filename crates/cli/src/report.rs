//! Output of a report, as JSON or text.

use anyhow::{Context, Result};
use serde::Serialize;

/// The report as one JSON document, or as the text that `text` returns.
///
/// # Errors
/// When it cannot be serialised as JSON.
pub fn written<R: Serialize>(report: &R, json: bool, text: impl FnOnce(&R) -> String) -> Result<String> {
    if json { document(report) } else { Ok(text(report)) }
}

/// The report as one JSON document.
///
/// # Errors
/// See [`written`].
pub fn document(report: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(report).context("the report could not be written as JSON")? + "\n")
}
