//! Which libraries this crate supports.

use std::ffi::CStr;
use std::path::Path;

use super::Backend;
use crate::LoadError;

/// The major versions of hipDNN whose constants this crate knows.
pub const KNOWN_MAJORS: &[u32] = &[0];

/// The functions that are required to build and run any graph.
const REQUIRED: &[&str] = &[
    "hipdnnCreate",
    "hipdnnDestroy",
    "hipdnnSetStream",
    "hipdnnBackendCreateDescriptor",
    "hipdnnBackendDestroyDescriptor",
    "hipdnnBackendExecute",
    "hipdnnBackendFinalize",
    "hipdnnBackendGetAttribute",
    "hipdnnBackendSetAttribute",
    // Builds without it number the descriptors differently.
    "hipdnnBackendGetSerializedBinaryGraph_ext",
    "hipdnnVersionString_ext",
];

/// Returns the version string of a library that this crate supports; `place` is its name in errors. For implementations
/// of [`Backend`].
///
/// # Errors
/// It lacks functions that are required to run any graph, or its major version is neither known nor in `further`.
pub fn checked_version(library: &dyn Backend, place: &Path, further: &[u32]) -> Result<String, LoadError> {
    let missing: Vec<_> = REQUIRED.iter().copied().filter(|symbol| !library.has(symbol)).collect();
    if !missing.is_empty() {
        return Err(LoadError::Incompatible { file: place.to_owned(), missing });
    }
    // SAFETY: the function takes no arguments and returns a static string or null.
    let text = unsafe { library.version_string() };
    let version = if text.is_null() {
        String::new()
    } else {
        // SAFETY: not null, so it is a static NUL-terminated string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    check_version(place, &version, further)?;
    Ok(version)
}

/// The first version with the descriptor numbers that this crate knows.
const FIRST_KNOWN: [u32; 2] = [0, 4];

/// Rejects a library with an unknown major version, and warns about one whose numbers may differ.
fn check_version(file: &Path, version: &str, further: &[u32]) -> Result<(), LoadError> {
    let wanted: Vec<u32> = KNOWN_MAJORS.iter().chain(further).copied().collect();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let major = numbers.next().flatten().filter(|major| wanted.contains(major));
    let Some(major) = major else {
        return Err(LoadError::VersionMismatch { file: file.to_owned(), found: version.to_owned(), wanted });
    };
    if [major, numbers.next().flatten().unwrap_or(0)] < FIRST_KNOWN {
        let file = file.display();
        tracing::warn!(target: "hipdnn::load", "{file} is hipDNN {version}, but descriptors changed their numbers in 0.4");
    }
    Ok(())
}
