//! Errors of a step.
use graph::DType;

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
// Exhaustive: adding a variant means deciding in `exec::ExecError::kind` what caused it.
pub enum OpError {
    /// The primitive does not support this type here.
    #[error("{prim} of {dtype} is not supported on the host device")]
    Unsupported {
        /// The primitive.
        prim: &'static str,
        /// The type of its output.
        dtype: DType,
    },
    /// An index in the data is out of range.
    #[error("index {index} is out of range for an axis of {extent} elements")]
    IndexOutOfRange {
        /// The index.
        index: i64,
        /// The extent.
        extent: usize,
    },
    /// Scratch memory for the step could not be allocated.
    #[error("could not allocate {bytes} bytes of scratch memory\n  help: run on smaller inputs")]
    OutOfMemory {
        /// The size of the request.
        bytes: usize,
    },
}
