//! Why a node is declined, and why a graph cannot be planned.

/// Why a node is left to other providers. Not an error: `explain` prints it, and the support table counts it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Declined(pub String);

impl Declined {
    /// A reason, such as "unsupported mode area".
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// Why a graph cannot be planned for the given shapes: the model or its input is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
// Exhaustive on purpose: a new variant must be classified in `exec::ExecError::kind`, which says who is at fault.
pub enum LowerError {
    /// A node's inputs break its operator's rules.
    #[error("{node}: {reason}")]
    Invalid {
        /// The node: its operator and name.
        node: String,
        /// The broken rule, with the numbers involved.
        reason: String,
    },
    /// A number of elements or bytes does not fit in 64 bits.
    #[error("{node}: a tensor of shape {shape:?} would have more than 2^63 bytes")]
    Overflow {
        /// The node: its operator and name.
        node: String,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A run would need more memory than is available.
    #[error(
        "a run with these inputs needs {bytes} bytes of memory, {largest} of them for {node}, and {available} are available\n  help: use a smaller batch or shorter inputs, or a device with more memory"
    )]
    NoRoom {
        /// The node that produces the largest tensor: its operator and name.
        node: String,
        /// The size of that tensor in bytes.
        largest: usize,
        /// The peak memory of the run in bytes.
        bytes: usize,
        /// The available memory in bytes.
        available: usize,
    },
    /// A step would read far more than is stored, and run for hours.
    #[error(
        "{node}: reads a tensor of shape {shape:?}, which takes {bytes} bytes with repetitions and padding; this device allows {limit}\n  help: use a smaller batch or shorter inputs"
    )]
    TooMuchWork {
        /// The node: its operator and name.
        node: String,
        /// The shape.
        shape: Vec<usize>,
        /// The size in bytes, if all of it were stored.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
}
