//! Why a run failed.

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The shapes at hand can't be planned.
    #[error(transparent)]
    Plan(#[from] graph::LowerError),
    /// A step failed.
    #[error("{node}: {source}")]
    Step {
        /// The node the step came from, as its operator and name.
        node: String,
        /// Why.
        source: host_ops::OpError,
    },
    /// The host has no room for what lives between steps.
    #[error("out of memory: a run needs {bytes} bytes between its steps\n  help: use a smaller batch or context")]
    OutOfMemory {
        /// How many bytes.
        bytes: usize,
    },
    /// The caller brought another number of inputs or outputs.
    #[error("{found} {what} were given, and the partition has {wanted}")]
    Count {
        /// Inputs or outputs.
        what: &'static str,
        /// How many were given.
        found: usize,
        /// How many there are.
        wanted: usize,
    },
}
