//! The report `profile`: how long the steps of a run took.

use crate::{Kind, Report};

report! {
    /// A run of a partition.
    pub struct Profile {
        /// name of the partition
        pub partition: String,
        /// its steps, in the order in which they ran
        pub times: Vec<TimedStep>,
    }

    /// A step that was timed.
    pub struct TimedStep {
        /// name of the node that it came from
        pub node: String,
        /// operator of that node
        pub op: String,
        /// primitive that the step computes
        pub step: String,
        /// what ran it, as in `explain`
        pub run_by: String,
        /// time in microseconds, measured by the device
        pub micros: f64,
        /// number of bytes that the step must move at least
        pub bytes: u64,
        /// number of operations that the step must perform
        pub flops: u64,
        /// share of the chip's peak performance that was reached; `null` if the peak is unknown
        pub share_of_peak: Option<f64>,
    }
}

impl Report for Profile {
    const KIND: Kind = Kind::Profile;
}
