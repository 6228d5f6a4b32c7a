//! The hipgpu backend: a pass-through to AMD's external HIP execution provider (`libhipgpu.so`, `hipgpu.dll`).
//!
//! The provider is the library named by `AMDGPU_EP_HIPGPU_LIBRARY`, or else one next to this library, or else one on
//! the loader's path. The first session with `profile=hipgpu` loads it. Its own options (`ep.hipgpu.*`) are passed on
//! unchanged.
#![deny(unsafe_code)]

ort_ep::passthrough!("hipgpu", "AMDGPU_EP_HIPGPU_LIBRARY");
