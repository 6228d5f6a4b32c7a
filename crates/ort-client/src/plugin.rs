//! Plugin libraries and their devices.

use std::ffi::CString;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ort_ep_sys::{self as sys, OrtEpDevice};

use crate::error::check;
use crate::text::{c_string, os_path, pairs, pointers, text};
use crate::{Environment, Error, Result};

/// A registered plugin library. It is unregistered when the last clone, device, allocator and session of it are gone.
#[derive(Clone, Debug)]
pub struct Registration(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    environment: Environment,
    name: CString,
    /// Whether the library is ours to unregister.
    owned: bool,
}

impl Registration {
    /// Registers the library at `path` under `name`. ONNX Runtime resolves a relative path from its own folder.
    ///
    /// # Errors
    /// When ONNX Runtime or the library rejects it, for example because the name is taken.
    pub fn new(environment: &Environment, name: &str, path: &Path) -> Result<Registration> {
        let (api, name, path) = (environment.api(), c_string(name)?, os_path(path)?);
        // SAFETY: the environment is alive; the strings are valid during the call and copied.
        check(api, unsafe {
            api.RegisterExecutionProviderLibrary(environment.as_ptr(), name.as_ptr(), path.as_ptr())
        })?;
        Ok(Registration(Arc::new(Inner { environment: environment.clone(), name, owned: true })))
    }

    /// A library that other code of this process has registered, found by the name of its provider; `None` if there is
    /// no device of it. It stays registered when the result is dropped.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    ///
    /// # Safety
    /// The other code keeps the library registered for as long as anything made from the result lives.
    pub unsafe fn adopt(environment: &Environment, name: &str) -> Result<Option<Registration>> {
        let inner = Inner { environment: environment.clone(), name: c_string(name)?, owned: false };
        let registration = Registration(Arc::new(inner));
        Ok((!registration.devices()?.is_empty()).then_some(registration))
    }

    /// The devices that the library offers under the name of the registration.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let (environment, api) = (&self.0.environment, self.0.environment.api());
        let (mut all, mut count) = (ptr::null(), 0);
        // SAFETY: both out-pointers are valid; the array belongs to the environment until the next registration, and is
        // only read here.
        let all = unsafe {
            check(api, api.GetEpDevices(environment.as_ptr(), &mut all, &mut count))?;
            pointers(all, count)
        };
        let raws = all.iter().filter_map(|&raw| NonNull::new(raw.cast_mut()));
        // SAFETY: ONNX Runtime has just listed the device, which lives as long as its registration.
        let devices = raws.filter_map(|raw| unsafe { Device::read(self, raw) });
        Ok(devices.collect())
    }

    /// The environment in which the library is registered.
    pub fn environment(&self) -> &Environment {
        &self.0.environment
    }

    /// Unregisters the library now, and reports whether that worked.
    ///
    /// # Errors
    /// When it is still in use, or ONNX Runtime or the library fails.
    pub fn unregister(self) -> Result<()> {
        let name = || self.0.name.to_string_lossy().into_owned();
        if Arc::strong_count(&self.0) > 1 {
            return Err(Error::InUse(name()));
        }
        let mut inner = Arc::into_inner(self.0).ok_or(Error::Nothing("registration"))?;
        inner.owned = false;
        inner.unregister()
    }
}

impl Inner {
    fn unregister(&self) -> Result<()> {
        let api = self.environment.api();
        // SAFETY: the environment is alive; devices and sessions hold the registration, so none is left.
        check(api, unsafe { api.UnregisterExecutionProviderLibrary(self.environment.as_ptr(), self.name.as_ptr()) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned
            && let Err(error) = self.unregister()
        {
            tracing::warn!(%error, name = %self.name.to_string_lossy(), "a library could not be unregistered");
        }
    }
}

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum HardwareKind {
    Cpu,
    Gpu,
    Npu,
}

/// What ONNX Runtime knows about the hardware of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// The kind; `None` for one that this crate does not know.
    pub kind: Option<HardwareKind>,
    /// The vendor's PCI id.
    pub vendor_id: u32,
    /// The vendor's id of the model.
    pub device_id: u32,
}

/// A device of a registered library.
#[derive(Clone, Debug)]
pub struct Device {
    raw: NonNull<OrtEpDevice>,
    hardware: Hardware,
    metadata: Vec<(String, String)>,
    registration: Registration,
}

// SAFETY: ONNX Runtime never changes a device after listing it.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// # Safety
    /// `raw` is a device that lives as long as its registration.
    unsafe fn read(registration: &Registration, raw: NonNull<OrtEpDevice>) -> Option<Device> {
        let (api, device) = (registration.0.environment.api(), raw.as_ptr().cast_const());
        // SAFETY: the caller guarantees the device; its hardware, name and metadata belong to it.
        let (name, metadata, hardware) = unsafe {
            let hardware = api.EpDevice_Device(device);
            let kind = match api.HardwareDevice_Type(hardware) {
                sys::ORT_HARDWARE_CPU => Some(HardwareKind::Cpu),
                sys::ORT_HARDWARE_GPU => Some(HardwareKind::Gpu),
                sys::ORT_HARDWARE_NPU => Some(HardwareKind::Npu),
                _ => None,
            };
            let (vendor_id, device_id) = (api.HardwareDevice_VendorId(hardware), api.HardwareDevice_DeviceId(hardware));
            let metadata = pairs(api, api.EpDevice_EpMetadata(device));
            (text(api.EpDevice_EpName(device)), metadata, Hardware { kind, vendor_id, device_id })
        };
        let is_ours = name.as_bytes() == registration.0.name.as_bytes();
        is_ours.then(|| Device { raw, hardware, metadata, registration: registration.clone() })
    }

    /// The hardware.
    pub fn hardware(&self) -> Hardware {
        self.hardware
    }

    /// The provider's metadata for the device, and the `library_path` that ONNX Runtime adds.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// The metadata under a key, such as `arch`.
    pub fn fact(&self, key: &str) -> Option<&str> {
        self.metadata.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The library that offers the device.
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    pub(crate) fn as_ptr(&self) -> *const OrtEpDevice {
        self.raw.as_ptr()
    }
}
