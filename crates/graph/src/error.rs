//! Why a node is not taken, and why a graph can't be planned.

/// Why a node stays with other providers. Not an error: `explain` prints it, and the support table counts it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Declined(pub String);

impl Declined {
    /// A reason, such as "mode cubic with antialias".
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// Why a graph can't be planned for the shapes at hand: the model or its input is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
// Exhaustive: whoever adds a variant decides in `exec::ExecError::kind` who is to blame.
pub enum LowerError {
    /// A node's inputs break the rules of its operator.
    #[error("{node}: {reason}")]
    Invalid {
        /// The node, as its operator and name.
        node: String,
        /// The rule, with the numbers involved.
        reason: String,
    },
    /// A number of elements or bytes is no 64-bit number.
    #[error("{node}: a tensor of shape {shape:?} would have more than 2^63 bytes")]
    Overflow {
        /// The node, as its operator and name.
        node: String,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A run would need more memory than there is.
    #[error(
        "a run with these inputs needs {bytes} bytes of memory, {largest} of them for {node}, and {available} are available\n  help: use a smaller batch or shorter inputs, or a device with more memory"
    )]
    NoRoom {
        /// The node that makes the largest tensor, as its operator and name.
        node: String,
        /// The bytes of that tensor.
        largest: usize,
        /// The bytes of all that is held at once.
        bytes: usize,
        /// How many there are.
        available: usize,
    },
    /// A step would read far more than is stored, and run for hours.
    #[error(
        "{node}: it reads a tensor of shape {shape:?}, which is {bytes} bytes with its repetitions and padding; {limit} are allowed on this device\n  help: use a smaller batch or shorter inputs"
    )]
    TooMuchWork {
        /// The node, as its operator and name.
        node: String,
        /// The shape.
        shape: Vec<usize>,
        /// Its bytes, if all of it were stored.
        bytes: usize,
        /// How many are allowed.
        limit: usize,
    },
}
