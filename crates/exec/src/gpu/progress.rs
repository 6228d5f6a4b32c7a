//! Progress of the work that a new plan waits for.
use std::sync::Arc;

/// Work that may take a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Compiling kernels, or loading precompiled ones.
    Kernels,
    /// Measuring the candidates for steps.
    Steps,
}

/// Called on any thread with the number of finished pieces of work and their total.
pub type OnProgress = Arc<dyn Fn(Activity, usize, usize) + Send + Sync>;
