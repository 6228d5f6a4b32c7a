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
    /// A size does not fit the address space.
    #[error("{node}: a tensor of shape {shape:?} is too large")]
    TooLarge {
        /// The node, as its operator and name.
        node: String,
        /// The shape.
        shape: Vec<usize>,
    },
}
