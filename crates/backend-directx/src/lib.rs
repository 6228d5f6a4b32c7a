//! The directx backend: a pass-through to a DirectX execution provider on Windows.
//!
//! The provider is a plugin library: the one named by `AMDGPU_EP_DIRECTX_LIBRARY` (for example AMD's own
//! `directx-backend.dll`), or else `directml-ep.dll` next to this library, or else on the loader's path. On other
//! systems there is no provider, and registering this library fails with an error that says so.
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
