//! The directx backend: a DirectX execution provider for Windows, passed through unchanged.
//!
//! The provider is a plugin library: the one that `AMDGPU_EP_DIRECTX_LIBRARY` names (AMD's own `directx-backend.dll`, for
//! one), else `directml-ep.dll` beside this library, else on the loader's path. Elsewhere than on Windows there is none, and
//! this library only says so.
#![deny(unsafe_code)]

#[cfg(windows)]
ort_ep::passthrough!("directml-ep", "AMDGPU_EP_DIRECTX_LIBRARY");

#[cfg(not(windows))]
mod elsewhere {
    use ort_ep::{Error, Factory, Registration, Result};

    ort_ep::plugin!(create, quiet_log_variable = "AMDGPU_EP_LOG");

    fn create(_: Registration<'_>) -> Result<Box<dyn Factory>> {
        Err(Error::not_implemented("DirectX exists on Windows only\n  help: use profile=auto, migraphx or hip"))
    }
}
