//! `AMDGPUExecutionProvider`: one execution provider for AMD GPUs in stock ONNX Runtime.
//!
//! The umbrella owns everything that belongs to a *device*, whichever backend computes on it: discovery (`discovery`),
//! memory (`memory`, cached by a [`caching_allocator`], looked up by address in `ownership`), copies (`transfer`) and
//! streams (`stream`). The crate `options` parses the options of a session, [`routing`] ranks the backends, and
//! `backends` loads them and passes the session to the first one that accepts it. If none does, all nodes stay with
//! other providers.
//!
//! | environment | meaning |
//! |---|---|
//! | `AMDGPU_EP_DRIVER` | `auto` (AMD GPUs only, the default), `amd`, `nvidia` (the CUDA twin), `host` (RAM and CPU) |
//! | `AMDGPU_EP_FORCE_ARCH`, `ORT_AMDGPU_TRACE_ROUTING` | see [`session_route`] |
//! | `AMDGPU_EP_BACKEND_PATH` | folders to search for backend libraries, after this library's own |
//! | `AMDGPU_EP_TRUST_OPTIONS` | on: session options may load libraries and name files, see `trust` |
//! | `AMDGPU_EP_LOG` | `error` … `trace`: events that ONNX Runtime's logger would drop go to stderr |
//! | `AMDGPU_EP_LOG_FILE` | a file to append the log to instead; `info` if no level is set |
#![deny(unsafe_code)]

mod backends;
pub mod caching_allocator;
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
pub mod selection;
pub mod session_route;
mod status;
mod stream;
mod transfer;
mod trust;
mod variables;

ort_ep::plugin!(factory::create, log_variable = "AMDGPU_EP_LOG");

/// AMD's PCI vendor id, which identifies our memory on every driver.
const AMD_VENDOR_ID: u32 = 0x1002;
