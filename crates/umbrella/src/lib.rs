//! `AMDGPUExecutionProvider`: one execution provider for AMD GPUs in stock ONNX Runtime.
//!
//! The umbrella owns what belongs to a *device*, whichever backend computes on it: discovery (`discovery`), memory
//! (`memory`, cached in an [`arena`], known by address in `ownership`), copies (`transfer`) and streams (`stream`).
//! The crate `options` reads what the user wants of a session, [`routing`] orders the backends that could do it, and `backends`
//! loads them and hands the session to the first that takes it. Where none does, all nodes stay with other providers.
//!
//! | environment | meaning |
//! |---|---|
//! | `AMDGPU_EP_DRIVER` | `auto` (AMD GPUs only, the default), `amd`, `nvidia` (the CUDA twin), `host` (RAM and CPU) |
//! | `AMDGPU_EP_FORCE_ARCH`, `ORT_AMDGPU_TRACE_ROUTING` | see [`session_route`] |
//! | `AMDGPU_EP_BACKEND_PATH` | folders to look for backend libraries in, after this library's own |
//! | `AMDGPU_EP_TRUST_OPTIONS` | on: session options may load libraries and name files, see `trust` |
//! | `AMDGPU_EP_LOG` | `error` … `trace`: what ONNX Runtime's logger would drop goes to stderr |
//! | `AMDGPU_EP_LOG_FILE` | a file that gets the log instead, at its end; `info` where no level is given |
#![deny(unsafe_code)]

pub mod arena;
mod backends;
mod context;
mod copy_plan;
mod discovery;
mod ep;
mod factory;
#[allow(unsafe_code)]
mod ffi;
mod memory;
mod ownership;
pub mod routing;
mod selection;
pub mod session_route;
mod status;
mod stream;
mod transfer;
mod trust;
mod variables;

ort_ep::plugin!(factory::create, log_variable = "AMDGPU_EP_LOG");

/// AMD's PCI vendor id: what our memory goes by, on every driver.
const AMD_VENDOR_ID: u32 = 0x1002;
