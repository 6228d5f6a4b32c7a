//! The migraphx backend: AMD's MIGraphX, loaded at run time, as a plugin of ONNX Runtime.
//!
//! A session's way: `claim` groups the nodes that MIGraphX takes into partitions; `onnx` writes a partition as an ONNX
//! model; `toolchain` compiles it, or finds the program in the `cache`; `partition` runs it, padded to the shapes it was
//! compiled for. [`mgx`] is the library itself: its C functions, and the owned handles over them.
//!
//! With the `ref` target, MIGraphX's interpreter on the CPU, all of this runs without a GPU.
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
