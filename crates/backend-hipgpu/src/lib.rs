//! The hipgpu backend: AMD's external HIP execution provider (`libhipgpu.so`, `hipgpu.dll`), passed through unchanged.
//!
//! The provider is looked for where `AMDGPU_EP_HIPGPU_LIBRARY` says, else beside this library, else on the loader's path.
//! It is loaded with the first session that asks for `profile=hipgpu`, and its own options (`ep.hipgpu.*`) reach it as they
//! are.
#![deny(unsafe_code)]

ort_ep::passthrough!("hipgpu", "AMDGPU_EP_HIPGPU_LIBRARY");
