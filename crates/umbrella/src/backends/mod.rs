//! Backend libraries: plugins that run a session.
//!
//! A library is loaded when a session first needs it, once per registration. Sessions, allocators and the registration
//! each hold a reference, and the last of them unloads it. A failure is not remembered: the library may be there the
//! next time.
mod choice;
pub(crate) mod compatibility;
pub(crate) mod last;
mod relay;
pub(crate) mod search;
mod turn;

use std::collections::BTreeMap;
use std::env;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use choice::{Chosen, Session};
use ort_ep::view::HardwareDevice;
use ort_ep::{BackendMemory, CustomOpDomain, Error, ForeignFactory, Mapping, ModelCompatibility, PluginHost, Result};

use self::compatibility::Info;
use crate::routing::BackendName;

/// A backend's factory, once it is loaded. Locked while it is being loaded, so that it is loaded once.
type Slot = Arc<Mutex<Option<Arc<ForeignFactory>>>>;

/// The backends of one registration.
pub(crate) struct Backends {
    host: PluginHost,
    slots: Mutex<BTreeMap<BackendName, Slot>>,
}

impl Backends {
    pub fn new(host: PluginHost) -> Self {
        Self { host, slots: Mutex::default() }
    }

    /// The factory of a backend.
    ///
    /// # Errors
    /// The backend's library cannot be loaded, or is not a plugin.
    pub fn get(&self, backend: &BackendName) -> Result<Arc<ForeignFactory>> {
        let slot = self.slots().entry(backend.clone()).or_default().clone();
        let mut slot = locked(&slot);
        if let Some(loaded) = &*slot {
            return Ok(loaded.clone());
        }
        let loaded = self.load(backend)?;
        *slot = Some(loaded.clone());
        Ok(loaded)
    }

    /// The loaded factories, by name of the backend.
    pub fn loaded(&self) -> Vec<(BackendName, Arc<ForeignFactory>)> {
        let slots: Vec<_> = self.slots().iter().map(|(name, slot)| (name.clone(), slot.clone())).collect();
        slots.into_iter().filter_map(|(name, slot)| Some((name, locked(&slot).clone()?))).collect()
    }

    /// The custom-op domains of the loaded backends. ONNX Runtime asks for them before a session exists, so no library
    /// is loaded to answer.
    pub fn custom_op_domains(&self) -> Vec<CustomOpDomain> {
        let mut union = Vec::new();
        for (backend, factory) in self.loaded() {
            match factory.custom_op_domains() {
                Ok(domains) => union.extend(domains),
                Err(error) => {
                    tracing::warn!(target: "amdgpu_ep::load", %backend, %error, "could not list its custom operators");
                }
            }
        }
        let mut seen = Vec::new();
        union.retain(|domain| {
            let is_new = !seen.contains(domain);
            seen.push(*domain);
            is_new
        });
        union
    }

    /// Asks the backend that made a compiled model whether it runs here.
    ///
    /// # Errors
    /// The backend reported an error.
    pub fn model_compatibility(&self, devices: &[HardwareDevice<'_>], info: &str) -> Result<ModelCompatibility> {
        let (backend, inner) = match compatibility::read(info) {
            Info::Foreign => return Ok(ModelCompatibility::NotApplicable),
            Info::Unknown => return Ok(ModelCompatibility::Unsupported),
            Info::Of(backend, inner) => (backend, inner),
        };
        let loaded = if let BackendName::Library(_) = &backend {
            // A model must not choose which library is loaded: only libraries that a session asked for are used.
            let mut loaded = self.loaded().into_iter();
            loaded.find(|(name, _)| *name == backend).map(|(_, factory)| factory)
        } else {
            let unusable =
                |error: &Error| tracing::warn!(target: "amdgpu_ep::load", "a compiled model cannot be used: {error}");
            self.get(&backend).inspect_err(unusable).ok()
        };
        loaded.map_or(Ok(ModelCompatibility::Unsupported), |factory| factory.model_compatibility(devices, inner))
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<BackendName, Slot>> {
        locked(&self.slots)
    }

    fn load(&self, backend: &BackendName) -> Result<Arc<ForeignFactory>> {
        let mut tried = Vec::new();
        for file in search::files(backend, PluginHost::own_folder(), env::var_os(search::PATH_VARIABLE)) {
            match self.host.load(&file, mapping(backend)) {
                Ok(factory) => {
                    let api = factory.api_version();
                    tracing::debug!(target: "amdgpu_ep::load", %backend, file = %file.display(), api, "backend loaded");
                    return Ok(factory);
                }
                Err(error) => {
                    let (file, reason) = (file.display().to_string(), error.message());
                    tried.push(if reason.contains(&file) { reason.to_owned() } else { format!("{file}: {reason}") });
                }
            }
        }
        Err(Error::ep_fail(format!(
            "could not load the backend {backend} (tried {})\n  help: {}",
            tried.join("; "),
            search::help(backend)
        )))
    }
}

/// Our own backends load vendor runtimes at run time and never unload them; other backends may link one.
fn mapping(backend: &BackendName) -> Mapping {
    match backend {
        BackendName::Hip | BackendName::MiGraphX => Mapping::Unload,
        BackendName::DirectX | BackendName::HipGpu | BackendName::Library(_) => Mapping::Stay,
    }
}

/// Backends on HIP share the device's memory; DirectX memory is addressed by its own handles; a plugin of the user's
/// choice knows neither, and gets pointers to ours. (In ONNX Runtime 1.24 and 1.26, OpenVINO's plugin answers a request
/// for our memory with its own host memory, which is then treated as the device's.)
fn memory(backend: &BackendName) -> BackendMemory {
    match backend {
        BackendName::DirectX => BackendMemory::Backend,
        BackendName::Hip | BackendName::MiGraphX | BackendName::HipGpu => BackendMemory::Shared,
        BackendName::Library(_) => BackendMemory::Ours,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
