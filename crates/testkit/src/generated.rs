//! Generated parts of the documents: a test compares the file with the text, and `cargo xtask docs` makes the test
//! write it.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// Set by `cargo xtask docs`.
const WRITE: &str = "AMDGPU_EP_WRITE_TABLES";

/// Checks that `file`, relative to the repository root, contains exactly `text`; or writes it if that is requested.
///
/// # Errors
/// When the file differs, or cannot be written.
pub fn check(file: impl AsRef<Path>, text: &str) -> Result<()> {
    let (file, path) = (file.as_ref(), crate::place::root().join(file.as_ref()));
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(path, text).with_context(|| format!("cannot write {}", file.display()));
    }
    if std::fs::read_to_string(path).unwrap_or_default() != text {
        bail!("{} is out of date; it should read:\n{text}\n  help: cargo xtask docs", file.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_other_contents_is_an_error_that_names_it() {
        let error = check("README.md", "something else").unwrap_err().to_string();
        assert!(error.contains("README.md is out of date") && error.contains("something else"), "{error}");
    }

    #[test]
    fn a_file_with_the_expected_contents_passes() {
        check("LICENSE-MIT", &std::fs::read_to_string(crate::place::root().join("LICENSE-MIT")).unwrap()).unwrap();
    }
}
