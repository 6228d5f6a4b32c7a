//! The migraphx backend: AMD's MIGraphX, loaded at run time, as an ONNX Runtime plugin.
//!
//! Life of a session: `claim` groups the nodes that MIGraphX supports into partitions. `onnx` writes a partition as an
//! ONNX model. `toolchain` compiles it, or finds the program in the `cache`. `partition` runs it, padded to the shapes
//! it was compiled for. [`mgx`] wraps the library itself: its C functions, and owned handles for them.
//!
//! With the `ref` target, MIGraphX's CPU interpreter, all of this runs without a GPU.
#![deny(unsafe_code)]

mod cache;
mod calibration;
mod claim;
mod context;
mod ep;
mod factory;
#[allow(unsafe_code)]
pub mod mgx;
mod onnx;
mod options;
mod partition;
mod status;
mod toolchain;

ort_ep::plugin!(factory::create, quiet_log_variable = "AMDGPU_EP_LOG");
