//! The environment, the provider registered in it, and its devices.

use std::ffi::CString;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use anyhow::{Context, Result};
use ort_ep_sys::{ORT_LOGGING_LEVEL_FATAL, OrtEnv, OrtEpDevice, OrtKeyValuePairs};

use super::{Runtime, os_path, pointers, text};

/// ONNX Runtime's environment.
pub struct Environment {
    pub(super) runtime: Rc<Runtime>,
    pub(super) raw: NonNull<OrtEnv>,
}

impl Environment {
    /// Creates the environment. It logs only fatal errors; all others are returned as results.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn new(runtime: Rc<Runtime>) -> Result<Rc<Self>> {
        let mut raw = ptr::null_mut();
        // SAFETY: both pointers are valid for the call; the name is copied.
        let status = unsafe { runtime.api.CreateEnv(ORT_LOGGING_LEVEL_FATAL, c"amdgpu-ep".as_ptr(), &mut raw) };
        runtime.check(status)?;
        let raw = NonNull::new(raw).context("ONNX Runtime gave no environment")?;
        Ok(Rc::new(Self { runtime, raw }))
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: everything created from the environment holds it, so nothing that uses it is left.
        unsafe { self.runtime.api.ReleaseEnv(self.raw.as_ptr()) }
    }
}

/// A registered provider library; unregistered once its last device and session are dropped.
pub struct Provider {
    pub(super) environment: Rc<Environment>,
    name: CString,
}

impl Provider {
    /// Registers the library at `path` under `name`.
    ///
    /// # Errors
    /// When ONNX Runtime or the library rejects it.
    pub fn register(environment: &Rc<Environment>, name: &str, path: &Path) -> Result<Rc<Self>> {
        let (name, file) = (CString::new(name)?, os_path(path)?);
        let (runtime, raw) = (&environment.runtime, environment.raw.as_ptr());
        // All options of these commands come from the command line, which is trusted.
        let status = textgen::with_trusted_options(path, || {
            // SAFETY: the environment is alive; the strings are valid during the call and copied.
            unsafe { runtime.api.RegisterExecutionProviderLibrary(raw, name.as_ptr(), file.as_ptr()) }
        });
        runtime.check(status).with_context(|| format!("{} could not be registered", path.display()))?;
        Ok(Rc::new(Self { environment: Rc::clone(environment), name }))
    }

    /// The devices that the library offers.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn devices(self: &Rc<Self>) -> Result<Vec<Device>> {
        let runtime = &self.environment.runtime;
        let (mut all, mut count) = (ptr::null(), 0);
        // SAFETY: both out-pointers are valid; the array belongs to the environment until the next registration, and is
        // only read here.
        let all = unsafe {
            runtime.check(runtime.api.GetEpDevices(self.environment.raw.as_ptr(), &mut all, &mut count))?;
            pointers(all, count)
        };
        let mut devices = Vec::new();
        for &raw in all {
            // SAFETY: ONNX Runtime has just listed the device, which lives as long as its registration.
            let (name, metadata) = unsafe {
                (text(runtime.api.EpDevice_EpName(raw)), pairs(runtime, runtime.api.EpDevice_EpMetadata(raw)))
            };
            if let (true, Some(raw)) = (name.as_bytes() == self.name.as_bytes(), NonNull::new(raw.cast_mut())) {
                devices.push(Device { raw, metadata, provider: Rc::clone(self) });
            }
        }
        Ok(devices)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let runtime = &self.environment.runtime;
        // SAFETY: the environment is alive; devices and sessions hold the provider, so none is left.
        let status = unsafe {
            runtime.api.UnregisterExecutionProviderLibrary(self.environment.raw.as_ptr(), self.name.as_ptr())
        };
        // The process is about to end; nothing can be done about a library that stays registered.
        let _ = runtime.check(status);
    }
}

/// A device of the provider.
#[derive(Clone)]
pub struct Device {
    pub(super) raw: NonNull<OrtEpDevice>,
    metadata: Vec<(String, String)>,
    pub(super) provider: Rc<Provider>,
}

impl Device {
    /// The provider's metadata for the device under a key, such as `arch`.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// # Safety
/// `raw` is null or lives for the call.
unsafe fn pairs(runtime: &Runtime, raw: *const OrtKeyValuePairs) -> Vec<(String, String)> {
    let (mut keys, mut values, mut count) = (ptr::null(), ptr::null(), 0);
    if raw.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller guarantees `raw`; the arrays belong to it and hold `count` strings each.
    unsafe {
        runtime.api.GetKeyValuePairs(raw, &mut keys, &mut values, &mut count);
        (0..count).map(|index| (text(*keys.add(index)), text(*values.add(index)))).collect()
    }
}
