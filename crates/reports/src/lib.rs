//! Reports that the hip backend writes for tools, and that the command reads: which nodes it claimed and what runs
//! their steps, how long steps take, how much memory is in use, and the progress of long jobs.
//!
//! A report is a file of JSON lines. Each [`Kind`] has one type for its lines, which both sides use. [`ReportFile`]
//! writes them and [`parse`] reads them. `docs/reports.md` describes every field; a test writes that page from the
//! types.
#![forbid(unsafe_code)]

#[macro_use]
mod fields;

mod counts;
mod explain;
mod file;
mod kind;
mod line;
mod memory;
#[cfg(test)]
mod page;
mod profile;
mod progress;

pub use counts::Counts;
pub use explain::{Explain, OfferedGraph, OfferedNode, PartitionPasses, PlanSteps, Step, Tuned};
pub use file::ReportFile;
pub use kind::Kind;
pub use line::{ParseError, parse};
pub use memory::{Memory, Purposes, Usage};
pub use profile::{Profile, TimedStep};
pub use progress::{Activity, Progress};

/// A line of a report.
pub trait Report: serde::Serialize + serde::de::DeserializeOwned {
    /// The report that consists of such lines.
    const KIND: Kind;
}
