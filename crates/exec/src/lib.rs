//! Runs plans on devices.
//!
//! | | |
//! |---|---|
//! | [`Device`] | a device: what it can do beyond the primitives, and loading a partition |
//! | [`CompiledPartition`] | a partition on a device, with its plans so far, one for each set of input shapes |
//! | [`Prepared`] | a plan that is ready; its runs are ordered with other work by an [`Order`] |
//! | [`Ledger`] | outcomes of queued runs |
//! | [`Capture`], [`Captured`] | a run that is recorded once and replayed on the same memory |
//! | [`dnn`] | hipDNN for steps that a vendor's library runs better |
//! | [`host`] | the host device: RAM and the CPU |
//! | [`gpu`] | the GPU device: kernels on the streams of a driver |
//! | [`memory`] | how much memory the engine holds, by purpose |
//!
//! All unsafe code is in the module `ffi`. Two functions of it are public: `run` of a [`Prepared`] plan and
//! [`Capture::begin`]. They stay unsafe because only their callers know how long addresses and streams are valid.
#![deny(unsafe_code)]

mod assignment;
mod cache;
mod capture;
mod compiled_partition;
mod device;
pub mod dnn;
mod error;
#[allow(unsafe_code)]
mod ffi;
pub mod gpu;
pub mod host;
mod ledger;
pub mod memory;
mod policy;
mod recorded;
mod thread_id;

pub use cache::Lru;
pub use capture::{Capture, Captured};
pub use compiled_partition::{CompiledPartition, Input, Planned, Settings, Watcher};
pub use device::{Device, Loaded, Observer, Order, Prepared, Run, RunBy, TunedStep};
pub use error::ExecError;
pub use hip::ErrorKind;
pub use host_ops::{Parallel, Pool, Serial};
pub use kernels::Peak;
pub use ledger::Ledger;
pub use thread_id::ThreadId;
