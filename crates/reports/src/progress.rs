//! The report `progress`: how much of the work that a session waits for is done.

use serde::{Deserialize, Serialize};

use crate::{Kind, Report};

report! {
    /// A piece of work that is done. The count restarts for each plan.
    pub struct Progress {
        /// what is counted
        pub work: Activity,
        /// number of pieces that are done
        pub done: u64,
        /// number of all pieces
        pub of: u64,
    }
}

/// What [`Progress`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Compiled kernels.
    Kernels,
    /// Measured steps.
    Steps,
}

impl Report for Progress {
    const KIND: Kind = Kind::Progress;
}
