//! The FFI boundary: tables of C functions over the safe traits.
//!
//! Each object handed to ONNX Runtime is a `#[repr(C)]` box whose first field is the C table, so the pointer that comes
//! back as `this` leads to our state behind it. Every slot goes through a guard that turns a panic into a status, a
//! default or a logged no-op, and each call logs to the logger of its object.
mod allocator;
mod compute;
mod control_flow;
mod data_transfer;
mod elf;
mod entry;
mod ep;
mod factory;
mod foreign;
mod forward;
mod guard;
mod host_block;
mod kernel;
mod life;
mod log_sink;
pub(crate) mod logging;
mod memory_info;
mod offer;
mod passthrough;
mod profiler;
pub(crate) mod runtime;
mod stream;

pub use allocator::AllocatorHandle;
pub use entry::{CreateFactoriesArgs, create_factories, release_factory};
pub use ep::Claims;
pub use foreign::{CustomOpDomain, ForeignEp, ForeignFactory, Mapping, PluginHost};
pub use host_block::HostBlock;
pub use log_sink::LogVariable;
pub use passthrough::PassThrough;
pub use profiler::ProfilingEventView;
pub use stream::SyncStream;
