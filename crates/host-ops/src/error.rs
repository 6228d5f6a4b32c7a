//! Why a step failed.
use graph::DType;

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
// Exhaustive: whoever adds a variant decides in `exec::ExecError::kind` who is to blame.
pub enum OpError {
    /// The primitive does not exist for this type here.
    #[error("{prim} of {dtype} is not supported on the host device")]
    Unsupported {
        /// The primitive.
        prim: &'static str,
        /// The type of its output.
        dtype: DType,
    },
    /// An index in the data points outside.
    #[error("index {index} is out of range for an axis of {extent} elements")]
    IndexOutOfRange {
        /// The index.
        index: i64,
        /// The extent.
        extent: usize,
    },
    /// A step's working memory could not be allocated.
    #[error("could not allocate {bytes} bytes of working memory\n  help: run on smaller inputs")]
    OutOfMemory {
        /// How much it asked for.
        bytes: usize,
    },
}
