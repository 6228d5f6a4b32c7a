//! Runs plans on devices.
//!
//! A [`Program`] is a partition that is ready to run: its graph, and the plans made so far, one for each set of input
//! shapes. [`host`] runs a plan on the host device: RAM and the CPU.
mod cache;
mod error;
mod folded;
pub mod host;
mod program;

pub use cache::Lru;
pub use error::ExecError;
pub use host_ops::{Parallel, Serial};
pub use program::{Input, Program};
