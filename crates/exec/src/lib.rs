//! Runs plans on devices.
//!
//! | | |
//! |---|---|
//! | [`Device`] | what a device offers: which operators it has code for, and taking a partition in |
//! | [`Program`] | a partition on a device, with the plans made so far, one for each set of input shapes |
//! | [`Prepared`] | a plan that is ready; a run of it happens in an [`Order`] with other work |
//! | [`Ledger`] | how queued runs ended |
//! | [`Capture`], [`Captured`] | a run that is recorded once and replayed on the same memory |
//! | [`dnn`] | hipDNN for steps that a vendor's library runs better |
//! | [`host`] | the host device: RAM and the CPU |
//! | [`gpu`] | the GPU device: kernels on the streams of a driver |
//! | [`memory`] | how much memory all this holds, by what it is for |
mod assignment;
mod cache;
mod capture;
mod device;
pub mod dnn;
mod error;
pub mod gpu;
pub mod host;
mod ledger;
pub mod memory;
mod program;
mod recorded;
mod thread_id;

pub use cache::Lru;
pub use capture::{Capture, Captured};
pub use device::{Device, Loaded, Observer, Order, Prepared, Run, RunBy, TunedStep};
pub use error::ExecError;
pub use hip::ErrorKind;
pub use host_ops::{Parallel, Pool, Serial};
pub use kernels::Peak;
pub use ledger::Ledger;
pub use program::{Input, Planned, Program, Settings, Watcher};
pub use thread_id::ThreadId;
