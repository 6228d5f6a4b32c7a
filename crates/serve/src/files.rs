//! Small files of the server: settings, keys and certificates.

use std::path::Path;

use crate::Error;

/// The largest file in bytes.
const LARGEST: u64 = 1 << 20;

/// Reads a text. `help` says what the file should be.
///
/// # Errors
/// When the file cannot be read, or is too large.
pub fn read_text(path: &Path, help: &'static str) -> Result<String, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source, help };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > LARGEST {
        let problem = format!("it has {length} bytes, more than {LARGEST}");
        return Err(Error::Setting { origin: path.display().to_string(), problem, help: help.to_owned() });
    }
    std::fs::read_to_string(path).map_err(failed)
}
