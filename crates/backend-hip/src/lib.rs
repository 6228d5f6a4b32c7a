//! The hip backend: the graph engine as an ONNX Runtime plugin.
//!
//! Life of a session: `claim` offers every node to the engine and groups the supported ones into partitions. `import`
//! turns a partition into a `graph::Graph`. `partition` plans it for the shapes of a run and executes it. `runs` orders
//! a run relative to other work. If graph capture is enabled, `capture` records a run and replays it.
//!
//! With the host driver, the device is the CPU: tensors are read and written in place, and work that does not have to
//! wait for its stream runs on ONNX Runtime's thread pool. With the other drivers, the device is a GPU (`gpu`).
#![deny(unsafe_code)]

mod ahead;
mod capture;
mod claim;
mod control_flow;
mod convert;
mod cpu_provider;
mod ep;
mod explain;
mod external;
mod factory;
#[allow(unsafe_code)]
mod ffi;
mod gpu;
mod hipdnn;
mod import;
mod memory;
mod padded;
mod partition;
mod profile;
mod progress;
mod record;
mod runs;
mod saved;
mod status;
mod steps;
mod timed;
mod tuning;

#[cfg(feature = "fuzz")]
pub use saved::fuzz;

ort_ep::plugin!(factory::create, quiet_log_variable = "AMDGPU_EP_LOG");
