//! Where the library comes from: [`loaded`](Loaded) at run time, or linked by the feature of that name.

#[cfg(feature = "linked")]
mod linked;
mod loaded;
mod search;

use std::ffi::CStr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

#[cfg(feature = "linked")]
pub use linked::Linked;
pub use loaded::Loaded;
pub use search::Search;

use crate::LoadError;
use crate::sys::Backend;

/// The major versions of hipDNN whose numbers this crate knows.
pub const KNOWN_MAJORS: &[u32] = &[0];

/// The functions without which no graph can be built and run.
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
    // Builds without it numbered the descriptors otherwise.
    "hipdnnBackendGetSerializedBinaryGraph_ext",
    "hipdnnVersionString_ext",
];

/// The process's backend library: the one that was linked, with the feature `linked`, and otherwise the one that
/// [`Search::default`] finds. It is looked for once, by whoever asks first; a failure stays one.
///
/// # Errors
/// There is none, or one that this crate can't talk to.
pub fn backend() -> Result<Arc<dyn Backend>, LoadError> {
    static BACKEND: OnceLock<Result<Arc<dyn Backend>, LoadError>> = OnceLock::new();
    #[cfg(feature = "linked")]
    let open = || Linked::new().map(|linked| Arc::new(linked) as Arc<dyn Backend>);
    #[cfg(not(feature = "linked"))]
    let open = || Loaded::open(&Search::default()).map(|loaded| Arc::new(loaded) as Arc<dyn Backend>);
    BACKEND.get_or_init(open).clone()
}

/// A library's own version text.
///
/// # Safety
/// `version` is null or a NUL-terminated text that stays.
unsafe fn version_text(version: *const std::ffi::c_char) -> String {
    if version.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned()
}

/// The first version whose numbers of descriptors are the ones that this crate knows.
const FIRST_KNOWN: [u32; 2] = [0, 4];

/// Refuses a library of a major version that nobody knows, and warns of one that may number things otherwise.
fn check_version(file: &Path, version: &str, further: &[u32]) -> Result<(), LoadError> {
    let wanted: Vec<u32> = KNOWN_MAJORS.iter().chain(further).copied().collect();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let major = numbers.next().flatten().filter(|major| wanted.contains(major));
    let Some(major) = major else {
        return Err(LoadError::VersionMismatch { file: file.to_owned(), found: version.to_owned(), wanted });
    };
    if [major, numbers.next().flatten().unwrap_or(0)] < FIRST_KNOWN {
        let file = file.display();
        tracing::warn!(target: "hipdnn::load", "{file} is hipDNN {version}: before 0.4 descriptors had other numbers");
    }
    Ok(())
}
