//! The hip backend: the graph engine as a plugin of ONNX Runtime.
//!
//! A session's way: `claim` offers every node to the engine and groups those it takes into partitions; `import` turns a
//! partition into a `graph::Graph`; `partition` plans it for the shapes at hand and runs it; `runs` says in which order
//! with other work, and `capture` records a run and replays it, where ONNX Runtime is asked to.
//!
//! On the host driver the device is the host: tensors are read and written where ONNX Runtime keeps them, and work that
//! need not wait for its stream is spread over ONNX Runtime's own threads. On the others it is a GPU (`gpu`).
#![deny(unsafe_code)]

mod capture;
mod claim;
mod convert;
mod ep;
mod explain;
mod external;
mod factory;
#[allow(unsafe_code)]
mod ffi;
mod gpu;
mod hipdnn;
mod import;
mod json;
mod memory;
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
