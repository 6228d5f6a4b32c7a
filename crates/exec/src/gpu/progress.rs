//! How far the work is that a new plan waits for.
use std::sync::Arc;

/// Work that may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Kernels are compiled, or read where they were compiled before.
    Kernels,
    /// The ways to run steps are measured.
    Steps,
}

/// Is told, on any thread, how many pieces of some work are done, and how many there are.
pub type OnProgress = Arc<dyn Fn(Work, usize, usize) + Send + Sync>;
