//! Errors of a run.

use hipdnn::sys::Status;
use hipdnn_abi::Fault;
use host_ops::OpError;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is not enough memory.
    #[error("could not allocate {bytes} bytes")]
    NoMemory {
        /// Bytes requested.
        bytes: usize,
    },
    /// The data violates an operation's rules.
    #[error(transparent)]
    Step(OpError),
}

impl From<OpError> for RunError {
    fn from(error: OpError) -> Self {
        match error {
            OpError::OutOfMemory { bytes } => Self::NoMemory { bytes },
            other => Self::Step(other),
        }
    }
}

impl From<RunError> for Fault {
    fn from(error: RunError) -> Self {
        let status = match error {
            RunError::NoMemory { .. } => Status::INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
            RunError::Step(_) => Status::EXECUTION_FAILED,
        };
        Self::new(status, error.to_string())
    }
}
