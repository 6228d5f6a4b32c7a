//! Where the library comes from: [`loaded`](Loaded) at run time, or linked by the feature of that name.

#[cfg(feature = "linked")]
mod linked;
mod loaded;
mod search;

#[cfg(feature = "linked")]
pub use linked::Linked;
pub use loaded::Loaded;
pub use search::Search;

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
